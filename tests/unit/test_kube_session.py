"""The session that kopf gets:

- it logs in, and each exchange is observed: what, how it ended, and how long it took
- a watch that is begun anew is told, the first one isn't
- a session that is closed while a request of it waits says so as aiohttp does, which kopf knows
- a watch that was cut, or could not be opened, is begun from a version that is gone
- an answer of which half comes is none: kopf tries again what has no answer, and nothing else
- lists and watches of one path are begun at most once a second; nothing else waits, nor a next page
"""

import asyncio

import aiohttp
import pytest

from kwok_operator.kube.connection import ApiConnection, Endpoint
from kwok_operator.kube.session import FIRST_VERSION, PAUSE, open_session
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.reflecting import Naps


async def test_what_is_asked_is_observed() -> None:
    observed: list[tuple[str, str, int]] = []
    restarted: list[tuple[str, str]] = []
    async with FakeApiServer() as server:
        connection = server.connection()
        async with open_session(
            connection,
            observe=lambda method, path, code, _: observed.append((method, path, code)),
            on_restart=lambda path, cause: restarted.append((path, cause)),
            sleep=Naps(),
        ) as session:
            for query in ("", "?watch=true", "?watch=true"):
                async with session.get(f"{connection.server}{NODES}{query}") as answer:
                    assert answer.status == 200
            assert restarted == [(NODES, "closed")]
            server.cut()
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{connection.server}{NODES}", json={})
    watches = [("WATCH", NODES, 200)] * 2
    assert observed == [("GET", NODES, 200), *watches, ("POST", NODES, 0)]


async def test_half_an_answer_is_none() -> None:
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        writer.close()

    async with await asyncio.start_server(half, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = ApiConnection(Endpoint(server=f"http://127.0.0.1:{port}"))
        async with open_session(connection, sleep=Naps()) as session:
            for path in ("/apis", f"{NODES}?limit=5"):
                with pytest.raises(aiohttp.ClientConnectionError):
                    await session.get(f"{connection.server}{path}")


async def test_what_breaks_off_again_and_again_is_begun_once_a_second() -> None:
    naps, now = Naps(), [100.0]
    async with FakeApiServer() as server:
        connection = server.connection()
        async with open_session(connection, sleep=naps, clock=lambda: now[0]) as session:

            async def get(path: str, query: str) -> list[float]:
                before = len(naps.slept)
                async with session.get(f"{connection.server}{path}?{query}"):
                    return naps.slept[before:]

            assert await get(NODES, "watch=true") == []
            assert await get(NODES, "limit=5") == []
            assert await get(NODES, "limit=5&continue=5") == []
            assert await get(GROUPS, "watch=true") == []
            assert await get(NODES, "watch=true") == [PAUSE]
            assert await get(NODES, "limit=5") == [PAUSE]
            now[0] += 2 * PAUSE
            assert await get(NODES, "watch=true") == []
            assert await get(NODES, "") == await get(NODES, "") == []


async def test_a_session_that_is_closed_meanwhile_says_so() -> None:
    async with FakeApiServer() as server:
        connection = server.connection()
        session = open_session(connection, sleep=lambda _: session.close())
        url = f"{connection.server}{NODES}?watch=true"
        async with session.get(url):
            with pytest.raises(RuntimeError, match="Session is closed"):
                await session.get(url)


async def test_a_watch_that_was_cut_begins_with_a_list() -> None:
    now = [100.0]
    async with FakeApiServer() as server:
        connection = server.connection()
        async with open_session(connection, sleep=Naps(), clock=lambda: now[0]) as session:

            async def version_asked(query: str) -> str:
                address = f"{connection.server}{NODES}?{query}"
                async with session.get(address):
                    return server.seen[-1].query.get("resourceVersion", "")

            watch = "watch=true&timeoutSeconds=600&resourceVersion=1234"
            assert await version_asked(watch) == "1234"
            assert await version_asked(watch) == FIRST_VERSION, "cut"
            assert await version_asked("limit=5") == ""
            assert await version_asked(watch) == "1234"
            now[0] += 600
            assert await version_asked(watch) == "1234", "it has ended in its time"
            now[0] += 600
            server.cut(verb="watch", times=2)
            with pytest.raises(aiohttp.ClientError):
                await version_asked(watch)
            now[0] += 6_000
            assert await version_asked(watch) == FIRST_VERSION, "after an outage"
