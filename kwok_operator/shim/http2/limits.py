"""What one client may ask of a connection."""

from collections.abc import Callable
from dataclasses import dataclass

from kwok_operator.shim.http2.frames import ConnectionError, ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    streams: int = 1000
    """Open at a time."""
    header_list: int = 16_384
    """Bytes of a request's header, before and after decompression."""
    continuations: int = 16
    """Frames that a header may be continued in."""
    stream_window: int = 2**18
    """Bytes that a client may send on one stream before they are consumed."""
    connection_window: int = 2**20
    idle_frames: int = 4000
    """Frames that get nothing done, per period: pings, settings, resets, empty data, ..."""
    period: float = 10.0
    """Seconds."""


class Patience:
    """Counts frames that cost us work and get nothing done; a call that is completed pays for two.

    So a client may reset a thousand calls at once, and ping after every answer for ever, but can't
    go on opening and resetting streams, or pinging, faster than `Limits.idle_frames` allows.
    """

    __slots__ = ("_clock", "_limit", "_period", "_since", "_spent")

    def __init__(self, limits: Limits, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._limit = limits.idle_frames
        self._period = limits.period
        self._since = clock()
        self._spent = 0

    def spend(self) -> None:
        """Raises ConnectionError when it is too much."""
        self._spent += 1
        if self._spent <= self._limit:
            return
        now = self._clock()
        if now - self._since < self._period:
            raise ConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM, "too many frames that get nothing done"
            )
        self._since, self._spent = now, 0

    def earn(self) -> None:
        if self._spent > 1:
            self._spent -= 2
