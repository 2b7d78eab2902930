"""How far the run is: a bar over all steps of a case, and what the present step is at.

On a terminal one line is rewritten, elsewhere a plain line is printed now and then; all of it goes
to standard error.
"""

import time

from kwok_operator.reporter import Reporter, elapsed

_WIDTH = 20


class Progress:
    """The steps of one case; `total` is how many there will be."""

    def __init__(self, case: str, total: int, reporter: Reporter) -> None:
        self._case = case
        self._total = total
        self._done = 0
        self._reporter = reporter
        self._text = ""
        self._began = self._step_began = time.monotonic()

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._done += bool(self._text)
        self._text = text
        self._step_began = time.monotonic()
        self._reporter.say(self._line(""))

    def tick(self, detail: str) -> None:
        """Tell what the present step is at."""
        self._reporter.update(self._line(detail))

    def end(self) -> None:
        """The case is over."""
        self._done = self._total
        self._text = f"done in {elapsed(time.monotonic() - self._began)}"
        self._reporter.say(self._line(""))

    def _line(self, detail: str) -> str:
        seconds = time.monotonic() - self._step_began
        text = bar(self._done, self._total)
        told = f"{self._case} {text} {self._text}"
        return f"{told}: {detail}, {elapsed(seconds)}" if detail else told


def bar(done: int, total: int) -> str:
    """As [####....] 2/4."""
    full = _WIDTH * min(done, total) // max(total, 1)
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {min(done, total)}/{total}"
