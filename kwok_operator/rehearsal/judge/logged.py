"""Warnings and errors that programs log: read from lines of their logs, and counted by text.

    line --read_json, read_klog, read_zap--> Said --WarningCounts--> WarningLine

A warning is dropped if its cause ended before the run began, such as an API server that did not
answer yet. A repeated text only raises its count, and is recorded at most once a second. After
MOST_TEXTS texts, a program's new ones are counted as one, so memory and recordings stay small.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kwok_operator.errors import one_line
from kwok_operator.formats.untyped import as_map
from kwok_operator.rehearsal.judge.recording import WarningLine

MOST_TEXTS: Final = 200
OTHERS: Final = "other warnings; their texts are in its log"
_AGAIN_SECONDS: Final = 1.0
_LEVELS: Final = frozenset({"warning", "error", "critical"})
_ZAP_LEVELS: Final = frozenset({"WARN", "ERROR", "DPANIC", "PANIC", "FATAL"})
_KLOG: Final = re.compile(rb"[WEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (.+)")
_MOST_TEXT: Final = 2_000
_HARMLESS: Final = {
    b"pending ungate operations": "Kueue logs it whenever it waits for what it has just written",
    b"Cert secret is not well-formed, missing ca.crt": "Kueue logs it in some runs, as its Secret"
    " is empty until it has made a certificate",
    b"AcceptableRanges have not been populated yet": "cluster-autoscaler logs it in every run, as"
    " its first loop has no target sizes yet",
}
"""Harmless texts, which aren't counted, each with the reason."""


class Said(NamedTuple):
    """What one line of a log says: a warning, or that the cause of earlier ones has ended."""

    warning: str = ""
    trouble: str = ""
    """A key for what the warning is about, if a later line may report its end."""
    over: str = ""
    """The key of a trouble whose end this line reports."""


def read_json(line: bytes) -> Said:
    """Reads a line of the operator's or the shim's log with --log-format=json."""
    try:
        said = as_map(json.loads(line))
    except ValueError:
        return Said()
    if said.get("level") not in _LEVELS:
        return Said(over=str(said.get("over") or ""))
    # The last line of a traceback has the error; the rest stays in the log.
    error = str(said.get("traceback") or "").strip().rpartition("\n")[2]
    text = one_line(f"{said.get('message')}{f' ({error})' if error else ''}", limit=_MOST_TEXT)
    return Said(text, str(said.get("trouble") or ""))


def read_zap(line: bytes) -> Said:
    """Reads a line of Karpenter's or Kueue's log: JSON of the library zap."""
    try:
        said = as_map(json.loads(line))
    except ValueError:
        return Said()
    level = str(said.get("level"))
    # Karpenter writes levels in capitals; Kueue writes controller-runtime's defaults.
    message = said.get("message" if level in _ZAP_LEVELS else "msg")
    is_harmless = any(text in line for text in _HARMLESS)
    if level.upper() not in _ZAP_LEVELS or message is None or is_harmless:
        return Said()
    error = ": ".join(str(said[key]) for key in ("controller", "error") if said.get(key))
    text = f"{message}{f' ({error})' if error else ''}"
    return Said(one_line(text, limit=_MOST_TEXT))


def read_klog(line: bytes) -> Said:
    """Reads a line in the log format of Kubernetes: `W1231 23:59:59.123456   12345 file.go:67]
    text`.
    """
    match = _KLOG.match(line)
    if match is None or any(text in match[1] for text in _HARMLESS):
        return Said()
    return Said(one_line(match[1].decode("utf-8", "replace"), limit=_MOST_TEXT))


@dataclass(slots=True)
class _Text:
    trouble: str
    written: float | None = None
    """When a line with this text was last recorded; None if never."""
    waiting: int = 0


class WarningCounts:
    """Counts the texts that programs log, until the counts are due to be recorded."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], _Text] = {}

    def add(self, program: str, text: str, trouble: str = "") -> bool:
        """Counts a text; returns whether it is new. `trouble`: a key of its cause, for `forget`."""
        key = (program, text)
        if key not in self._texts and len(self._texts) >= MOST_TEXTS:
            key = (program, OTHERS)
        entry = self._texts.setdefault(key, _Text(trouble))
        entry.waiting += 1
        return entry.written is None and entry.waiting == 1

    def forget(self, program: str, trouble: str) -> None:
        """Drops the messages that a program logged because of a trouble with this key, which has
        ended."""
        self._texts = {
            key: entry
            for key, entry in self._texts.items()
            if (key[0], entry.trouble) != (program, trouble)
        }

    def due(self, t: float, *, every: bool = False, before: bool = False) -> Iterator[WarningLine]:
        """Yields a line with the time `t` for each text that was logged since its last line. Leaves
        out texts whose last line is less than a second old, unless `every` is set.

        With `before`, marks the lines as older than the run, and then forgets all texts.
        """
        for (program, text), entry in self._texts.items():
            soon = entry.written is not None and t - entry.written < _AGAIN_SECONDS
            if entry.waiting and (every or not soon):
                yield WarningLine(t, program, text, entry.waiting, before=before)
                entry.waiting, entry.written = 0, t
        if before:
            self._texts.clear()
