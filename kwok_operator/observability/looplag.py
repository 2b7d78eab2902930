"""How late the event loop comes to what is due: as late are answers read, and probes answered.

    sleep(INTERVAL) ──> awake again, this much too late: observed

Owns the measure; what becomes of it is for metrics.py. A delay shorter than the interval may fall
between two looks. asyncio itself logs slow callbacks in debug mode only, which slows down all
of them.

The CPU time within the delay shows the cause: on a machine that is too
busy to run us, the first is long and the second is not.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

INTERVAL: Final = 0.1
"""Seconds. To wake ten times a second takes 0.2 % of a core."""


async def watch_lag(observe: Callable[[float, float], None]) -> None:
    """Calls `observe`, until cancelled, with each delay in seconds and its CPU time at most.

    The CPU's is that of this thread since it was last awake, as far as it fits into the delay.
    """
    while True:
        due, used = time.perf_counter() + INTERVAL, time.thread_time()
        await asyncio.sleep(INTERVAL)
        late = max(time.perf_counter() - due, 0.0)
        observe(late, min(late, time.thread_time() - used))
