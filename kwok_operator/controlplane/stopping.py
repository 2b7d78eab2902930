"""Stops work that runs in a thread other than the main one.

An interrupt reaches the main thread only. Work in another thread calls `go_on` now and then, which
raises Stopped once somebody has set the event.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class Stopped(Exception):
    """Raised in a thread whose work is no longer wanted."""


@contextmanager
def stopped_by(event: threading.Event) -> Iterator[None]:
    """Have `go_on` in the block, in this thread, raise Stopped once the event is set."""
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


def go_on() -> None:
    """Raise Stopped if this thread is to stop."""
    event = _STOP.get()
    if event is not None and event.is_set():
        raise Stopped
