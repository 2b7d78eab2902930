"""All of an operator but kopf, on an API server that can be made to fail, with a kwok controller.

    World.running() ──> watches on groups and nodes ──> queue ──> Reconciler ──> writes
              nodes get Ready, as the kwok ──^ controller would make them

Waits are asked for and not taken, so that a storm of errors lasts a moment.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from kwok_operator.cloud.clouds import Clouds
from kwok_operator.cloud.hold import HoldLink
from kwok_operator.cloud.pools import Pools
from kwok_operator.cloud.step import CloudStep, read_mark
from kwok_operator.companions.keeper import CompanionKeeper
from kwok_operator.companions.step import CompanionStep
from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.executor import Executor
from kwok_operator.kube.pacing import Pace
from kwok_operator.kube.reflector import Reflector
from kwok_operator.nodegroups.budget import NodeBudget
from kwok_operator.nodegroups.client import GROUPS as GROUP_DECODER
from kwok_operator.nodegroups.client import Group, UnreadableGroup
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.intake import Intake
from kwok_operator.nodegroups.kwok import KwokLink
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.parts import Clock, Parts
from kwok_operator.nodegroups.queue import WorkQueue
from kwok_operator.nodegroups.reconciler import Reconciler
from kwok_operator.nodegroups.statuswriter import StatusWriter
from kwok_operator.nodegroups.templates import Templates
from kwok_operator.nodegroups.unmarked import find_unmarked
from kwok_operator.observability.metrics import Metrics
from tests.fakes.apiserver import GROUPS, LEASES, NODES, FakeApiServer
from tests.fakes.reflecting import Naps
from tests.fakes.sources import ScriptedSources
from tests.fakes.waiting import until

NAME = "web"
STATUS = "kwoknodegroups/status"
Json = dict[str, Any]


class GroupFeed:
    """In the place of kopf: hands groups on to the store, and wakes them."""

    def __init__(self, store: GroupStore, wake: Callable[[str], None]) -> None:
        self._store = store
        self._wake = wake
        self._restored = False

    def replace(self, items: Sequence[Group | UnreadableGroup], resource_version: int) -> None:
        gone = self._store.replace(items, version=resource_version, restored=self._restored)
        self._restored = False
        for name in gone | set(self._store.names()):
            self._wake(name)

    def upsert(self, item: Group | UnreadableGroup) -> None:
        if self._store.put(item):
            self._wake(item.name)

    def remove(self, item: Group | UnreadableGroup) -> None:
        self._store.remove(name=item.name, uid=item.uid, version=item.resource_version)
        self._wake(item.name)

    def restored(self) -> None:
        self._restored = True


class World:
    """An API server, a kwok controller that is quick, and all of an operator but kopf."""

    def __init__(self, *, limit: int = 1000) -> None:
        self.server = FakeApiServer()
        self._limit = limit
        self.naps = Naps()
        """The waits between requests: asked for, but not taken."""
        self.pauses = Naps()
        """Those of node writes, on a clock that they move."""
        self.doubts = 0
        """How often all groups were to be listed."""
        self.later = 0.0
        """Seconds by which the operator's clocks are ahead of the test's."""
        self._begun = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        async with (
            self.server,
            KubeClient(
                connection=self.server.connection(), sleep=self.naps, draw=lambda: 0.5
            ) as client,
        ):
            self._assemble(client)
            tasks = [asyncio.create_task(self._be_kwok())]
            for reflector in self._reflectors:
                tasks.append(asyncio.create_task(reflector.run()))
                await reflector.synced.wait()
            for record in await find_unmarked(client, cache=self._parts.cache, store=self.store):
                self._parts.cache.lost(record)
            self._begun = True
            yield self
            self._companions.close()
            await self._companion_queue.close(grace=1.0)
            await self._queue.close(grace=1.0)
            await self._companions.stop()
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends

    def _assemble(self, client: KubeClient) -> None:
        metrics = Metrics()
        self.sources = ScriptedSources()
        clock = Clock(
            lambda: time.monotonic() + self.later,
            lambda: datetime.now(UTC) + timedelta(seconds=self.later),
        )
        store = self.store = GroupStore(clock=time.monotonic)
        kwok = KwokLink(client=client, clock=clock.monotonic, born_ready=store.are_born_ready)
        cache = self.cache = NodeCache(
            changed=self._nodes_changed, initialised=kwok.initialised, read_mark=read_mark
        )
        cache.keeps_strays = True
        writer = NodeWriter(client=client, cache=cache)
        clouds = self._clouds = Clouds(store=store, cache=cache)
        clouds.pools = Pools(
            client=client,
            changed=lambda groups: None,
            use=clouds.use,
            refused=clouds.refused,
            now=clock.now,
            metrics=metrics,
        )
        executor = Executor(
            Pace(most=8),
            metrics=metrics,
            clock=lambda: time.monotonic() + sum(self.pauses.slept),
            sleep=self.pauses,
            draw=lambda: 0.5,
        )
        self._companions = CompanionKeeper(
            client=client,
            store=store,
            cache=cache,
            executor=executor,
            wake=lambda name, delay: self._companion_queue.add(name, delay=delay),
            changed=self._wake,
            cloud=clouds.in_force,
            read=lambda source: self.sources.companions(source),
            monotonic=clock.monotonic,
            wall=lambda: clock.wall().timestamp(),
        )
        self._companion_queue = WorkQueue(
            self._companions.look_at, draw=lambda: -0.98, wish=store.wish
        )
        recorder = Recorder(client=client, clock=clock.monotonic, wall=clock.wall)
        cloud_step = CloudStep(
            clouds=clouds,
            hold=HoldLink(client=client, clock=clock.monotonic),
            writer=writer,
            executor=executor,
            kwok=kwok,
            recorder=recorder,
            metrics=metrics,
            clock=clock,
        )
        steps = (CompanionStep(self._companions), cloud_step)
        parts = self._parts = Parts(
            store=store,
            cache=cache,
            writer=writer,
            templates=Templates(
                writer=writer,
                sources=self.sources.as_sources(),
                provider_id_prefix="kwok:",
                steps=steps,
                clock=clock.monotonic,
                draw=lambda: -0.98,
            ),
            kwok=kwok,
            recorder=recorder,
            executor=executor,
            budget=NodeBudget(limit=self._limit, freed=self._wake),
            status=StatusWriter(client=client),
            metrics=metrics,
            clock=clock,
            steps=steps,
            provider_id_prefix="kwok:",
        )
        # The draw makes a hundredth of the waits before a failed pass is tried again.
        self._reconciler = Reconciler(parts, wake=self._wake, doubt=self._doubt)
        self._queue = WorkQueue(self._reconcile, draw=lambda: -0.98, wish=store.wish)
        options: Json = {"client": client, "sleep": self.naps, "draw": lambda: 0.5}
        nodes: Reflector[Any] = Reflector(
            path=NODES,
            params={"labelSelector": NODE_GROUP_LABEL},
            decoder=cache.decoder,
            sink=cache,
            on_restored=cache.forget_versions,
            **options,
        )
        feed = self._feed = GroupFeed(store, self._group_seen)
        groups: Reflector[Any] = Reflector(
            path=GROUPS, decoder=GROUP_DECODER, sink=feed, on_restored=feed.restored, **options
        )
        self._reflectors: list[Reflector[Any]] = [nodes, groups]

    def missed(self) -> bool:
        """Whether both watches know that the server is away, and all has to be listed."""
        return not any(reflector.version for reflector in self._reflectors)

    async def _reconcile(self, name: str) -> None:
        if self._begun and all(reflector.version for reflector in self._reflectors):
            await self._reconciler.reconcile(name)
        else:  # groups and nodes may be of another time, as assembly.py has it
            self._wake(name, 0.01)

    async def take_over(self) -> None:
        """As the operator does at its start."""
        parts = self._parts
        await Intake(
            store=GroupStore(clock=time.monotonic),
            status=parts.status,
            cache=parts.cache,
            budget=parts.budget,
        ).take_over()

    def room(self, name: str) -> int:
        """That the limit leaves for a group."""
        return self._parts.budget.room(name)

    def _doubt(self) -> None:
        self.doubts += 1

    def _wake(self, name: str, delay: float = 0.0) -> None:
        self._queue.add(name, delay=delay)

    def _group_seen(self, name: str) -> None:
        self._wake(name)
        self._companions.group_changed(name)

    def _nodes_changed(self, name: str) -> None:
        self._wake(name)
        self._companions.nodes_changed(name)

    async def _be_kwok(self) -> None:
        """Initialises the nodes that aren't Ready, as the kwok controller does: Lease first."""
        while True:
            for name, node in list(self.server.objects(NODES).items()):
                if not node.get("status", {}).get("daemonEndpoints"):
                    self._initialise(name)
            await asyncio.sleep(0.002)

    def _initialise(self, name: str) -> None:
        if name not in self.server.objects(LEASES):
            renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": "kwok", "leaseDurationSeconds": 40, "renewTime": renewed}
            self.server.create(LEASES, {"metadata": {"name": name}, "spec": spec})
        status = {
            "addresses": [{"type": "Hostname", "address": "localhost"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10247}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.server.patch(NODES, name, {"status": status}, subresource="status")

    def scale(self, size: int) -> None:
        if NAME in self.server.objects(GROUPS):
            self.server.patch(GROUPS, NAME, {"spec": {"targetSize": size}})
        else:
            self.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": {"targetSize": size}})

    @property
    def group(self) -> Json:
        return self.server.objects(GROUPS)[NAME]

    @property
    def status(self) -> Json:
        status: Json = self.group.get("status", {})
        return status

    def serials(self) -> list[int | None]:
        names = NodeNames.of(NAME, self.group["metadata"]["uid"])
        return [names.serial(name) for name in sorted(self.server.objects(NODES))]

    async def heard(self) -> None:
        """Until the operator knows of the last edit."""

        def known() -> bool:
            group = self.store.get(NAME)
            return group is not None and group.generation == self.group["metadata"]["generation"]

        await until(known)

    async def settled(self, size: int) -> None:
        """Until the group has exactly so many nodes, and says so."""

        def told() -> bool:
            conditions = {c["type"]: c["status"] for c in self.status.get("conditions", [])}
            counts = {self.status.get(k, 0) for k in ("replicas", "readyReplicas", "targetSize")}
            observed = self.status.get("observedGeneration")
            return (
                len(self.server.objects(NODES)) == size
                and counts == {size}
                and conditions.get("Ready") == "True"
                and conditions.get("ForeignNodes") == "False"
                and observed == self.group["metadata"]["generation"]
                and not self.status.get("pending")
            )

        await until(told)
