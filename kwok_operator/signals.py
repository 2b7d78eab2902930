"""Handles SIGINT, SIGTERM and SIGHUP, for commands that have to clean up before they end."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

T = TypeVar("T")

_ends: list[Callable[[], None]] = []
"""What a signal does, in the blocks that have been entered: the innermost one handles it."""


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Cancels the current task at the first signal; later signals do nothing until the block is
    left.

    If the block catches the CancelledError, the task continues as if it had never been cancelled.
    SIGINT works even if it was ignored at the start, as for commands that a script starts with `&`.
    SIGHUP, which a closed terminal sends, stays ignored if it was, as under nohup. Blocks may be
    nested.
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

    with suppress(NotImplementedError, ValueError, RuntimeError):  # works in the main thread only
        for number in before:
            loop.add_signal_handler(number, end)
    _ends.append(end)
    try:
        yield
    finally:
        _ends.pop()
        with suppress(NotImplementedError, ValueError, RuntimeError):
            for number in before:
                if _ends:
                    loop.add_signal_handler(number, _ends[-1])
                else:
                    loop.remove_signal_handler(number)
                    signal.signal(number, before[number])
        if ended:
            task.uncancel()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work` to its end. If the caller is cancelled meanwhile, CancelledError is raised only
    when `work` has ended. Errors of `work` are raised, too."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
