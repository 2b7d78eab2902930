"""Runs commands of this package. They end when the tests end, even if the tests' process is
killed.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

GRACE: Final = 60.0
"""Seconds that a command may take to clean up."""


def start(command: Sequence[str], *, cwd: Path, stderr: IO[str] | int) -> "subprocess.Popen[str]":
    """Starts `python -m ...`; its output can be read from `stdout`."""
    # With -P, a types.py or signal.py in the tests' directory can't replace Python's own.
    python = (sys.executable, "-P", "-m")
    return subprocess.Popen(
        [*python, "kwok_operator.rehearsal.keeper", f"{GRACE:g}", *python, *command],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        encoding="utf-8",
        errors="replace",
        # In a session of its own, as Ctrl-C must reach only the tests.
        start_new_session=True,
    )


def end(process: "subprocess.Popen[str]") -> int:
    """Closes a command's stdin, so that it cleans up and ends; returns its exit status."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    status = process.wait(GRACE + 10)
    process.stdout.close()
    return status
