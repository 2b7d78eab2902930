"""HTTP with an API server."""

import asyncio
import contextlib
import json
from collections.abc import Mapping

import aiohttp
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import (
    ApiError,
    ApiUnreachableError,
    ConflictError,
    ConnectionConfigError,
    GoneError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
)
from kwok_operator.kube import concurrency
from kwok_operator.kube.client import APPLY, MERGE_PATCH, KubeClient, LineSplitter
from kwok_operator.kube.connection import ApiConnection, Endpoint
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.reflecting import Naps
from tests.fakes.waiting import until

NODE = {"metadata": {"name": "a"}}
WATCH = {"watch": "true", "resourceVersion": "1000"}


async def test_a_request_goes_out_as_given(server: FakeApiServer, client: KubeClient) -> None:
    await client.request("POST", NODES, params={"fieldManager": "me & you"}, body=NODE)
    seen = server.seen[0]
    assert (seen.verb, seen.query, json.loads(seen.body)) == (
        "create",
        {"fieldManager": "me & you"},
        NODE,
    )
    assert seen.headers["Content-Type"] == seen.headers["Accept"] == "application/json"
    assert seen.headers["Accept-Encoding"] == "identity"
    assert seen.headers["User-Agent"].startswith("kwok-operator/")


async def test_bytes_go_as_they_are(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, NODE)
    body = b'{"metadata":  {"labels": {"x": "y"}}}'
    answer = await client.request("PATCH", f"{NODES}/a", body=body, content_type=MERGE_PATCH)
    assert server.seen[0].body == body
    assert server.seen[0].headers["Content-Type"] == MERGE_PATCH
    assert json.loads(answer)["metadata"]["labels"] == {"x": "y"}


async def test_what_is_applied_is_yaml_too(server: FakeApiServer, client: KubeClient) -> None:
    """YAML has no pairs of surrogates, and takes no control characters as they are."""
    server.create(NODES, NODE)
    told = "💥 \\ud83d\\ude00 \\\\💥 \x85\x7f ä"
    body = {"metadata": {"labels": {"x": told}}}
    with pytest.raises(ApiError, match="UnsupportedMediaType"):
        await client.request("PATCH", f"{NODES}/a", body=body, content_type=APPLY)
    sent = server.seen[0].body
    assert json.loads(sent) == yaml.safe_load(sent) == body


async def test_json_bytes_and_selectors(server: FakeApiServer, client: KubeClient) -> None:
    assert await client.get_json("/version") == {"gitVersion": "v1.34.0"}
    assert await client.request("GET", "/readyz", accept="*/*") == b"ok"
    assert [seen.headers["Accept"] for seen in server.seen] == ["application/json", "*/*"]
    for name, group in (("a", "g"), ("b", "h")):
        server.create(NODES, {"metadata": {"name": name, "labels": {"x.io/group": group}}})
    listed = await client.get_json(NODES, {"labelSelector": "x.io/group=g,x.io/group"})
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]


async def test_refusals(server: FakeApiServer, client: KubeClient) -> None:
    with pytest.raises(NotFoundError, match=r"requesting GET /api/v1/nodes/a: 404 NotFound: nodes"):
        await client.get_json(f"{NODES}/a")
    server.create(NODES, NODE)
    with pytest.raises(ConflictError, match="already exists"):
        await client.request("POST", NODES, body=NODE)


class Logins(ApiConnection):
    """A connection whose token changes with each login, or whose login fails."""

    def __init__(self, server: str, *, tokens: list[str]) -> None:
        super().__init__(Endpoint(server=server))
        self.tokens = tokens
        self.reloads = 0

    async def auth_headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.tokens[0]}"}

    async def reload(self) -> None:
        self.reloads += 1
        if len(self.tokens) == 1:
            raise ConnectionConfigError("the plugin is gone")
        self.tokens.pop(0)


async def test_new_login_after_401(server: FakeApiServer) -> None:
    server.tokens = {"new"}
    logins = Logins(server.url, tokens=["old", "new"])
    async with KubeClient(connection=logins) as client:
        await client.request("POST", NODES, body=NODE)
        await client.get_json(NODES)
    assert logins.reloads == 1
    assert set(server.objects(NODES)) == {"a"}


async def test_one_new_login_only(server: FakeApiServer) -> None:
    server.tokens = {"other"}
    logins = Logins(server.url, tokens=["old", "new", "newer"])
    async with KubeClient(connection=logins) as client:
        with pytest.raises(UnauthorizedError):
            await client.get_json(NODES)
        assert logins.reloads == 1
        with pytest.raises(UnauthorizedError):
            await anext(client.lines(NODES, WATCH))
        assert logins.reloads == 2


async def test_failing_login_is_still_a_401(
    server: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.tokens = {"other"}
    async with KubeClient(connection=Logins(server.url, tokens=["old"])) as client:
        with pytest.raises(UnauthorizedError):
            await client.get_json(NODES)
    assert "the plugin is gone" in caplog.text
    assert server.calls["list", "nodes"] == 1


async def test_new_login_for_a_watch(server: FakeApiServer) -> None:
    server.tokens = {"new"}
    async with KubeClient(connection=Logins(server.url, tokens=["old", "new"])) as client:
        server.create(NODES, NODE)
        async with contextlib.aclosing(client.lines(NODES, WATCH)) as lines:
            assert b'"ADDED"' in await anext(lines)


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
async def test_cut_connection_is_used_again(
    server: FakeApiServer, client: KubeClient, method: str
) -> None:
    node = server.create(NODES, NODE)
    server.cut()
    body = {"PATCH": {"spec": {"x": 1}}, "PUT": node}.get(method)
    await client.request(method, f"{NODES}/a", body=body, content_type=MERGE_PATCH)
    assert len(server.seen) == 2


async def test_patch_is_not_repeated_for_ever(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, NODE)
    server.cut(times=2)
    with pytest.raises(ApiUnreachableError):
        await client.request("PATCH", f"{NODES}/a", body={}, content_type=MERGE_PATCH)


async def test_post_is_not_repeated(server: FakeApiServer, client: KubeClient) -> None:
    server.cut(carried_out=True)
    with pytest.raises(ApiUnreachableError, match="closed the connection"):
        await client.request("POST", NODES, body=NODE)
    assert server.calls["create", "nodes"] == 1
    assert set(server.objects(NODES)) == {"a"}


async def test_retries_follow_the_policy(server: FakeApiServer) -> None:
    naps = Naps()
    server.fail(429, retry_after=3)
    server.fail(503)
    async with KubeClient(connection=server.connection(), sleep=naps, draw=lambda: 0.5) as client:
        await client.request("POST", NODES, body=NODE, retries=2)
        assert naps.slept == [3.25, 0.5]
        server.fail(503, times=3)
        with pytest.raises(ServerError):
            await client.get_json(NODES, retries=2)
        server.fail(429, retry_after=3)
        with pytest.raises(TooManyRequestsError) as caught:
            await client.request("DELETE", f"{NODES}/a")
        assert caught.value.retry_after == 3.0


async def test_time_out(server: FakeApiServer, client: KubeClient) -> None:
    held = server.hold()
    with pytest.raises(ApiUnreachableError, match=r"no answer within 0\.05 s"):
        await client.request("GET", NODES, timeout=0.05)
    held.set()


async def test_no_server() -> None:
    async with KubeClient(
        connection=ApiConnection(Endpoint(server="http://127.0.0.1:1"))
    ) as client:
        with pytest.raises(ApiUnreachableError, match="connection refused"):
            await client.get_json(NODES)
        with pytest.raises(ApiUnreachableError, match="connection refused"):
            await anext(client.lines(NODES, WATCH))


async def test_redirects_are_not_followed(server: FakeApiServer, client: KubeClient) -> None:
    server.fail(302, location="/readyz")
    with pytest.raises(ApiError) as caught:
        await client.get_json(NODES)
    assert caught.value.status == 302
    assert server.calls["get", "/readyz"] == 0


async def test_requests_that_hang_keep_no_others_waiting(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "SLOW", 0.01)
    held = [server.hold(verb="list") for _ in range(3)]
    async with KubeClient(connection=server.connection(), max_connections=2) as client:
        hanging = [asyncio.create_task(client.get_json(NODES)) for _ in held]
        await until(lambda: server.calls["list", "nodes"] == len(held))
        assert await client.request("GET", "/readyz") == b"ok"
        for each in held:
            each.set()
        await asyncio.gather(*hanging)
        hanging = [asyncio.create_task(client.get_json(NODES)) for _ in range(20)]
        await asyncio.gather(*hanging)


async def test_pool_is_bounded_and_watches_stand_apart(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "SLOW", 60.0)
    held = server.hold(verb="list")
    async with KubeClient(connection=server.connection(), max_connections=1) as client:
        slow = asyncio.create_task(client.get_json(NODES))
        await until(lambda: server.seen)
        queued = asyncio.create_task(client.request("GET", "/readyz"))
        server.create(NODES, NODE)
        async with contextlib.aclosing(client.lines(NODES, WATCH)) as lines:
            assert b'"ADDED"' in await anext(lines)
        assert not queued.done()
        assert server.calls["get", "/readyz"] == 0
        held.set()
        assert await queued == b"ok"
        await slow


async def test_everything_is_observed(server: FakeApiServer) -> None:
    observed: list[tuple[str, str, int, float]] = []
    ticks = iter(range(100))
    async with KubeClient(
        connection=server.connection(),
        observe=lambda *what: observed.append(what),
        clock=lambda: float(next(ticks)),
    ) as client:
        await client.get_json(NODES)
        with pytest.raises(NotFoundError):
            await client.request("DELETE", f"{NODES}/a")
        server.cut()
        with pytest.raises(ApiUnreachableError):
            await client.request("POST", NODES, body=NODE)
        async with contextlib.aclosing(client.lines(NODES, WATCH, inactivity=0.05)) as lines:
            assert [line async for line in lines] == []
    assert observed == [
        ("GET", NODES, 200, 1.0),
        ("DELETE", f"{NODES}/a", 404, 1.0),
        ("POST", NODES, 0, 1.0),
        ("WATCH", NODES, 200, 1.0),
    ]


async def test_closed_client_opens_again(client: KubeClient) -> None:
    assert await client.request("GET", "/readyz") == b"ok"
    await client.close()
    assert await client.request("GET", "/readyz") == b"ok"


@given(
    st.lists(st.binary().filter(lambda line: b"\n" not in line)),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1),
    st.binary().filter(lambda rest: b"\n" not in rest),
)
def test_any_chunks_give_the_same_lines(lines: list[bytes], sizes: list[int], rest: bytes) -> None:
    stream = b"".join(line + b"\n" for line in lines) + rest
    splitter, found, turn = LineSplitter(), [], 0
    while stream:
        size = sizes[turn % len(sizes)]
        found += splitter.feed(stream[:size])
        stream, turn = stream[size:], turn + 1
    assert found == [line for line in lines if line]


async def test_long_lines(server: FakeApiServer, client: KubeClient) -> None:
    node = {"metadata": {"name": "a", "annotations": {"x": "y" * 3_000_000}}}
    server.create(NODES, node)
    server.create(NODES, {"metadata": {"name": "b"}})
    async with contextlib.aclosing(client.lines(NODES, WATCH)) as lines:
        assert json.loads(await anext(lines))["object"]["metadata"]["name"] == "a"
        assert json.loads(await anext(lines))["object"]["metadata"]["name"] == "b"


async def test_a_watch_that_ends_or_is_cut(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, NODE)
    async with contextlib.aclosing(client.lines(NODES, WATCH)) as lines:
        assert b'"ADDED"' in await anext(lines)
        server.end_watches()
        assert [line async for line in lines] == []
    async with contextlib.aclosing(client.lines(NODES, WATCH)) as lines:
        assert b'"ADDED"' in await anext(lines)
        server.cut_watches(leaving=b'{"type":"ADDED","obj')
        with pytest.raises(ApiUnreachableError, match="requesting WATCH /api/v1/nodes: no answer"):
            await anext(lines)


async def test_watch_that_is_refused(server: FakeApiServer, client: KubeClient) -> None:
    server.compact()
    with pytest.raises(GoneError, match="too old"):
        await anext(client.lines(NODES, {"watch": "true", "resourceVersion": "1"}))


async def test_watch_says_when_it_is_open(server: FakeApiServer, client: KubeClient) -> None:
    opened: list[bool] = []
    server.fail(500)
    lines = client.lines(NODES, WATCH, on_open=lambda: opened.append(True))
    with pytest.raises(ApiError):
        await anext(lines)
    assert not opened
    # Long enough for an answer on a busy machine.
    lines = client.lines(NODES, WATCH, inactivity=1.0, on_open=lambda: opened.append(True))
    assert [line async for line in lines] == []
    assert opened == [True]


async def test_leaving_early_closes_the_watch(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, NODE)
    async with contextlib.aclosing(client.lines(NODES, WATCH)) as lines:
        await anext(lines)
        assert len(server.watchers) == 1

    def all_gone() -> bool:
        server.bookmark()  # only who writes finds out that nobody listens
        return not server.watchers

    await until(all_gone)


async def test_aiohttp_repeats_what_we_do_not() -> None:
    """PATCH is ours because aiohttp leaves it out; should that change, it would be sent thrice."""
    assert "PATCH" not in aiohttp.client.IDEMPOTENT_METHODS
    assert {"GET", "PUT", "DELETE"} <= aiohttp.client.IDEMPOTENT_METHODS
