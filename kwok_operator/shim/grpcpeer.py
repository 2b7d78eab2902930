"""One client's connection: how it comes about, whether somebody is still there, how it ends.

    a socket ──TLS, where that is asked for──> the first frame ──> calls ──silence──> PING ──> calls

Each step has its time. A client that doesn't read isn't read either, and its answers wait where
they cost nothing. What is in the frames is for grpccalls.py.
"""

import asyncio
from abc import abstractmethod
from socket import socket
from ssl import SSLContext
from time import monotonic
from typing import Final, cast

from kwok_operator.shim.grpcservice import Service
from kwok_operator.shim.http2.connection import Connection

FIRST_FRAME_TIMEOUT: Final = 10.0
"""Seconds from the connection to the first frame of HTTP/2, with TLS in between."""
IDLE_BEFORE_PING: Final = 30.0
PING_TIMEOUT: Final = 20.0


class Peer(asyncio.Protocol):
    """Whoever reads the frames sets `heard`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(clock=monotonic, sent=self._sent)
        self._entering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.heard = False
        self._pinged = False
        self._paused = False
        self._leaving = False
        self.closed = self._loop.create_future()

    @property
    def settled(self) -> bool:
        return self._connection.greeted

    def enter(self, sock: socket, context: SSLContext | None) -> None:
        """Takes over a connection that was just accepted."""
        if self._service.admit(self):
            self._timer = self._loop.call_later(FIRST_FRAME_TIMEOUT, self._look)
            self._entering = self._loop.create_task(self._enter(sock, context))
        else:
            sock.close()

    async def _enter(self, sock: socket, context: SSLContext | None) -> None:
        timeout = FIRST_FRAME_TIMEOUT if context else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, sock, ssl=context, ssl_handshake_timeout=timeout
            )
        except OSError:
            pass
        finally:
            # Of a handshake that fails, a protocol isn't told.
            if self._transport is None:
                self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.closed.done():
            self._transport.abort()
        elif self._service.stopping:
            self.leave()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._end_all()
        self._service.connections.pop(self, None)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        # Who doesn't read answers may not ask for more of them.
        self._paused = True
        if self._transport:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()
        self._flush()

    def leave(self) -> None:
        """Take no new calls, and close when those under way have ended."""
        self._leaving = True
        self._connection.leave("the server stops")
        self._flush()
        if self._transport is None:
            self.abort()

    def abort(self) -> None:
        self._end_all()
        if self._transport:
            self._transport.abort()
        elif self._entering:
            self._entering.cancel()

    def _look(self) -> None:
        """Whether the client is still there."""
        if not self.settled or (self._pinged and not self.heard):
            self.abort()
            return
        delay = IDLE_BEFORE_PING
        self._pinged = not self.heard
        if self._pinged:
            delay = PING_TIMEOUT
            self._connection.ping()
            self._flush()
        self.heard = False
        self._timer = self._loop.call_later(delay, self._look)

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        # A write that fails closes.
        while not (self._paused or transport.is_closing()) and (
            data := self._connection.data_to_send()
        ):
            transport.write(data)
        if self._leaving and not self._paused and self._connection.idle:
            transport.close()

    @abstractmethod
    def _end_all(self) -> None:
        """No call has anybody to answer to any more."""

    @abstractmethod
    def _sent(self, stream_id: int) -> None:
        """As of Connection."""
