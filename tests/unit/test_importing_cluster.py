"""How an import asks a cluster."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.importing.cluster import ATTEMPTS, ClusterClient, Unreadable, open_cluster
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.kubeconfigs import EXEC_V1, kubeconfig
from tests.fakes.reflecting import Naps

Opened = Callable[..., AbstractAsyncContextManager[ClusterClient]]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        for number in range(7):
            server.create(NODES, {"metadata": {"name": f"node-{number}"}})
        yield server


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
def opened(server: FakeApiServer, naps: Naps, tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def open_it(rate: float = 0, **fields: Any) -> AsyncIterator[ClusterClient]:
        path = kubeconfig(tmp_path / "config", server=server.url, **fields)
        async with open_cluster(kubeconfig=path, requests_per_second=rate, sleep=naps) as cluster:
            yield cluster

    return open_it


async def names(cluster: ClusterClient, *, limit: int = 3) -> list[str]:
    return [item["metadata"]["name"] async for page in cluster.pages(NODES, limit) for item in page]


ALL = [f"node-{number}" for number in range(7)]


async def test_all_pages_are_read(server: FakeApiServer, opened: Opened) -> None:
    async with opened() as cluster:
        assert await names(cluster) == ALL
    assert server.calls["list", "nodes"] == 3
    assert server.seen[0].headers["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_accidents_are_retried(
    status: int, server: FakeApiServer, opened: Opened, naps: Naps
) -> None:
    server.fail(status, retry_after=7, times=2)
    server.cut()
    server.answer(b"<html>a login page</html>")
    server.answer(b"[]")
    async with opened() as cluster:
        assert await names(cluster) == ALL
    assert [nap >= 7 for nap in naps.slept[:2]] == [True, True]
    assert len(server.seen) == 5 + 3


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "log in again"),
        (403, "right to list nodes is in the ClusterRole kwok-operator-import"),
        (404, "doesn't serve it"),
        (400, "injected"),
    ],
)
async def test_refusals_are_not_retried(
    status: int, said: str, server: FakeApiServer, opened: Opened
) -> None:
    server.fail(status, times=2)
    async with opened() as cluster:
        with pytest.raises(Unreadable, match=said) as error:
            await names(cluster)
    assert error.value.status == status
    assert len(server.seen) == (2 if status == 401 else 1), "a token may have expired"


async def test_a_list_that_expires_is_begun_again(server: FakeApiServer, opened: Opened) -> None:
    async with opened() as cluster:
        read: list[str] = []
        async for page in cluster.pages(NODES, 3):
            if not read:
                server.compact()
            read += [item["metadata"]["name"] for item in page]
    assert read == [*ALL[:3], *ALL]


async def test_a_list_that_always_expires_is_given_up(
    server: FakeApiServer, opened: Opened
) -> None:
    async with opened() as cluster:
        with pytest.raises(Unreadable) as error:
            async for _ in cluster.pages(NODES, 3):
                server.compact()
    assert error.value.status == 410


@pytest.mark.parametrize(
    "answer",
    [b'{"items": 5}', b'{"items": {"a": 1}}', b"not JSON", b"[" * 100_000, b"7", b'"\xff"'],
)
async def test_an_answer_that_is_no_list_is_an_error(
    answer: bytes, server: FakeApiServer, opened: Opened
) -> None:
    for _ in range(ATTEMPTS):
        server.answer(answer)
    async with opened() as cluster:
        with pytest.raises(Unreadable):
            await names(cluster)


async def test_odd_metadata_and_no_items_are_an_empty_list(
    server: FakeApiServer, opened: Opened
) -> None:
    server.answer(b'{"metadata": [], "items": null}')
    async with opened() as cluster:
        assert await names(cluster) == []


async def test_the_same_page_for_ever_ends(server: FakeApiServer, opened: Opened) -> None:
    for _ in range(3):
        server.answer(b'{"metadata": {"continue": "a"}, "items": [1]}')
    async with opened() as cluster:
        with pytest.raises(Unreadable, match="same page"):
            _ = [page async for page in cluster.pages(NODES)]


async def test_a_server_that_is_gone_is_tried_once_by_each_request(
    server: FakeApiServer, opened: Opened, naps: Naps
) -> None:
    async with opened() as cluster:
        assert await names(cluster) == ALL
        await server.stop()
        for _ in range(3):
            with pytest.raises(Unreadable, match="connection refused"):
                await names(cluster)
        assert len(naps.slept) == ATTEMPTS - 1
        await server.start()
        assert await names(cluster) == ALL
        server.fail(503)
        assert await names(cluster) == ALL


async def test_requests_keep_the_pace(opened: Opened) -> None:
    async with opened(rate=50) as cluster:
        begun = time.monotonic()
        assert await names(cluster, limit=1) == ALL
    assert time.monotonic() - begun >= 6 / 50


async def test_a_token_that_expires_is_fetched_anew(
    server: FakeApiServer, opened: Opened, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin"
    count = tmp_path / "count"
    plugin.write_text(
        f"#!/bin/sh\necho x >> {count}\n"
        f'echo \'{{"apiVersion": "{EXEC_V1}", "kind": "ExecCredential",'
        f' "status": {{"token": "\'$(grep -c x {count})\'"}}}}\'\n'
    )
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": EXEC_V1, "command": str(plugin)}}
    server.tokens = {"1"}
    async with opened(user=user) as cluster:
        assert await names(cluster) == ALL
        server.tokens = {"2"}
        assert await names(cluster) == ALL
        server.tokens = {"3"}
        with pytest.raises(Unreadable, match="log in again"):  # it has only just logged in
            await names(cluster)


async def test_writes_give_the_status_and_are_sent_again(
    server: FakeApiServer, opened: Opened
) -> None:
    server.cut(verb="create", carried_out=True)
    async with opened() as cluster:
        status, answer = await cluster.send("POST", NODES, {"metadata": {"name": "new"}})
    assert (status, answer["reason"]) == (409, "AlreadyExists")
    assert "new" in server.objects(NODES)


async def test_a_watch_gives_events_until_it_is_too_late(
    server: FakeApiServer, opened: Opened
) -> None:
    async with opened() as cluster:
        pages = [page async for page in cluster.pages(NODES)]
        server.create(NODES, {"metadata": {"name": "new", "annotations": {"a": "x" * 300_000}}})
        async for event in cluster.watch(NODES, pages[-1].version):
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "new")
            break
        server.compact()
        server.gone_as_event = True
        with pytest.raises(Unreadable) as error:
            async for _ in cluster.watch(NODES, pages[-1].version):
                pass
    assert error.value.status == 410


async def test_a_watch_that_has_gone_silent_is_an_error(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwok_operator.importing.cluster._SILENCE", 0.05)
    async with opened() as cluster:
        with pytest.raises(Unreadable, match="no answer in time"):
            async for _ in cluster.watch(NODES, "0"):
                pass
