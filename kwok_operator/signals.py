"""SIGINT, SIGTERM and SIGHUP, for commands that end what they do in order."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

T = TypeVar("T")


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """The first of them cancels this task; those that follow do nothing, until the block is left.

    Whoever catches the CancelledError goes on as if the task had never been cancelled. SIGINT
    counts also where it was ignored when we started, as it is behind the `&` of a script; SIGHUP,
    of a terminal that was closed, doesn't, as it is behind nohup.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    ended = False

    def end() -> None:
        nonlocal ended
        if not ended:
            ended = True
            task.cancel()

    with suppress(NotImplementedError, ValueError, RuntimeError):  # not in every thread
        for number in before:
            loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            for number in before:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])
        if ended:
            task.uncancel()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits it whole: who is cancelled meanwhile is cancelled after it. Raises what it raises."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
