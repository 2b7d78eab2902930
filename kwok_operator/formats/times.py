"""Reads and writes times: durations as people write them, and the RFC 3339 of the API.

A duration is in seconds, a time in milliseconds since the epoch.
"""

import re
from datetime import UTC, datetime, timedelta

_PATTERN = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")


def parse_duration(text: str) -> int:
    """Reads a duration such as 1h30m, in seconds. Raises ValueError for anything else."""
    match = _PATTERN.fullmatch(text)
    if not match or not text:
        raise ValueError(f"{text!r} is not a time such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Reads an RFC 3339 time with a zone, in milliseconds since the epoch. Raises ValueError for
    anything else, and for a time before the epoch."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write it as 2026-01-02T03:04:05Z")
    # At the first and last day of the calendar, a zone can lead to a time that UTC doesn't have.
    if not 1970 <= time.year < 9999 or (at := milliseconds_of(time)) < 0:
        raise ValueError(f"{text!r} is no time from 1970 on, before 9999")
    return at


def milliseconds_of(time: datetime) -> int:
    """Returns milliseconds since the epoch; `time` must have a zone."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def format_time(at: int) -> str:
    """Writes a time as RFC 3339 in whole seconds, like other times in status; fractions are cut
    off."""
    return (_EPOCH + timedelta(seconds=at // 1_000)).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_exact_time(at: int) -> str:
    """Writes a time as RFC 3339 with milliseconds."""
    return f"{format_time(at).removesuffix('Z')}.{at % 1_000:03}Z"
