"""Time, as the controller reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """Time: `monotonic` seconds, the time of day, and how to wait."""

    monotonic: Callable[[], float]
    wall: Callable[[], datetime]

    def now(self) -> str:
        """RFC 3339, in seconds."""
        return self.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
