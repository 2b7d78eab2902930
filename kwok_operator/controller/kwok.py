"""Whether a kwok controller is alive, and where it serves the kubelet API of its nodes.

A node that is Ready in its first write is there four times sooner than one that kwok initialises,
but it must carry what kwok would have filled in: addresses and port, on which `kubectl logs` and
`exec` depend. These are learned from a node that kwok did initialise:

    a first node, posted without Ready (the *scout*) ──> kwok fills it in ──> endpoint learned
    the next ones ──> Ready in the first write, with that endpoint, as long as kwok is alive

Alive means: the Lease of a node of ours was renewed within its duration, or a scout was answered a
moment ago. The holder of the Lease tells which kwok it is; where it changes, the endpoint is
learned anew. With no kwok, nodes are posted without Ready, and kwok takes them over when it comes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from kwok_operator.core.template import KubeletEndpoint
from kwok_operator.errors import NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import LEASES, LeaseView

logger = logging.getLogger(__name__)

LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SCOUT_ANSWER_WITHIN = 5.0
SCOUT_AGAIN_AFTER = 15.0
TRUSTED_FOR = 5.0
"""Seconds for which a look at a Lease is good."""
_LEASES_TRIED = 3

SILENT = (
    "No kwok controller keeps the nodes: {why}. Nodes stay NotReady until one runs that manages "
    "nodes with the annotation kwok.x-k8s.io/node=fake."
)


class KwokLink:
    """What is known about kwok. `clock` gives monotonic seconds, `wall` the time of day."""

    def __init__(
        self,
        *,
        client: KubeClient,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._clock = clock
        self._wall = wall
        self._endpoint: KubeletEndpoint | None = None
        self._holder: str | None = None
        self._trusted_until = 0.0
        self.scouting = asyncio.Lock()
        """Held while a scout is out: the first nodes of several groups need only one."""
        self._scout: tuple[str, asyncio.Future[None]] | None = None
        self._next_scout = 0.0
        self.silent: str | None = None
        """Why kwok seems to be missing, in a sentence; None while it is alive or unknown."""

    async def endpoint(self, nodes: Iterable[str]) -> KubeletEndpoint | None:
        """What to write into a node that is to be born Ready; None if it may not be.

        `nodes` are Ready nodes of ours, by whose Leases kwok is judged.
        """
        await self.look(nodes)
        return self._endpoint if self._clock() < self._trusted_until else None

    def wants_scout(self) -> bool:
        """Whether it is worth the wait to send a scout."""
        return self._clock() >= self._next_scout

    async def look(self, nodes: Iterable[str]) -> None:
        """Looks at Leases, unless that was done a moment ago."""
        if self._clock() < self._trusted_until:
            return
        for tried, node in enumerate(nodes):
            if tried == _LEASES_TRIED:
                break
            lease = await self._lease(node)
            if lease is not None and lease.renew_time is not None:
                self._judge(lease)
                return

    async def scout(self, name: str, post: Callable[[], Awaitable[bool]]) -> None:
        """Has the node `name` posted, and waits until kwok initialises it or does not seem to."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scout = (name, answered)
        try:
            if await post():
                await asyncio.wait_for(answered, SCOUT_ANSWER_WITHIN)
        except TimeoutError:
            self._next_scout = self._clock() + SCOUT_AGAIN_AFTER
            self._set_silent(f"the node {name} was not initialised in {SCOUT_ANSWER_WITHIN:g} s")
        finally:
            self._scout = None

    def initialised(self, name: str, endpoint: KubeletEndpoint, *, first_sight: bool) -> None:
        """A node is Ready and has this endpoint; see NodeCache."""
        is_scout = self._scout is not None and self._scout[0] == name
        if first_sight and not is_scout:
            return
        if endpoint != self._endpoint:
            logger.info("kubelet endpoint learned: node=%s port=%d", name, endpoint.port)
        self._endpoint = endpoint
        self._holder = None
        self._trust()
        if is_scout and self._scout is not None and not self._scout[1].done():
            self._scout[1].set_result(None)

    def _judge(self, lease: LeaseView) -> None:
        renewed = lease.renew_time or datetime.fromtimestamp(0, UTC)
        age = (self._wall() - renewed).total_seconds()
        if age > lease.duration_seconds:
            self._set_silent(f"the Lease of {lease.name} was last renewed {age:.0f} s ago")
            return
        if self._holder is not None and self._holder != lease.holder:
            logger.info("kwok controller changed: holder=%s before=%s", lease.holder, self._holder)
            self._endpoint = None
            self._next_scout = 0.0
        self._holder = lease.holder
        self._trust()

    def _trust(self) -> None:
        self._trusted_until = self._clock() + TRUSTED_FOR
        if self.silent is not None:
            logger.info("kwok controller is back")
            self.silent = None
            self._next_scout = 0.0

    def _set_silent(self, why: str) -> None:
        if self.silent is None:
            logger.warning("kwok controller does not answer: %s", why)
        self.silent = SILENT.format(why=why)

    async def _lease(self, node: str) -> LeaseView | None:
        try:
            return LEASES.one(await self._client.request("GET", f"{LEASES_PATH}/{node}", retries=2))
        except NotFoundError:
            return None
