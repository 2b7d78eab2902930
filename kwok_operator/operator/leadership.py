"""Takes, renews and releases the Lease, so that only one of several replicas works.

    Elector ──GET, PUT──> Lease          operator/election.py says what may be done, and when
       └──> Fence ──(called by all clients but the Lease's own)──> writes pass, or don't

A standby reads the Lease twice a second, so it soon sees a release. The leader renews it in time;
if it can't, the *fence* begins to refuse all writes before the Lease ends. As each write calls the
fence when it is sent, this also holds for a process that was frozen meanwhile. A fence that was
shut stays shut: the process ends then, and restarts as a standby.

An update has the resourceVersion that was read, so of two replicas one is refused (409).
"""

import asyncio
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kwok_operator.errors import ConflictError, KwokOperatorError, NotFoundError, NotLeadingError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import decode_dict
from kwok_operator.operator.election import API_VERSION, Candidate, Lease, LeaseTerms

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.5
"""Seconds between two readings of the Lease by a standby. client-go waits the retry period, or up
to 2.4 s."""
RELEASE_WITHIN: Final = 2.0


class LeadershipLostError(KwokOperatorError):
    """The Lease could not be renewed in time, or another replica holds it."""


def elapsed() -> float:
    """Returns seconds of a clock that also counts while the machine is suspended."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def make_identity(environ: Mapping[str, str] = os.environ) -> str:
    """Returns an identity: the pod's or the host's name, and random characters of this run."""
    return f"{environ.get('POD_NAME') or socket.gethostname()}_{secrets.token_hex(8)}"


class Fence:
    """Lets writes pass until a deadline on `clock`, which can be postponed as long as it has not
    come."""

    def __init__(self, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self._until: float | None = None
        self._shut = False

    @property
    def is_open(self) -> bool:
        """Whether a write would pass now."""
        return self._until is not None and not self.is_shut

    @property
    def is_shut(self) -> bool:
        """Whether all writes are refused for ever."""
        late = self._until is not None and self._clock() >= self._until
        return self._shut or late

    def open_until(self, until: float) -> None:
        """Lets writes pass until `until`. Raises LeadershipLostError if the fence was shut
        already."""
        if self.is_shut:
            raise LeadershipLostError("lost the Lease: its renewal took too long")
        self._until = until

    def shut(self) -> None:
        """Refuses all writes from now on."""
        self._shut = True

    def check(self, method: str, path: str) -> None:
        """Raises NotLeadingError unless a write may pass; KubeClient calls this."""
        if not self.is_open:
            raise NotLeadingError(f"requesting {method} {path}: only the leader may write")


class Elector:
    """Takes the Lease, renews it, and releases it. `fence` refuses the writes of a replica that
    doesn't lead; `client` must be one whose requests the fence doesn't check.

    `identity` is that of this replica, which no other has; `wall` returns the time of day.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        terms: LeaseTerms,
        fence: Fence,
        clock: Callable[[], float] = elapsed,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._terms = terms
        self._fence = fence
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._candidate = Candidate(identity, terms)
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}/leases"
        self._logged = ""
        self._trouble = ""

    @property
    def lease(self) -> tuple[str, str]:
        """Namespace and name of the Lease."""
        return self._namespace, self._name

    @property
    def leading(self) -> bool:
        """Whether this replica may write."""
        return self._fence.is_open

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last seen; "" if nobody held it."""
        return self._candidate.holder

    async def acquire(self) -> None:
        """Waits until this replica leads. Start `keep` immediately afterwards."""
        while not await self._attempt(self._take(), within=self._terms.renew_deadline / 2):
            await self._sleep(self._pause())
        logger.info("leading: lease=%s identity=%s", self._in_words, self._candidate.identity)

    async def keep(self) -> None:
        """Renews the Lease until that fails for too long; then shuts the fence and raises
        LeadershipLostError."""
        begun = self._clock()
        try:
            while True:
                until = self._candidate.leads_until
                due = begun + self._terms.retry_period
                await self._sleep(max(0.0, min(due, until) - self._clock()))
                begun = self._clock()
                if begun >= until:
                    why = f" ({self._trouble})" if self._trouble else ""
                    seconds = f"{self._terms.renew_deadline:g} s"
                    raise LeadershipLostError(
                        f"lost the Lease {self._in_words}: not renewed for {seconds}{why}"
                    )
                within = min(self._terms.renew_deadline / 2, until - begun)
                await self._attempt(self._renew(), within=within)
        except LeadershipLostError:
            self._fence.shut()
            raise

    async def release(self) -> None:
        """Releases the Lease if it is held. Afterwards this replica may write nothing."""
        held = self._fence.is_open
        self._fence.shut()
        if not held:
            return
        try:
            async with asyncio.timeout(RELEASE_WITHIN):
                await self._let_go()
        except (KwokOperatorError, TimeoutError) as error:
            logger.warning("the Lease was not released: lease=%s error=%s", self._in_words, error)
        else:
            logger.info("released: lease=%s", self._in_words)

    async def _attempt(self, step: Awaitable[bool], *, within: float) -> bool:
        """Awaits `step`, one try to take or renew the Lease, for at most `within` seconds. Returns
        its result; False after an error. Logs the first of several errors, and the end of them."""
        try:
            async with asyncio.timeout(within):
                done = await step
        except ConflictError:
            return False  # another replica was faster: the next reading shows which
        except LeadershipLostError:
            raise
        except (KwokOperatorError, TimeoutError) as error:
            trouble = str(error) or f"no answer within {within:.1f} s"
            if not self._trouble:
                logger.warning(
                    "the Lease is out of reach: lease=%s error=%s",
                    self._in_words,
                    trouble,
                    extra={"trouble": "lease"},
                )
            self._trouble = trouble
            return False
        if self._trouble:
            logger.info(
                "the Lease is within reach again: lease=%s",
                self._in_words,
                extra={"over": "lease"},
            )
            self._trouble = ""
        return done

    async def _take(self) -> bool:
        await self._read_lease()
        if self._candidate.wait(self._clock()) > 0:
            if self._logged != self.holder:
                self._logged = self.holder
                logger.info("standby: lease=%s leader=%s", self._in_words, self.holder)
            return False
        await self._claim()
        return True

    async def _renew(self) -> bool:
        try:
            await self._claim()
        except (ConflictError, NotFoundError):
            # The answer to an earlier renewal was lost, or somebody has changed, deleted or taken
            # the Lease.
            await self._read_lease()
            if self.holder != self._candidate.identity:
                holder = self.holder or "nobody: it was released by somebody else"
                raise LeadershipLostError(
                    f"lost the Lease {self._in_words}: it is held by {holder}"
                ) from None
            await self._claim()
        return True

    async def _claim(self) -> None:
        sent_at = self._clock()
        stored = await self._write(self._candidate.claim(wall=self._micro_time()))
        self._candidate.won(stored, sent_at=sent_at)
        self._fence.open_until(self._candidate.leads_until)

    async def _let_go(self) -> None:
        try:
            await self._write(self._candidate.release(wall=self._micro_time()))
        except ConflictError:
            await self._read_lease()  # a renewal was under way
            if self.holder == self._candidate.identity:
                await self._write(self._candidate.release(wall=self._micro_time()))

    async def _read_lease(self) -> None:
        try:
            body = await self._client.request("GET", f"{self._path}/{self._name}")
        except NotFoundError:
            self._candidate.see(None, now=self._clock())
        else:
            self._candidate.see(Lease.of(decode_dict(body)), now=self._clock())

    async def _write(self, lease: Lease) -> Lease:
        """Writes the Lease if it hasn't changed meanwhile; raises ConflictError otherwise."""
        exists = "resourceVersion" in lease.metadata
        place = {"name": self._name, "namespace": self._namespace}
        body: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": {**lease.metadata, **place},
            "spec": lease.spec,
        }
        method, path = ("PUT", f"{self._path}/{self._name}") if exists else ("POST", self._path)
        return Lease.of(decode_dict(await self._client.request(method, path, body=body)))

    def _pause(self) -> float:
        """Returns the seconds until the Lease is next read, and taken if it may be."""
        if self._trouble:
            return self._terms.retry_period
        wait = self._candidate.wait(self._clock())
        return min(LOOK_EVERY, wait) if wait > 0 else LOOK_EVERY / 5

    @property
    def _in_words(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _micro_time(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
