"""`kwok-operator report` and `diff`: evaluates recordings of rehearsals, without a cluster."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kwok_operator.errors import RecordingError, SettingsError

_REPORT_HELP: Final = """\
Judges the recording of a rehearsal again, and writes verdict.json, junit.xml, report.html,
summary.md and trace.json.gz beside it, or into another folder. The same recording gives the same
files.

  kwok-operator report results/recording.jsonl.gz
  kwok-operator report results --output /tmp/again

RECORDING is the file or its folder. Exit code 0: passed; 1: failed; 2: it can't be read.
"""

_DIFF_HELP: Final = """\
Says where two recordings of rehearsals differ first: in steps of the scenario, in the simulated
cloud, in the autoscaler's requests, or in the scheduler's choices.

  kwok-operator diff monday/recording.jsonl.gz tuesday/recording.jsonl.gz

With the same seed and the same requests the cloud does the same. Autoscaler and scheduler run in
real time, so they may differ.

Exit code 0: no difference; 1: a difference; 2: a recording can't be read.
"""


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declares the commands `report` and `diff`. `command` makes a parser from a name, a handler, a
    summary and a help text."""
    of_report = "judge a recording of a rehearsal again, and draw its report"
    report = command("report", run_report, of_report, _REPORT_HELP)
    report.add_argument("recording", metavar="RECORDING", type=Path, help="the file or its folder")
    report.add_argument(
        "--output", metavar="DIR", type=Path, help="where to write (default: beside the recording)"
    )
    diff = command("diff", run_diff, "say where two recordings of rehearsals differ", _DIFF_HELP)
    for name in ("a", "b"):
        diff.add_argument(name, metavar=name.upper(), type=Path, help="a recording or its folder")


def run_report(flags: argparse.Namespace) -> int:
    """Judges a recording, writes and prints the results, and returns the exit code."""
    from kwok_operator.rehearsal import outputs
    from kwok_operator.rehearsal.judge.verdict import summary

    recording: Path = flags.recording
    try:
        judged = outputs.judge(recording)
        folder = flags.output or (recording if recording.is_dir() else recording.parent)
        with outputs.locked(folder):
            written = outputs.write(judged, folder)
    except (RecordingError, SettingsError) as error:
        return _unreadable(error)
    if judged.cut:
        print(f"kwok-operator: {recording} is cut off at {judged.t:g} s", file=sys.stderr)
    for path in written:
        print(f"written: {path}", file=sys.stderr)
    for line in summary(judged):
        print(line)
    return 0 if judged.passed else 1


def run_diff(flags: argparse.Namespace) -> int:
    """Compares two recordings, prints the differences, and returns the exit code."""
    from kwok_operator.rehearsal import outputs
    from kwok_operator.rehearsal.judge.diff import compared, in_lines, traits

    both = []
    for path in (flags.a, flags.b):
        try:
            with outputs.opened(path) as recording:
                both.append(traits(recording))
                cut = recording.cut
        except (RecordingError, SettingsError) as error:
            return _unreadable(error)
        if cut:
            print(f"kwok-operator: {path} is cut off", file=sys.stderr)
    parts = compared(*both)
    for line in in_lines(parts):
        print(line)
    return 1 if any(part.differences for part in parts) else 0


def _unreadable(error: Exception) -> int:
    print(f"kwok-operator: {error}", file=sys.stderr)
    return 2
