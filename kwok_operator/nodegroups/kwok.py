"""Finds out whether a kwok controller is alive, and where it serves the kubelet API of its nodes.

A node that is Ready when it is created is usable four times sooner than one that kwok initialises,
but it must carry what kwok would have filled in, as `kubectl logs` and `exec` depend on it:

    a first node, posted without Ready (the *scout*) ──> kwok fills it in ──> endpoint learned
    the next ones ──> created Ready, with that endpoint, as long as kwok is alive

Only a scout's endpoint is used: other nodes may have that of a kwok that is gone. If a node's
endpoint differs, or a Lease gets another holder, a new scout is sent. Alive means: within the last
three quarters of a Lease's duration kwok initialised a scout, or renewed a Lease of our nodes.
Times in Leases are not compared with ours, as clocks of two machines differ. Without kwok, nodes
are posted without Ready.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from kwok_operator.errors import NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import LEASES, LeaseView
from kwok_operator.nodegroups.template import KubeletEndpoint

logger = logging.getLogger(__name__)

LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SCOUT_ANSWER_WITHIN = 5.0
SCOUT_AGAIN_AFTER = 15.0
TRUSTED_FOR = 5.0
"""Seconds after a sign of life (a scout initialised, a Lease renewed) for which kwok counts as
alive and no Lease is read."""
LOOK_EVERY: Final = 1.0
"""The least seconds between two readings of Leases while kwok gives no sign of life, for all groups
together."""
LOOK_WITHIN: Final = 5.0
"""The most seconds that groups wait until Leases are read."""
GOOD_FOR: Final = 0.75
"""kwok counts as dead when no Lease was renewed for this share of a Lease's duration: it has missed
two renewals."""
FIRST_LEASE_WITHIN = 15.0
"""Seconds that kwok has to take the Lease of a group's first node; after thousands of new nodes it
takes long."""

KWOK_MISSING = (
    "No kwok controller keeps the nodes: {why}. Nodes stay NotReady until one runs that manages "
    "nodes with the annotation kwok.x-k8s.io/node=fake."
)


class KwokLink:
    """Knows whether kwok is alive, and its endpoint.

    `clock` returns monotonic seconds. `born_ready(group)` says whether the group's nodes may be
    created Ready. The endpoint is not learned from nodes for which it returns False: Stages that
    users wrote may put any address into those.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        clock: Callable[[], float],
        born_ready: Callable[[str], bool] = lambda group: True,
    ) -> None:
        self._client = client
        self._clock = clock
        self._born_ready = born_ready
        self._endpoint: KubeletEndpoint | None = None
        self._doubted: set[KubeletEndpoint] = set()
        """Endpoints of other nodes that differ from the scout's. Each makes the operator send one
        scout."""
        self._endpoint_scout: str | None = None
        """The scout whose Lease will show which kwok has the endpoint (its holder); None once the
        Lease is read."""
        self._holder: str | None = None
        self._trusted_until = float("-inf")
        self.scouting = asyncio.Lock()
        """Held while a scout is under way: one scout is enough for the first nodes of several
        groups."""
        self._scouts: dict[str, asyncio.Future[None]] = {}
        """Scouts that kwok has not initialised: the current one, and those that timed out. Each
        future ends when kwok initialises its scout."""
        self._next_scout = float("-inf")
        self._witnesses: Sequence[str] = ()
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._followed: LeaseView | None = None
        """The Lease that is read again and again until it changes, a sign of life.
        `_followed_since` is when it was first read in this state."""
        self._followed_since = float("-inf")
        self._unrenewed_seconds = 0.0
        """Seconds for which no followed Lease has changed, added up if another Lease is followed
        instead."""
        self._oldest_unleased: str | None = None
        """If kwok is behind with Leases: the oldest node whose Lease it had not taken yet."""
        self._read_at = float("-inf")
        """A time just before the followed Lease and that of `_oldest_unleased` were last read."""
        self._alive_at = float("-inf")
        """The last time at which kwok was certainly alive."""
        self._leaseless_since: float | None = None
        self.problem: str | None = None
        """A sentence for users why kwok seems to be missing; None while it is alive or this is
        unknown."""
        self._problem_by_lease = False

    async def endpoint(self, nodes: Iterable[str]) -> KubeletEndpoint | None:
        """Returns the kubelet endpoint to write into new nodes, which are then created Ready. None
        if kwok isn't known to be alive, or its endpoint is unknown.

        `nodes` are the group's Ready nodes, oldest first; their Leases show whether kwok is alive.
        If there are none, the nodes of the previous call are used.
        """
        await self.look(tuple(nodes) or self._witnesses)
        return self._endpoint if self.alive else None

    @property
    def alive(self) -> bool:
        """Whether kwok gave a sign of life in the last seconds. No request is made here; `look`
        reads the Leases."""
        return self._clock() < self._trusted_until

    def wants_scout(self) -> bool:
        """Whether a scout (a node that is created without Ready, to see whether kwok initialises
        it) may be sent now. After one has failed, none is sent for some seconds."""
        return self._clock() >= self._next_scout

    async def look(self, nodes: Iterable[str]) -> None:
        """Reads Leases of `nodes` to find out whether kwok is alive. Does nothing if kwok is known
        to be alive, or Leases were read a moment ago."""
        if self.alive:
            return
        names = tuple(nodes)
        if not names:
            return
        async with self._looking:
            # Tasks that waited here while another group's Leases were read use that result.
            if self.alive or self._clock() - self._looked_at < LOOK_EVERY:
                return
            self._witnesses = names
            try:
                async with asyncio.timeout(LOOK_WITHIN):
                    await self._find_holder()
                    await self._read_again()
                    newest = await self._newest_lease(names)
            except TimeoutError:
                logger.debug("Leases are not read in time")
                return
            finally:
                self._looked_at = self._clock()
            if newest is None:
                self._judge_leaseless(names[0])
            else:
                self._judge(newest)

    async def scout(self, name: str, post: Callable[[], Awaitable[bool]]) -> None:
        """Calls `post` to create the node `name`, and waits until kwok initialises it or seems
        dead."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scouts[name] = answered
        posted = False
        try:
            async with self._looking:
                await self._read_again()
                asked_at = self._read_at
            posted = await post()
            if posted:
                await asyncio.wait_for(answered, SCOUT_ANSWER_WITHIN)
        except TimeoutError:
            self._next_scout = self._clock() + SCOUT_AGAIN_AFTER
            if not await self._may_live(asked_at, name):
                patience = f"{SCOUT_ANSWER_WITHIN:g} s"
                self._set_problem(f"the node {name} was not initialised in {patience}")
        else:
            await self._find_holder()
        finally:
            if not posted:
                self._scouts.pop(name, None)

    def initialised(
        self, name: str, endpoint: KubeletEndpoint, *, group: str, first_sight: bool
    ) -> None:
        """Called by NodeCache when a node is Ready and has this endpoint. `first_sight`: the cache
        did not know the node before."""
        answered = self._scouts.get(name)
        if answered is not None:
            self._learn(name, endpoint)
            if not answered.done():
                answered.set_result(None)
        elif first_sight:
            return
        elif not self._born_ready(group):
            self._alive_at = self._clock()
            self._trust()
        elif endpoint != self._endpoint and endpoint not in self._doubted:
            logger.info("kubelet endpoint in doubt: node=%s port=%d", name, endpoint.port)
            self._doubted.add(endpoint)
            self._send_scout()

    def _learn(self, name: str, endpoint: KubeletEndpoint) -> None:
        if endpoint != self._endpoint:
            logger.info("kubelet endpoint learned: node=%s port=%d", name, endpoint.port)
        self._scouts.clear()
        self._endpoint = endpoint
        self._doubted.add(endpoint)
        self._endpoint_scout = name
        self._alive_at = self._clock()
        self._trust()

    async def _find_holder(self) -> None:
        # kwok takes a node's Lease before it initialises the node.
        scout, self._endpoint_scout = self._endpoint_scout, None
        if scout is not None:
            lease = await self._lease(scout)
            self._holder = lease.holder if lease is not None else None

    async def _read_again(self) -> None:
        """Looks for a sign of life of kwok in two Leases: the followed one, which kwok may have
        renewed, and the Lease of the oldest node that had none, which it may have taken."""
        started, before = self._clock(), self._followed
        taken = (
            self._oldest_unleased is not None
            and await self._lease(self._oldest_unleased) is not None
        )
        now = await self._lease(before.name) if before is not None else None
        if before is None or now is None:
            self._followed = None
        elif (now.holder, now.renew_time) != (before.holder, before.renew_time):
            self._followed, self._followed_since, taken = now, started, True
            self._unrenewed_seconds = 0.0
        else:
            self._unrenewed_seconds += started - self._read_at
        if taken:
            self._alive_at = max(self._alive_at, self._read_at)
        self._read_at = started

    def _judge(self, newest: LeaseView) -> None:
        self._leaseless_since = None
        now, followed = self._clock(), self._followed
        quiet = min(self._unrenewed_seconds, now - self._alive_at)
        if followed is not None and now - self._followed_since > followed.duration_seconds / 2:
            if quiet > followed.duration_seconds and not self._problem_by_lease:
                # The sentence names a time, not an age, which would change and be written in each
                # pass.
                self._set_problem(
                    f"the Lease of {followed.name} was last renewed at "
                    f"{followed.renew_time:%Y-%m-%dT%H:%M:%SZ}, for {followed.duration_seconds} s",
                    by_lease=True,
                )
            if newest.resource_version > followed.resource_version:
                followed = None  # Another kwok may have taken over, but not this Lease.
        if followed is None:
            self._followed, self._followed_since = newest, now
        if self.problem is not None and quiet > newest.duration_seconds:
            return
        if self._holder is not None and self._holder != newest.holder:
            logger.info("kwok controller changed: holder=%s before=%s", newest.holder, self._holder)
            self._doubted.clear()
            self._send_scout()
        self._holder = newest.holder
        if now - self._alive_at <= newest.duration_seconds * GOOD_FOR:
            self._trust()

    def _judge_leaseless(self, node: str) -> None:
        # If a scout was answered before, this is a kwok that takes no Leases.
        if self._endpoint is not None:
            return
        if self._leaseless_since is None:
            self._leaseless_since = self._clock()
        if self._clock() - self._leaseless_since >= FIRST_LEASE_WITHIN:
            self._set_problem(f"nobody has taken the Lease of {node}")

    def _send_scout(self) -> None:
        self._endpoint = None
        self._next_scout = float("-inf")

    def _trust(self) -> None:
        self._trusted_until = self._clock() + TRUSTED_FOR
        if self.problem is not None:
            logger.info("kwok controller is back", extra={"over": "kwok"})
            self.problem, self._problem_by_lease = None, False

    def _set_problem(self, why: str, *, by_lease: bool = False) -> None:
        if self.problem is None:
            logger.warning("kwok controller does not answer: %s", why, extra={"trouble": "kwok"})
        self._alive_at = float("-inf")
        self._problem_by_lease = by_lease
        self.problem = KWOK_MISSING.format(why=why)

    async def _may_live(self, since: float, scout: str) -> bool:
        """Whether kwok may be alive, but too busy to initialise the node `scout` in time: it has
        given a sign of life since `since`, or renewed a Lease not long ago."""
        async with self._looking:
            await self._read_again()
        if self._alive_at >= since or await self._lease(scout) is not None:
            return True
        return (
            self._followed is not None
            and self._unrenewed_seconds < self._followed.duration_seconds / 2
        )

    async def _newest_lease(self, nodes: Sequence[str]) -> LeaseView | None:
        """Finds the Lease that kwok took last. `nodes` are in the order of their creation.

        kwok takes Leases in that order, too, and lags far behind after thousands of new nodes: the
        newest nodes may have none yet, and the oldest Leases say little.
        """
        found, low, high = None, 0, len(nodes) - 1
        self._oldest_unleased = None
        probes = iter((high, 0))
        while low <= high:
            probe = next(probes, (low + high) // 2)
            lease = await self._lease(nodes[probe])
            if lease is None:
                self._oldest_unleased, high = nodes[probe], probe - 1
            else:
                found, low = lease, probe + 1
        return found

    async def _lease(self, node: str) -> LeaseView | None:
        """Reads the Lease of a node; None if kwok has not taken it yet."""
        path = f"{LEASES_PATH}/{node}"
        try:
            lease = LEASES.one(await self._client.request("GET", path, retries=2))
        except NotFoundError:
            return None
        return lease if lease.renew_time is not None else None
