"""A method, and how a call of it ends: the codes of gRPC, and the error that a handler raises."""

from collections.abc import Awaitable, Callable
from enum import IntEnum


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
    """A call that ends with a code other than OK, and a sentence for whoever reads the log."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


Handler = Callable[[bytes], bytes | Awaitable[bytes]]
"""One request message to one response message, or RpcError. What is not async answers at once."""

StreamHandler = Callable[[bytes], Awaitable[bytes]]
"""For streams in both directions that answer each message with one."""
