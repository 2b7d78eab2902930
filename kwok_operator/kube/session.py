"""An aiohttp session for a library that brings its own requests (kopf).

Headers are added to each request, so a token that was renewed meanwhile is used at once, and
nothing in the library has to know how this identity logs in. What it asks is observed as are our
own requests; why it begins a watch anew, it alone knows.

kopf resumes a watch that was cut. A server that was away may be back with an older store, and says
nothing of a version that is still to come. So kopf is made to list: what it asks for is the first
version of all, which is gone for certain.

kopf makes no pause after a list or a watch that was answered and then broke off. Where all of them
do, it would begin anew ten times a second, so the pause is made here. Nor does it survive objects
that nest deep, so it gets none (see shallow.py). `Following` is how somebody else learns what kopf
doesn't tell: whether it still asks at all.
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import aiohttp

from kwok_operator.kube.client import USER_AGENT, Observer
from kwok_operator.kube.connection import ApiConnection
from kwok_operator.kube.shallow import OF_LINE, OF_LIST, shallow

Session = aiohttp.ClientSession

FIRST_VERSION: Final = "1"
PAUSE: Final = 1.0
"""Seconds from the beginning of a list or a watch to that of the next of the same path."""


class Following:
    """How one path is listed and watched, in one session after the other.

    `listed_anew` is called where a watch goes on from a list that is not the first: what was
    deleted before that is told by neither.
    """

    def __init__(self, path: str, *, listed_anew: Callable[[], None]) -> None:
        self._path = path
        self._listed_anew = listed_anew
        self._answer: aiohttp.ClientResponse | None = None
        self._asking = self._lists = 0
        self._announced = 1

    @property
    def under_way(self) -> bool:
        """Whether there is a list or a watch at this moment."""
        return self._asking > 0 or (self._answer is not None and not self._answer.closed)

    @contextmanager
    def asks(self, path: str) -> Iterator[None]:
        """Around each list and each watch, until there is an answer."""
        self._asking += path == self._path
        try:
            yield
        finally:
            self._asking -= path == self._path

    def answered(self, path: str, answer: aiohttp.ClientResponse, *, watches: bool) -> None:
        if path != self._path or answer.status != 200:
            return
        self._answer = answer
        if not watches:
            self._lists += 1
        elif self._lists > self._announced:
            self._announced = self._lists
            self._listed_anew()


NOTHING: Final = Following("", listed_anew=lambda: None)


class _Turns:
    """When a list or a watch may begin."""

    def __init__(
        self, sleep: Callable[[float], Awaitable[object]], clock: Callable[[], float]
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._next: dict[tuple[str, bool], float] = {}

    async def take(self, path: str, *, watches: bool) -> None:
        wait = self._next.get((path, watches), 0.0) - self._clock()
        self._next[path, watches] = self._clock() + max(wait, 0.0) + PAUSE
        if wait > 0:
            await self._sleep(wait)


class _Watches:
    """When the watch of each path ends in its time; one that begins anew before that was cut."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    def knows(self, path: str) -> bool:
        return path in self._ends

    def began(self, path: str, *, seconds: float) -> None:
        self._ends[path] = self._clock() + seconds - PAUSE

    def listed(self, path: str) -> None:
        if path in self._ends:
            self._ends[path] = 0.0

    def lost(self, path: str) -> None:
        """There was no answer."""
        if path in self._ends:
            self._ends[path] = math.inf

    def was_cut(self, path: str) -> bool:
        return self._clock() < self._ends.get(path, 0.0)


class _Answer(aiohttp.ClientResponse):
    """An answer that nests nowhere too deep."""

    async def json(self, *, loads: Callable[[str], Any] = json.loads, **options: Any) -> Any:
        def decode(text: str) -> Any:
            return loads(shallow(text.encode(), objects=OF_LIST).decode())

        return await super().json(loads=decode, **options)


class _Lines:
    """The body of a watch, of which no line nests too deep."""

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


async def _exchange(
    request: aiohttp.ClientRequest,
    handler: aiohttp.ClientHandlerType,
    observe: Observer,
    *,
    watches: bool = False,
) -> aiohttp.ClientResponse:
    started, status = time.perf_counter(), 0
    try:
        response = await handler(request)
        if not watches:
            await response.read()
        status = response.status
    except aiohttp.ClientPayloadError as error:
        raise aiohttp.ClientConnectionError(f"half an answer: {error}") from error
    finally:
        method, took = "WATCH" if watches else request.method, time.perf_counter() - started
        observe(method, request.url.path, status, took)
    return response


def open_session(
    connection: ApiConnection,
    *,
    following: Following = NOTHING,
    observe: Observer = lambda *_: None,
    on_restart: Callable[[str, str], None] = lambda *_: None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Session:
    """A session that talks to the connection's API server as its identity. The caller closes it.

    `observe` is told of each exchange, `on_restart` of the path of each watch that is begun anew.
    """
    turns, watched = _Turns(sleep, clock), _Watches(clock)

    async def log_in(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.headers.update(await connection.auth_headers())
        if connection.tls_server_name is not None:
            request.server_hostname = connection.tls_server_name
        path, query = request.url.path, request.url.query
        watches, lists = "watch" in query, "limit" in query and "continue" not in query
        if watches and watched.knows(path):
            on_restart(path, "closed")
        if not (watches or lists):
            return await _exchange(request, handler, observe)
        with following.asks(path):
            await turns.take(path, watches=watches)
            if lists:
                watched.listed(path)
            elif watched.was_cut(path):
                request.url = request.url.update_query(resourceVersion=FIRST_VERSION)
            if session.closed:  # meanwhile, after a new login; told as aiohttp tells it
                raise RuntimeError("Session is closed")
            try:
                response = await _exchange(request, handler, observe, watches=watches)
            except (aiohttp.ClientError, TimeoutError, OSError):
                watched.lost(path)
                raise
        following.answered(path, response, watches=watches)
        if watches:
            watched.began(path, seconds=float(query.get("timeoutSeconds", 0)))
            response.content = _Lines(response.content)  # type: ignore[assignment]
        return response

    session = Session(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.ssl or True),
        headers={"User-Agent": USER_AGENT},
        middlewares=[log_in],
        response_class=_Answer,
        proxy=connection.proxy,
    )
    return session
