"""An aiohttp session for a library that brings its own requests (kopf).

Headers are added to each request, so a token that was renewed meanwhile is used at once, and
nothing in the library has to know how this identity logs in. What it asks is observed as are our
own requests; why it begins a watch anew, it alone knows.

kopf resumes a watch that was cut. A server that was away may be back with an older store, and says
nothing of a version that is still to come. So kopf is made to list: what it asks for is the first
version of all, which is gone for certain.

kopf makes no pause after a list or a watch that was answered and then broke off. Where all of them
do, it would begin anew ten times a second, so the pause is made here.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from kwok_operator import __version__
from kwok_operator.kube.client import Observer
from kwok_operator.kube.connection import Connection

Session = aiohttp.ClientSession

FIRST_VERSION: Final = "1"
PAUSE: Final = 1.0
"""Seconds from the beginning of a list or a watch to that of the next of the same path."""


class _Turns:
    """A pause between two lists, or two watches, of one path."""

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


def open_session(
    connection: Connection,
    *,
    observe: Observer = lambda *_: None,
    on_restart: Callable[[str, str], None] = lambda *_: None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Session:
    """A session that talks to the connection's API server as its identity. The caller closes it.

    `observe` is told of each exchange, `on_restart` of the path of each watch that is begun anew.
    """
    turns = _Turns(sleep, clock)
    ends: dict[str, float] = {}
    """When each watch ends in its time; one that is begun anew before that was cut."""

    async def log_in(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.headers.update(await connection.auth_headers())
        if connection.tls_server_name is not None:
            request.server_hostname = connection.tls_server_name
        path, query = request.url.path, request.url.query
        watches, lists = "watch" in query, "limit" in query and "continue" not in query
        if watches and path in ends:
            on_restart(path, "closed")
        if watches or lists:
            await turns.take(path, watches=watches)
        if lists and path in ends:
            ends[path] = 0.0
        if watches and clock() < ends.get(path, 0.0):
            request.url = request.url.update_query(resourceVersion=FIRST_VERSION)
        if session.closed:  # meanwhile, after a new login; told as aiohttp tells it
            raise RuntimeError("Session is closed")
        started, status = time.perf_counter(), 0
        try:
            response = await handler(request)
            status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            if path in ends:
                ends[path] = math.inf
            raise
        finally:
            method = "WATCH" if watches else request.method
            observe(method, path, status, time.perf_counter() - started)
        if watches:
            ends[path] = clock() + float(query.get("timeoutSeconds", 0)) - PAUSE
        return response

    session = Session(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.ssl or True),
        headers={"User-Agent": f"kwok-operator/{__version__}"},
        middlewares=[log_in],
        proxy=connection.proxy,
    )
    return session
