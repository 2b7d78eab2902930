"""Bytes as they arrive, in pieces of any size, to whole frames.

Headers come as one frame, without padding and priority, however many the client made of them. Of a
frame that is not complete no more is kept than one frame may have.
"""

from collections.abc import Iterator
from typing import Final

from kwok_operator.shim.http2 import frames
from kwok_operator.shim.http2.frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    HEADER_SIZE,
    HEADERS,
    MIN_MAX_FRAME_SIZE,
    PREFACE,
    PRIORITIZED,
    SETTINGS,
    STREAM_BITS,
    ConnectionError,
    ErrorCode,
    protocol_error,
    size_error,
)
from kwok_operator.shim.http2.limits import Limits

MAX_FRAME_SIZE: Final = MIN_MAX_FRAME_SIZE
"""What we take, and as we announce nothing else, what clients send."""

_unpack = frames.FRAME_HEADER.unpack_from

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream, payload."""


class FrameReader:
    """One connection's. Each error is for good."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rest = bytearray()
        self._needed = len(PREFACE)
        self._prefaced = False
        self.greeted = False
        """The first frame has come."""
        self._block: bytearray | None = None
        self._block_of = 0
        self._block_flags = 0
        self._continuations = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; to be read to the end. Raises ConnectionError."""
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
        """Where the frames begin: nowhere, while the preface is incomplete."""
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
        """A whole header, once it is complete."""
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
        limits = self._limits
        if len(block) > limits.header_list or self._continuations > limits.continuations:
            raise ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "a header that is too long")
        if not flags & END_HEADERS:
            return None
        self._block = None
        return HEADERS, self._block_flags, stream_id, bytes(block)


def _without_extras(payload: bytes, flags: int) -> bytes:
    payload = frames.unpadded(payload, flags)
    if not flags & PRIORITIZED:
        return payload
    if len(payload) < 5:
        raise size_error("a priority that is cut short")
    return payload[5:]
