"""Memory and CPU of a process, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resident memory now and at its highest, in MB, and the CPU used so far, in seconds."""

    rss: float
    peak: float
    cpu: float


def parse(*, status: str, stat: str, ticks: int = _TICKS) -> Usage:
    """Read /proc/PID/status and /proc/PID/stat; raises KeyError for a process that has ended."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    # The command's name is in brackets and may hold blanks; utime and stime are 14th and 15th.
    numbers = stat.rpartition(")")[2].split()
    return Usage(
        rss=int(fields["VmRSS"].split()[0]) / 1024,
        peak=int(fields["VmHWM"].split()[0]) / 1024,
        cpu=(int(numbers[11]) + int(numbers[12])) / ticks,
    )


def usage(pid: int) -> Usage:
    """What a process uses."""
    place = Path("/proc", str(pid))
    return parse(status=(place / "status").read_text(), stat=(place / "stat").read_text())
