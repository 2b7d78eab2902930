"""What the connections of a server share, and one call of a client: values for grpccalls.py."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

from kwok_operator.shim.grpcstatus import Handler, RpcError, StatusCode, StreamHandler
from kwok_operator.shim.grpcwire import MessageReader

logger = logging.getLogger(__name__)

UNKNOWN_METHOD: Final = "unknown"
"""What is observed for paths that clients make up, so that there is no end to them."""

_FAILED: Final = "the server failed while it answered; its log says why"


MAX_CONNECTIONS: Final = 100
"""At a time. cluster-autoscaler has one, and a probe another one for a moment."""
_TELL_INTERVAL: Final = 60.0


class Connected(Protocol):
    """A connection, for whoever stops the server or makes room."""

    closed: asyncio.Future[None]

    @property
    def settled(self) -> bool:
        """The client has shown who it is, where it must, and speaks HTTP/2."""

    def leave(self) -> None:
        """Take no new calls, and close when those under way have ended."""

    def abort(self) -> None:
        """Close now."""


@dataclass(slots=True, kw_only=True)
class Service:
    """What all connections of a server share."""

    handlers: Mapping[bytes, tuple[str, Handler]]
    streams: Mapping[bytes, tuple[str, StreamHandler]]
    observe: Callable[[str, StatusCode, float], None] | None
    max_message_bytes: int
    connections: dict["Connected", None] = field(default_factory=dict)
    """The oldest first."""
    told_full: float = float("-inf")
    logged: set[tuple[str, type[BaseException]]] = field(default_factory=set)
    stopping: bool = False

    def admit(self, new: "Connected") -> bool:
        """Where there are too many, the oldest that isn't settled goes, else `new` isn't taken."""
        self.connections[new] = None
        if len(self.connections) <= MAX_CONNECTIONS:
            return True
        gone = next(each for each in self.connections if not each.settled)
        del self.connections[gone]
        gone.abort()
        if (now := monotonic()) - self.told_full >= _TELL_INTERVAL:
            self.told_full = now
            logger.warning("too many connections, closing some: limit=%d", MAX_CONNECTIONS)
        return gone is not new

    def failed(self, method: str, error: BaseException) -> RpcError:
        """A handler's mistake: with its traceback the first time, as each call may make it."""
        seen = (method, type(error))
        if seen in self.logged:
            logger.error("call failed: method=%s error=%r", method, error)
        else:
            self.logged.add(seen)
            logger.error("call failed: method=%s error=%r", method, error, exc_info=error)
        return RpcError(StatusCode.INTERNAL, _FAILED)


class Call:
    """One call, until its answer has gone."""

    __slots__ = (
        "begun",
        "code",
        "ended",
        "handler",
        "held",
        "message",
        "method",
        "reader",
        "started",
        "stream_handler",
        "stream_id",
        "task",
        "timeout",
        "timer",
        "wake",
    )

    def __init__(self, stream_id: int, method: str) -> None:
        self.stream_id = stream_id
        self.method = method
        self.started = monotonic()
        self.handler: Handler | None = None
        self.stream_handler: StreamHandler | None = None
        self.reader: MessageReader | None = None
        self.message: bytes | None = None
        self.ended = False
        """The request is complete."""
        self.wake: asyncio.Event | None = None
        """For streams: something has come, or gone."""
        self.held = 0
        self.timeout: float | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Future[Any] | None = None
        self.begun = False
        """Part of the answer is on its way, so that its end can't begin with a head."""
        self.code: StatusCode | None = None
        """Of the answer, which may be on its way still."""

    @property
    def over(self) -> bool:
        """Answered or given up. What is left of it is to be sent, at most."""
        return self.code is not None
