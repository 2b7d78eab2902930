"""Runs a rehearsal from start to end: plays it, judges its recording, and writes the files.

The verdict is computed from the recording's file, as `kwok-operator report` would do it later.
"""

from pathlib import Path

from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.keptcluster import KeptCluster
from kwok_operator.rehearsal.progress import Report, Say, Show
from kwok_operator.rehearsal.runner import play
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.testbed import FindProgram
from kwok_operator.signals import cancelled_by_signals


class LeftBehindError(KwokOperatorError):
    """The run has a verdict, but clearing up failed, or its files could not be written."""

    def __init__(self, reason: KwokOperatorError, judged: Judged) -> None:
        super().__init__(str(reason))
        self.judged = judged


async def rehearse(
    scenario: Scenario,
    settings: RehearseSettings,
    *,
    folder: Path,
    find_program: FindProgram,
    report: Report,
    show: Show | None = None,
    say: Say | None = None,
    kept: KeptCluster | None = None,
) -> Judged:
    """Plays the scenario, in a `kept` cluster if there is one, writes its files into `folder`, and
    returns the verdict. Without `show`, the progress is reported in lines.

    Raises LeftBehindError if something fails after the run, and KwokOperatorError if it could not
    begin.
    """
    with outputs.begun(folder):
        left: KwokOperatorError | None = None
        with cancelled_by_signals():
            left = await play(
                scenario,
                settings,
                folder=folder,
                find_program=find_program,
                report=report,
                show=show,
                say=say,
                kept=kept,
            )
        path = folder / outputs.RECORDING
        judged = outputs.judge(path)
        try:
            outputs.write(judged, folder)
        except SettingsError as error:
            left = left or error
        if left is not None:
            raise LeftBehindError(left, judged) from left
        return judged
