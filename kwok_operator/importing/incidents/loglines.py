"""Reads one line of a log of a Kubernetes program: when it was written, and its text.

    lines of a file  --whole_lines-->  lines that runtimes had split are whole again
    a line           --read_line-->    LogLine(at, text), or None

Programs write text (`I1126 12:16:42.933076   18389 file.go:67] text`) or, with
--logging-format=json, JSON. Both may be structured: a message in quotes, then fields. Tools add
something before or around that: `kubectl logs --timestamps` and `--prefix`, stern, container
runtimes (CRI, Docker), log stores that export JSON. calog.py decides which lines matter.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kwok_operator.formats.untyped import as_map

MAX_LINE: Final = 256 * 1024
"""The most bytes of a line that are read; the rest is dropped."""
_KLOG: Final = re.compile(
    r"(?<![0-9A-Za-z])[IWEF]([01][0-9])([0-3][0-9]) ([0-2][0-9]):([0-5][0-9])"
    r":([0-6][0-9]\.[0-9]{1,9}) +[0-9]+ [\w./-]+:[0-9]+\] ?"
)
_STRUCTURED: Final = re.compile(r'("(?:[^"\\]|\\.)*")(?: (?=\w+=)|$)')
_ERROR: Final = re.compile(r'(?:^| )err=("(?:[^"\\]|\\.)*")')
_PROPERTY: Final = re.compile(r'\s*"\w+" ?: ?".*",?')
"""A line of JSON that is printed over several lines."""
_KNOWN: Final = frozenset(
    "ts caller logger msg v err stacktrace"
    " kubernetes stream time timestamp @timestamp date tag file host hostname level".split()
)
"""The keys of klog's JSON that are no fields of a message, and those that collectors add."""
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
_DECODER: Final = json.JSONDecoder()
_JSON: Final = re.compile(r'\{\s*["}]')


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. `at` is in seconds since 1970, by the program's time zone (mostly UTC)
    unless a tool has added its own time.
    """

    at: float
    text: str
    fields: bool = False
    """Whether the line has more fields, which `text` lacks."""


class _Piece(NamedTuple):
    """A line as a container runtime writes it. Lines of over 16 KiB are split into several."""

    head: bytes
    text: bytes
    tail: bytes
    more: bool
    """Whether the next line goes on with this text."""


_CRI: Final = re.compile(rb"(\S+ std(?:out|err) )([PF])( )(.*)", re.DOTALL)
_DOCKER: Final = re.compile(rb'(\{"log":")(.*)(","stream":".*)', re.DOTALL)
_SPLIT: Final = 16 * 1024
"""Docker splits texts of more bytes; containerd marks the pieces of its own."""
_BEGIN: Final = re.compile(rb'[IWEF][01][0-9][0-3][0-9] |\{\\*"ts\\*":')
"""How a line of a Kubernetes program begins."""


def whole_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines. A line that a container runtime had split into several pieces is yielded as
    one. Empty lines are yielded at once.
    """
    held: _Piece | None = None
    for line in lines:
        piece = _piece(line) if held is not None or len(line) >= _SPLIT or b" P " in line else None
        if held is not None and line:
            if piece is not None and not _BEGIN.match(piece.text):
                text = held.text[:MAX_LINE] + piece.text
                held = _Piece(held.head, text, piece.tail, piece.more)
                if piece.more:
                    continue
                line, piece = held.head + text + piece.tail, None
            else:  # its end is missing
                yield held.head + held.text + held.tail
            held = None
        if piece is not None and piece.more:
            held = piece
        else:
            yield line
    if held is not None:
        yield held.head + held.text + held.tail


def _piece(line: bytes) -> _Piece | None:
    if match := _CRI.match(line):
        text = match[4].removesuffix(b"\r")
        return _Piece(match[1] + b"F ", text, b"", match[2] == b"P")
    if match := _DOCKER.match(line):
        # Other tools write all lines without their line feeds.
        more = len(match[2]) >= _SPLIT and not match[2].endswith(b"\\n")
        return _Piece(match[1], match[2], match[3], more)
    return None


def read_line(line: str, *, near: float) -> LogLine | None:
    """Reads a line; None for a line without a time, such as one of a stack trace. klog's text has
    no year: the year that brings the line closest to `near` is used.
    """
    return _read(line, near, "", _DEEPEST)


def _read(line: str, near: float, outer: str, deep: int) -> LogLine | None:
    line = _COLOURS.sub("", line).rstrip() if "\x1b" in line else line.rstrip()
    if deep and _PROPERTY.fullmatch(line):
        said, _ = _json_at(f"{{{line.strip().removesuffix(',')}}}", 0)
        return None if said is None else _of_json(said, near, outer, deep - 1)
    klog = _KLOG.search(line, 0, _HEAD)
    start = line.find("{", 0, _HEAD)
    if deep and 0 <= start < (klog.start() if klog else _HEAD):
        # Text in JSON is escaped, so JSON is tried first.
        said, end = _json_at(line, start)
        if said is not None:
            read = _of_json(said, near, outer or line[:start], deep - 1)
            if read is not None or klog is None or klog.start() < end:
                return read
        elif klog is None or _JSON.match(line, start):
            return None
    if klog is None:
        return None
    text, fields = _unquoted(line[klog.end() :])
    stamp = _RFC3339.search(line, 0, klog.start())
    at = _time(stamp[0] if stamp else outer)
    if at is None:
        month, day, hour, minute = (int(klog[part]) for part in range(1, 5))
        midnight = _midnight(month, day, round(near / 86_400))
        if midnight is None:
            return None
        at = midnight + hour * 3600 + minute * 60 + float(klog[5])
    return LogLine(round(at, 3), text, fields)


def _unquoted(text: str) -> tuple[str, bool]:
    """Returns the message and the error of a structured line, and whether it has other fields."""
    match = _STRUCTURED.match(text)
    if match is None:
        return text, False
    rest = text[match.end() :]
    error = _ERROR.search(rest)
    try:
        message = json.loads(match[1]) + (f" err={json.loads(error[1])}" if error else "")
    except ValueError:
        return text, True
    return message.rstrip(), bool(rest[: error.start()] + rest[error.end() :] if error else rest)


def _json_at(text: str, start: int) -> tuple[Mapping[str, Any] | None, int]:
    """Returns the JSON object that begins at `start`, and its end. The object is None if none
    begins there, or if another one follows it.
    """
    try:
        said, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    several = text[end:].lstrip(", \t").startswith("{")
    return (None if several else as_map(said)), end


def _of_json(said: Mapping[str, Any], near: float, outer: str, deep: int) -> LogLine | None:
    if isinstance(said.get("msg"), str) and "ts" in said:
        at = _time(said["ts"])
        error = said.get("err")
        message = f"{said['msg']}{f' err={error}' if error else ''}"
        fields = not said.keys() <= _KNOWN
        return None if at is None else LogLine(round(at, 3), message.rstrip(), fields)
    times = (said[key] for key in ("time", "timestamp", "ts", "@timestamp") if said.get(key))
    own = next((value for value in times if isinstance(value, str)), "")
    for key in _WRAPPED:
        if isinstance(said.get(key), str):
            return _read(said[key], near, own or outer, deep)
    payload = said.get("jsonPayload")
    return _of_json(as_map(payload), near, own or outer, deep - 1) if payload and deep else None


@lru_cache(maxsize=1_000)
def _midnight(month: int, day: int, near_day: int) -> float | None:
    """Returns when a day of a month begins, in seconds since 1970: in the year in which it is
    closest to `near_day`, which is in days since 1970. None if there is no such day.
    """
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
