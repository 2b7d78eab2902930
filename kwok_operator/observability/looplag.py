"""Measures how late the event loop does what is due; answers and probes are as late.

    sleep(INTERVAL) ──> awake again, this much too late: observed

This module measures; metrics.py exports the result. A delay shorter than the interval may be
missed. asyncio itself logs slow callbacks in debug mode only, which slows down all of them.

The CPU time within a delay shows its cause: on a machine that is too busy to run us, the delay is
long and our CPU time is short.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

INTERVAL: Final = 0.1
"""Seconds. Waking ten times a second takes 0.2 % of a core."""


async def watch_lag(observe: Callable[[float, float], None]) -> None:
    """Calls `observe` with each delay in seconds and the CPU time within it, until cancelled.

    The CPU time is this thread's since it was last awake, but at most the delay.
    """
    while True:
        due, used = time.perf_counter() + INTERVAL, time.thread_time()
        await asyncio.sleep(INTERVAL)
        late = max(time.perf_counter() - due, 0.0)
        observe(late, min(late, time.thread_time() - used))
