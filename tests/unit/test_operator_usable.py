"""Nodes take pods as soon as they are Ready: on a small API server that taints each new node.

Which patch it is is in test_usable.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from kwok_operator.kube.taints import is_not_ready_taint
from kwok_operator.nodegroups import kwok
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.operator import NAME, STATUS, Json, World
from tests.fakes.troubles import TROUBLES, cause
from tests.fakes.waiting import until

SIZE = 12
"""More than the eight that are written at once."""
NEW = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World().running() as world:
        yield world


def tainted(world: World) -> list[str]:
    """The nodes that pods are kept off."""
    nodes = world.server.objects(NODES)
    return [n for n, node in nodes.items() if any(map(is_not_ready_taint, taints(node)))]


def taints(node: Json) -> list[Json]:
    return node["spec"].get("taints") or []


def refused(world: World) -> bool:
    """Whether the group ever said that the API server refuses something."""
    said = [seen.body for seen in world.server.seen if seen.resource == STATUS]
    assert said
    return any(b"Refused" in body for body in said)


async def edited(world: World) -> None:
    """Until a pass has looked at the group once more."""
    generation = world.group["metadata"]["generation"]
    world.server.patch(GROUPS, NAME, {"spec": {"price": {"hourly": str(generation)}}})
    await until(lambda: world.status["observedGeneration"] == generation + 1)


async def one_still_shut(world: World) -> tuple[str, asyncio.Event]:
    """The one node of many whose PATCH has not arrived, and what lets it."""
    world.scale(1)
    await world.settled(1)
    held = world.server.hold(verb="patch", resource="nodes")
    world.scale(SIZE)
    await until(lambda: len(world.server.objects(NODES)) == SIZE and len(tainted(world)) == 1)
    (name,) = tainted(world)
    return name, held


async def test_one_patch_opens_a_node(world: World) -> None:
    world.scale(SIZE)
    await world.settled(SIZE)
    assert not tainted(world)
    assert world.server.calls["patch", "nodes"] == SIZE
    world.scale(SIZE + 1)
    await world.settled(SIZE + 1)
    assert world.server.calls["patch", "nodes"] == SIZE + 1
    assert world.server.calls["get", "nodes"] <= 2, "only of the first one, which kwok made Ready"


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_trouble_with_the_patch_is_passed_by(world: World, trouble: str) -> None:
    cause(world.server, trouble, verb="patch")
    world.scale(SIZE)
    await world.settled(SIZE)
    assert not tainted(world)
    assert world.serials() == list(range(SIZE))


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_a_refusal_stops_nobody(world: World, code: int) -> None:
    world.scale(1)
    await world.settled(1)
    world.server.fail(code, times=8, verb="patch", resource="nodes")
    world.scale(SIZE)
    await world.settled(SIZE)
    assert not tainted(world)
    assert not refused(world)


async def test_a_name_is_not_used_twice_because_of_the_patch(world: World) -> None:
    world.scale(1)
    await world.settled(1)
    world.server.fail(429, verb="patch", resource="nodes")
    held = world.server.hold(verb="get", resource="nodes")
    before = world.server.calls.copy()
    world.scale(2)
    await until(lambda: (world.server.calls - before)["get", "nodes"])
    assert (world.server.calls - before)["create", "nodes"] == 1
    (name,) = tainted(world)
    world.server.delete(NODES, name)
    held.set()
    await world.settled(2)
    assert world.serials() == [0, 2]


async def test_nodes_that_another_operator_left_are_opened(world: World) -> None:
    world.scale(SIZE)
    await world.settled(SIZE)
    world.later = 10.0  # the first one was opened a moment ago, and nobody tries it again at once
    for name, node in list(world.server.objects(NODES).items()):
        world.server.patch(NODES, name, {"spec": {"taints": [*taints(node), NEW]}})
    await until(lambda: not tainted(world))
    await world.settled(SIZE)


async def test_what_somebody_adds_in_between_stays(world: World) -> None:
    name, held = await one_still_shut(world)
    hand = {"key": "by-hand", "effect": "NoExecute"}
    theirs = [hand, *taints(world.server.objects(NODES)[name])]
    world.server.patch(NODES, name, {"spec": {"taints": theirs}})
    held.set()
    await world.settled(SIZE)
    assert hand in taints(world.server.objects(NODES)[name])
    assert not tainted(world)
    assert not refused(world)


async def test_one_that_somebody_gave_a_value_stays_and_is_left_alone(world: World) -> None:
    world.scale(1)
    await world.settled(1)
    ((name, node),) = world.server.objects(NODES).items()
    hand = {**NEW, "value": "mine"}
    world.server.patch(NODES, name, {"spec": {"taints": [*taints(node), hand]}})
    calls = world.server.calls.copy()
    world.scale(2)
    await world.settled(2)
    assert hand in taints(world.server.objects(NODES)[name])
    assert (world.server.calls - calls)["patch", "nodes"] == 1, "that of the new node"


async def test_a_paused_group_opens_no_node(world: World) -> None:
    world.scale(2)
    await world.settled(2)
    name = sorted(world.server.objects(NODES))[0]
    world.later = 10.0
    world.server.patch(GROUPS, NAME, {"spec": {"paused": True}})
    await world.heard()
    world.server.patch(NODES, name, {"spec": {"taints": [NEW]}})
    await until(lambda: world.status["readyReplicas"] == 1)
    assert tainted(world) == [name]
    world.server.patch(GROUPS, NAME, {"spec": {"paused": False}})
    await until(lambda: not tainted(world))


async def test_who_shuts_a_node_each_time_is_fought_seldom(world: World) -> None:
    world.scale(1)
    await world.settled(1)  # the first node was opened a moment ago, on its own
    (name,) = world.server.objects(NODES)
    world.server.patch(NODES, name, {"spec": {"taints": [NEW]}})
    await until(lambda: world.status["readyReplicas"] == 0)
    await edited(world)
    assert tainted(world) == [name]
    world.later += 6.0
    await edited(world)
    await until(lambda: not tainted(world))
    world.server.patch(NODES, name, {"spec": {"taints": [NEW]}})
    await until(lambda: world.status["readyReplicas"] == 0)
    world.later += 6.0
    await edited(world)
    assert tainted(world) == [name]


async def test_a_node_that_is_not_ready_any_more_stays_shut(world: World) -> None:
    name, held = await one_still_shut(world)
    down = {"conditions": [{"type": "Ready", "status": "False"}]}
    world.server.patch(NODES, name, {"status": down}, subresource="status")
    held.set()
    await until(lambda: world.status.get("readyReplicas") == SIZE - 1)
    assert tainted(world) == [name]


async def test_where_kwok_is_silent_nodes_stay_shut(world: World) -> None:
    world.scale(2)
    await world.settled(2)
    name = sorted(world.server.objects(NODES))[0]
    world.later = 100.0  # nobody renews a Lease any more
    world.server.patch(NODES, name, {"spec": {"taints": [NEW]}})
    calls = world.server.calls.copy()
    await until(lambda: world.status["readyReplicas"] == 1)
    for _ in range(3):
        world.later += 100.0
        await edited(world)
    await until(lambda: "KwokNotResponding" in str(world.status["conditions"]))
    assert world.status["readyReplicas"] == 1
    assert tainted(world) == [name]
    assert not (world.server.calls - calls)["get", "nodes"], "nobody has tried"


@pytest.mark.parametrize("code", [403, 500])
async def test_leases_that_can_not_be_read_hold_up_no_scaling_down(
    world: World, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kwok, "LOOK_EVERY", 0.0)  # tests try failed passes again sooner
    world.scale(SIZE)
    await world.settled(SIZE)
    name = sorted(world.server.objects(NODES))[0]
    down = {"conditions": [{"type": "Ready", "status": "False"}]}
    world.server.patch(NODES, name, {"status": down}, subresource="status")
    await until(lambda: world.status.get("readyReplicas") == SIZE - 1)
    world.server.fail(code, times=1_000, verb="get", resource="leases")
    world.later = 100.0  # kwok was last heard of then
    world.scale(2)
    await until(lambda: len(world.server.objects(NODES)) == 2)
    assert world.status["observedGeneration"] == 2


async def test_nodes_that_are_not_to_be_born_ready_are_initialised_by_kwok(world: World) -> None:
    spec = {"targetSize": SIZE, "template": {"bornReady": False}}
    world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})
    await world.settled(SIZE)
    assert not tainted(world)
    posts = [
        seen for seen in world.server.seen if seen.verb == "create" and seen.resource == "nodes"
    ]
    bodies = [json.loads(seen.body) for seen in posts if "dryRun" not in seen.query]
    assert len(bodies) == SIZE
    for body in bodies:
        assert body["status"].keys().isdisjoint({"conditions", "addresses", "daemonEndpoints"})
    world.server.patch(GROUPS, NAME, {"spec": {"template": {"bornReady": True}}})
    world.scale(2 * SIZE)
    await world.settled(2 * SIZE)
