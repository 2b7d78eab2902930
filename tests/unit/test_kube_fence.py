"""A fence has a say in every write of a client, up to the moment in which it goes out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube import concurrency
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.kube.connection import ApiConnection, Endpoint
from kwok_operator.kube.fence import FencedBody
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.waiting import until

NODE = {"metadata": {"name": "a"}}


class NotNowError(KwokOperatorError):
    """What this fence raises."""


class Fence:
    """Forbids from the `after`-th question on."""

    def __init__(self, after: float = float("inf")) -> None:
        self.after = after
        self.asked: list[tuple[str, str]] = []

    def __call__(self, method: str, path: str) -> None:
        self.asked.append((method, path))
        if len(self.asked) > self.after:
            raise NotNowError("not now")


@pytest.fixture
def fence() -> Fence:
    return Fence()


@pytest.fixture
async def client(server: FakeApiServer, fence: Fence) -> AsyncIterator[KubeClient]:
    async with KubeClient(
        connection=server.connection(), fence=fence, max_connections=1, draw=lambda: 0.0
    ) as client:
        yield client


async def write(client: KubeClient, method: str) -> None:
    path = NODES if method == "POST" else f"{NODES}/a"
    kind = MERGE_PATCH if method == "PATCH" else "application/json"
    await client.request(method, path, body=NODE, content_type=kind)


async def test_reads_pass_unchecked(
    server: FakeApiServer, client: KubeClient, fence: Fence
) -> None:
    fence.after = 0
    server.create(NODES, NODE)
    await client.request("GET", f"{NODES}/a")
    lines = client.lines(NODES, {"watch": "true", "resourceVersion": "0"})
    assert b"ADDED" in await anext(lines)
    await lines.aclose()
    assert fence.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_that_is_forbidden_is_not_sent(
    server: FakeApiServer, client: KubeClient, fence: Fence, method: str
) -> None:
    fence.after = 0
    with pytest.raises(NotNowError):
        await write(client, method)
    assert fence.asked == [(method, NODES if method == "POST" else f"{NODES}/a")]
    assert server.seen == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nor_is_one_whose_body_was_about_to_go(
    server: FakeApiServer, client: KubeClient, fence: Fence, method: str
) -> None:
    server.create(NODES, NODE)
    server.create(NODES, {"metadata": {"name": "b"}})
    fence.after = 1  # as if the process stood still between the decision and the socket
    with pytest.raises(NotNowError):
        await write(client, method)
    assert len(fence.asked) >= 2
    assert server.seen == []
    fence.after = float("inf")
    await client.request("DELETE", f"{NODES}/b", body={})
    assert [(seen.verb, seen.name) for seen in server.seen] == [("delete", "b")]


async def test_a_write_that_waits_for_its_turn_is_asked_about_after_that(
    server: FakeApiServer, client: KubeClient, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "SLOW", 60.0)
    released = server.hold(verb="get")
    first = asyncio.create_task(client.request("GET", "/version"))
    await until(lambda: server.seen)
    second = asyncio.create_task(write(client, "POST"))
    for _ in range(10):
        await asyncio.sleep(0)  # so that it comes as far as it can
    assert fence.asked == []
    fence.after = 0
    released.set()
    await first
    with pytest.raises(NotNowError):
        await second
    assert server.calls["create", "nodes"] == 0


async def test_so_is_one_that_waits_for_a_token(server: FakeApiServer) -> None:
    fence = Fence()

    class SlowLogin(ApiConnection):
        async def auth_headers(self) -> dict[str, str]:
            fence.after = 0
            return {}

    async with KubeClient(connection=SlowLogin(Endpoint(server=server.url)), fence=fence) as client:
        with pytest.raises(NotNowError):
            await write(client, "POST")
    assert server.seen == []


async def test_no_retry_is_made_any_more(
    server: FakeApiServer, client: KubeClient, fence: Fence
) -> None:
    server.fail(503, times=10)
    fence.after = 5
    with pytest.raises(NotNowError):
        await client.request("POST", NODES, body=NODE, retries=9)
    assert 1 <= server.calls["create", "nodes"] <= 3


async def test_what_fails_once_writes_are_forbidden_is_reported_as_that(
    server: FakeApiServer, client: KubeClient, fence: Fence
) -> None:
    """Or it would count as an accident, and be tried again."""
    server.cut(verb="create")
    fence.after = 2
    with pytest.raises(NotNowError):
        await write(client, "POST")
    assert server.calls["create", "nodes"] == 1


async def test_both_ways_in_which_a_body_is_written_ask() -> None:
    """Which one is used depends on the version of the library."""

    class Writer:
        written: list[bytes] = []  # noqa: RUF012

        async def write(self, data: bytes) -> None:
            self.written.append(data)

    def forbid() -> None:
        raise NotNowError

    writer: Any = Writer()
    body = FencedBody(b"body", allow=forbid)
    assert isinstance(body, aiohttp.BytesPayload)
    with pytest.raises(NotNowError):
        await body.write(writer)
    with pytest.raises(NotNowError):
        await body.write_with_length(writer, 4)
    assert writer.written == []
