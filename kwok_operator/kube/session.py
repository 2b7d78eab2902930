"""An aiohttp session for a library that brings its own requests (kopf).

Headers are added to each request, so a token that was renewed meanwhile is used at once, and
nothing in the library has to know how this identity logs in. What it asks is observed as are our
own requests; why it begins a watch anew, it alone knows.
"""

import time
from collections.abc import Callable

import aiohttp

from kwok_operator import __version__
from kwok_operator.kube.client import Observer
from kwok_operator.kube.connection import Connection

Session = aiohttp.ClientSession


def open_session(
    connection: Connection,
    *,
    observe: Observer = lambda *_: None,
    on_restart: Callable[[str, str], None] = lambda *_: None,
) -> Session:
    """A session that talks to the connection's API server as its identity. The caller closes it.

    `observe` is told of each exchange, `on_restart` of the path of each watch that is begun anew.
    """
    watched: set[str] = set()

    async def log_in(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.headers.update(await connection.auth_headers())
        if connection.tls_server_name is not None:
            request.server_hostname = connection.tls_server_name
        path, watches = request.url.path, "watch" in request.url.query
        if watches and path in watched:
            on_restart(path, "closed")
        started, status = time.perf_counter(), 0
        try:
            response = await handler(request)
            status = response.status
        finally:
            method = "WATCH" if watches else request.method
            observe(method, path, status, time.perf_counter() - started)
        if watches:
            watched.add(path)
        return response

    return Session(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.ssl or True),
        headers={"User-Agent": f"kwok-operator/{__version__}"},
        middlewares=[log_in],
        proxy=connection.proxy,
    )
