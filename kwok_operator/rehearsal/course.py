"""The state of one run while it is played: its clock, its recording, and what conditions are
checked against.
"""

import asyncio
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge.expectations import Judge, scopes
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    EventLine,
    GroupLine,
    JobLine,
    MarkLine,
    NodeClaimLine,
    NodeLine,
    PodGroupLine,
    PodLine,
    RecordedLine,
    RecordingHeader,
    encode,
)
from kwok_operator.rehearsal.progress import RunProgress
from kwok_operator.rehearsal.scenario.expectation import ScenarioCondition

FLUSH_SECONDS: Final = 2.0
_LINES_AT_ONCE: Final = 200
_GZIP: Final = 31
"""zlib's number for gzip with a header."""
_CHANGES: Final = (
    *(NodeLine, PodLine, GroupLine, BudgetLine, JobLine, PodGroupLine, NodeClaimLine),
)


class RunCourse:
    """The recording and the state of one run. The run's time counts from this object's creation.
    Raises SettingsError if the recording can't be written.
    """

    def __init__(
        self, path: Path, header: RecordingHeader, conditions: Sequence[ScenarioCondition]
    ) -> None:
        self._events = {id(each): 0 for each in conditions if each.event is not None}
        self._conditions = list(conditions)
        self._expected = len(header.expect)
        self.ledger = ClusterLedger(scopes([*conditions, *header.expect]), topology=header.topology)
        self._judge = Judge(header.expect, self.ledger)
        self._last_mark = ""
        self._at_the_beginning = False
        self.changed_at = 0.0
        """When anything in the cluster last changed, in seconds since the run began."""
        self._folder = path.parent
        with outputs.writing(self._folder):
            self._file = path.open("wb")
        self._zip: Any = zlib.compressobj(wbits=_GZIP)
        self._lines: list[str] = []
        self._began = time.monotonic()
        self._over_at: float | None = None
        self._put(encode(header))

    def now(self) -> float:
        """Returns the seconds since the run began; once it is over, its length."""
        if self._over_at is not None:
            return self._over_at
        return round(time.monotonic() - self._began, 3)

    @property
    def is_on(self) -> bool:
        return self._over_at is None

    def stop(self) -> None:
        """Stops the clock: lines that are written later get the present time."""
        self._over_at = self.now()

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Records all lines in the block at time 0: their objects existed before the run, whenever
        they were listed.
        """
        self._at_the_beginning = True
        try:
            yield
        finally:
            self._at_the_beginning = False

    def write(self, line: RecordedLine) -> None:
        if self._at_the_beginning:
            line = replace(line, t=0.0)
        self._put(encode(line))
        if self._judge.follows and line.t > self.ledger.now:
            self._judge.moves_on(line.t)
        self.ledger.apply(line)
        self._judge.on_line(line)
        if isinstance(line, _CHANGES):
            self.changed_at = line.t
        elif isinstance(line, EventLine):
            for each in self._conditions:
                if each.event is not None and each.event.matches(line):
                    self._events[id(each)] += line.count

    def mark(self, what: str, detail: str = "") -> None:
        line = MarkLine(self.now(), what, detail)
        self._last_mark = f"{what} {detail}".rstrip() + f", at {line.t:.0f} s"
        self.write(line)

    def progress(self) -> RunProgress:
        """Returns how far the run is now."""
        every = self.ledger.all
        return RunProgress(
            t=self.now(),
            ready=round(every.nodes["ready"].value),
            nodes=round(every.nodes["total"].value),
            running=round(every.pods["running"].value),
            pending=round(every.pods["pending"].value),
            groups={name: (ready, nodes) for name, (nodes, ready) in self.ledger.counts().items()},
            mark=self._last_mark,
            decided=self._judge.decided,
            expected=self._expected,
        )

    def is_certain(self, number: int) -> bool:
        """Whether the outcome of the expectation with this number can't change any more."""
        return self._judge.is_certain(number)

    def holds(self, condition: ScenarioCondition) -> bool:
        """Whether the condition holds now. Always False for a `kubectl wait`, which only the
        cluster can decide.
        """
        if condition.event is not None:
            return condition.holds(float(self._events[id(condition)]))
        if condition.wait is not None:
            return False
        tally = self.ledger.tally(condition.of)
        return condition.holds_by_now(condition.measured.reading(tally, self.now()))

    async def keep_flushed(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            with outputs.writing(self._folder):
                self._file.write(self._packed() + self._zip.flush(zlib.Z_SYNC_FLUSH))
                self._file.flush()

    def close(self) -> None:
        with outputs.writing(self._folder), self._file:
            self._file.write(self._packed() + self._zip.flush())

    def _put(self, text: str) -> None:
        self._lines.append(f"{text}\n")
        if len(self._lines) >= _LINES_AT_ONCE:
            with outputs.writing(self._folder):
                self._file.write(self._packed())

    def _packed(self) -> bytes:
        """Compresses the waiting lines, many at once, as one by one would take much longer."""
        lines, self._lines = self._lines, []
        packed: bytes = self._zip.compress("".join(lines).encode())
        return packed
