"""Serves one client's connection: from TLS and the first frame to its calls, answers and end.

    a socket ──TLS, if configured──> the first frame ──> calls ──silence──> PING ──> calls

    data_received -> Http2Connection.receive -> events -> handlers -> respond -> one write

Each step has a timeout. A handler that returns bytes is answered in the same turn of the event
loop, in one write with all other answers of that turn. If a handler returns an awaitable, a task
awaits it. The task ends with the call: at its deadline, when the client cancels, or with the
connection.

While a client doesn't read its answers, nothing more is read from it. Unsent answers wait up to the
call's deadline. If the unsent answers of all clients together exceed `MAX_UNSENT` bytes, each
client gets one answer at a time, and its other calls wait to begin. A connection makes at most one
large answer in a turn of the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from socket import socket
from ssl import SSLContext
from time import monotonic
from typing import Any, Final, cast

from kwok_operator.shim import grpcwire
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.http2.connection import (
    DataReceived,
    Http2Connection,
    RequestReceived,
    StreamReset,
)

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 100
"""The most connections at a time. cluster-autoscaler has one, and a probe another one for a
moment."""
FIRST_FRAME_TIMEOUT: Final = 10.0
"""Seconds within which the first HTTP/2 frame of a new connection must come, with the TLS
handshake."""
IDLE_BEFORE_PING: Final = 30.0
PING_TIMEOUT: Final = 20.0
MAX_HELD: Final = 2**26
"""The most bytes of requests that a server holds, over all connections. A request is held until its
call is over."""
MAX_UNSENT: Final = 2**25
"""Bytes of unsent answers on all connections. Beyond it, a client's calls wait until its own
answers are sent, and large answers are refused."""
UNKNOWN_METHOD: Final = "unknown"
"""The method's name in metrics for paths without a handler: clients can make up any number of
paths."""
_WARN_INTERVAL: Final = 60.0
_FAILED: Final = "the server failed while it answered; its log says why"
_GRPC: Final = b"application/grpc"
_SMALL: Final = 16_000
"""Answers of up to so many bytes are copied into one frame together with their prefix. Larger ones
are sent without a copy."""


@dataclass(slots=True, kw_only=True)
class Service:
    """The handlers, limits and counts that all connections of a server share."""

    handlers: Mapping[bytes, tuple[str, Handler]]
    observe: Callable[[str, StatusCode, float], None] | None
    connections: dict["GrpcConnection", None] = field(default_factory=dict)
    """Open connections, the oldest first."""
    max_message_bytes: int = 4 * 2**20
    """The most bytes of one message of a client."""
    held: int = 0
    warned_full: float = float("-inf")
    logged: set[tuple[str, type[BaseException]]] = field(default_factory=set)
    stopping: bool = False

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait on all connections."""
        return sum(each.unsent for each in self.connections)

    def admit(self, new: "GrpcConnection") -> bool:
        """Admits a new connection, and returns whether it did. If there are too many connections,
        it closes the oldest one that isn't `settled`, which may be `new`."""
        self.connections[new] = None
        if len(self.connections) <= MAX_CONNECTIONS:
            return True
        gone = next(each for each in self.connections if not each.settled)
        del self.connections[gone]
        gone.abort()
        if (now := monotonic()) - self.warned_full >= _WARN_INTERVAL:
            self.warned_full = now
            logger.warning("too many connections, closing some: limit=%d", MAX_CONNECTIONS)
        return gone is not new

    def failed(self, method: str, error: BaseException) -> RpcError:
        """Logs an unexpected error of a handler, and returns the error for the client. Only the
        first error of a kind is logged with its traceback, as each call may repeat it."""
        seen = (method, type(error))
        if seen in self.logged:
            logger.error("call failed: method=%s error=%r", method, error)
        else:
            self.logged.add(seen)
            logger.error("call failed: method=%s error=%r", method, error, exc_info=error)
        return RpcError(StatusCode.INTERNAL, _FAILED)


@dataclass(slots=True, eq=False)
class Call:
    """One call, until its answer is sent."""

    stream_id: int
    method: str
    handler: Handler | None = None
    started: float = field(default_factory=monotonic)
    reader: grpcwire.MessageReader | None = None
    message: bytes | None = None
    held: int = 0
    timeout: float | None = None
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Future[Any] | None = None
    code: StatusCode | None = None
    """The answer's code once it is decided, perhaps before it is sent."""

    @property
    def over(self) -> bool:
        """Whether the call is given up, or its answer is decided, though perhaps not sent yet."""
        return self.code is not None


class GrpcConnection(asyncio.Protocol):
    """One client's connection. `closed` is done when the connection and all its tasks have
    ended."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._connection = Http2Connection(clock=monotonic, sent=self._sent)
        self._entering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._pinged = False
        self._paused = False
        self._leaving = False
        self._calls: dict[int, Call] = {}
        self._new: list[Call] = []
        self._waiting: dict[int, tuple[Call, Handler, bytes]] = {}
        """Calls that have not begun, by HTTP/2 stream, the oldest first."""
        self._turn_over = False
        self.closed = self._loop.create_future()

    @property
    def settled(self) -> bool:
        """Whether the client has sent valid HTTP/2, and a valid certificate if one is required."""
        return self._connection.greeted

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait on this connection."""
        return self._connection.unsent

    def _has_room(self) -> bool:
        # A client without unsent answers doesn't wait for clients that don't read theirs.
        return not self.unsent or self._service.unsent < MAX_UNSENT

    def enter(self, sock: socket, context: SSLContext | None) -> None:
        """Begins to serve a connection that was just accepted."""
        if self._service.admit(self):
            self._timer = self._loop.call_later(FIRST_FRAME_TIMEOUT, self._check_alive)
            self._entering = self._loop.create_task(self._enter(sock, context))
        else:
            sock.close()

    async def _enter(self, sock: socket, context: SSLContext | None) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self, sock, ssl=context)
        except OSError:
            pass
        finally:
            # asyncio doesn't call a protocol whose handshake fails.
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
        # While a client doesn't read its answers, its requests aren't read.
        self._paused = True
        if self._transport:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()
        self._flush()

    def leave(self) -> None:
        """Takes no new calls, and closes the connection when the calls under way have ended."""
        self._leaving = True
        self._connection.leave("the server stops")
        self._flush()
        if self._transport is None:
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once, and gives up the calls under way."""
        self._end_all()
        if self._transport:
            self._transport.abort()
        elif self._entering:
            self._entering.cancel()

    def _check_alive(self) -> None:
        """Sends a PING if the client was silent. Closes the connection if the client hasn't
        answered the last PING, or the connection isn't `settled` by now."""
        if not self.settled or (self._pinged and not self._heard):
            self.abort()
            return
        delay = IDLE_BEFORE_PING
        self._pinged = not self._heard
        if self._pinged:
            delay = PING_TIMEOUT
            self._connection.ping()
            self._flush()
        self._heard = False
        self._timer = self._loop.call_later(delay, self._check_alive)

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        # A write that fails closes the transport, which ends the loop.
        while not (self._paused or transport.is_closing()) and (
            data := self._connection.data_to_send()
        ):
            transport.write(data)
        if self._leaving and not self._paused and self._connection.idle:
            transport.close()
        elif self._waiting and self._has_room():
            self._end_turn()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        for event in self._connection.receive(data):
            if isinstance(event, RequestReceived):
                self._requested(event)
            elif isinstance(event, DataReceived):
                call = self._calls.get(event.stream_id)
                if call is not None and not call.over:
                    self._body(call, event.data, event.end_stream)
            elif isinstance(event, StreamReset):
                if call := self._calls.get(event.stream_id):
                    self._gone(call)
            else:
                self._end_all()
                self._leaving = True
        if self._new:
            self._set_timers()
        self._flush()

    def _requested(self, event: RequestReceived) -> None:
        stream_id, head, ends = event
        path = head[b":path"]
        call = Call(stream_id, *self._service.handlers.get(path, (UNKNOWN_METHOD, None)))
        self._calls[stream_id] = call
        if not self._acceptable(call, head):
            return
        if (timeout := head.get(b"grpc-timeout")) is not None:
            try:
                call.timeout = grpcwire.parse_timeout(timeout)
            except RpcError as error:
                self._fail(call, error)
                return
            if call.timeout <= 0:
                self._fail(call, _late())
                return
            self._new.append(call)
        if ends:
            self._body(call, b"", True)

    def _acceptable(self, call: Call, head: Mapping[bytes, bytes]) -> bool:
        """Returns whether a call's header is valid; if not, answers the call with an error."""
        if not _is_grpc(head.get(b"content-type", b"")):
            self._end(call, grpcwire.http_error(415), StatusCode.UNKNOWN)
        elif head[b":method"] != b"POST":
            self._end(call, grpcwire.http_error(405), StatusCode.UNKNOWN)
        elif call.handler is None:
            path = head[b":path"][:200].decode("ascii", "replace")
            sentence = f"there is no method {path} here"
            self._fail(call, RpcError(StatusCode.UNIMPLEMENTED, sentence))
        elif head.get(b"grpc-encoding", b"identity") != b"identity":
            self._end(call, grpcwire.ENCODING_REFUSED, StatusCode.UNIMPLEMENTED)
        else:
            return True
        return False

    def _set_timers(self) -> None:
        # Most calls of this turn are answered by now, and need no timer.
        for call in self._new:
            if call.timeout is not None and call.stream_id in self._calls:
                call.timer = self._loop.call_later(call.timeout, self._expire, call)
        self._new.clear()

    def _expire(self, call: Call) -> None:
        if self._connection.waits(call.stream_id):
            # The client doesn't read the answer, so it would not read a status after it either.
            self._connection.cancel(call.stream_id)
            self._gone(call, StatusCode.DEADLINE_EXCEEDED)
        else:
            self._fail(call, _late())
        self._flush()

    def _body(self, call: Call, data: bytes, ends: bool) -> None:
        size = len(data)
        if (
            ends
            and call.handler is not None
            and call.reader is None
            and grpcwire.PREFIX <= size <= self._service.max_message_bytes
            and not data[0]
            and int.from_bytes(data[1 : grpcwire.PREFIX], "big") == size - grpcwire.PREFIX
        ):
            self._dispatch(call, call.handler, data[grpcwire.PREFIX :])
            return
        try:
            if call.reader is None:
                call.reader = grpcwire.MessageReader(max_bytes=self._service.max_message_bytes)
            call.held += size
            self._service.held += size
            if self._service.held > MAX_HELD:
                raise _too_much()
            call.reader.feed(data)
            self._collect(call, call.reader, size, ends)
        except RpcError as error:
            self._fail(call, error)

    def _collect(self, call: Call, reader: grpcwire.MessageReader, size: int, ends: bool) -> None:
        """Takes the only message of a call from its body; a second message is an error."""
        while (message := reader.take()) is not None:
            if call.message is not None:
                raise RpcError(StatusCode.INTERNAL, "more than one message in a unary call")
            call.message = message
        if ends:
            reader.finish()
        if not ends:
            self._connection.consumed(call.stream_id, size)
        elif call.message is None:
            raise RpcError(StatusCode.INTERNAL, "no message in a unary call")
        elif call.handler is not None:
            self._dispatch(call, call.handler, call.message)

    def _dispatch(self, call: Call, handler: Handler, message: bytes) -> None:
        self._waiting[call.stream_id] = (call, handler, message)
        if not self._turn_over:
            self._begin_calls()

    def _begin_calls(self) -> None:
        """Begins waiting calls, until one gives a large answer or there is no more room for
        answers."""
        while self._waiting and not self._turn_over and self._has_room():
            self._call(*self._waiting.pop(next(iter(self._waiting))))

    def _turn(self) -> None:
        self._turn_over = False
        self._begin_calls()
        self._flush()

    def _end_turn(self) -> None:
        """Begins no more calls before the next turn of the event loop, so that the loop can serve
        other connections."""
        if not self._turn_over:
            self._turn_over = True
            self._loop.call_soon(self._turn)

    def _call(self, call: Call, handler: Handler, message: bytes) -> None:
        try:
            answer = handler(message)
        except Exception as error:
            self._fail(call, self._as_rpc_error(call, error))
        else:
            if isinstance(answer, bytes):
                self._answer(call, answer)
            else:
                call.task = asyncio.ensure_future(answer)
                call.task.add_done_callback(partial(self._finished, call))

    def _finished(self, call: Call, task: asyncio.Future[bytes]) -> None:
        error = _error_of(task)
        if call.over:
            return  # the call was cancelled or late
        if error is not None:
            self._fail(call, self._as_rpc_error(call, error))
        elif isinstance(message := task.result(), bytes):
            self._answer(call, message)
        else:
            self._fail(
                call, self._service.failed(call.method, TypeError(f"not bytes: {message!r}"))
            )
        self._flush()

    def _as_rpc_error(self, call: Call, error: BaseException) -> RpcError:
        if isinstance(error, RpcError):
            return error
        if isinstance(error, asyncio.CancelledError):
            return RpcError(StatusCode.CANCELLED, "the server gave up this call")
        return self._service.failed(call.method, error)

    def _answer(self, call: Call, message: bytes) -> None:
        size = len(message)
        if size > _SMALL and not self._has_room():
            self._fail(call, _too_much())
            return
        self._over(call, StatusCode.OK)
        connection, stream_id = self._connection, call.stream_id
        if size <= _SMALL:
            body = b"\0" + size.to_bytes(4, "big") + message
            connection.respond(
                stream_id, head=grpcwire.HEAD, body=body, trailers=grpcwire.OK_TRAILERS
            )
        else:
            connection.send_headers(stream_id, grpcwire.HEAD)
            connection.send_data(stream_id, grpcwire.prefix(message))
            connection.send_data(stream_id, message)
            connection.end_stream(stream_id, grpcwire.OK_TRAILERS)
            self._end_turn()

    def _fail(self, call: Call, error: RpcError) -> None:
        self._end(call, grpcwire.trailers_only(error.code, error.message), error.code)

    def _end(self, call: Call, block: bytes, code: StatusCode) -> None:
        self._over(call, code)
        self._connection.end_stream(call.stream_id, block)

    def _over(self, call: Call, code: StatusCode) -> None:
        if call.over:
            return
        call.code = code
        self._waiting.pop(call.stream_id, None)
        self._service.held -= call.held
        if call.task is not None:
            call.task.cancel()

    def _sent(self, stream_id: int) -> None:
        call = self._calls[stream_id]
        assert call.code is not None
        self._gone(call, call.code)

    def _gone(self, call: Call, code: StatusCode = StatusCode.CANCELLED) -> None:
        """Forgets the call: its answer is sent, or its connection is closed."""
        self._over(call, code)
        del self._calls[call.stream_id]
        if call.timer is not None:
            call.timer.cancel()
        if self._service.observe is not None:
            self._service.observe(call.method, code, monotonic() - call.started)

    def _end_all(self) -> None:
        for call in list(self._calls.values()):
            self._gone(call)


def _is_grpc(kind: bytes) -> bool:
    # application/grpc-web is another protocol.
    return kind == _GRPC or kind.startswith((_GRPC + b"+", _GRPC + b";"))


def _error_of(task: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _too_much() -> RpcError:
    return RpcError(StatusCode.RESOURCE_EXHAUSTED, "too much waits")


def _late() -> RpcError:
    return RpcError(StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")
