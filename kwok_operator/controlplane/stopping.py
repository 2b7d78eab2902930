"""Stops work that runs in a thread other than the main one.

An interrupt reaches the main thread only. So work in another thread calls `go_on` often, which
raises Stopped once the event of `stopped_by` is set.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Result = TypeVar("_Result")
_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class Stopped(Exception):
    """Raised in a thread to stop its work."""


@contextmanager
def stopped_by(event: threading.Event) -> Iterator[None]:
    """Make `go_on`, called within the block in this thread, raise Stopped once the event is set."""
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


def go_on() -> None:
    """Raise Stopped if this is called within a `stopped_by` block whose event is set."""
    event = _STOP.get()
    if event is not None and event.is_set():
        raise Stopped


async def in_thread(
    work: Callable[[], _Result], *, undo: Callable[[_Result], object] = lambda _: None
) -> _Result:
    """Do the work in a thread, as it would block the event loop. If the caller is cancelled, the
    next `go_on` in the thread stops the work, and the caller waits for the end of the thread. If
    the work still returns a result, `undo` gets the result."""
    stop = threading.Event()

    def do() -> _Result:
        with stopped_by(stop):
            return work()

    doing = asyncio.ensure_future(asyncio.to_thread(do))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([doing])
        if doing.exception() is None:
            undo(doing.result())
        raise
