"""The simulated cloud in an operator's passes."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.cloud.clouds import ObservedCloud
from kwok_operator.constants import (
    DELETE_AT_ANNOTATION,
    HOLD_LABEL,
    HOLD_STAGE,
    LIFE_ANNOTATION,
    NOT_READY_TAINT_EFFECT,
    NOT_READY_TAINT_KEY,
    PLACE_ANNOTATION,
    REQUESTED_AT_ANNOTATION,
)
from kwok_operator.formats.times import parse_time
from kwok_operator.kube.taints import is_not_ready_taint
from kwok_operator.nodegroups.api.status import UNIT_OUTAGE
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.operator import NAME, Json, World
from tests.fakes.waiting import until

RACK = "example.com/rack"
GPU = "nvidia.com/gpu"
STAGES = "/apis/kwok.x-k8s.io/v1alpha1/stages"
STARTING = "example.com/starting"


class Clouded(World):
    def make(self, size: int, cloud: Json, **spec: Any) -> None:
        spec = {"targetSize": size, "cloud": cloud, **spec}
        self.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})

    @property
    def nodes(self) -> list[Json]:
        return list(self.server.objects(NODES).values())

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason."""
        found = [c for c in self.status.get("conditions", ()) if c["type"] == kind]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def tainted(self) -> int:
        """The nodes that are starting."""
        return sum(STARTING in str(node["spec"].get("taints")) for node in self.nodes)

    @property
    def last_caution(self) -> str | None:
        group = self.store.get(NAME)
        return None if group is None else self.parts.recorder.last_said(group, ["Caution"])


@pytest.fixture
async def world() -> AsyncIterator[Clouded]:
    async with Clouded().running() as world:
        yield world


async def test_an_outage_keeps_instances_away_until_it_is_over(world: Clouded) -> None:
    world.make(2, {"outage": True, "provisioningDelay": {"fixed": "0s"}})
    await until(lambda: world.condition("Outage") == ("True", "SpecOutage"))
    await until(lambda: world.condition("Provisioned") == ("False", "Outage"))
    assert world.status["cloud"]["counts"]["waiting"] == 2
    assert world.condition("CloudSimulated") == ("False", "NotHeld")
    assert world.nodes == []
    world.server.patch(GROUPS, NAME, {"spec": {"cloud": {"outage": False}}})
    await world.settled(2)
    assert world.condition("Outage") == ("False", "NoOutage")
    assert world.condition("Provisioned") == ("True", "AllArrived")


def held_racks(world: Clouded) -> list[str]:
    """The racks of nodes that aren't Ready, one for each node."""
    there = [node["metadata"]["labels"] for node in world.nodes]
    return sorted(labels[RACK] for labels in there if HOLD_LABEL in labels)


async def test_a_rack_is_out_and_its_replacements_stand_elsewhere(world: Clouded) -> None:
    def held() -> list[str]:
        return held_racks(world)

    def racks() -> Counter[str]:
        return Counter(node["metadata"]["labels"][RACK] for node in world.nodes)

    def edit(**cloud: Any) -> None:
        world.server.patch(GROUPS, NAME, {"spec": {"cloud": cloud}})

    first, second, third = (f"{NAME}-{number}" for number in range(3))
    world.server.serve(STAGES, kind="Stage")
    world.server.create(STAGES, {"metadata": {"name": HOLD_STAGE}})
    topology = {"topology": {"levels": [{"label": RACK, "of": 2}]}}
    world.make(3, {"flapping": None}, template=topology)
    await world.settled(3)
    # One more is requested in the second rack, before that one is out.
    edit(provisioningDelay={"fixed": "3s"})
    world.scale(4)
    await until(lambda: world.status["cloud"]["counts"]["creating"] == 1)
    edit(outageUnits=[second], provisioningDelay=None)
    await until(lambda: held() == [second])
    await until(lambda: world.condition("Outage") == ("True", UNIT_OUTAGE))
    await until(lambda: world.status["cloud"]["counts"]["waiting"] == 1)
    world.scale(6)
    await until(lambda: racks() == {first: 2, second: 1, third: 2})
    assert held() == [second]
    assert world.condition("Provisioned") == ("False", "Outage")
    (lost,) = (n["metadata"]["name"] for n in world.nodes if HOLD_LABEL in n["metadata"]["labels"])
    world.server.delete(NODES, lost)
    await until(lambda: racks() == {first: 2, third: 2, f"{NAME}-3": 1})
    edit(outageUnits=None)
    await world.settled(6)
    assert (racks()[second], held()) == (1, [])
    assert world.condition("Outage") == ("False", "NoOutage")


async def test_racks_are_out_by_the_levels_that_nodes_have(world: Clouded) -> None:
    """An edit of the levels is refused here, as another group has the old ones."""

    def racks_of(size: int) -> dict[str, Any]:
        return {"topology": {"domain": "pool", "levels": [{"label": RACK, "of": size}]}}

    world.server.serve(STAGES, kind="Stage")
    world.server.create(STAGES, {"metadata": {"name": HOLD_STAGE}})
    world.make(4, {"flapping": None}, template=racks_of(2))
    await world.settled(4)
    world.server.patch(GROUPS, NAME, {"spec": {"cloud": {"outageUnits": ["pool-1"]}}})
    await until(lambda: held_racks(world) == ["pool-1"] * 2)
    other = {"targetSize": 1, "template": racks_of(2)}
    world.server.create(GROUPS, {"metadata": {"name": "other"}, "spec": other})
    await until(lambda: len(world.server.objects(NODES)) == 5)
    world.server.patch(GROUPS, NAME, {"spec": {"template": racks_of(3)}})
    await until(lambda: world.condition("TemplateResolved")[0] == "False")
    world.server.patch(GROUPS, NAME, {"spec": {"cloud": {"outageUnits": ["pool-0"]}}})
    await until(lambda: held_racks(world) == ["pool-0"] * 2)


async def test_what_was_decided_about_a_node_is_written_on_it_and_taken_back(
    world: Clouded,
) -> None:
    taint = {"key": STARTING, "effect": "NoSchedule", "removedAfter": {"fixed": "2s"}}
    world.make(2, {"startupTaints": [taint]})
    await until(lambda: world.tainted() == 2)
    await until(lambda: world.tainted() == 0)
    assert len(world.nodes) == 2


async def test_a_node_says_to_a_millisecond_when_it_was_requested(world: Clouded) -> None:
    before = time.time_ns() // 1_000_000
    world.make(1, {"provisioningDelay": {"fixed": "0s"}})
    await world.settled(1)
    (node,) = world.nodes
    asked = parse_time(node["metadata"]["annotations"][REQUESTED_AT_ANNOTATION])
    assert asked >= before


async def test_an_update_in_place_leaves_what_the_cloud_holds_back(world: Clouded) -> None:
    def cpus() -> list[str]:
        return [node["status"]["capacity"]["cpu"] for node in world.nodes]

    shape = {"cpu": 4, "gpu": {"count": 8}}
    world.make(
        2,
        {"lateResources": [{"name": GPU, "after": {"fixed": "1h"}}]},
        template={"shape": shape},
        updateStrategy={"type": "InPlace"},
    )
    await world.settled(2)
    world.server.patch(GROUPS, NAME, {"spec": {"template": {"shape": {"cpu": 6}}}})
    await until(lambda: cpus() == ["6", "6"])
    await world.settled(2)
    assert all(LIFE_ANNOTATION in node["metadata"]["annotations"] for node in world.nodes)
    assert not any(GPU in node["status"]["capacity"] for node in world.nodes)


async def test_with_the_stage_nodes_are_held(world: Clouded) -> None:
    world.server.serve(STAGES, kind="Stage")
    world.server.create(STAGES, {"metadata": {"name": HOLD_STAGE}})
    world.make(1, {"readinessDelay": {"fixed": "1h"}})
    await until(lambda: world.condition("CloudSimulated") == ("True", "HeldByStage"))
    await until(lambda: HOLD_LABEL in str(world.nodes))


async def test_a_node_takes_pods_by_the_write_that_gives_notice(world: Clouded) -> None:
    taint = {"key": STARTING, "effect": "NoSchedule"}
    ends = {"lifetime": {"fixed": "2h"}, "notice": "1h", "taint": taint}
    world.make(1, {"interruptions": ends})
    await world.settled(1)
    await world.parts.queue.close(grace=1.0)
    (node,) = world.nodes
    world.later += 5_400
    world.parts.kwok._trusted_until = float("inf")
    shut = {"key": NOT_READY_TAINT_KEY, "effect": NOT_READY_TAINT_EFFECT}
    name = node["metadata"]["name"]
    world.server.patch(NODES, name, {"spec": {"taints": [*node["spec"]["taints"], shut]}})
    await until(lambda: not world.cache.group(NAME)[name].usable)
    patches = world.server.calls["patch", "nodes"]
    await world.parts.reconciler.reconcile(NAME)
    (node,) = world.nodes
    assert STARTING in str(node) and not any(map(is_not_ready_taint, node["spec"]["taints"]))
    assert world.server.calls["patch", "nodes"] == patches + 1


async def test_a_group_that_is_gone_has_no_instances(world: Clouded) -> None:
    world.make(2, {"outage": True})
    await until(lambda: len(world.parts.clouds.phases(NAME)) == 2)
    world.server.delete(GROUPS, NAME)
    await until(lambda: not world.parts.clouds.phases(NAME))


async def test_a_deletion_that_gets_stuck_is_put_off_and_done_in_the_end(world: Clouded) -> None:
    stuck = {"serials": "0-9", "delay": {"fixed": "2s"}}
    world.make(1, {"failures": {"slowDeletion": stuck}})
    await world.settled(1)
    world.scale(0)
    await until(lambda: DELETE_AT_ANNOTATION in str(world.nodes))
    await until(lambda: world.nodes == [])


async def test_what_goes_badly_together_is_reported_when_it_is_new(world: Clouded) -> None:
    options = {"options": {"scaleDownUnneededTime": "1m"}}
    world.make(1, {"readinessDelay": {"fixed": "0s"}}, autoscaling=options)
    await until(lambda: world.last_caution == "Caution")


async def test_an_edited_place_never_releases_a_node_of_a_rack_that_is_out(
    world: Clouded, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = {"topology": {"levels": [{"label": RACK, "of": 2}]}}
    world.server.serve(STAGES, kind="Stage")
    world.server.create(STAGES, {"metadata": {"name": HOLD_STAGE}})
    world.make(4, {"flapping": None}, template=topology)
    await world.settled(4)
    world.server.patch(GROUPS, NAME, {"spec": {"cloud": {"outageUnits": [f"{NAME}-0"]}}})
    await until(lambda: held_racks(world) == [f"{NAME}-0"] * 2)
    await until(lambda: world.condition("Ready") == ("False", "Outage"))
    held = next(n for n in world.nodes if HOLD_LABEL in n["metadata"]["labels"])
    name, place = held["metadata"]["name"], held["metadata"]["annotations"][PLACE_ANNOTATION]
    observe, out = world.parts.clouds.observe, list[int]()

    def observed(*given: Any, now: int) -> ObservedCloud | None:
        cloud = observe(*given, now=now)
        out.append(cloud.nodes_out if cloud is not None else 0)
        return cloud

    monkeypatch.setattr(world.parts.clouds, "observe", observed)
    edit = {"metadata": {"annotations": {PLACE_ANNOTATION: f"{NAME}/3"}}}
    world.server.patch(NODES, name, edit)

    def annotations() -> Json:
        found: Json = world.server.objects(NODES)[name]["metadata"]["annotations"]
        return found

    await until(lambda: annotations()[PLACE_ANNOTATION] == place)
    assert set(out) == {2}
    assert held_racks(world) == [f"{NAME}-0"] * 2


async def test_only_nodes_in_an_outage_are_not_ready_because_of_it(world: Clouded) -> None:
    topology = {"topology": {"levels": [{"label": RACK, "of": 2}]}}
    world.server.serve(STAGES, kind="Stage")
    world.server.create(STAGES, {"metadata": {"name": HOLD_STAGE}})
    never = {"neverReady": {"serials": "0"}}
    world.make(2, {"failures": never, "outageUnits": [f"{NAME}-7"]}, template=topology)
    await until(lambda: world.condition("Ready") == ("False", "NodesNotReady"))
    assert world.condition("Outage") == ("True", UNIT_OUTAGE)
    world.server.patch(GROUPS, NAME, {"spec": {"cloud": {"outageUnits": [f"{NAME}-0"]}}})
    await until(lambda: world.condition("Ready") == ("False", "Outage"))
