"""A gRPC server for methods known by their paths: where it listens, and how it stops.

http2/ and grpcwire.py encode and decode, grpcconnection.py handles the calls. The server listens on
TCP, with or without TLS, and on unix sockets, on any number of them at once.
"""

import asyncio
import errno
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from typing import Final

from kwok_operator.shim.grpcconnection import GrpcConnection, Service
from kwok_operator.shim.grpcwire import Handler, StatusCode

logger = logging.getLogger(__name__)

BACKLOG: Final = 128
_ABORT_WAIT: Final = 1.0


class GrpcServer:
    """Serves handlers by full path, such as /package.Service/Method.

    `observe` gets each call's path, code and seconds when the call is over. For a path without a
    handler, `observe` gets "unknown" instead of the path.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        observe: Callable[[str, StatusCode, float], None] | None = None,
    ) -> None:
        self._service = Service(
            handlers={path.encode(): (path, handler) for path, handler in handlers.items()},
            observe=observe,
        )
        self._listeners: dict[socket.socket, asyncio.Task[None]] = {}
        self._sockets: list[tuple[Path, int]] = []

    async def listen_tcp(
        self, host: str, port: int, *, ssl: Callable[[], SSLContext] | None = None
    ) -> int:
        """Listens on TCP. Returns the port, which the system chooses for 0. Raises OSError.

        `ssl` is called for each connection.
        """
        # asyncio only looks up and binds the addresses. To accept is our own work, as asyncio would
        # accept any number of connections and not count those in a handshake.
        bound = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, host, port, start_serving=False
        )
        socks = [socket.socket(fileno=os.dup(each.fileno())) for each in bound.sockets]
        bound.close()
        for sock in socks:
            self._listen(sock, ssl)
        return int(socks[0].getsockname()[1])

    async def listen_unix(self, path: str | Path, *, mode: int = 0o660) -> None:
        """Listens on a socket file with the permissions `mode`. Replaces a file on which no server
        listens.

        Raises OSError if a server listens there already, or the file is no socket.
        """
        path = Path(path)
        _make_way(path)
        sock = _bound(path, mode=mode)
        try:
            self._listen(sock, None)
        except BaseException:
            sock.close()
            raise
        self._sockets.append((path, path.lstat().st_ino))

    async def stop(self, grace: float) -> None:
        """Takes no new calls, waits up to `grace` seconds for those under way, then closes all
        connections."""
        self._service.stopping = True
        for path, inode in self._sockets:
            # Another server may have put its socket there meanwhile.
            with suppress(OSError):
                if path.lstat().st_ino == inode:
                    path.unlink()
        for listener in self._listeners.values():
            listener.cancel()
        await asyncio.gather(*self._listeners.values(), return_exceptions=True)
        for sock in self._listeners:
            sock.close()
        connections = self._service.connections
        for connection in list(connections):
            connection.leave()
        await _all_closed(connections, grace)
        for connection in list(connections):
            connection.abort()
        await _all_closed(connections, _ABORT_WAIT)
        self._listeners.clear()
        self._sockets.clear()

    def _listen(self, sock: socket.socket, ssl: Callable[[], SSLContext] | None) -> None:
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._listeners[sock] = asyncio.create_task(self._accept(sock, ssl))

    async def _accept(self, sock: socket.socket, ssl: Callable[[], SSLContext] | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(sock)
            except OSError as error:
                logger.warning("accepting failed: error=%s", error)
                await asyncio.sleep(1)
            else:
                GrpcConnection(self._service).enter(accepted, ssl() if ssl else None)
                # Other tasks have their turn, however many clients come.
                await asyncio.sleep(0)


async def _all_closed(connections: Iterable[GrpcConnection], seconds: float) -> None:
    if waiting := [connection.closed for connection in connections]:
        await asyncio.wait(waiting, timeout=seconds)


def _make_way(path: Path) -> None:
    """Removes the socket file of a server that died. Raises OSError if a server listens on it, or
    the file is no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(
            errno.EEXIST, "something that is no socket is there; remove it or take another path"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError:
            # A server is there: it forbids us to connect, or is too busy to accept.
            pass
    raise OSError(errno.EADDRINUSE, "another server listens on this socket")


def _bound(path: Path, *, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        # Linux creates the file with the permissions of the socket, so it never has more than
        # `mode`.
        with suppress(OSError):
            os.fchmod(sock.fileno(), mode)
        sock.bind(str(path))
        path.chmod(mode)
    except BaseException:
        sock.close()
        raise
    return sock
