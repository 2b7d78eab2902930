"""One client's connection: bytes become events, answers become bytes. No input or output here.

`receive` never raises. If the client breaks the protocol, the stream or the connection ends as RFC
9113 says, and GOAWAY gives the client the reason. Answers for streams that are over are dropped, so
that the caller need not know what the client did meanwhile.

What a client sends is bounded before it is kept: frames by the frame size, headers by size and
number of frames, bodies by windows, streams by number, and useless frames, such as pings, by
`Patience`. The caller must bound what waits to be sent, whose size is `unsent`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kwok_operator.shim.http2 import frames, headers
from kwok_operator.shim.http2.frames import ErrorCode, Http2ConnectionError, StreamError
from kwok_operator.shim.http2.headers import MalformedRequest
from kwok_operator.shim.http2.outgoing import Outgoing, Stream


class RequestReceived(NamedTuple):
    stream_id: int
    head: Mapping[bytes, bytes]
    """Pseudo-headers, such as b":path", and fields; values of a repeated field are joined by ", ".
    """
    end_stream: bool


class DataReceived(NamedTuple):
    """A part of a request's body. Call `Http2Connection.consumed` once it is processed."""

    stream_id: int
    data: bytes
    end_stream: bool


class StreamReset(NamedTuple):
    """The stream is over: the client cancelled it, or violated the protocol on it."""

    stream_id: int
    code: ErrorCode | int


class ConnectionEnded(NamedTuple):
    """All streams are over. The caller sends what is left, then closes the connection."""

    code: ErrorCode
    reason: str


Event = RequestReceived | DataReceived | StreamReset | ConnectionEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    streams: int = 1000
    """The most streams that may be open at a time."""
    header_list: int = 16_384
    """The most bytes of a request's header, before and after decompression."""
    continuations: int = 16
    """The most CONTINUATION frames of one header."""
    stream_window: int = 2**18
    """Bytes that a client may send on one stream before the server has consumed them."""
    connection_window: int = 2**20
    idle_frames: int = 4000
    """The most useless frames per `period`: pings, settings, resets, empty data, ..."""
    period: float = 10.0
    """The seconds of the period of `idle_frames`."""


class Patience:
    """Limits useless frames, which cost the server work. Each completed call reduces the count of
    such frames by two.

    So a client may reset a thousand calls at once, and ping after every answer for ever. But it
    can't go on opening and resetting streams, or pinging, faster than `Limits.idle_frames` allows.
    """

    __slots__ = ("_clock", "_limit", "_period", "_since", "_spent")

    def __init__(self, limits: Limits, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._limit = limits.idle_frames
        self._period = limits.period
        self._since = clock()
        self._spent = 0

    def spend(self) -> None:
        """Counts a useless frame, such as a ping. Raises Http2ConnectionError if there are too
        many."""
        self._spent += 1
        if self._spent <= self._limit:
            return
        now = self._clock()
        if now - self._since < self._period:
            raise Http2ConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM, "too many frames that get nothing done"
            )
        self._since, self._spent = now, 0

    def earn(self) -> None:
        if self._spent > 1:
            self._spent -= 2


_REMEMBERED: Final = 512
_REMEMBERED_LENGTH: Final = 512


class Http2Connection:
    """The server's side of a connection. `clock` gives seconds that never go back.

    `sent` is called with each stream whose answer has been sent.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        limits: Limits | None = None,
        sent: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._limits = limits = limits or Limits()
        self._patience = Patience(limits, clock=clock)
        self._reader = frames.FrameReader(
            max_header=limits.header_list, max_continuations=limits.continuations
        )
        self._decoder = headers.HeaderDecoder(max_list_size=limits.header_list)
        # A client sends few different header blocks, even with its timeouts, so most are cached
        # here.
        self._heads: dict[bytes, Mapping[bytes, bytes]] = {}
        self._outgoing = Outgoing(ended=self._sent_all)
        self._sent = sent
        self._streams: dict[int, Stream] = {}
        # Streams that the server has reset, the oldest first. Frames that the client sent before it
        # knew of the reset are no mistake. The number is bounded.
        self._reset: dict[int, None] = {}
        self._highest = 0
        self._window = limits.connection_window
        self._leaving = False
        self._ended = False
        self._handlers = (
            self._data,
            self._headers,
            self._priority,
            self._rst_stream,
            self._settings,
            self._push_promise,
            self._ping,
            self._goaway,
            self._window_update,
        )
        self._greet()

    @property
    def idle(self) -> bool:
        """Whether no stream is open."""
        return not self._streams

    @property
    def greeted(self) -> bool:
        """Whether the client has sent the preface and the first frame."""
        return self._reader.greeted

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait for room in the client's windows, or in the transport."""
        return self._outgoing.unsent

    def receive(self, data: bytes) -> list[Event]:
        """Takes bytes from the client, and returns the events in them."""
        events: list[Event] = []
        if not self._ended:
            try:
                for kind, flags, stream_id, payload in self._reader.feed(data):
                    self._frame(kind, flags, stream_id, payload, events)
            except Http2ConnectionError as error:
                self._fail(error)
                events.append(ConnectionEnded(error.code, error.reason))
        return events

    def data_to_send(self) -> bytes:
        """Returns bytes to send now. Call it until it returns none, or the transport is full."""
        return self._outgoing.take()

    def respond(self, stream_id: int, *, head: bytes, body: bytes, trailers: bytes) -> None:
        """Sends a whole response. `head` and `trailers` are blocks made by headers.encode, at most
        16,384 bytes each."""
        if stream := self._streams.get(stream_id):
            self._outgoing.respond(stream, head, body, trailers)

    def send_headers(self, stream_id: int, block: bytes) -> None:
        if stream := self._streams.get(stream_id):
            self._outgoing.headers(stream, block)

    def send_data(self, stream_id: int, body: bytes) -> None:
        """Queues a part of the body until the client's windows allow it. The bytes are not
        copied."""
        if stream := self._streams.get(stream_id):
            self._outgoing.data(stream, body)

    def end_stream(self, stream_id: int, block: bytes) -> None:
        """Ends the stream with its last header block: trailers, or the only header."""
        if stream := self._streams.get(stream_id):
            self._outgoing.trailers(stream, block)

    def waits(self, stream_id: int) -> bool:
        """Whether a part of the stream's body waits to be sent."""
        stream = self._streams.get(stream_id)
        return stream is not None and bool(stream.waiting)

    def cancel(self, stream_id: int) -> None:
        """Resets the stream: nothing more is sent, not even data that waits."""
        if self._drop(stream_id):
            self._outgoing.control(frames.reset_frame(stream_id, ErrorCode.CANCEL))
            self._remember_reset(stream_id)

    def ping(self) -> None:
        """Sends a PING, which a live client answers."""
        self._outgoing.control(frames.frame(frames.PING, 0, 0, bytes(8)))

    def consumed(self, stream_id: int, count: int) -> None:
        """Reports that `count` bytes of the body are processed: the client may send as many
        again."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.remote_ended:
            return
        stream.consumed += count
        if stream.consumed >= self._limits.stream_window // 2:
            self._outgoing.control(frames.window_frame(stream_id, stream.consumed))
            stream.receive_window += stream.consumed
            stream.consumed = 0

    def leave(self, reason: str) -> None:
        """Sends GOAWAY: the client opens no new streams; open streams continue to their end."""
        if not self._leaving and not self._ended:
            self._leaving = True
            self._outgoing.control(frames.goaway_frame(self._highest, ErrorCode.NO_ERROR, reason))

    def _greet(self) -> None:
        limits, control = self._limits, self._outgoing.control
        settings = {
            frames.Setting.HEADER_TABLE_SIZE: 0,
            frames.Setting.MAX_CONCURRENT_STREAMS: limits.streams,
            frames.Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
            frames.Setting.MAX_HEADER_LIST_SIZE: limits.header_list,
        }
        control(frames.settings_frame(settings))
        control(frames.window_frame(0, limits.connection_window - frames.DEFAULT_WINDOW))

    def _fail(self, error: Http2ConnectionError) -> None:
        self._ended = True
        for stream_id in list(self._streams):
            self._drop(stream_id)
        self._outgoing.control(frames.goaway_frame(self._highest, error.code, error.reason))

    def _frame(
        self, kind: int, flags: int, stream_id: int, payload: bytes, events: list[Event]
    ) -> None:
        if kind > frames.WINDOW_UPDATE:
            self._patience.spend()
            return
        try:
            self._handlers[kind](flags, stream_id, payload, events)
        except StreamError as error:
            self._patience.spend()
            self._outgoing.control(frames.reset_frame(error.stream_id, error.code))
            if self._drop(error.stream_id):
                events.append(StreamReset(error.stream_id, error.code))
            self._remember_reset(error.stream_id)

    def _data(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        length = len(payload)
        self._window -= length
        if self._window < 0:
            raise Http2ConnectionError(
                ErrorCode.FLOW_CONTROL_ERROR, "more data than the window allows"
            )
        full = self._limits.connection_window
        if self._window < full // 2:
            self._outgoing.control(frames.window_frame(0, full - self._window))
            self._window = full
        data = frames.unpadded(payload, flags) if flags & frames.PADDED else payload
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_reset(stream_id)
            self._patience.spend()
            return
        if stream.remote_ended:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "data after the end")
        stream.receive_window -= length
        if stream.receive_window < 0:
            raise StreamError(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "more than the window")
        ends = bool(flags & frames.END_STREAM)
        if stream.expected is not None:
            stream.expected -= len(data)
            if stream.expected < 0:
                raise _malformed(stream_id, "more data than content-length says")
        if ends:
            self._remote_end(stream)
        else:
            if not data:
                self._patience.spend()
            if length > len(data):
                self.consumed(stream_id, length - len(data))
        events.append(DataReceived(stream_id, data, ends))

    def _headers(self, flags: int, stream_id: int, block: bytes, events: list[Event]) -> None:
        if not stream_id & 1:
            raise frames.protocol_error("headers on a stream that clients don't open")
        ends = bool(flags & frames.END_STREAM)
        try:
            if stream_id > self._highest:
                self._highest = stream_id
                head = self._heads.get(block) or self._read_head(block)
                if self._leaving or len(self._streams) >= self._limits.streams:
                    raise StreamError(stream_id, ErrorCode.REFUSED_STREAM, "no more streams")
                self._open(stream_id, ends, headers.content_length(head))
                events.append(RequestReceived(stream_id, head, ends))
                return
            # Decoded even if the stream is over: HPACK's table, which later blocks need, depends on
            # it.
            fields = self._decoder.decode(block)
            stream = self._streams.get(stream_id)
            if stream is None:
                self._check_reset(stream_id)
                return
            if stream.remote_ended:
                raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "headers after the end")
            if not ends:
                raise MalformedRequest("headers amid the body")
            headers.check_trailers(fields)
            self._remote_end(stream)
            events.append(DataReceived(stream_id, b"", True))
        except MalformedRequest as error:
            raise _malformed(stream_id, str(error)) from error

    def _read_head(self, block: bytes) -> Mapping[bytes, bytes]:
        head = headers.read_head(self._decoder.decode(block))
        if self._decoder.stateless and len(block) <= _REMEMBERED_LENGTH:
            if len(self._heads) >= _REMEMBERED:
                self._heads.clear()
            self._heads[block] = head
        return head

    def _open(self, stream_id: int, ends: bool, length: int | None) -> None:
        stream = Stream(
            stream_id,
            send_window=self._outgoing.initial_window,
            receive_window=self._limits.stream_window,
        )
        stream.expected = length
        if ends:
            self._remote_end(stream)
        self._streams[stream_id] = stream

    @staticmethod
    def _remote_end(stream: Stream) -> None:
        stream.remote_ended = True
        if stream.expected:
            raise _malformed(stream.id, "less data than content-length says")

    def _priority(self, _: int, stream_id: int, payload: bytes, __: list[Event]) -> None:
        if not stream_id:
            raise frames.protocol_error("a priority for no stream")
        if len(payload) != 5:
            raise frames.size_error("PRIORITY is of 5 bytes")
        self._patience.spend()

    def _rst_stream(self, _: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise frames.size_error("RST_STREAM is of 4 bytes")
        self._check_opened(stream_id)
        self._patience.spend()
        if self._drop(stream_id):
            events.append(StreamReset(stream_id, int.from_bytes(payload, "big")))

    def _settings(self, flags: int, stream_id: int, payload: bytes, _: list[Event]) -> None:
        if stream_id:
            raise frames.protocol_error("SETTINGS on a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise frames.size_error("SETTINGS of a wrong length")
        if flags & frames.ACK:
            self._decoder.limit_table(0)
            return
        self._patience.spend()
        windows = None
        for key, value in frames.parsed_settings(payload):
            if key == frames.Setting.INITIAL_WINDOW_SIZE:
                windows = value
            elif key == frames.Setting.MAX_FRAME_SIZE:
                self._outgoing.change_frame_size(value)
        if windows is not None:
            # Only once per frame, because it is work for each stream, and a frame can have
            # thousands of settings.
            self._outgoing.change_initial_window(windows, list(self._streams.values()))
        self._outgoing.control(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _push_promise(self, *_: object) -> None:
        raise frames.protocol_error("a client can't push")

    def _ping(self, flags: int, stream_id: int, payload: bytes, _: list[Event]) -> None:
        if stream_id:
            raise frames.protocol_error("PING on a stream")
        if len(payload) != 8:
            raise frames.size_error("PING is of 8 bytes")
        self._patience.spend()
        if not flags & frames.ACK:
            self._outgoing.control(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _goaway(self, _: int, stream_id: int, payload: bytes, __: list[Event]) -> None:
        # After it, the client opens no more streams, and closes when it has its answers. Nothing to
        # do here.
        if stream_id:
            raise frames.protocol_error("GOAWAY on a stream")
        if len(payload) < 8:
            raise frames.size_error("GOAWAY is of 8 bytes or more")
        self._patience.spend()

    def _window_update(self, _: int, stream_id: int, payload: bytes, __: list[Event]) -> None:
        if len(payload) != 4:
            raise frames.size_error("WINDOW_UPDATE is of 4 bytes")
        increment = int.from_bytes(payload, "big") & frames.MAX_WINDOW
        if not stream_id:
            if not increment:
                raise frames.protocol_error("a window that is opened by 0")
            self._outgoing.open_window(None, increment)
            return
        self._check_opened(stream_id)
        if not increment:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "a window opened by 0")
        if stream := self._streams.get(stream_id):
            self._outgoing.open_window(stream, increment)

    def _check_opened(self, stream_id: int) -> None:
        if not stream_id & 1 or stream_id > self._highest:
            raise frames.protocol_error(f"stream {stream_id} was never opened")

    def _check_reset(self, stream_id: int) -> None:
        """Raises Http2ConnectionError for data or headers of a stream that isn't open, unless the
        server has reset it."""
        self._check_opened(stream_id)
        if stream_id not in self._reset:
            raise Http2ConnectionError(ErrorCode.STREAM_CLOSED, f"stream {stream_id} is over")

    def _sent_all(self, stream: Stream) -> None:
        del self._streams[stream.id]
        self._patience.earn()
        if not stream.remote_ended:
            self._outgoing.control(frames.reset_frame(stream.id, ErrorCode.NO_ERROR))
            self._remember_reset(stream.id)
        self._sent(stream.id)

    def _drop(self, stream_id: int) -> bool:
        stream = self._streams.pop(stream_id, None)
        if stream:
            self._outgoing.forget(stream)
        return stream is not None

    def _remember_reset(self, stream_id: int) -> None:
        self._reset[stream_id] = None
        if len(self._reset) > 2 * self._limits.streams:
            del self._reset[next(iter(self._reset))]


def _malformed(stream_id: int, reason: str) -> StreamError:
    return StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, reason)
