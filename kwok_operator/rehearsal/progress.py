"""Shows how far a rehearsal is.

    RunCourse.progress() --show--> a table that stays in place, on a terminal with rich
                               └-> a line now and then, anywhere else

rich is an extra, `kwok-operator[progress]`: only this module imports it, and only for a terminal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from kwok_operator.errors import one_line
from kwok_operator.rehearsal.judge.expectations import ExpectationOutcome

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_LINE_SECONDS: Final = 5.0
_MOST_GROUPS: Final = 8
_MOST_DECIDED: Final = 6
_DUMB: Final = frozenset({"", "dumb", "unknown"})

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunProgress:
    t: float
    ready: int
    nodes: int
    running: int
    pending: int
    groups: Mapping[str, tuple[int, int]]
    """For each group that has nodes, or else for each NodePool: how many nodes are ready, and how
    many exist.
    """
    mark: str
    decided: Sequence[ExpectationOutcome]
    expected: int
    waits_for: str = ""
    """What the run still waits for before it ends, as a clause."""
    left: float | None = None
    """After how many seconds the run ends in any case; None if unknown."""

    def __str__(self) -> str:
        pods = f"{self.running} running, {self.pending} pending"
        waits = f"; waits for {self.waits_for}" if self.waits_for else ""
        left = f"; {self.time_left}" if self.time_left else ""
        nodes = f"{self.ready} of {self.nodes} ready"
        return f"{self.t:5.0f} s: nodes {nodes}; pods {pods}{waits}{left}"

    @property
    def time_left(self) -> str:
        return "" if self.left is None else f"at most {max(self.left, 0):,.0f} s left"


Show = Callable[[RunProgress], None]


class Say(Protocol):
    """A function that shows a line, in one of rich's styles if the terminal supports that."""

    def __call__(self, line: str, style: str = "") -> None: ...


Screen = Iterator[tuple[Report, Show, Say]]


def in_lines(report: Report) -> Show:
    """Returns a function that reports the progress every few seconds, however often called."""
    reported_at = 0.0

    def show(now: RunProgress) -> None:
        nonlocal reported_at
        reported_at = min(reported_at, now.t)  # in the next run the clock starts again at 0
        if now.t - reported_at >= _LINE_SECONDS:
            reported_at = now.t
            report(str(now))

    return show


@contextmanager
def screen(stream: TextIO, report: Report, *, environ: Mapping[str, str]) -> Screen:
    """Yields the functions that report lines, show the progress and show styled lines on `stream`.
    If it isn't a terminal, all of them use `report`.
    """
    live = _live(stream) if environ.get("TERM", "") not in _DUMB and stream.isatty() else None
    if live is None:
        yield report, in_lines(report), lambda line, style="": report(line)
        return

    def say(line: str, style: str = "") -> None:
        shown = "".join(each if each.isprintable() else "?" for each in line)
        with suppress(OSError):  # the terminal is gone
            live.console.print(shown, style=style, soft_wrap=True)

    def show(now: RunProgress) -> None:
        with suppress(OSError):
            live.start()
            live.update(_table(now), refresh=True)

    try:
        yield lambda line: say(one_line(line, limit=10_000)), show, say
    finally:
        with suppress(OSError):
            live.stop()


def _live(stream: TextIO) -> "Live | None":
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        return None
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    return Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)


def _table(now: RunProgress) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=len("waits for"))
    table.add_column(overflow="ellipsis", no_wrap=True)

    def row(head: str, text: str, style: str = "") -> None:
        table.add_row(Text(head, style=style), Text(one_line(text)))

    row("time", f"{now.t:.0f} s" + (f", {now.time_left}" if now.time_left else ""))
    row("pods", f"{now.running} running, {now.pending} pending")
    row("nodes", f"{now.ready} of {now.nodes} ready")
    largest = sorted(now.groups.items(), key=lambda each: (-each[1][1], each[0]))
    for name, (ready, nodes) in largest[:_MOST_GROUPS]:
        row("", f"{name}: {ready} of {nodes}")
    if len(largest) > _MOST_GROUPS:
        row("", f"and {len(largest) - _MOST_GROUPS} more")
    if now.waits_for:
        row("waits for", now.waits_for)
    row("last", now.mark or "nothing yet")
    # Failed expectations come before those that were met.
    for each in sorted(now.decided, key=lambda each: each.held)[:_MOST_DECIDED]:
        head, style = ("held", "green") if each.held else ("FAILED", "red")
        row(head, f"{each.name}: {each.reason}", style)
    row("", f"{len(now.decided)} of {now.expected} expectations are decided")
    return table
