"""The program behind the GitHub Action (action.yml): turns a step's inputs into a command, runs it,
and writes a summary.

    $INPUT_... --arguments--> rehearse | compare --> summary.md --> $GITHUB_STEP_SUMMARY
                                                 --> exit code --> $GITHUB_OUTPUT

Inputs can't act as flags, and the command's output can't act as commands to the runner.
"""

import contextlib
import io
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from kwok_operator.cli.main import main as kwok_operator
from kwok_operator.errors import SettingsError, one_line

_OUTPUT: Final = "kwok-rehearsal"
_VERDICTS: Final = {0: "passed", 1: "failed", 3: "undecided"}
_NOT_PLAYED: Final = 2
_MOST_LINES: Final = 20

Command = Callable[[Sequence[str]], int]


def arguments(inputs: Mapping[str, str]) -> list[str]:
    """Makes the command line from the inputs. Raises SettingsError naming input, value, remedy."""
    scenario, compare = inputs.get("SCENARIO", "").strip(), _lines(inputs, "COMPARE")
    runs, figures = inputs.get("RUNS", "").strip(), inputs.get("FIGURES", "").strip()
    fail_if = _lines(inputs, "FAIL_IF")
    if bool(scenario) == bool(compare):
        raise SettingsError("scenario, compare: give one of them, a file such as scenario.yaml")
    if scenario and (runs or figures or fail_if):
        raise SettingsError("runs, figures, fail-if: they are for compare; take them out")
    files = [scenario] if scenario else compare
    flags = [f"--output={folder(inputs)}"]
    flags += [f"--binary={line}" for line in _lines(inputs, "BINARIES")]
    flags += [f"--runs={runs}"] if runs else []
    flags += [f"--figures={figures}"] if figures else []
    flags += [f"--fail-if={line}" for line in fail_if]
    return ["rehearse" if scenario else "compare", *flags, "--", *files]


def folder(inputs: Mapping[str, str]) -> str:
    return inputs.get("OUTPUT", "").strip() or _OUTPUT


def _lines(inputs: Mapping[str, str], name: str) -> list[str]:
    return [line.strip() for line in inputs.get(name, "").splitlines() if line.strip()]


def run(environ: Mapping[str, str], command: Command) -> int:
    """Runs the command, writes its summary and outputs, and returns the exit code of the step."""
    inputs = {k.removeprefix("INPUT_"): v for k, v in environ.items() if k.startswith("INPUT_")}
    summary, said = Path(folder(inputs)) / "summary.md", _Overheard(sys.stderr)
    before = _version(summary)
    with contextlib.redirect_stderr(said):
        code = _called(command, inputs)
    # An existing file is of an earlier step, or of the project itself, and not this step's summary.
    if _version(summary) not in (None, before):
        text = summary.read_text(encoding="utf-8")
    else:
        lines = [f"    {one_line(line, limit=500)}" for line in said.lines()[-_MOST_LINES:]]
        text = "\n".join(["### Nothing was played", "", *lines, ""])
    _append(environ.get("GITHUB_STEP_SUMMARY"), f"{text}\n")
    for name, value in (("verdict", _VERDICTS.get(code, "not-played")), ("folder", folder(inputs))):
        end = secrets.token_hex(16)
        _append(environ.get("GITHUB_OUTPUT"), f"{name}<<{end}\n{value}\n{end}\n")
    return code


def _called(command: Command, inputs: Mapping[str, str]) -> int:
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        return command(arguments(inputs))
    except SettingsError as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return _NOT_PLAYED
    except SystemExit as stop:  # argparse refuses the value of a flag
        return int(stop.code or 0)
    finally:
        print(f"::{token}::", flush=True)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _append(path: str | None, text: str) -> None:
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


class _Overheard(io.TextIOBase):
    """A stream that passes all text on to another stream, and keeps the last part of it."""

    def __init__(self, through: TextIO) -> None:
        self._through, self._text = through, ""

    def write(self, text: str) -> int:
        self._text = (self._text + text)[-20_000:]
        return self._through.write(text)

    def flush(self) -> None:
        self._through.flush()

    def lines(self) -> list[str]:
        return self._text.splitlines()


if __name__ == "__main__":
    sys.exit(run(os.environ, kwok_operator))
