"""Plays a rehearsal for a test, and holds its result."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import KwokOperatorError
from kwok_operator.testkit import processes

_JUDGED: Final = (0, 1)
_MOST_SHOWN: Final = 3


class RehearseError(KwokOperatorError):
    """A scenario can't be played. The text says why."""


class FiguresFound(dict[str, float]):
    """The figures (measured values) of a rehearsal by their names. Figures with nothing to measure
    are missing."""

    def __missing__(self, name: str) -> float:
        __tracebackhide__ = True
        raise KeyError(f"{name}: there was nothing to measure, or there is no such figure")


@dataclass(frozen=True, repr=False, slots=True)
class Rehearsed:
    """The result of a rehearsal. `verdict` is verdict.json, which is in the folder with the
    recording and the report.
    """

    verdict: Mapping[str, Any]
    folder: Path

    @property
    def passed(self) -> bool:
        return bool(self.verdict["verdict"] == "passed")

    @property
    def figures(self) -> FiguresFound:
        figures = self.verdict["figures"].items()
        return FiguresFound({name: number for name, number in figures if number is not None})

    @property
    def expectations(self) -> list[dict[str, Any]]:
        """The expectations, each with `name`, `held`, `reason` and `value`."""
        return list(self.verdict["expectations"])

    @property
    def failures(self) -> list[str]:
        """Returns a sentence for each expectation that failed; before these, if the run broke off,
        one that says why."""
        off = self.verdict["brokenOff"]
        failed = [each for each in self.expectations if not each["held"]]
        return [*([off] if off else []), *(f"{each['name']}: {each['reason']}" for each in failed)]

    def __repr__(self) -> str:
        # Cut, as pytest shows some 240 characters of it.
        failures = self.failures
        more = [f"{len(failures) - _MOST_SHOWN} more"] if len(failures) > _MOST_SHOWN else []
        shown = "; ".join([*failures[:_MOST_SHOWN], *more])
        return f"<{self.verdict['scenario']} {'passed' if self.passed else f'FAILED: {shown}'}>"


def rehearse(
    scenario: str | Path,
    *,
    folder: Path,
    cwd: Path,
    binaries: Mapping[str, str | Path],
    arm: str | None = None,
) -> Rehearsed:
    """Plays a scenario with `kwok-operator rehearse` in `cwd`, and prints the output of that
    command.

    Raises RehearseError.
    """
    __tracebackhide__ = True
    command = ["kwok_operator", "rehearse", f"--output={folder}"]
    command += [f"--binary={name}={path}" for name, path in binaries.items()]
    command += [f"--arm={arm}"] if arm is not None else []
    process = processes.start([*command, "--", str(scenario)], cwd=cwd, stderr=subprocess.STDOUT)
    output = []
    try:
        for line in process.stdout or ():
            output.append(line)
            sys.stdout.write(line)
        status = process.wait()
    finally:
        processes.end(process)
    if status not in _JUDGED:
        raise RehearseError(f"{scenario} can't be played:\n{''.join(output).strip()}")
    verdict = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
    return Rehearsed(verdict, folder)
