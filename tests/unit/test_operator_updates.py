"""Nodes that are patched in place while something goes wrong: on a small API server with faults.

Which patches there are is in test_inplace.py; the fake server notes no managedFields.
"""

import json
from collections.abc import AsyncIterator

import pytest

from kwok_operator import constants
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.operator import NAME, WATCHES, Json, World
from tests.fakes.troubles import TROUBLES, cause
from tests.fakes.waiting import until

SIZE = 12
"""More than the eight that are written at once."""


class Updating(World):
    """A group of patched nodes whose template has one label."""

    def edit(self, value: str, **shape: object) -> None:
        template = {"shape": {"labels": {"v": value}, **shape}}
        spec = {"template": template, "updateStrategy": {"type": "InPlace"}}
        self.server.patch(GROUPS, NAME, {"spec": spec})

    def values(self) -> list[str]:
        return [node["metadata"]["labels"].get("v") for node in self.nodes()]

    def nodes(self) -> list[Json]:
        return [node for _, node in sorted(self.server.objects(NODES).items())]

    async def updated(self, value: str, size: int = SIZE) -> None:
        await self.settled(size)
        assert self.values() == [value] * size
        assert self.status["updatedReplicas"] == size


@pytest.fixture
async def world() -> AsyncIterator[Updating]:
    async with Updating().running() as world:
        world.scale(SIZE)
        await world.settled(SIZE)
        world.server.calls.clear()
        world.server.seen.clear()
        yield world


async def test_all_is_well(world: Updating) -> None:
    world.edit("2", cpu=4)
    await world.updated("2")
    assert world.server.calls["patch", "nodes/status"] == SIZE
    assert world.server.calls["patch", "nodes"] == SIZE
    world.edit("3", cpu=4)
    await world.updated("3")
    assert world.server.calls["patch", "nodes/status"] == SIZE, "nothing to say there"
    assert world.serials() == list(range(SIZE))


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_updates_in_trouble_end_well(world: Updating, trouble: str) -> None:
    for verb in ("patch", "get"):
        cause(world.server, trouble, verb=verb)
    world.edit("2", cpu=4)
    await world.updated("2")
    assert world.serials() == list(range(SIZE))
    assert {node["status"]["capacity"]["cpu"] for node in world.nodes()} == {"4"}


async def test_where_somebody_was_quicker_the_node_is_read_again(world: Updating) -> None:
    world.server.fail(409, times=6, verb="patch", resource="nodes")
    world.edit("2")
    await world.updated("2")


async def test_what_somebody_writes_in_between_is_not_lost(world: Updating) -> None:
    held = world.server.hold(verb="patch", resource="nodes")
    world.edit("2", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    await until(lambda: world.values().count("2") >= SIZE - 1)
    late = world.nodes()[world.values().index(None)]  # type: ignore[arg-type]
    hand = {"key": "by-hand", "effect": "NoSchedule"}
    patch = {"spec": {"taints": [*late["spec"]["taints"], hand]}}
    world.server.patch(NODES, late["metadata"]["name"], patch)
    held.set()
    await world.updated("2")
    taints = world.server.objects(NODES)[late["metadata"]["name"]]["spec"]["taints"]
    assert [t["key"] for t in taints] == ["by-hand", "gpu", "kwok-provider"]


async def test_a_node_that_goes_meanwhile_is_replaced(world: Updating) -> None:
    held = world.server.hold(verb="get", resource="nodes")
    world.edit("2")
    await until(lambda: world.values().count("2") >= SIZE - 1)
    late = world.nodes()[world.values().index(None)]  # type: ignore[arg-type]
    world.server.delete(NODES, late["metadata"]["name"])
    held.set()
    await world.updated("2")
    assert len(world.serials()) == SIZE


async def test_a_node_that_is_not_the_group_s_any_more_is_left_alone(world: Updating) -> None:
    held = world.server.hold(verb="get", resource="nodes")
    world.edit("2")
    await until(lambda: world.values().count("2") >= SIZE - 1)
    late = world.nodes()[world.values().index(None)]["metadata"]["name"]  # type: ignore[arg-type]
    disowned = {"metadata": {"annotations": {constants.NODE_GROUP_UID_ANNOTATION: "another"}}}
    world.server.patch(NODES, late, disowned)
    held.set()
    await until(lambda: world.status["replicas"] == SIZE and len(world.nodes()) == SIZE + 1)
    assert "v" not in world.server.objects(NODES)[late]["metadata"]["labels"]


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_refusal_is_told_and_ends_with_its_reason(world: Updating, code: int) -> None:
    world.server.fail(code, times=10, verb="patch", resource="nodes", message="no more today")
    world.edit("2")
    await until(lambda: "refuses to update nodes: no more today" in str(world.status["conditions"]))
    await world.updated("2")
    assert "no more today" not in str(world.status["conditions"])


async def test_a_node_that_got_only_its_status_is_patched_again(world: Updating) -> None:
    world.server.fail(403, times=1, verb="patch", resource="nodes")
    world.edit("2", cpu=4)
    await world.updated("2")
    bodies = [(s.name, json.loads(s.body)) for s in world.server.seen if s.verb == "patch"]
    tries = []
    for name in world.server.objects(NODES):
        writes = [body for node, body in bodies if node == name and "resourceVersion" in str(body)]
        kinds = ["status" if "status" in body else "rest" for body in writes]
        assert kinds in (["status", "rest"], ["status", "rest", "rest"])
        tries.append(len(kinds))
    assert tries.count(3) == 1


async def test_an_edit_in_the_middle_stops_between_two_nodes(world: Updating) -> None:
    held = [world.server.hold(verb="patch", resource="nodes") for _ in range(8)]  # all slots
    world.edit("2")
    await until(lambda: world.server.calls["patch", "nodes"] == 8)
    world.edit("3")
    await world.heard()
    for release in held:
        release.set()
    await world.updated("3")
    writes = [s for s in world.server.seen if (s.verb, s.resource) == ("patch", "nodes")]
    values = [json.loads(write.body)["metadata"]["labels"]["v"] for write in writes]
    assert values[-SIZE:] == ["3"] * SIZE
    assert len(values) < 2 * SIZE


async def test_counts_are_told_meanwhile(world: Updating) -> None:
    held = world.server.hold(verb="patch", resource="nodes")
    world.edit("2")
    words = f"{SIZE - 1} of {SIZE} nodes have the present template (InPlace)."
    await until(lambda: words in str(world.status["conditions"]))
    assert world.status["updatedReplicas"] == SIZE - 1
    held.set()
    await world.updated("2")


async def test_what_a_restore_has_undone_is_done_again(world: Updating) -> None:
    server = world.server
    spec = {"targetSize": SIZE + 3, "template": {"shape": {"labels": {"v": "2"}}}}
    server.patch(GROUPS, NAME, {"spec": spec})
    await world.settled(SIZE + 3)
    server.patch(GROUPS, NAME, {"spec": {"updateStrategy": {"type": "InPlace"}}})
    saved = server.snapshot()
    assert len(set(world.values())) == 2, "in the middle"
    await world.updated("2", SIZE + 3)
    await server.restore(saved, missed=world.missed)
    await until(lambda: world.watched == WATCHES)
    await until(lambda: set(world.values()) == {"2"})
    await world.updated("2", SIZE + 3)
