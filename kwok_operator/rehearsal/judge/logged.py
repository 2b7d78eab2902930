"""Warnings and errors that programs log: read from lines of their logs, and counted by their text.

    line --read_json, read_klog--> Said --WarningCounts--> WarningLine

What is over before the run began is no warning: an API server that did not answer yet.
The same text again only raises its count, and is written at most once a second. Texts beyond the
MOST_TEXTS are counted under one text for each program, so memory and recordings stay small.
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
_KLOG: Final = re.compile(rb"[WEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (.+)")
_MOST_TEXT: Final = 2_000
_HARMLESS: Final = {
    b"AcceptableRanges have not been populated yet": "cluster-autoscaler logs it in every run, as"
    " its first loop has no target sizes yet",
}
"""Texts of cluster-autoscaler that mean no harm, and why; anything else counts."""


class Said(NamedTuple):
    """What a line of a log says; empty where it says no such thing."""

    warning: str = ""
    trouble: str = ""
    """What the warning is about, where a later line may report its end."""
    over: str = ""
    """The trouble that has ended."""


def read_json(line: bytes) -> Said:
    """As the operator and the shim log with --log-format=json."""
    try:
        said = as_map(json.loads(line))
    except ValueError:
        return Said()
    if said.get("level") not in _LEVELS:
        return Said(over=str(said.get("over") or ""))
    # Where it came from is in the log; what it was is its last line.
    error = str(said.get("traceback") or "").strip().rpartition("\n")[2]
    text = one_line(f"{said.get('message')}{f' ({error})' if error else ''}", limit=_MOST_TEXT)
    return Said(text, str(said.get("trouble") or ""))


def read_klog(line: bytes) -> Said:
    """As Kubernetes' own programs log: `W1231 23:59:59.123456   12345 file.go:67] text`."""
    found = _KLOG.match(line)
    if found is None or any(text in found[1] for text in _HARMLESS):
        return Said()
    return Said(one_line(found[1].decode("utf-8", "replace"), limit=_MOST_TEXT))


@dataclass(slots=True)
class _Text:
    trouble: str
    written: float | None = None
    """When there was a line of it last."""
    waiting: int = 0


class WarningCounts:
    """What programs have logged, until it is due in the recording."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], _Text] = {}

    def add(self, program: str, text: str, trouble: str = "") -> bool:
        """Whether it is the first of its text."""
        key = (program, text)
        if key not in self._texts and len(self._texts) >= MOST_TEXTS:
            key = (program, OTHERS)
        found = self._texts.setdefault(key, _Text(trouble))
        found.waiting += 1
        return found.written is None and found.waiting == 1

    def forget(self, program: str, trouble: str) -> None:
        """What a program said of a trouble, which is over."""
        self._texts = {
            key: found
            for key, found in self._texts.items()
            if (key[0], found.trouble) != (program, trouble)
        }

    def due(self, t: float, *, every: bool = False, before: bool = False) -> Iterator[WarningLine]:
        """The lines to be written at `t`, of texts that had none for a second, or of all of them.

        Those `before` the run leave nothing: in the run each text begins anew.
        """
        for (program, text), found in self._texts.items():
            soon = found.written is not None and t - found.written < _AGAIN_SECONDS
            if found.waiting and (every or not soon):
                yield WarningLine(t, program, text, found.waiting, before=before)
                found.waiting, found.written = 0, t
        if before:
            self._texts.clear()
