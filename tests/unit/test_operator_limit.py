"""The limit for all groups together, where their passes run at the same time."""

from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.operator import NAME, Json, World
from tests.fakes.waiting import until

LIMIT = 20
NAMES = ("a", "b", "c")


def targets(server: FakeApiServer) -> list[int]:
    """Those in force."""
    return [g.get("status", {}).get("targetSize", 0) for g in server.objects(GROUPS).values()]


@pytest.mark.parametrize(
    "cloud", [None, {"provisioningDelay": {"fixed": "0s"}}], ids=["perfect", "cloud"]
)
async def test_groups_that_ask_at_once_share_the_limit(cloud: dict[str, Any] | None) -> None:
    async with World(limit=LIMIT).running() as world:
        server = world.server
        spec = {"targetSize": 15} | ({"cloud": cloud} if cloud else {})
        for name in NAMES:
            server.create(GROUPS, {"metadata": {"name": name}, "spec": spec})
        await until(lambda: len(server.objects(NODES)) >= LIMIT)
        await until(lambda: sum(targets(server)) == LIMIT)
        assert server.calls["create", "nodes"] == LIMIT + len(NAMES)  # one dry run each
        largest = max(server.objects(GROUPS), key=lambda n: targets(server)[NAMES.index(n)])
        server.patch(GROUPS, largest, {"spec": {"targetSize": 0}})
        await until(lambda: sorted(targets(server)) == [0, 5, 15])
        assert len(server.objects(NODES)) == LIMIT


async def test_nodes_that_are_not_seen_as_their_groups_any_more_count() -> None:
    async with World(limit=8).running() as world:
        server, lost = world.server, {"metadata": {"labels": {NODE_GROUP_LABEL: None}}}
        world.scale(6)
        await world.settled(6)
        server.fail(403, times=1_000, verb="patch", resource="nodes")
        for name in list(server.objects(NODES)):
            server.patch(NODES, name, lost)
        await until(lambda: "NodesAltered" in str(world.status["conditions"]))
        world.scale(0)
        server.create(GROUPS, {"metadata": {"name": "other"}, "spec": {"targetSize": 6}})
        await until(lambda: len(server.objects(NODES)) == 8)
        await until(lambda: "NodeLimit" in str(server.objects(GROUPS)["other"]["status"]))
        assert targets(server) == [0, 2]


async def test_a_paused_group_holds_no_room_for_nodes_that_are_gone() -> None:
    async with World(limit=8).running() as world:
        server = world.server
        world.scale(8)
        await world.settled(8)
        server.patch(GROUPS, NAME, {"spec": {"paused": True}})
        await until(lambda: "SpecPaused" in str(world.status))
        altered, *names = list(server.objects(NODES))
        server.patch(NODES, altered, {"metadata": {"labels": {NODE_GROUP_LABEL: None}}})
        for name in names[:3]:
            server.delete(NODES, name)
        server.create(GROUPS, {"metadata": {"name": "other"}, "spec": {"targetSize": 6}})
        await until(lambda: len(server.objects(NODES)) == 8)
        assert NODE_GROUP_LABEL not in server.objects(NODES)[altered]["metadata"]["labels"]


async def test_a_group_that_can_not_be_read_has_the_room_of_its_nodes() -> None:
    before, after = World(), World(limit=8)
    async with before.running():
        before.scale(6)
        await before.settled(6)
    server = after.server
    server.store = before.server.store
    server.patch(GROUPS, NAME, {"spec": {"scaleDown": {"pods": "Teleport"}}})
    async with after.running():
        assert after.room("other") == 2
        kept, other, *_ = server.objects(NODES)
        server.patch(NODES, kept, {"metadata": {"finalizers": ["example.com/kept"]}})
        server.delete(NODES, kept)
        server.delete(NODES, other)
        await until(lambda: after.room("other") == 3)
        assert kept in server.objects(NODES)
        server.patch(NODES, kept, {"metadata": {"finalizers": None}})
        await until(lambda: after.room("other") == 4)
        server.delete(GROUPS, NAME)
        await until(lambda: after.room("other") == 8)


async def test_deleted_nodes_that_a_finalizer_keeps_take_room() -> None:
    """Replaced again and again, they would be without end."""
    async with World(limit=25).running() as world:

        def admit(body: Json, dry_run: bool) -> None:
            if body["kind"] == "Node":
                body["metadata"]["finalizers"] = ["example.com/kept"]

        world.server.admit = admit
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 5}}
        spec = {"targetSize": 10, "updateStrategy": strategy}
        world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})
        await world.settled(10)
        for cpu in range(3, 8):
            shape = {"template": {"shape": {"cpu": cpu}}}
            world.server.patch(GROUPS, NAME, {"spec": shape})
            await world.heard()
            await until(lambda: "leaves no room" in str(world.status) or updated(world))
        there = len(world.server.objects(NODES))
        assert there <= 25
        assert world.status["replicas"] == 10
        assert world.room("other") == 25 - there
        world.server.admit = lambda body, dry_run: None
        for name, node in list(world.server.objects(NODES).items()):
            if node["metadata"].get("deletionTimestamp"):
                world.server.patch(NODES, name, {"metadata": {"finalizers": None}})
        await until(lambda: updated(world))


def updated(world: World) -> bool:
    seen = world.status.get("observedGeneration") == world.group["metadata"]["generation"]
    return seen and world.status.get("updatedReplicas") == world.status.get("readyReplicas") == 10
