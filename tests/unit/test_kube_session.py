"""The sessions that kopf gets."""

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock, Mock

import aiohttp
import pytest
from yarl import URL

from kwok_operator.kube.session import FIRST_VERSION, PAUSE, KopfSessions
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.reflecting import Naps


class World:
    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.now = 100.0
        self.naps = Naps()
        self.observed: list[tuple[str, str, int]] = []
        self.restarted: list[tuple[str, str]] = []
        self.lists: list[bool] = []
        self.sessions = KopfSessions(
            server.connection(),
            observe=lambda method, path, code, _: self.observed.append((method, path, code)),
            restarted=lambda path, cause: self.restarted.append((path, cause)),
            listed=self.lists.append,
            sleep=self.naps,
            clock=lambda: self.now,
        )
        self._session = self.sessions.open()

    async def get(self, path: str, query: str = "", method: str = "GET") -> list[float]:
        """What was slept before it."""
        before = len(self.naps.slept)
        async with self._session.request(method, f"{self.server.url}{path}?{query}"):
            return self.naps.slept[before:]

    async def opened(self, query: str) -> tuple[str, aiohttp.ClientResponse]:
        """Which version was asked for, and the answer."""
        answer = await self._session.get(f"{self.server.url}{NODES}?{query}")
        return self.server.seen[-1].query.get("resourceVersion", ""), answer


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApiServer() as server:
        world = World(server)
        yield world
        await world.sessions.close()


async def test_exchanges_are_observed(world: World) -> None:
    for query in ("", "watch=true", "watch=true"):
        await world.get(NODES, query)
    assert world.restarted == [(NODES, "closed")]
    world.server.cut()
    with pytest.raises(aiohttp.ClientError):
        await world.get(NODES, method="POST")
    watches = [("WATCH", NODES, 200)] * 2
    assert world.observed == [("GET", NODES, 200), *watches, ("POST", NODES, 0)]


async def test_lists_are_reported_first_ones_and_others(world: World) -> None:
    for path in (NODES, GROUPS):
        await world.get(path, "limit=5")
        await world.get(path, "limit=5&continue=5")
    world.server.fail(500)
    await world.get(NODES, "limit=5")
    assert world.lists == [False, False]
    await world.get(NODES, "limit=5")
    assert world.lists == [False, False, True]


async def test_half_an_answer_is_a_connection_that_failed(world: World) -> None:
    """kopf tries nothing else again."""

    async def half(request: aiohttp.ClientRequest) -> Any:
        answer = Mock(status=200)
        answer.read.side_effect = aiohttp.ClientPayloadError("half")
        return answer

    request = Mock(url=URL("http://any/apis"), method="GET", headers={})
    with pytest.raises(aiohttp.ClientConnectionError, match="half"):
        await world.sessions._exchange(request, AsyncMock(side_effect=half))


async def test_watches_that_are_to_list_anew_ask_for_a_version_that_is_gone(world: World) -> None:
    watch = "watch=true&resourceVersion=1234"
    asked, answer = await world.opened(watch)
    assert asked == "1234"
    world.sessions.list_anew()
    assert answer.closed
    for _ in range(2):
        asked, answer = await world.opened(watch)
        assert asked == FIRST_VERSION
        answer.close()
    await world.get(NODES, "limit=5")
    asked, answer = await world.opened(watch)
    assert asked == "1234"


async def test_a_session_that_is_closed_meanwhile_says_so(world: World) -> None:
    _, answer = await world.opened("watch=true")
    answer.close()
    world.sessions._sleep = lambda _: world.sessions.close()
    with pytest.raises(RuntimeError, match="Session is closed"):
        await world.opened("watch=true")


async def test_what_breaks_off_again_and_again_is_begun_once_a_second(world: World) -> None:
    assert await world.get(NODES, "watch=true") == []
    assert await world.get(NODES, "limit=5") == []
    assert await world.get(NODES, "limit=5&continue=5") == []
    assert await world.get(GROUPS, "watch=true") == []
    assert await world.get(NODES, "watch=true") == [PAUSE]
    assert await world.get(NODES, "limit=5") == [PAUSE]
    world.now += 2 * PAUSE
    assert await world.get(NODES, "watch=true") == []
    assert await world.get(NODES) == await world.get(NODES) == []
