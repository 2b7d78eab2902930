"""Parses the flags of `kwok-operator shrink`, and runs the command."""

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kwok_operator.cli.common import table_of_names
from kwok_operator.cli.rehearsing import (
    add_binary_flag,
    binaries,
    check_binaries,
    checked,
    report_findings,
    surroundings,
)
from kwok_operator.cli.validate import complain
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.formats.words import counted
from kwok_operator.rehearsal.settings import RehearseSettings

if TYPE_CHECKING:
    from kwok_operator.rehearsal.shrinking.shrink import Shrunk

EXIT_CODES: Final = {
    0: "nothing more can be left out",
    1: "it comes out differently in each run, or can't be played",
    2: "a mistake in the scenario or in a flag",
    3: "the budget was spent: the smallest scenario so far is written",
    130: "it was interrupted: the smallest scenario so far is written",
}
_HELP: Final = """\
Makes a scenario as small as it can be while an expectation comes out the same: if it fails in the
first run, it must fail in each smaller scenario for the same reason; else it must hold.

  kwok-operator shrink incident/scenario.yaml --keeps pods.pending
  kwok-operator shrink scenario.yaml --keeps '{figure: nodes.max, of: {group: dear}, equals: 0}'

It leaves out workloads, pods, groups, other objects, steps, nodes, constraints and flags, from the
coarse to the fine, as long as a short rehearsal shows the same. All of them take place in one
control plane, which is made as new before each. The result is one file, and a test for pytest that
passes as long as it comes out as it did. With the --output of a shrinking that was ended, that
shrinking goes on.

Exit codes:
""" + "".join(f"  {code:3}  {meaning}\n" for code, meaning in EXIT_CODES.items())
_RUNS: Final = 200
_MINUTES: Final = 60.0


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declares the command `shrink`. `command` makes a parser from a name, a handler, a summary and
    a help text."""
    what = "make a scenario as small as it can be while an expectation comes out the same"
    parser = command("shrink", run, what, _HELP)
    parser.add_argument("scenario", metavar="SCENARIO", help="a YAML file")
    parser.add_argument(
        "--keeps",
        metavar="EXPECTATION",
        action="append",
        default=[],
        help="what must come out the same: the number of an expectation from 0 on, or a part of the"
        " text of one or several, or a new one as {figure: pods.pending, equals: 0}; may be given"
        " more than once (default: the only one that there is)",
    )
    parser.add_argument(
        "--because",
        metavar="TEXT",
        default="",
        help="if an expectation fails for several reasons: a part of the one to keep, as the"
        " command prints them (default: any of them)",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="folder for the result and the tries (default: a new one)"
    )
    add_binary_flag(parser)
    parser.add_argument("--arm", metavar="NAME", help="the arm to shrink, in a scenario with arms")
    parser.add_argument(
        "--runs", metavar="N", type=int, default=_RUNS, help=f"at most so many (default {_RUNS})"
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        default=_MINUTES,
        help=f"no run begins after so many (default {_MINUTES:g})",
    )
    parser.add_argument(
        "--anonymize",
        action="store_true",
        help="replace names by hashes before the first run; the table that translates them back is"
        " written beside the output, not into it",
    )
    parser.add_argument(
        "--anonymize-table", metavar="FILE", help="path of that table (default: beside the output)"
    )


def run(flags: argparse.Namespace) -> int:
    """Shrinks a scenario, and returns the exit code."""
    from kwok_operator.controlplane import CAN_REWIND
    from kwok_operator.rehearsal.outputs import ignored_folder
    from kwok_operator.rehearsal.shrinking.shrink import ShrinkSettings, shrink
    from kwok_operator.rehearsal.shrinking.shrinker import ShrinkBudget, ShrinkError

    if not CAN_REWIND:
        raise SettingsError("shrink: works on Linux only")
    table = table_of_names(flags)
    for flag, value in (("--runs", flags.runs), ("--minutes", flags.minutes)):
        if not value > 0:
            raise SettingsError(f"{flag}: {value:g} is no budget; give more than 0")
    given = binaries(flags.binary)
    settings = RehearseSettings(
        scenario=Path(flags.scenario), binaries=given, arm=flags.arm or None
    )
    try:
        read = checked(settings)
        report_findings(read.findings)
        if read.scenario is None or read.findings:
            problems = counted(len(read.findings), "problem")
            complain(f"kwok-operator: {settings.scenario}: {problems}; nothing was started")
            return 2
        check_binaries(given, [read.scenario])
        folder = (
            Path(flags.output) if flags.output else ignored_folder(f"shrunk-{read.scenario.name}")
        )
        wanted = ShrinkSettings(
            settings,
            folder,
            keeps=flags.keeps,
            because=flags.because,
            anonymize=flags.anonymize,
            table=table,
            budget=ShrinkBudget(flags.runs, flags.minutes * 60),
        )
        shrunk = asyncio.run(
            shrink(read, wanted, find_program=surroundings(settings).program, report=complain)
        )
    except ShrinkError as error:
        complain(f"kwok-operator: {settings.scenario}: {error}")
        return 1
    except (KwokOperatorError, OSError) as error:
        complain(f"kwok-operator: {error}")
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        complain("kwok-operator: interrupted before the first run was over")
        return 130
    return _printed(shrunk, folder)


def _printed(shrunk: "Shrunk", folder: Path) -> int:
    from kwok_operator.rehearsal.shrinking.documents import MOST_LINES

    print(f"kept: {shrunk.first}")
    if shrunk.lines > MOST_LINES:
        why = ": what is left is needed" if shrunk.smallest else " so far"
        print(f"it has more than {MOST_LINES} lines{why}")
    for each in shrunk.files:
        print(f"it names the file {each}, which belongs to it")
    ended = "nothing more can be left out" if shrunk.smallest else "the budget was spent"
    ended = "interrupted" if shrunk.interrupted else ended
    print(f"{ended}: {shrunk.lines} lines after {counted(shrunk.runs, 'run')}")
    print(f"written: {shrunk.path}")
    if shrunk.interrupted or not shrunk.smallest:
        complain(f"kwok-operator: --output={folder} goes on from here")
    if shrunk.interrupted:
        return 130
    return 0 if shrunk.smallest else 3
