"""KwokCapacityPools: which there are, and what the operator writes into their status."""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.pools import TRY_AGAIN_AFTER, WRITE_EVERY, Pools, stored_pool
from kwok_operator.cloud.stock import Holder, Use
from kwok_operator.constants import POOL_KIND, POOLS_PATH
from kwok_operator.kube.client import KubeClient
from kwok_operator.observability.metrics import Metrics
from kwok_operator.operator.leadership import Fence
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.feed import feeding
from tests.fakes.reflecting import Naps
from tests.fakes.store import Json
from tests.fakes.waiting import until

WRITES = ("patch", "kwokcapacitypools/status")
START = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T04:00:00Z"
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["1e99", "1e100", "-1", "NaN", "Outage", "True"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


class World:
    """An API server, and an operator that knows what groups take."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.news: list[Collection[str]] = []
        self.holders: list[Holder] = []
        self.refused: Counter[str] = Counter()
        self.now = START
        self.naps = Naps()
        self.fence = Fence()
        self.restarts: list[str] = []
        self.metrics = Metrics()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Pools:
        """An operator; one that ran before has ended."""
        await self.stop()
        self.client = KubeClient(connection=self.server.connection(), fence=self.fence.check)
        self.fence.open_until(float("inf"))
        self.pools = Pools(
            client=self.client,
            changed=lambda names: self.news.append(sorted(names)),
            use=lambda: Use(self.holders),
            refused=lambda name: self.refused[name],
            now=lambda: self.now,
            metrics=self.metrics,
            sleep=self.naps,
        )
        reflector = feeding(self.pools.objects, client=self.client, path=POOLS_PATH)
        self._tasks = [asyncio.create_task(p) for p in (reflector.run(), self.pools.run())]
        await until(reflector.synced.is_set)
        return self.pools

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            await self.client.close()
            self._tasks = []

    def create(self, name: str = "zone", **spec: Any) -> None:
        self.server.create(POOLS_PATH, {"metadata": {"name": name}, "spec": spec})

    def edit(self, name: str = "zone", **spec: Any) -> None:
        self.server.patch(POOLS_PATH, name, {"spec": spec})

    def status(self, name: str = "zone") -> Json:
        found: Json = self.server.objects(POOLS_PATH)[name].get("status", {})
        return found

    def condition(self, kind: str, name: str = "zone") -> tuple[str, str, str]:
        """Status, reason and since when; empty where there is none."""
        for c in self.status(name).get("conditions", ()):
            if c["type"] == kind:
                return c["status"], c["reason"], c["lastTransitionTime"]
        return "", "", ""

    @property
    def writes(self) -> int:
        return self.server.calls[WRITES]

    def told(self, metric: str, name: str = "zone") -> float | None:
        """What /metrics says of a pool."""
        value = self.metrics.registry.get_sample_value
        return value(f"kwok_operator_pool_{metric}", {"pool": name})

    async def settled(self) -> None:
        """Returns when all that was touched until now has been looked at."""
        for _ in range(2):
            naps = len(self.naps.slept)

            def slept(naps: int = naps) -> bool:
                # Again each time: what is touched in the middle of a nap belongs to that nap.
                self.pools.touched({"nobody's"})
                return len(self.naps.slept) > naps

            await until(slept)


@pytest.fixture
async def world(server: FakeApiServer) -> AsyncIterator[World]:
    server.serve(POOLS_PATH, kind=POOL_KIND)
    world = World(server)
    yield world
    await world.stop()


async def test_what_is_news(world: World) -> None:
    world.create("zone", instances=3)
    world.create("quota", resources={"cpu": "8"})
    pools = await world.start()
    assert world.news == [["quota"], ["zone"]]
    assert {name: pool.instances for name, pool in pools.known.items()} == {
        "zone": 3,
        "quota": None,
    }
    assert pools.known["quota"].resources == {"cpu": 8}
    await until(lambda: world.status("zone") and world.status("quota"))
    world.server.patch(POOLS_PATH, "zone", {"metadata": {"labels": {"a": "b"}}})
    world.edit("zone", instances=4)
    await until(lambda: pools.known["zone"].instances == 4)
    world.server.delete(POOLS_PATH, "quota")
    await until(lambda: "quota" not in pools.known)
    assert world.news[2:] == [["zone"], ["quota"]]


async def test_a_pool_that_was_made_again_is_news(world: World) -> None:
    world.create(instances=3)
    await world.start()
    world.server.delete(POOLS_PATH, "zone")
    world.create(instances=3)
    await until(lambda: len(world.news) == 3)
    assert world.news == [["zone"]] * 3
    await until(lambda: world.told("instances_limit") == 3)
    # Made again while nobody watched, it is told of once; as one that can't be read, as gone.
    for spec in ({"instances": 3}, {"instances": "many"}):
        raw = {"metadata": {"name": "zone", "uid": str(spec)}, "spec": spec}
        world.pools.objects.listed([raw], 2**62)
        assert world.told("instances_limit") is None, "what was told is of the one before"
    assert world.news[3:] == [["zone"], ["zone"]]
    assert not world.pools.known


async def test_without_the_crd(world: World) -> None:
    del world.server.store.collections[POOLS_PATH]
    pools = await world.start()
    assert (pools.known, world.news) == ({}, [])
    world.server.serve(POOLS_PATH, kind=POOL_KIND)
    world.create(instances=3)
    await until(lambda: "zone" in pools.known)
    assert world.restarts == []


async def test_a_crd_that_goes_takes_the_pools_with_it(world: World) -> None:
    world.create(instances=3)
    pools = await world.start()
    del world.server.store.collections[POOLS_PATH]
    for watcher in world.server.watchers:
        watcher.chunks.put_nowait(None)
    await until(lambda: not pools.known)
    assert world.news[-1] == ["zone"]


async def test_an_unreadable_pool(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create("zone", instances=3)
    world.create("odd", instances="many")
    pools = await world.start()
    assert pools.known.keys() == {"zone"}
    world.edit("zone", resources={"cpu": "1e100"})
    await until(lambda: not pools.known)
    assert world.news == [["zone"], ["zone"]]
    await world.start()
    told = [r.getMessage() for r in caplog.records if "can't be read" in r.getMessage()]
    assert sum("KwokCapacityPool odd" in text for text in told) == 2, "once in each life"
    assert "\n" not in "".join(told)
    world.edit("zone", resources={"cpu": "1"})
    await until(lambda: "zone" in world.pools.known)


async def test_a_status_that_is_not_ours_is_written_over(world: World) -> None:
    since = {"status": "True", "reason": "R", "lastTransitionTime": "long ago"}
    odd: list[Json] = [
        {"conditions": "none"},
        {"conditions": [{"type": "Outage", "status": "Perhaps"}]},
        {"conditions": [{"type": "Outage", **since}]},
        {"instances": "many"},
    ]
    for number, status in enumerate(odd):
        world.create(f"p{number}", outage=True)
        world.server.patch(POOLS_PATH, f"p{number}", {"status": status}, subresource="status")
    await world.start()
    for name in world.server.objects(POOLS_PATH):
        await until(lambda name=name: world.status(name).get("observedGeneration") == 1)  # type: ignore[misc]
        assert world.condition("Outage", name) == ("True", "Outage", START)


async def test_status_says_who_takes_what(world: World) -> None:
    world.create(instances=5, resources={"cpu": "16"})
    cpu = {"cpu": Fraction(4), "memory": Fraction(1)}
    world.holders = [Holder("a", range(3), cpu, ["zone"]), Holder("b", [7], cpu, ["zone"])]
    await world.start()
    await until(world.status)
    status = world.status()
    assert (status["instances"], status["resources"]) == (4, {"cpu": "16"})
    assert status["groups"] == [
        {"group": "a", "instances": 3, "resources": {"cpu": "12"}},
        {"group": "b", "instances": 1, "resources": {"cpu": "4"}},
    ]
    assert (status["observedGeneration"], status["refused"], status["otherGroups"]) == (1, 0, 0)
    assert world.condition("Exhausted") == ("False", "HasRoom", START)
    assert world.condition("Outage") == ("False", "NoOutage", START)

    world.refused["zone"], world.now = 2, LATER
    world.pools.touched({"zone"})
    await until(lambda: world.status()["refused"] == 2)
    assert world.condition("Exhausted") == ("True", "PoolExhausted", LATER)
    assert world.condition("Outage") == ("False", "NoOutage", START)


async def test_nothing_is_written_when_nothing_changed(world: World) -> None:
    world.create(instances=5)
    await world.start()
    await until(world.status)
    world.now = LATER
    for _ in range(3):
        world.pools.touched({"zone"})
        await world.settled()
    assert world.writes == 1
    # An operator that starts anew finds the same, too.
    await world.start()
    await world.settled()
    assert world.writes == 1


async def test_many_changes_make_one_write_a_second(world: World) -> None:
    world.create(instances=5)
    await world.start()
    await until(world.status)
    for number in range(100):
        world.holders = [Holder("a", range(number), pools=["zone"])]
        world.pools.touched({"zone"})
    await until(lambda: world.status()["instances"] == 99)
    assert world.writes == 2
    assert set(world.naps.slept) == {WRITE_EVERY}


async def test_an_outage_began_when_it_was_seen(world: World) -> None:
    world.create(instances=5)
    await world.start()
    await until(world.status)
    world.now = LATER
    world.edit(outage=True)
    await until(lambda: world.pools.known["zone"].outage)
    world.now = "2026-01-02T05:00:00Z"
    await until(lambda: world.condition("Outage") == ("True", "Outage", LATER))

    await world.start()
    await world.settled()
    assert world.condition("Outage") == ("True", "Outage", LATER)
    world.edit(outage=False)
    await until(lambda: world.condition("Outage") == ("False", "NoOutage", world.now))


async def test_a_failed_write_is_repeated(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create(instances=5)
    world.server.fail(403, times=3, resource=WRITES[1])
    await world.start()
    await until(world.status)
    told = [r.getMessage() for r in caplog.records if "was not written" in r.getMessage()]
    assert len(told) == 1 and told[0].startswith("status of KwokCapacityPool zone was not written")
    assert world.naps.slept[:6] == [WRITE_EVERY, TRY_AGAIN_AFTER] * 3


async def test_the_trouble_of_one_pool_is_not_anothers(world: World) -> None:
    world.create("a", instances=5)
    world.create("b", instances=5)
    world.server.fail(500, resource=WRITES[1])
    await world.start()
    await until(lambda: world.status("a"))
    asked = [seen.name for seen in world.server.seen if (seen.verb, seen.resource) == WRITES]
    assert asked == ["a", "b", "a"]


async def test_a_pool_of_the_same_name_does_not_get_the_status(world: World) -> None:
    world.create(instances=5)
    await world.start()
    await until(world.status)
    held = world.server.hold(resource=WRITES[1])
    world.holders = [Holder("a", range(3), pools=["zone"])]
    world.pools.touched({"zone"})
    await until(lambda: world.writes == 2)
    world.server.delete(POOLS_PATH, "zone")
    world.create(instances=6)
    await until(lambda: world.pools.known["zone"].instances == 6)
    world.holders = []
    before = world.status()
    held.set()
    await until(world.status)
    assert before == {}
    assert (world.status()["instances"], world.writes) == (0, 3)


async def test_who_does_not_lead_writes_nothing_and_does_not_complain(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.create(instances=5)
    await world.start()
    await until(world.status)
    world.fence.shut()
    world.edit(instances=6)
    await until(lambda: world.pools.known["zone"].instances == 6)
    await world.settled()
    assert world.writes == 1
    assert [r for r in caplog.records if "written" in r.getMessage()] == []


def test_a_pool_is_read_without_what_is_optional() -> None:
    raw = {"metadata": {"name": "zone", "uid": "u"}, "spec": None, "status": None}
    stored = stored_pool(raw)
    assert (stored.name, stored.uid, stored.generation, stored.problem) == ("zone", "u", 0, "")
    assert stored.pool is not None and stored.pool.instances is None


@given(spec=ANYTHING, status=ANYTHING, inner=ANYTHING)
def test_whatever_is_stored_can_be_read(spec: Any, status: Any, inner: Any) -> None:
    specs = (spec, {"instances": inner}, {"resources": {"cpu": inner}}, {"error": inner})
    states = (status, {"conditions": inner}, {"conditions": [inner]})
    for one, other in itertools.product(specs, states):
        raw = {"metadata": {"name": "zone", "uid": "u"}, "spec": one, "status": other}
        stored = stored_pool(raw)
        assert bool(stored.problem) == (stored.pool is None)


async def test_metrics_tell_what_status_tells_until_the_pool_has_gone(world: World) -> None:
    world.create("zone", instances=3)
    world.holders = [Holder("web", (0, 1, 2), {}, ("zone",))]
    world.refused["zone"] = 2
    await world.start()
    await until(lambda: world.told("instances") == 3)
    assert (world.told("instances_limit"), world.told("instances_refused")) == (3, 2)
    world.server.delete(POOLS_PATH, "zone")
    await until(lambda: world.told("instances") is None)
