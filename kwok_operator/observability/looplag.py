"""Measures how late the event loop runs what is due. Requests and probes are answered just as late.

    sleep(INTERVAL) ──> awake again, this much too late: observed

This module measures; metrics.py exports the result. A delay shorter than the interval may be
missed. asyncio's own debug mode logs slow callbacks, but slows all of them down.

The CPU time within a delay shows its cause: on a machine that is too busy to run us, the delay is
long and our CPU time is short.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

INTERVAL: Final = 0.1
"""The seconds between two measurements. Ten wake-ups per second take 0.2 % of a core."""


async def watch_lag(observe: Callable[[float, float], None]) -> None:
    """Calls `observe` with each delay in seconds and the CPU time within it, until cancelled.

    The CPU time is that of this thread since the loop's last wake-up, but at most the delay.
    """
    while True:
        due, used = time.perf_counter() + INTERVAL, time.thread_time()
        await asyncio.sleep(INTERVAL)
        late = max(time.perf_counter() - due, 0.0)
        observe(late, min(late, time.thread_time() - used))
