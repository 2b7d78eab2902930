"""Measures how busy other programs kept the machine during a run.

    CPU time in /proc/stat minus that of our processes --> the others' share of the processors

Our processes are recognised by a variable in their environment: those that kwokctl starts aren't
our children. Without /proc, the load is unknown.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

_MARK: Final = "REHEARSAL_COMPARED_BY"
_EVERY: Final = 1.0
_IDLE: Final = (3, 4)
"""The columns `idle` and `iowait` of /proc/stat."""
_OWN_TIMES: Final = slice(13, 17)
"""The processor times in /proc/PID/stat of a process and of its ended children: utime, stime,
cutime, cstime.
"""

Ticks = tuple[float, float]
"""Processor time since the machine started: the total, and the part that was not idle."""


class LoadMeter:
    """Measures the share of the processors that other programs use, from its construction on."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._ours: dict[int, bool] = {os.getpid(): True}
        self._times: dict[int, float] = {}
        self._mark = f"{_MARK}={os.environ.get(_MARK, '')}".encode()
        self._total = 0.0
        self._others = 0.0
        self._last: Ticks | None = None
        self.measure()

    @property
    def others(self) -> float | None:
        return round(self._others / self._total, 4) if self._total else None

    def measure(self) -> None:
        ticks, ours = self._all(), self._since_last()
        if ticks is not None and self._last is not None:
            total, worked = (now - then for now, then in zip(ticks, self._last, strict=True))
            self._total += total
            self._others += max(worked - ours, 0.0)
        self._last = ticks

    def _all(self) -> Ticks | None:
        try:
            first = (self._proc / "stat").read_text().splitlines()[0].split()
            # The time of guests is included in that of users.
            columns = [float(each) for each in first[1:9]]
        except (OSError, ValueError, IndexError):
            return None
        return sum(columns), sum(columns) - sum(columns[place] for place in _IDLE)

    def _since_last(self) -> float:
        times = {pid: t for pid in self._pids() if (t := self._used(pid)) is not None}
        # The kernel adds the time of an ended process to its parent, if the parent waited for it.
        before = sum(self._times.get(pid, 0.0) for pid in times | self._times)
        self._times = times
        return max(sum(times.values()) - before, 0.0)

    def _pids(self) -> list[int]:
        with suppress(OSError):
            every = {int(entry) for entry in os.listdir(self._proc) if entry.isdecimal()}
            self._ours = {pid: ours for pid, ours in self._ours.items() if pid in every}
            for pid in every - self._ours.keys():
                with suppress(OSError):
                    environ = (self._proc / str(pid) / "environ").read_bytes()
                    self._ours[pid] = self._mark in environ.split(b"\0")
        return [pid for pid, ours in self._ours.items() if ours]

    def _used(self, pid: int) -> float | None:
        try:
            # The process name is in parentheses, and may contain any character.
            text = (self._proc / str(pid) / "stat").read_text().rpartition(")")[2]
            return sum(float(each) for each in f"0 0{text}".split()[_OWN_TIMES])
        except (OSError, ValueError):
            return None


@asynccontextmanager
async def metered() -> AsyncIterator[Callable[[], float | None]]:
    """Measures while the block runs. Yields a function that returns the share of the processors
    that other programs have used so far.
    """
    os.environ.setdefault(_MARK, f"{os.getpid()}-{os.urandom(4).hex()}")
    meter = LoadMeter()

    async def keep_measuring() -> None:
        while True:
            await asyncio.sleep(_EVERY)
            meter.measure()

    task = asyncio.create_task(keep_measuring())
    try:
        yield lambda: meter.others
    finally:
        task.cancel()
