"""How long the event loop is busy at a time: then no answer is read, no probe answered, no watch.

Owns how long a turn is measured to be, and how much is taken up in one.

    select() returns ──> everything that is due runs: one turn ──> select() is called again
          └────────────── observed: seconds, and of them the CPU's ──────────┘

Each turn is timed where the loop goes to sleep and wakes, in its selector. So nothing is missed, as
a task that looks at the clock now and then would miss a short stall; an idle loop is not woken for
it; and a turn costs some readings of clocks and one observation, about three microseconds. asyncio
tells of slow callbacks itself only in debug mode, which slows down all of them.

What nobody heard from us is the time that passed. How much of it we used the CPU tells whose fault
that was: on a machine that is too busy to run us, the first is long and the second is not.

Where many sockets have something at once, as 64 answers have, a turn takes up a few of them. The
others are told of again by the next select(), which doesn't wait, and what is due in between runs.
Each turn begins with others, so that those that always have something keep nobody waiting.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

SOCKETS_AT_ONCE: Final = 16


def watch_turns(
    loop: asyncio.AbstractEventLoop,
    observe: Callable[[float, float], None],
) -> None:
    """Tells `observe` of each turn from now on: its seconds, and those of the CPU; and keeps turns
    short.

    Raises TypeError where the loop shows no selector, as those of other libraries don't.
    """
    selector: Any = getattr(loop, "_selector", None)
    if selector is None:
        raise TypeError(f"{type(loop).__name__} shows no selector: its turns can't be timed")
    select = selector.select
    woken, used = time.perf_counter(), time.thread_time()
    first = 0

    def timed_select(timeout: float | None = None) -> Any:
        nonlocal woken, used, first
        observe(time.perf_counter() - woken, time.thread_time() - used)
        events = select(timeout)
        if len(events) > SOCKETS_AT_ONCE:
            first = (first + SOCKETS_AT_ONCE) % len(events)
            events = (events[first:] + events[:first])[:SOCKETS_AT_ONCE]
        woken, used = time.perf_counter(), time.thread_time()
        return events

    selector.select = timed_select
