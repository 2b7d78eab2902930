"""Reads one line of a log of a Kubernetes program: when it was written, and its text.

    a line of a file  --read_line-->  LogLine(at, text), or None

Programs write text (`I1126 12:16:42.933076   18389 file.go:67] text`) or, with
--logging-format=json, JSON. Tools add something before or around that: `kubectl logs --timestamps`
and `--prefix`, stern, container runtimes (CRI, Docker), log stores that export JSON. calog.py
decides which lines matter.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from kwok_operator.formats.untyped import as_map

MAX_LINE: Final = 256 * 1024
"""The most bytes of a line that are read; the rest is dropped."""
_KLOG: Final = re.compile(
    r"(?<![0-9A-Za-z])[IWEF]([01][0-9])([0-3][0-9]) ([0-2][0-9]):([0-5][0-9])"
    r":([0-6][0-9]\.[0-9]{1,9}) +[0-9]+ [\w.-]+:[0-9]+\] ?"
)
_HEAD: Final = 2_000
"""The most characters that tools add before a program's own text."""
_RFC3339: Final = re.compile(
    r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?= )"
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_WRAPPED: Final = ("log", "message", "textPayload", "line", "body", "content", "_raw")
_MILLISECONDS: Final = 1e11
"""A number of seconds as large as this is one of milliseconds, as in klog's JSON."""
_DEEPEST: Final = 3


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. `at` is in seconds since 1970, by the program's time zone (mostly UTC)
    unless a tool has added its own time.
    """

    at: float
    text: str


def read_line(line: str, *, near: float) -> LogLine | None:
    """Reads a line; None for a line without a time, such as one of a stack trace. klog's text has
    no year: the year that brings the line closest to `near` is used.
    """
    return _read(line, near, "", _DEEPEST)


def _read(line: str, near: float, outer: str, deep: int) -> LogLine | None:
    line = _COLOURS.sub("", line).rstrip() if "\x1b" in line else line.rstrip()
    klog = _KLOG.search(line, 0, _HEAD)
    start = line.find("{", 0, _HEAD)
    if deep and 0 <= start < (klog.start() if klog else _HEAD):
        # Text in JSON is escaped, so JSON is tried first.
        said = _of_json(line[start:], near, outer or line[:start], deep - 1)
        if said is not None or klog is None:
            return said
    if klog is None:
        return None
    text = line[klog.end() :]
    stamp = _RFC3339.search(line, 0, klog.start())
    at = _time(stamp[0] if stamp else outer)
    if at is None:
        month, day, hour, minute = (int(klog[part]) for part in range(1, 5))
        midnight = _midnight(month, day, round(near / 86_400))
        if midnight is None:
            return None
        at = midnight + hour * 3600 + minute * 60 + float(klog[5])
    return LogLine(round(at, 3), text)


def _of_json(text: str, near: float, outer: str, deep: int) -> LogLine | None:
    try:
        said: Mapping[str, Any] = as_map(json.loads(text))
    except (ValueError, RecursionError):
        return None
    if isinstance(said.get("msg"), str) and "ts" in said:
        at = _time(said["ts"])
        error = said.get("err")
        message = f"{said['msg']}{f' err={error}' if error else ''}"
        return None if at is None else LogLine(round(at, 3), message.rstrip())
    times = (said[key] for key in ("time", "timestamp", "ts", "@timestamp") if said.get(key))
    own = next((value for value in times if isinstance(value, str)), "")
    for key in _WRAPPED:
        if isinstance(said.get(key), str):
            return _read(said[key], near, own or outer, deep)
    payload = said.get("jsonPayload")
    return _of_json(json.dumps(payload), near, own or outer, deep) if payload and deep else None


@lru_cache(maxsize=1_000)
def _midnight(month: int, day: int, near_day: int) -> float | None:
    """Returns the beginning of the day closest to `near_day`, in days since 1970."""
    year = datetime.fromtimestamp(near_day * 86_400, UTC).year
    days = []
    for each in (year - 1, year, year + 1):
        try:
            days.append(datetime(each, month, day, tzinfo=UTC).timestamp())
        except ValueError:  # such as 29 February
            continue
    return min(days, key=lambda begin: abs(begin - near_day * 86_400), default=None)


def _time(value: Any) -> float | None:
    """Returns a time in seconds, from an RFC 3339 text, or a number of seconds or milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e14:
        return value / 1000 if value > _MILLISECONDS else float(value)
    match = _RFC3339.search(f"{value} ") if isinstance(value, str) else None
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    except ValueError:
        return None
    return whole.timestamp() + float(f"0.{match[2] or 0}")
