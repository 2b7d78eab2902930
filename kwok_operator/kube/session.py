"""An aiohttp session for a library that brings its own requests (kopf).

Headers are added to each request, so a token that was renewed meanwhile is used at once, and
nothing in the library has to know how this identity logs in.
"""

import aiohttp

from kwok_operator import __version__
from kwok_operator.kube.connection import Connection

Session = aiohttp.ClientSession


def open_session(connection: Connection) -> Session:
    """A session that talks to the connection's API server as its identity. The caller closes it."""

    async def log_in(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.headers.update(await connection.auth_headers())
        if connection.tls_server_name is not None:
            request.server_hostname = connection.tls_server_name
        return await handler(request)

    return Session(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.ssl or True),
        headers={"User-Agent": f"kwok-operator/{__version__}"},
        middlewares=[log_in],
        proxy=connection.proxy,
    )
