"""How far an import is: a line for each kind, and on a terminal one that is written over."""

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

from kwok_operator.errors import one_line

_OFTEN = 0.2


@dataclass(slots=True)
class Progress:
    """Writes to standard error: the output is elsewhere."""

    to: TextIO = field(default_factory=lambda: sys.stderr)
    _shown: float = 0.0
    _live: bool = False

    def say(self, line: str) -> None:
        self._clear()
        print(one_line(line), file=self.to, flush=True)

    def show(self, kind: str, count: int) -> None:
        """What has been read so far of a kind: only where somebody looks."""
        now = time.monotonic()
        if self.to.isatty() and now - self._shown >= _OFTEN:
            self._shown, self._live = now, True
            print(f"\r\x1b[K  {count:>9,}  {kind}", end="", file=self.to, flush=True)

    def done(self, kind: str, count: int) -> None:
        self._clear()
        print(f"  {count:>9,}  {kind}", file=self.to, flush=True)

    def _clear(self) -> None:
        if self._live:
            self._live = False
            print("\r\x1b[K", end="", file=self.to)
