"""The whole loop of watch, plan and writes, all but kopf, against an API server in trouble.

Whatever goes wrong, a group ends with exactly its nodes, each asked for once, and a true status:

- 429 with Retry-After in a storm (waited out as asked), 500s, cut connections, on any request
- creates, deletes and status writes that were carried out, but whose answer got lost
- nodes that come and go while nobody watches: the watch is cut, ends with an error, or its history
  is gone (410)
- an API server that is away for a while; refusals that end some day
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.controller.budget import NodeBudget
from kwok_operator.controller.cache import RECORDS, NodeCache
from kwok_operator.controller.clock import Clock
from kwok_operator.controller.clouds import Clouds
from kwok_operator.controller.executor import Executor
from kwok_operator.controller.groups import Group, GroupStore
from kwok_operator.controller.hold import HoldLink
from kwok_operator.controller.kwok import KwokLink
from kwok_operator.controller.nodes import NodeWriter
from kwok_operator.controller.pacing import Pace
from kwok_operator.controller.pools import Pools
from kwok_operator.controller.queue import WorkQueue
from kwok_operator.controller.reconciler import Parts, Reconciler
from kwok_operator.controller.recorder import Recorder
from kwok_operator.controller.statuswriter import StatusWriter
from kwok_operator.controller.templates import Templates
from kwok_operator.core.naming import NodeNames
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import OBJECTS
from kwok_operator.kube.reflector import Reflector
from kwok_operator.metrics import Metrics
from tests.fakes.apiserver import GROUPS, LEASES, NODES, FakeApiServer
from tests.fakes.reflecting import Naps
from tests.fakes.sources import ScriptedSources
from tests.fakes.waiting import until

NAME = "web"
SIZE = 40
STATUS = "kwoknodegroups/status"
Json = dict[str, Any]


class GroupFeed:
    """In the place of kopf: hands groups on to the store, and wakes them."""

    def __init__(self, store: GroupStore, wake: Callable[[str], None]) -> None:
        self._store = store
        self._wake = wake

    def replace(self, items: Sequence[Json], resource_version: int) -> None:
        groups = [Group.parse(item) for item in items]
        gone = self._store.replace(groups, version=resource_version)
        for name in gone | set(self._store.names()):
            self._wake(name)

    def upsert(self, item: Json) -> None:
        if self._store.put(Group.parse(item)):
            self._wake(item["metadata"]["name"])

    def remove(self, item: Json) -> None:
        self._store.remove(name=item["metadata"]["name"], uid=item["metadata"]["uid"])
        self._wake(item["metadata"]["name"])


class World:
    """An API server, a kwok controller that is quick, and all of an operator but kopf."""

    def __init__(self, server: FakeApiServer, *, limit: int = 1000) -> None:
        self.server = server
        self._limit = limit
        self.naps = Naps()
        """The waits between requests: asked for, but not taken."""
        self.pauses = Naps()
        """Those of node writes, on a clock that they move."""

    async def run(self, stack: AsyncExitStack) -> None:
        metrics = Metrics()
        client = KubeClient(connection=self.server.connection(), sleep=self.naps, draw=lambda: 0.5)
        await stack.enter_async_context(client)
        clock = Clock(time.monotonic, lambda: datetime.now(UTC))
        store = GroupStore(clock=time.monotonic)
        kwok = KwokLink(client=client, clock=clock.monotonic, wall=clock.wall)
        cache = NodeCache(changed=self._wake, initialised=kwok.initialised)
        writer = NodeWriter(client=client, cache=cache)
        clouds = Clouds(store=store, cache=cache)
        clouds.pools = Pools(
            client=client,
            changed=lambda groups: None,
            use=clouds.use,
            refused=clouds.refused,
            now=clock.now,
            metrics=metrics,
        )
        parts = Parts(
            store=store,
            cache=cache,
            writer=writer,
            templates=Templates(
                writer=writer, sources=ScriptedSources().as_sources(), provider_id_prefix="kwok:"
            ),
            kwok=kwok,
            recorder=Recorder(client=client, wall=clock.wall),
            executor=Executor(
                Pace(most=8),
                metrics=metrics,
                clock=lambda: time.monotonic() + sum(self.pauses.slept),
                sleep=self.pauses,
                draw=lambda: 0.5,
            ),
            budget=NodeBudget(limit=self._limit, freed=self._wake),
            status=StatusWriter(client=client),
            metrics=metrics,
            clock=clock,
            clouds=clouds,
            hold=HoldLink(client=client, clock=clock.monotonic, wall=clock.wall),
            provider_id_prefix="kwok:",
        )
        # The draw makes a hundredth of the waits before a failed pass is tried again.
        self._queue = WorkQueue(Reconciler(parts, wake=self._wake).reconcile, draw=lambda: -0.98)
        options: Json = {"client": client, "sleep": self.naps, "draw": lambda: 0.5}
        nodes = Reflector(
            path=NODES,
            params={"labelSelector": NODE_GROUP_LABEL},
            decoder=RECORDS,
            sink=cache,
            **options,
        )
        groups = Reflector(
            path=GROUPS, decoder=OBJECTS, sink=GroupFeed(store, self._wake), **options
        )
        tasks = [asyncio.create_task(self._be_kwok())]
        for reflector in (nodes, groups):
            tasks.append(asyncio.create_task(reflector.run()))
            await reflector.synced.wait()
        stack.push_async_callback(self._stop, tasks)

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        await self._queue.close(grace=1.0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends

    def _wake(self, name: str, delay: float = 0.0) -> None:
        self._queue.add(name, delay=delay)

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

        await until(told, seconds=20)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FakeApiServer())
        world = World(server)
        await world.run(stack)
        yield world


async def settled_at(world: World, size: int) -> None:
    """Brings a group to a size while all is well."""
    world.scale(size)
    await world.settled(size)


async def test_all_is_well(world: World) -> None:
    """What the others are measured by: one request for each node, and little else."""
    await settled_at(world, SIZE)
    assert world.serials() == list(range(SIZE))
    assert world.status["nextSerial"] == SIZE
    await settled_at(world, 15)
    assert world.serials() == list(range(15))
    # One dry run for the template.
    assert world.server.calls["create", "nodes"] == SIZE + 1
    assert world.server.calls["delete", "nodes"] == SIZE - 15
    assert world.server.calls["patch", STATUS] < 12
    assert world.naps.slept == world.pauses.slept == []


TROUBLES: dict[str, Json] = {
    "429-storm": {"status": 429, "retry_after": 3},
    "429-without-retry-after": {"status": 429},
    "500": {"status": 500},
    "503": {"status": 503, "retry_after": 3},
    "504-carried-out": {"status": 504, "carried_out": True},
    "cut": {},
    "answer-lost": {"carried_out": True},
}


def cause(server: FakeApiServer, trouble: str, *, verb: str, times: int = 30) -> None:
    fields = TROUBLES[trouble]
    happen = server.fail if "status" in fields else server.cut
    happen(times=times, verb=verb, **fields)


@pytest.mark.parametrize("first", [0, 2], ids=["first-ones", "more"])
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_creates_in_trouble_make_each_node_once(
    world: World, trouble: str, first: int
) -> None:
    await settled_at(world, first)
    cause(world.server, trouble, verb="create")
    world.scale(SIZE)
    await world.settled(SIZE)
    assert world.serials() == list(range(SIZE)), "no serial is spent by trouble"
    assert world.status["nextSerial"] == SIZE


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_deletes_in_trouble_end_at_the_target(world: World, trouble: str) -> None:
    await settled_at(world, SIZE)
    creates = world.server.calls["create", "nodes"]
    cause(world.server, trouble, verb="delete")
    world.scale(5)
    await world.settled(5)
    assert world.serials() == list(range(5))
    assert world.server.calls["create", "nodes"] == creates, "none too many was deleted"


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_status_writes_in_trouble_lose_nothing(world: World, trouble: str) -> None:
    cause(world.server, trouble, verb="patch")
    await settled_at(world, SIZE)
    assert world.serials() == list(range(SIZE))
    assert world.status["nextSerial"] == SIZE


@pytest.mark.parametrize("trouble", ["429-storm", "500", "cut"])
async def test_reads_in_trouble_are_repeated(world: World, trouble: str) -> None:
    for verb in ("get", "list"):
        cause(world.server, trouble, verb=verb)
    world.server.cut_watches()
    await settled_at(world, SIZE)
    assert world.serials() == list(range(SIZE))


@pytest.mark.parametrize(("verb", "size"), [("create", SIZE), ("patch", SIZE), ("delete", 3)])
async def test_lost_answer_is_asked_for_again_and_is_no_failure(
    world: World, verb: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    await settled_at(world, 20)
    cause(world.server, "answer-lost", verb=verb, times=2)
    world.scale(size)
    await world.settled(size)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == []


async def test_retry_after_is_waited_for(world: World) -> None:
    await settled_at(world, 2)
    world.server.fail(429, retry_after=7, times=8, verb="create", resource="nodes")
    world.scale(SIZE)
    await world.settled(SIZE)
    assert world.server.calls["create", "nodes"] == SIZE + 1 + 8, "each was tried once more"
    assert sum(world.pauses.slept) >= 7


async def test_trouble_on_every_request_at_random(world: World) -> None:
    chance = random.Random(7)
    for size in (SIZE, 10, 25, 0, 12):
        for _ in range(25):
            verb = chance.choice(["create", "delete", "patch", "get", "list"])
            trouble = chance.choice(list(TROUBLES))
            cause(world.server, trouble, verb=verb, times=chance.randrange(1, 6))
            if chance.random() < 0.2:
                world.server.cut_watches()
        world.scale(size)
        await world.settled(size)
    assert world.status["nextSerial"] == SIZE + 15 + 12


def delete_some(server: FakeApiServer) -> None:
    for name in sorted(server.objects(NODES))[:5]:
        server.delete(NODES, name)


async def cut(world: World) -> None:
    world.server.cut_watches()
    delete_some(world.server)


async def cut_in_the_middle_of_a_line(world: World) -> None:
    world.server.cut_watches(leaving=b'{"type":"ADDED","object":{"metadata"')
    delete_some(world.server)


async def error_event(world: World) -> None:
    world.server.send_error(500)
    delete_some(world.server)


async def gone_as_status(world: World) -> None:
    world.server.cut_watches()
    delete_some(world.server)
    world.server.compact()


async def gone_as_event(world: World) -> None:
    world.server.gone_as_event = True
    await gone_as_status(world)


@pytest.mark.parametrize(
    "happens",
    [cut, cut_in_the_middle_of_a_line, error_event, gone_as_status, gone_as_event],
    ids=lambda happens: happens.__name__,
)
async def test_nodes_that_go_while_nobody_watches_are_replaced(
    world: World, happens: Callable[[World], Any]
) -> None:
    await settled_at(world, SIZE)
    await happens(world)
    await world.settled(SIZE)
    assert world.serials() == list(range(5, SIZE + 5))


@pytest.mark.parametrize("size", [SIZE, 5], ids=["up", "down"])
async def test_watch_that_is_cut_in_the_middle_of_scaling(world: World, size: int) -> None:
    await settled_at(world, 20)
    verb = "create" if size > 20 else "delete"
    before = world.server.calls[verb, "nodes"]
    world.scale(size)
    await until(lambda: world.server.calls[verb, "nodes"] > before + 5)
    world.server.cut_watches()
    world.server.compact()
    await world.settled(size)
    assert world.serials() == list(range(size))


async def test_api_server_that_is_away_in_the_middle_of_scaling(world: World) -> None:
    await settled_at(world, 0)
    world.scale(SIZE)
    await until(lambda: len(world.server.objects(NODES)) > 5)
    port = int(world.server.url.rpartition(":")[2])
    await world.server.stop()
    await asyncio.sleep(0.3)
    assert len(world.server.objects(NODES)) < SIZE, "it was interrupted"
    await world.server.start(port)
    await world.settled(SIZE)
    assert world.serials() == list(range(SIZE))


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_refusal_is_told_and_ends_with_its_reason(world: World, code: int) -> None:
    await settled_at(world, 0)
    world.server.fail(code, times=3, verb="create", resource="nodes", message="no more today")
    world.scale(SIZE)
    refused = "no more today"
    await until(lambda: refused in str(world.status["conditions"]))
    await world.settled(SIZE)
    assert world.serials() == list(range(SIZE))
    assert refused not in str(world.status["conditions"])
