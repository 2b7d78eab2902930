"""A simulated cloud by rack: what stands in one unit comes, fails and goes together."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.annotations import load_life
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.record import CloudRecord, outstanding
from kwok_operator.cloud.room import CloudRequest, settle
from kwok_operator.cloud.shaping import Birth, Hold
from kwok_operator.cloud.states import Phase
from kwok_operator.cloud.units import Units
from kwok_operator.constants import DELETE_AT_ANNOTATION, LIFE_ANNOTATION, TOPOLOGY_ANNOTATION
from kwok_operator.formats.times import format_time
from kwok_operator.nodegroups.serials import Batch
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.operator import NAME, World
from tests.fakes.waiting import until
from tests.unit.clouds import CLOUDS, GROUP, QUICK

RACK = "example.com/rack"
SIZE = 3
NOW = 1_800_000_000_000
TEMPLATE = {"metadata": {"annotations": {TOPOLOGY_ANNOTATION: f"pool {RACK}={SIZE}"}}}
PLACES = st.permutations(range(12)).map(lambda places: dict(enumerate(places)))


def racks(places: Mapping[int, int]) -> list[list[int]]:
    found = dict[int, list[int]]()
    for serial, place in places.items():
        found.setdefault(place // SIZE, []).append(serial)
    return [*found.values()]


@given(PLACES, st.integers(0, 15), st.integers(0, 3))
def test_stock_gives_whole_racks_or_nothing(
    places: dict[int, int], stock: int, arrived: int
) -> None:
    cloud = Cloud.model_validate({"unit": RACK, "stock": stock, "seed": "a"})
    request = CloudRequest(
        group=GROUP,
        cloud=cloud,
        pending=tuple(places),
        first_new=0,
        arrived=frozenset(range(1_000, 1_000 + arrived)),
        batches=(Batch(0, len(places) - 1, format_time(NOW)),),
        units=Units.of(TEMPLATE, places),
    )
    settled = settle(request, CloudRecord(), pools={}, others=lambda _: (), now=NOW)
    granted = frozenset(settled.holding.serials) - request.arrived
    for rack in racks(places):
        assert granted.isdisjoint(rack) or granted.issuperset(rack)
    assert len(granted) + arrived <= max(stock, arrived)
    first_left = next((rack for rack in racks(places) if granted.isdisjoint(rack)), None)
    if first_left is not None:
        assert len(granted) + arrived + len(first_left) > stock
    again = settle(request, settled.record, pools={}, others=lambda _: (), now=NOW)
    assert again.record == settled.record


@QUICK
@given(PLACES, st.integers(0, 15), st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_racks_come_as_a_whole_however_they_are_requested(
    places: dict[int, int], stock: int, sizes: list[int]
) -> None:
    """A few instances at a time, some of which were refused before; more stock comes later."""
    record, first = CloudRecord(), 0
    for turn, size in enumerate(sizes):
        cloud = Cloud.model_validate(
            {"unit": RACK, "stock": stock + turn // 4, "seed": "a", "retryAfter": "2s"}
        )
        pending = [serial for serial in places if serial < first + size]
        batches = (Batch(0, len(pending) - 1, format_time(NOW)),)
        units = Units.of(TEMPLATE, places)
        request = CloudRequest(GROUP, cloud, pending, first, frozenset(), batches, units=units)
        now = NOW + turn * 1_000
        before = frozenset(pending[:first]) - record.refused(frozenset(pending))
        settled = settle(request, record, pools={}, others=lambda _: (), now=now)
        record, first = settled.record, len(pending)
        new = frozenset(settled.holding.serials) - before
        for rack in racks({serial: places[serial] for serial in pending}):
            left = frozenset(rack) - before
            assert new.isdisjoint(left) or new.issuperset(left)


@QUICK
@given(CLOUDS, PLACES, st.integers(0, 600))
def test_a_rack_has_one_course(drawn: Cloud, places: dict[int, int], later: int) -> None:
    cloud = drawn.model_copy(update={"unit": RACK, "seed": drawn.seed or "a"})
    units = Units.of(TEMPLATE, places)
    batch, batches = tuple(places), (Batch(0, len(places) - 1, format_time(NOW)),)
    request = CloudRequest(GROUP, cloud, batch, 0, frozenset(), batches, units=units)
    settled = settle(request, CloudRecord(), pools={}, others=lambda _: (), now=NOW)
    phases = dict[int, Phase]()
    for part in outstanding(
        settled.record,
        settled.batches,
        group=GROUP,
        arrived=frozenset(),
        now=NOW + later * 1_000,
        units=units,
    ):
        phases |= part
    for rack in racks(places):
        assert len({phases[serial] for serial in rack}) == 1
        lives = {
            Birth.of(
                cloud,
                group=GROUP,
                serial=serial,
                due=NOW,
                now=NOW,
                capacity={},
                hold=Hold.NONE,
                unit=units.number(cloud, serial),
            ).life
            for serial in rack
        }
        assert len(lives) == 1


async def test_racks_are_sold_out_as_a_whole() -> None:
    topology = {"levels": [{"label": RACK, "of": SIZE}]}
    async with World().running() as world:
        spec = {
            "targetSize": 8,
            "template": {"topology": topology},
            "cloud": {"unit": RACK, "stock": 5, "retryAfter": "1s"},
        }
        world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})
        await until(
            lambda: (
                world.status.get("failedReplicas") == 5
                and world.status.get("readyReplicas") == SIZE
            )
        )
        labels = [node["metadata"]["labels"][RACK] for node in world.server.objects(NODES).values()]
        assert labels == [f"{NAME}-0"] * SIZE

        world.server.patch(GROUPS, NAME, {"spec": {"cloud": {"stock": 8}}})
        await world.settled(8)


async def test_a_rack_is_deleted_late_as_a_whole() -> None:
    async with World().running() as world:
        slow = {"serials": "1", "delay": {"fixed": "1h"}}
        spec = {
            "targetSize": 7,
            "template": {"topology": {"levels": [{"label": RACK, "of": SIZE}]}},
            "cloud": {"unit": RACK, "failures": {"slowDeletion": slow}},
        }
        world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})
        await world.settled(7)
        world.scale(0)

        def late() -> list[str]:
            """The racks of nodes, if all are to be deleted later."""
            nodes = [node["metadata"] for node in world.server.objects(NODES).values()]
            is_late = all(DELETE_AT_ANNOTATION in node["annotations"] for node in nodes)
            return [node["labels"][RACK] for node in nodes] if is_late else []

        await until(lambda: late() == [f"{NAME}-1"] * SIZE)


async def test_a_node_that_comes_late_gets_notice_with_the_first_of_its_unit() -> None:
    block = "example.com/block"
    levels = [{"label": block, "of": 3}, {"label": RACK, "of": 1}]

    def notices() -> list[int | None]:
        nodes = (node["metadata"] for _, node in sorted(world.server.objects(NODES).items()))
        return [load_life(each["annotations"][LIFE_ANNOTATION]).notice_at for each in nodes]

    async with World().running() as world:
        template = {"topology": {"levels": levels}}
        world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": {"template": template}})
        for size, unit, hours in (1, RACK, 4), (2, RACK, 9), (3, block, 6):
            cloud = {"unit": unit, "interruptions": {"lifetime": {"fixed": f"{hours}h"}}}
            world.server.patch(GROUPS, NAME, {"spec": {"targetSize": size, "cloud": cloud}})
            await world.settled(size)
        first, other, late = notices()
    assert first is not None and other is not None
    assert late == first < other
