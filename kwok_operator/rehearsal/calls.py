"""Copies the calls that shims have answered from their log files to the recording."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kwok_operator.formats.untyped import as_map
from kwok_operator.rehearsal.following import FollowedFile
from kwok_operator.rehearsal.judge.recording import CallLine, RecordedLine

_MOST_TEXT: Final = 1_000


class ShimCalls:
    """Reads the growing files in a folder whose names end with SUFFIX. A call is recorded with the
    time at which it is read here, soon after it was answered.
    """

    SUFFIX: Final = ".calls.jsonl"

    def __init__(
        self, folder: Path, *, write: Callable[[RecordedLine], None], now: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._write = write
        self._now = now
        self._files: dict[Path, FollowedFile] = {}

    def look(self) -> None:
        """Records the calls that were logged since the previous call of this method. The rest of a
        file after its last line break is left for the next call.
        """
        for path in sorted(self._folder.glob(f"*{self.SUFFIX}")):
            for line in self._files.setdefault(path, FollowedFile(path)).lines():
                # If the disk was full for a while, a line may be incomplete.
                with suppress(ValueError, KeyError):
                    self._write(_line(line, t=self._now()))


def _line(text: bytes, *, t: float) -> CallLine:
    call = as_map(json.loads(text))
    named = {key: str(call.get(key, ""))[:_MOST_TEXT] for key in ("method", "group", "argument")}
    return CallLine(t, **named, code=str(call["code"]), ms=float(call["ms"]))
