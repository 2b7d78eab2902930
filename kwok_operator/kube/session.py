"""Makes the HTTP session for kopf, to control its requests where kopf has no setting.

Each request gets the current credentials, and is observed. Objects that nest too deep for kopf are
cut (shallow.py). Lists and watches of one path start at most once a second, however often the API
server ends them.

kopf resumes a watch at its last resourceVersion. An API server may come back after an outage with
an older store, and sends no events until it reaches that version again. So kopf can be made to list
again: its next watches ask for version 1, which the API server refuses as too old.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import aiohttp

from kwok_operator.kube.client import USER_AGENT, Observer
from kwok_operator.kube.connection import ApiConnection
from kwok_operator.kube.shallow import OF_LINE, OF_LIST, shallow

FIRST_VERSION: Final = "1"
PAUSE: Final = 1.0
"""The least seconds from the start of a list or a watch to the next one of the same path."""


class _Answer(aiohttp.ClientResponse):
    """An answer from which too deep nesting is cut."""

    async def json(self, *, loads: Callable[[str], Any] = json.loads, **options: Any) -> Any:
        def decode(text: str) -> Any:
            return loads(shallow(text.encode(), objects=OF_LIST).decode())

        return await super().json(loads=decode, **options)


class _Lines:
    """The body of a watch, with too deep nesting cut from each line."""

    def __init__(self, body: aiohttp.StreamReader) -> None:
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._body.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield shallow(line, objects=OF_LINE) + b"\n"
        yield shallow(rest, objects=OF_LINE)


class KopfSessions:
    """Opens an HTTP session at each login of kopf, and knows which paths the sessions list and
    watch.

    `listed(again)` is called when a path was listed; `again` says whether it was listed before. No
    event reports objects that were deleted before a watch began, so `listed` has to look for them.
    `restarted(path, cause)` is called when a watch is begun again.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        observe: Observer = lambda *_: None,
        restarted: Callable[[str, str], None] = lambda *_: None,
        listed: Callable[[bool], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._observe = observe
        self._restarted = restarted
        self._report_list = listed
        self._sleep = sleep
        self._clock = clock
        self._opened: list[aiohttp.ClientSession] = []
        self._listed: set[str] = set()
        self._watches: dict[str, aiohttp.ClientResponse] = {}
        self._to_list: set[str] = set()
        self._next: dict[tuple[str, bool], float] = {}

    def open(self) -> aiohttp.ClientSession:
        """Returns a session that is logged in at the API server."""

        async def exchange(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            async def unless_closed(request: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
                if session.closed:  # by a new login; the message is aiohttp's
                    raise RuntimeError("Session is closed")
                return await handler(request)

            return await self._exchange(request, unless_closed)

        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._connection.ssl or True),
            headers={"User-Agent": USER_AGENT},
            middlewares=[exchange],
            response_class=_Answer,
            proxy=self._connection.proxy,
        )
        self._opened = [each for each in self._opened if not each.closed] + [session]
        return session

    async def close(self) -> None:
        """Closes all sessions; kopf doesn't close those that it never used."""
        for watch in self._watches.values():
            watch.close()
        for session in self._opened:
            await session.close()

    def list_anew(self) -> None:
        """Ends all watches, so that kopf lists everything before it watches again."""
        self._to_list |= self._watches.keys()
        for watch in self._watches.values():
            watch.close()

    async def _exchange(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.headers.update(await self._connection.auth_headers())
        if self._connection.tls_server_name is not None:
            request.server_hostname = self._connection.tls_server_name
        path, query = request.url.path, request.url.query
        watches, lists = "watch" in query, "limit" in query and "continue" not in query
        if watches or lists:
            await self._wait_for_turn(path, watches=watches)
        if watches and path in self._watches:
            self._restarted(path, "closed")
        if watches and path in self._to_list:
            request.url = request.url.update_query(resourceVersion=FIRST_VERSION)
        started, status = time.perf_counter(), 0
        try:
            answer = await handler(request)
            if not watches:
                await answer.read()
            status = answer.status
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
            # A broken answer, or one of a proxy. kopf retries only connection errors, so it is made
            # one.
            raise aiohttp.ClientConnectionError(str(error)) from error
        finally:
            method, took = "WATCH" if watches else request.method, time.perf_counter() - started
            self._observe(method, path, status, took)
        if watches:
            self._watches[path] = answer
            answer.content = _Lines(answer.content)  # type: ignore[assignment]
        elif lists and status == 200:
            self._to_list.discard(path)
            self._report_list(path in self._listed)
            self._listed.add(path)
        return answer

    async def _wait_for_turn(self, path: str, *, watches: bool) -> None:
        wait = max(0.0, self._next.get((path, watches), 0.0) - self._clock())
        self._next[path, watches] = self._clock() + wait + PAUSE
        if wait:
            await self._sleep(wait)
