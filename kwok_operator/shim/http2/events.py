"""What a client did, as far as whoever answers must know."""

from collections.abc import Mapping
from typing import NamedTuple

from kwok_operator.shim.http2.frames import ErrorCode


class RequestReceived(NamedTuple):
    stream_id: int
    head: Mapping[bytes, bytes]
    """Pseudo-headers, such as b":path", and fields; the values of a repeated field with ", "."""
    end_stream: bool


class DataReceived(NamedTuple):
    """Part of the body. What has been dealt with goes to `Connection.consumed`."""

    stream_id: int
    data: bytes
    end_stream: bool


class StreamReset(NamedTuple):
    """The stream is over: the client cancelled it, or broke a rule on it."""

    stream_id: int
    code: ErrorCode | int


class ConnectionEnded(NamedTuple):
    """All streams are over. What is to be sent still should be, then the connection is closed."""

    code: ErrorCode
    reason: str


Event = RequestReceived | DataReceived | StreamReset | ConnectionEnded
