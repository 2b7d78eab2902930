"""Groups on their way from the API server into the store."""

import asyncio
from typing import Any

import pytest

from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.statuswriter import GroupDoubtedError, StatusWriter
from tests.fakes.apiserver import GROUPS, FakeApiServer


class World:
    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.store = GroupStore(clock=lambda: 0.0)
        self.status = StatusWriter(client=client)

    async def take_over(self) -> None:
        for group in (await self.status.groups())[0]:
            self.store.put(group)

    async def list_anew(self) -> set[str] | None:
        return await self.store.list_anew(self.status.groups)

    def target(self, name: str = "web") -> int | None:
        group = self.store.get(name)
        return group.spec.target_size if group else None

    def tell(self, name: str = "web", *, gone: bool = False) -> bool:
        """As a watch would."""
        return self.store.seen(self.server.objects(GROUPS)[name], gone)


@pytest.fixture
def world(server: FakeApiServer, client: KubeClient) -> World:
    return World(server, client)


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


async def test_one_that_can_not_be_read_takes_no_other_with_it(world: World) -> None:
    world.server.create(GROUPS, group("odd", targetSize=1))
    world.server.create(GROUPS, group("web", targetSize=1))
    await world.take_over()
    world.server.patch(GROUPS, "odd", {"spec": {"scaleDown": {"pods": "Teleport"}}})
    world.server.patch(GROUPS, "web", {"spec": {"targetSize": 7}})
    world.server.create(GROUPS, group("new", targetSize=2))
    assert not world.tell("odd")
    assert await world.list_anew() == {"odd", "web", "new"}
    assert [world.target(name) for name in ("odd", "web", "new")] == [1, 7, 2]


async def test_a_status_is_not_written_to_another_group_of_that_name(
    world: World, client: KubeClient
) -> None:
    world.server.create(GROUPS, group("web", targetSize=1))
    await world.take_over()
    known = world.store.get("web")
    assert known is not None
    world.server.delete(GROUPS, "web")
    world.server.create(GROUPS, group("web", targetSize=1))
    with pytest.raises(GroupDoubtedError):
        await StatusWriter(client=client).write(known, KwokNodeGroupStatus())
    assert "status" not in world.server.objects(GROUPS)["web"]


async def test_an_older_event_is_late_unless_a_list_says_else(world: World) -> None:
    world.server.create(GROUPS, group("web", targetSize=1))
    saved = world.server.snapshot()
    world.server.patch(GROUPS, "web", {"spec": {"targetSize": 60}})
    world.server.create(GROUPS, group("since", targetSize=1))
    await world.take_over()
    late = saved.collections[GROUPS].objects["web"]
    assert not world.store.seen(late, gone=False)
    assert world.store.doubted.is_set()
    await world.list_anew()
    assert (world.target(), world.store.doubted.is_set()) == (60, False)

    await world.server.restore(saved, missed=lambda: True)
    assert not world.tell()
    world.server.fail(403, verb="list")
    assert await world.list_anew() is None
    assert world.store.doubted.is_set()
    assert await world.list_anew() == {"web", "since"}
    assert (world.target(), world.store.get("since")) == (1, None)
    assert world.store.doubted.is_set(), "what was told meanwhile may be lost"
    assert await world.list_anew() == {"web"}
    assert not world.store.doubted.is_set()
    world.server.patch(GROUPS, "web", {"spec": {"targetSize": 5}})
    assert world.tell()
    assert world.target() == 5


async def test_a_doubt_lasts_until_the_next_list(
    world: World,
) -> None:
    world.server.create(GROUPS, group("web", targetSize=1))
    await world.take_over()
    assert world.store.sure
    world.store.doubted.set()
    listing = asyncio.create_task(world.list_anew())
    while not listing.done():
        assert not world.store.sure, "nodes may be listed already, and groups are of yesterday"
        await asyncio.sleep(0)
    assert world.store.sure


async def test_one_that_was_deleted_may_be_back(world: World) -> None:
    body = world.server.create(GROUPS, group("web", targetSize=1))
    saved = world.server.snapshot()
    await world.take_over()
    world.server.delete(GROUPS, "web")
    metadata = {**body["metadata"], "resourceVersion": str(world.server.store.version)}
    world.store.seen({**body, "metadata": metadata}, gone=True)
    assert len(world.store.retired("web")) == 1
    await world.server.restore(saved, missed=lambda: True)
    await world.list_anew()
    assert world.target() == 1
    assert world.store.retired("web") == [], "its nodes are to stay"
