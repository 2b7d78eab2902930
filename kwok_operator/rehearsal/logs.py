"""Copies warnings and errors from the logs of a rehearsal's programs to its recording.

    operator.log, NAME.shim.log (JSON), NAME.log of a clusterAutoscaler (klog), a karpenter or
    kueue (zap)
        --look--> WarningCounts --> before the run: the terminal; during the run: the recording

Other programs are left out, as the form of their logs is unknown. A warning gets the time at which
it is read here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from kwok_operator.rehearsal.following import FollowedFile
from kwok_operator.rehearsal.judge.logged import Said, WarningCounts, read_json, read_klog, read_zap
from kwok_operator.rehearsal.judge.recording import OPERATOR, SHIM, RecordedLine
from kwok_operator.rehearsal.scenario.model import Scenario

_LOOK_SECONDS: Final = 0.5
OPERATOR_LOG: Final = f"{OPERATOR}.log"

Read = Callable[[bytes], Said]


def log_of(process: str) -> str:
    return f"{process}.log"


def log_of_shim(process: str) -> str:
    return f"{process}.{SHIM}.log"


class ProgramWarnings:
    """The warnings of one rehearsal's programs. The constructor deletes an earlier run's logs in
    `folder`.
    """

    def __init__(self, scenario: Scenario, folder: Path, *, report: Callable[[str], None]) -> None:
        logs: dict[str, tuple[str, Read]] = {OPERATOR_LOG: (OPERATOR, read_json)}
        for process in scenario.processes:
            if process.cluster_autoscaler is not None:
                logs[log_of(process.name)] = (process.name, read_klog)
                logs[log_of_shim(process.name)] = (SHIM, read_json)
            elif process.karpenter is not None or process.kueue is not None:
                logs[log_of(process.name)] = (process.name, read_zap)
        for name in logs:
            (folder / name).unlink(missing_ok=True)
        self._files = [
            (FollowedFile(folder / name), program, read) for name, (program, read) in logs.items()
        ]
        self._counts = WarningCounts()
        self._report: Callable[[str], None] | None = report

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Reports each new warning while the block runs, until the run begins."""

        async def show() -> None:
            while self._report is not None:
                await asyncio.sleep(_LOOK_SECONDS)
                self.read_logs()

        showing = asyncio.create_task(show())
        try:
            yield
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
            if self._report is not None:
                with suppress(OSError):
                    self.read_logs()

    def read_logs(self) -> None:
        """Reads what was logged since the previous call. Raises OSError."""
        for file, program, read in self._files:
            while lines := file.lines():
                for text, trouble, over in map(read, lines):
                    if over and self._report is not None:
                        self._counts.forget(program, over)
                    if text:
                        self.note(program, text, trouble)

    def note(self, program: str, text: str, trouble: str = "") -> None:
        """Counts a warning; before the run, reports a new one. `trouble`: a key of its cause."""
        if self._counts.add(program, text, trouble) and self._report is not None:
            self._report(f"warning of {program}: {text}")

    def begin(self, write: Callable[[RecordedLine], None]) -> None:
        """Begins the run: records all earlier warnings, marked as older than the run."""
        self.read_logs()
        self._report = None
        for line in self._counts.due(0.0, every=True, before=True):
            write(line)

    def record(
        self, write: Callable[[RecordedLine], None], *, t: float, last: bool = False
    ) -> None:
        """Reads the logs, and writes the warnings that are due; all of them if this is the `last`
        call.
        """
        self.read_logs()
        for line in self._counts.due(t, every=last):
            write(line)
