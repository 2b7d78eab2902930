"""Reports the progress of long steps at the terminal.

`say` prints lines that stay; `update` shows the progress of a step: on a terminal by rewriting one
line, elsewhere (CI) by a plain line every few seconds. All of it goes to standard error, so that
standard output contains only results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO


class Reporter:
    """Prints progress to one stream. The clock is a parameter, so that tests need not wait."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._period = 0.5 if self._terminal else 5.0
        self._last = clock()
        self._transient = False

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        erase = "\r\x1b[K" if self._transient else ""
        self._transient = False
        self._last = self._clock()
        print(f"{erase}{text}", file=self._stream, flush=True)

    def update(self, text: str) -> None:
        """Prints the progress of a step, but not within 0.5 s of the last line (elsewhere than on a
        terminal, 5 s)."""
        now = self._clock()
        if now - self._last < self._period:
            return
        self._last = now
        if self._terminal:
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)
            self._transient = True
        else:
            print(text, file=self._stream, flush=True)


def elapsed(seconds: float) -> str:
    """Writes a duration for people: 42s, 3m07s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
