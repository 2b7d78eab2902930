"""Encodes and decodes gRPC in HTTP/2: messages within bodies, statuses within trailers.

Pure: it has no input or output. The header blocks of answers depend only on the status, so they are
made once.
"""

import re
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import lru_cache
from typing import Final

from kwok_operator.shim.http2.headers import Field, encode


class StatusCode(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """Ends a call with a code other than OK, and a sentence for the log of the client."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


Handler = Callable[[bytes], bytes | Awaitable[bytes]]
"""Turns one request message into one response message, or raises RpcError. A handler that isn't
async must return at once."""

PREFIX: Final = 5
"""The bytes before each message: one flag (compressed or not), and four with the message's
length."""
MAX_STATUS_MESSAGE: Final = 4096
"""The most bytes of a status message, percent-encoded. Some clients refuse trailers of 8 KiB."""

_HEAD: Final[list[Field]] = [(b":status", b"200"), (b"content-type", b"application/grpc")]
HEAD: Final = encode(_HEAD)
OK_TRAILERS: Final = encode([(b"grpc-status", b"0")])

_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class MessageReader:
    """Splits one body, which comes in pieces, into its messages."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        self._rest += data

    def take(self) -> bytes | None:
        """Returns the next message once it is complete, else None. Raises RpcError."""
        rest = self._rest
        if len(rest) < PREFIX:
            return None
        if rest[0]:
            raise RpcError(StatusCode.INTERNAL, "a compressed message, though none were agreed on")
        length = int.from_bytes(rest[1:PREFIX])
        if length > self._max_bytes:
            raise RpcError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"a message of {length} bytes; at most {self._max_bytes} are taken",
            )
        end = PREFIX + length
        if end > len(rest):
            return None
        message = bytes(rest[PREFIX:end])
        del rest[:end]
        return message

    def finish(self) -> None:
        """Checks that the body doesn't end within a message; raises RpcError if it does."""
        if self._rest:
            raise RpcError(StatusCode.INTERNAL, "the request ends within a message")


def prefix(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big")


def parse_timeout(value: bytes) -> float:
    """Returns the seconds that a `grpc-timeout` header means. Raises RpcError."""
    match = _TIMEOUT.fullmatch(value)
    if not match:
        raise RpcError(StatusCode.INTERNAL, "grpc-timeout is not at most 8 digits and a unit")
    return int(match[1]) * _SECONDS[match[2]]


@lru_cache(maxsize=256)
def trailers_only(code: StatusCode, message: str) -> bytes:
    """Returns the headers of an answer that has no message, only a status."""
    return encode([*_HEAD, *_status_fields(code, message)])


ENCODING_REFUSED: Final = encode(
    [
        *_HEAD,
        (b"grpc-accept-encoding", b"identity"),
        (b"grpc-status", b"%d" % StatusCode.UNIMPLEMENTED),
        (b"grpc-message", b"messages are taken uncompressed only"),
    ]
)


@lru_cache(maxsize=16)
def http_error(status: int) -> bytes:
    """Returns the headers of the answer to a request that isn't gRPC at all."""
    return encode([(b":status", b"%d" % status)])


def _status_fields(code: StatusCode, message: str) -> list[Field]:
    fields = [(b"grpc-status", b"%d" % code)]
    if message:
        fields.append((b"grpc-message", percent_encoded(message)))
    return fields


def percent_encoded(message: str) -> bytes:
    """Encodes a message for the grpc-message header: printable ASCII stays, other bytes of its
    UTF-8 become %XX; a message that is too long is cut.
    """
    out = bytearray()
    for character in message:
        raw = character.encode("utf-8", "replace")
        if len(raw) == 1 and 0x20 <= raw[0] <= 0x7E and raw != b"%":
            encoded = raw
        else:
            encoded = b"".join(b"%%%02X" % byte for byte in raw)
        if len(out) + len(encoded) > MAX_STATUS_MESSAGE:
            return bytes(out)
        out += encoded
    return bytes(out)
