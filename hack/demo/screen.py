"""How the demo looks: titles, commands, what they print, a progress bar.

Colours, and a line that is rewritten, are for terminals; elsewhere everything is plain lines, so
that a log of a demo can be read. Knows nothing of what is told.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

_WIDTH = 96
_BOLD, _DIM, _GREEN, _CYAN, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[36m", "\x1b[0m"
_REWRITE = "\r\x1b[K"
_PLAIN_PERIOD = 1.0
"""Seconds between two lines of progress where lines can't be rewritten."""


class Screen:
    """Writes to one stream; the clock is a parameter so that tests need not wait."""

    def __init__(
        self,
        stream: TextIO,
        *,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._coloured = self._terminal and not environ.get("NO_COLOR")
        self._clock = clock
        self._steps = 0
        self._last_update = float("-inf")

    def title(self, text: str) -> None:
        """Say what this is."""
        self._write(self._colour(text, _BOLD))

    def step(self, title: str, explanation: str = "") -> None:
        """Open a numbered step."""
        self._steps += 1
        self._write("")
        self._write(self._colour(f"{self._steps}. {title}", _BOLD))
        for line in textwrap.wrap(explanation, _WIDTH - 3, break_on_hyphens=False):
            self._write(f"   {line}")

    def command(self, text: str) -> None:
        """Show a command as it could be typed; it may have several lines."""
        self._write("")
        for number, line in enumerate(text.splitlines()):
            self._write(self._colour(f"   {'  ' if number else '$ '}{line}", _CYAN))

    def output(self, lines: Sequence[str]) -> None:
        """Show what a command printed."""
        for line in lines:
            self._write(self._colour(f"   {line}".rstrip(), _DIM))

    def passed(self, text: str) -> None:
        """Say what was checked and found right."""
        self._write(self._colour(f"   ok: {text}", _GREEN))

    def say(self, lines: Sequence[str]) -> None:
        """Show text as it is."""
        for line in lines:
            self._write(line)

    def update(self, text: str) -> None:
        """Show how far something is, in place of what was shown before."""
        now = self._clock()
        if self._terminal:
            self._stream.write(f"{_REWRITE}   {text}")
            self._stream.flush()
        elif now - self._last_update >= _PLAIN_PERIOD:
            self._last_update = now
            self._write(f"   {text}")

    def updated(self, text: str) -> None:
        """Show the last of what `update` showed, to stay."""
        self._write(f"{_REWRITE if self._terminal else ''}   {text}")
        self._last_update = float("-inf")

    def _colour(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._coloured else text

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
