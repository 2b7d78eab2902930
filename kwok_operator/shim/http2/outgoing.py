"""Queues what is to be sent until the client accepts it (flow control: RFC 9113, section 5.2).

Header and control frames are sent at once. Data waits in its stream, uncopied, until the stream's
window, the connection's window and the limit on one write leave room; streams take turns. Trailers
follow the last byte.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from kwok_operator.shim.http2 import frames
from kwok_operator.shim.http2.frames import ErrorCode, Http2ConnectionError, StreamError

MAX_FRAME: Final = 65_536
"""The most bytes of a frame that the server sends. Larger ones gain nothing, and keep other streams
waiting."""
MAX_WRITE: Final = 262_144
"""The most bytes of data that one `take` returns. More data waits here, without a copy, until the
client reads."""

_pack = frames.FRAME_HEADER.pack


class Stream:
    """One call that is not over. It is over when the server has ended its side, even if the client
    still sends."""

    __slots__ = (
        "consumed",
        "expected",
        "id",
        "receive_window",
        "remote_ended",
        "send_window",
        "trailers",
        "waiting",
    )

    def __init__(self, stream_id: int, *, send_window: int, receive_window: int) -> None:
        self.id = stream_id
        self.send_window = send_window
        self.receive_window = receive_window
        self.consumed = 0
        self.expected: int | None = None
        """Bytes of the request's body that are still to come, if the client announced its
        length."""
        self.remote_ended = False
        self.waiting: deque[memoryview] = deque()
        self.trailers: bytes | None = None


class Outgoing:
    """The frames and data that wait to be sent. `ended` is called with each stream once its last
    frame has been built."""

    def __init__(self, *, ended: Callable[[Stream], None]) -> None:
        self._ended = ended
        self.unsent = 0
        """Bytes of data that wait in all streams."""
        self._out: list[bytes | memoryview] = []
        self._size = 0
        self._turns: OrderedDict[int, Stream] = OrderedDict()
        self._window = frames.DEFAULT_WINDOW
        self._frame_size = frames.MIN_MAX_FRAME_SIZE
        self.initial_window = frames.DEFAULT_WINDOW

    def control(self, frame: bytes) -> None:
        self._out.append(frame)

    def respond(self, stream: Stream, head: bytes, body: bytes, trailers: bytes) -> None:
        """Queues a whole response. `head` and `trailers` are blocks made by headers.encode, each at
        most 16,384 bytes."""
        size = len(body)
        if (
            stream.waiting
            or size > self._frame_size
            or size > self._window
            or size > stream.send_window
            or self._size > MAX_WRITE
        ):
            self.headers(stream, head)
            self.data(stream, body)
            self.trailers(stream, trailers)
            return
        stream_id = stream.id
        self._window -= size
        self._size += size
        self._out += (
            _pack(len(head) >> 8, len(head) & 0xFF, frames.HEADERS, frames.END_HEADERS, stream_id),
            head,
            _pack(size >> 8, size & 0xFF, frames.DATA, 0, stream_id),
            body,
            _pack(
                len(trailers) >> 8,
                len(trailers) & 0xFF,
                frames.HEADERS,
                frames.END_HEADERS | frames.END_STREAM,
                stream_id,
            ),
            trailers,
        )
        self._ended(stream)

    def headers(self, stream: Stream, block: bytes) -> None:
        self._out.append(frames.header_frames(stream.id, block, end_stream=False))

    def data(self, stream: Stream, body: bytes) -> None:
        if body:
            stream.waiting.append(memoryview(body))
            self.unsent += len(body)
            self._queue(stream)

    def trailers(self, stream: Stream, block: bytes) -> None:
        """Ends the stream with these trailers once its data has been sent."""
        stream.trailers = block
        if not stream.waiting:
            self._end(stream)

    def forget(self, stream: Stream) -> None:
        self.unsent -= sum(map(len, stream.waiting))
        stream.waiting.clear()
        self._turns.pop(stream.id, None)

    def open_window(self, stream: Stream | None, increment: int) -> None:
        """Enlarges the window of a stream, or of the connection if `stream` is None. Raises
        Http2ConnectionError, StreamError.
        """
        if stream is None:
            self._window += increment
            if self._window > frames.MAX_WINDOW:
                raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
            return
        stream.send_window += increment
        if stream.send_window > frames.MAX_WINDOW:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
        self._queue(stream)

    def change_initial_window(self, value: int, streams: list[Stream]) -> None:
        """Sets the window of new streams, and changes those of open ones by the difference."""
        difference = value - self.initial_window
        self.initial_window = value
        for stream in streams:
            stream.send_window += difference
            if stream.send_window > frames.MAX_WINDOW:
                raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "a window is too large")
            self._queue(stream)

    def change_frame_size(self, value: int) -> None:
        self._frame_size = min(value, MAX_FRAME)

    def take(self) -> bytes:
        """Returns the bytes that can be sent now; empty if there are none."""
        while self._turns and self._window > 0 and self._size < MAX_WRITE:
            _, stream = self._turns.popitem(last=False)
            self._send_some(stream)
        if not self._out:
            return b""
        out = b"".join(self._out)
        self._out.clear()
        self._size = 0
        return out

    def _queue(self, stream: Stream) -> None:
        if stream.waiting and stream.send_window > 0:
            self._turns.setdefault(stream.id, stream)

    def _send_some(self, stream: Stream) -> None:
        if stream.send_window <= 0:
            return
        first = stream.waiting.popleft()
        size = min(len(first), self._frame_size, self._window, stream.send_window)
        if size < len(first):
            stream.waiting.appendleft(first[size:])
        self._window -= size
        stream.send_window -= size
        self._size += size
        self.unsent -= size
        self._out += (_pack(size >> 8, size & 0xFF, frames.DATA, 0, stream.id), first[:size])
        if stream.waiting:
            self._queue(stream)
        elif stream.trailers is not None:
            self._end(stream)

    def _end(self, stream: Stream) -> None:
        assert stream.trailers is not None
        self._out.append(frames.header_frames(stream.id, stream.trailers, end_stream=True))
        self._ended(stream)
