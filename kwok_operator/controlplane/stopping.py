"""Being told to stop, in a thread.

An interrupt reaches the main thread only. What works in another one asks now and then whether it
was told to stop; in the main thread nobody tells it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TOLD: ContextVar[threading.Event | None] = ContextVar("told", default=None)


class Stopped(Exception):
    """What was begun is not wanted any more."""


@contextmanager
def stopped_by(event: threading.Event) -> Iterator[None]:
    """Have `go_on` in the block, in this thread, raise Stopped once the event is set."""
    token = _TOLD.set(event)
    try:
        yield
    finally:
        _TOLD.reset(token)


def go_on() -> None:
    """Raise Stopped if this thread was told to stop."""
    event = _TOLD.get()
    if event is not None and event.is_set():
        raise Stopped
