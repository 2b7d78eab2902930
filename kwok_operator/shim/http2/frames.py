"""Builds and reads HTTP/2 frames, and defines the two kinds of protocol errors.

Bytes arrive in pieces of any size, and FrameReader makes whole frames of them. It passes a header
on as one frame, without padding and priority, however many frames the client sent. Of an incomplete
frame, at most one frame's size is kept. A frame is a tuple: type, flags, stream, payload.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEADER_SIZE: Final = 9
FRAME_HEADER: Final = Struct(">HBBBI")
"""A frame's header: length in two parts (16 and 8 bits), type, flags, stream."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

DEFAULT_WINDOW: Final = 65_535
MAX_WINDOW: Final = 2**31 - 1
MIN_MAX_FRAME_SIZE: Final = 16_384
MAX_MAX_FRAME_SIZE: Final = 2**24 - 1
STREAM_BITS: Final = 0x7FFFFFFF


class ErrorCode(IntEnum):
    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2ConnectionError(Exception):
    """The client broke a rule that the whole connection depends on; it gets a GOAWAY."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StreamError(Exception):
    """The client broke a rule within one stream, which gets a RST_STREAM; the client's other
    streams go on."""

    def __init__(self, stream_id: int, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.stream_id = stream_id
        self.code = code
        self.reason = reason


def protocol_error(reason: str) -> Http2ConnectionError:
    return Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, reason)


def size_error(reason: str) -> Http2ConnectionError:
    return Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, reason)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    length = len(payload)
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id) + payload


def settings_frame(settings: Mapping[Setting, int]) -> bytes:
    payload = b"".join(
        key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in settings.items()
    )
    return frame(SETTINGS, 0, 0, payload)


def reset_frame(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def window_frame(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def goaway_frame(last_stream_id: int, code: ErrorCode, reason: str) -> bytes:
    payload = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big") + reason.encode()
    return frame(GOAWAY, 0, 0, payload)


def header_frames(stream_id: int, block: bytes, *, end_stream: bool) -> bytes:
    """Builds a HEADERS frame. If the block is longer than what every peer accepts in one frame,
    CONTINUATION frames follow."""
    end = END_STREAM if end_stream else 0
    if len(block) <= MIN_MAX_FRAME_SIZE:
        return frame(HEADERS, END_HEADERS | end, stream_id, block)
    parts = [
        block[start : start + MIN_MAX_FRAME_SIZE]
        for start in range(0, len(block), MIN_MAX_FRAME_SIZE)
    ]
    frames = [frame(HEADERS, end, stream_id, parts[0])]
    frames += [frame(CONTINUATION, 0, stream_id, part) for part in parts[1:-1]]
    frames.append(frame(CONTINUATION, END_HEADERS, stream_id, parts[-1]))
    return b"".join(frames)


def parsed_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yields (identifier, value) of SETTINGS; the payload's length must be a multiple of six."""
    for at in range(0, len(payload), 6):
        key = int.from_bytes(payload[at : at + 2], "big")
        value = int.from_bytes(payload[at + 2 : at + 6], "big")
        if key == Setting.ENABLE_PUSH and value > 1:
            raise protocol_error("ENABLE_PUSH is 0 or 1")
        if key == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
        if key == Setting.MAX_FRAME_SIZE and not MIN_MAX_FRAME_SIZE <= value <= MAX_MAX_FRAME_SIZE:
            raise protocol_error("MAX_FRAME_SIZE is out of bounds")
        yield key, value


def unpadded(payload: bytes, flags: int) -> bytes:
    """Removes the padding. Raises Http2ConnectionError if the payload is shorter than its
    padding.
    """
    if not flags & PADDED:
        return payload
    if not payload:
        raise size_error("a padded frame without a pad length")
    padding = payload[0]
    if padding >= len(payload):
        raise protocol_error("more padding than payload")
    return payload[1 : len(payload) - padding]


MAX_FRAME_SIZE: Final = MIN_MAX_FRAME_SIZE
"""The largest payload that the server accepts. It is HTTP/2's default, so clients send no larger
ones."""

_unpack = FRAME_HEADER.unpack_from

Frame = tuple[int, int, int, bytes]
"""A frame: type, flags, stream, payload."""


class FrameReader:
    """Reads one connection's frames; limits headers in bytes and frames. After an error it can't be
    used again.
    """

    def __init__(self, *, max_header: int, max_continuations: int) -> None:
        self._max_header = max_header
        self._max_continuations = max_continuations
        self._rest = bytearray()
        self._needed = len(PREFACE)
        self._prefaced = False
        self.greeted = False
        """Whether the first frame has arrived."""
        self._block: bytearray | None = None
        self._block_of = 0
        self._block_flags = 0
        self._continuations = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields the frames that are complete now. The caller must read all of them. Raises
        Http2ConnectionError."""
        if self._rest:
            self._rest += data
            if self._prefaced and len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at = 0 if self._prefaced else self._preface(data)
        end = len(data)
        self._needed = HEADER_SIZE
        while end - at >= HEADER_SIZE:
            high, low, kind, flags, stream_id = _unpack(data, at)
            length = high << 8 | low
            if length > MAX_FRAME_SIZE:
                raise size_error(f"a frame of {length} bytes")
            start = at + HEADER_SIZE
            if start + length > end:
                self._needed = HEADER_SIZE + length
                break
            at = start + length
            stream_id &= STREAM_BITS
            if not self.greeted:
                self._greet(kind, flags)
            if kind == HEADERS or kind == CONTINUATION or self._block is not None:
                if frame := self._header(kind, flags, stream_id, data[start:at]):
                    yield frame
            else:
                yield kind, flags, stream_id, data[start:at]
        self._rest += data[at:]

    def _preface(self, data: bytes) -> int:
        """Checks the preface, which every client sends first. Returns where the frames begin; while
        the preface is incomplete, that is the end of `data`."""
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise protocol_error("only HTTP/2 is spoken here, from the first byte on")
        if len(data) < len(PREFACE):
            self._rest += data
            return len(data)
        self._prefaced = True
        return len(PREFACE)

    def _greet(self, kind: int, flags: int) -> None:
        if kind != SETTINGS or flags & ACK:
            raise protocol_error("the first frame is not SETTINGS")
        self.greeted = True

    def _header(self, kind: int, flags: int, stream_id: int, payload: bytes) -> Frame | None:
        """Returns a header as one frame once all of its frames have arrived, else None."""
        block = self._block
        if block is None:
            if kind == CONTINUATION:
                raise protocol_error("CONTINUATION of nothing")
            payload = _without_extras(payload, flags)
            if flags & END_HEADERS:
                return HEADERS, flags, stream_id, payload
            self._block, self._block_of, self._block_flags = bytearray(payload), stream_id, flags
            self._continuations = 0
            return None
        if kind != CONTINUATION or stream_id != self._block_of:
            raise protocol_error("a header that is not continued")
        block += payload
        self._continuations += 1
        if len(block) > self._max_header or self._continuations > self._max_continuations:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "a header that is too long")
        if not flags & END_HEADERS:
            return None
        self._block = None
        return HEADERS, self._block_flags, stream_id, bytes(block)


def _without_extras(payload: bytes, flags: int) -> bytes:
    payload = unpadded(payload, flags)
    if not flags & PRIORITIZED:
        return payload
    if len(payload) < 5:
        raise size_error("a priority that is cut short")
    return payload[5:]
