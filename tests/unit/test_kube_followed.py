"""What is known of a kind by events and lists."""

import json
from collections.abc import AsyncIterator

import pytest

from kwok_operator.cloud.pools import StoredPool, stored_pool
from kwok_operator.constants import POOLS_PATH
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.followed import FollowedKind, is_served, list_into
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.discovery import serve_followed

Json = dict[str, object]


def body(version: int, *, name: str = "a", uid: str = "") -> Json:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {}}


@pytest.fixture
def known() -> FollowedKind[StoredPool]:
    return FollowedKind(stored_pool, lambda old, new: None)


def versions(known: FollowedKind[StoredPool]) -> dict[str, int]:
    return {name: item.resource_version for name, item in known.all().items()}


def test_a_list_on_its_way_brings_nothing_back(known: FollowedKind[StoredPool]) -> None:
    for version, gone in ((5, False), (7, True)):
        known.seen(body(version), gone)
    known.listed([body(5)], 6)
    assert versions(known) == {}
    known.listed([body(8, uid="another")], 9)
    assert versions(known) == {"a": 8}


def test_an_event_that_is_newer_than_the_list_holds(known: FollowedKind[StoredPool]) -> None:
    known.seen(body(9), False)
    known.seen(body(8, name="b"), False)
    known.listed([body(5)], 6)
    assert versions(known) == {"a": 9, "b": 8}
    known.listed([body(9)], 10)
    assert versions(known) == {"a": 9}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    server = FakeApiServer()
    serve_followed(server)
    async with server:
        yield server


async def test_after_a_restore_the_list_holds(
    server: FakeApiServer, known: FollowedKind[StoredPool]
) -> None:
    known.seen(body(10**6), False)
    known.seen(body(10**6 + 1, name="b"), False)
    known.seen(body(10**6 + 2, name="b"), True)
    server.create(POOLS_PATH, {"metadata": {"name": "a"}})
    server.create(POOLS_PATH, {"metadata": {"name": "c"}})
    async with KubeClient(connection=server.connection()) as client:
        await list_into(client, POOLS_PATH, known, page_size=1)
        assert versions(known).keys() == {"a", "c"}
        assert max(versions(known).values()) < 10**6
        server.patch(POOLS_PATH, "a", {"metadata": {"labels": {"a": "b"}}})
        await list_into(client, POOLS_PATH, known, page_size=1)
        assert versions(known)["a"] > versions(known)["c"]
        del server.store.collections[POOLS_PATH]
        await list_into(client, POOLS_PATH, known, page_size=1)
        assert versions(known) == {}


async def test_a_kind_is_served_once_discovery_lists_it(server: FakeApiServer) -> None:
    async with KubeClient(connection=server.connection()) as client:
        assert await is_served(client, POOLS_PATH)
        for path, nothing in (("/apis", "groups"), (POOLS_PATH.rpartition("/")[0], "resources")):
            before = server.documents[path]
            server.documents[path] = json.dumps({nothing: []})
            assert not await is_served(client, POOLS_PATH)
            server.documents[path] = before
        assert await is_served(client, POOLS_PATH)
