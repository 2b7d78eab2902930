"""Parses the flags of `kwok-operator compare`, and runs the command."""

import argparse
import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kwok_operator.cli.rehearsing import (
    add_binary_flag,
    binaries,
    check_binaries,
    report_findings,
    report_unchecked,
    summary,
    surroundings,
)
from kwok_operator.cli.validate import complain
from kwok_operator.comparison.plan import ComparisonArm, ComparisonPlan, default_runs
from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.words import counted
from kwok_operator.rehearsal.settings import RehearseSettings

if TYPE_CHECKING:
    from kwok_operator.rehearsal.surroundings import LocalSurroundings
    from kwok_operator.rehearsal.testbed import FindProgram

EXIT_CODES: Final = {
    0: "no condition holds, and no arm fails beyond chance or in most of its runs",
    1: "a condition holds, or an arm fails, beyond chance or in most of its runs",
    2: "the comparison can't be played: a mistake in a file or a flag, no control plane",
    3: "neither, but a condition has no answer, or no figure could be compared",
    130: "it was interrupted",
}
_HELP: Final = """\
Says whether B is better than A: plays both several times in turn, each run on a cluster that is as
new, and compares their figures.

  kwok-operator compare before.yaml after.yaml --runs 12
  kwok-operator compare deploy/scenarios/kubernetes-upgrade.yaml --check
  kwok-operator compare two-arms.yaml --fail-if 'pendingSeconds.p95 worse than 10%'
  kwok-operator compare many-arms.yaml --fail-if 'cost worse than 5% in v1-14'

A and B are two scenarios, or the two arms of one; up to six more are each compared with A, too. A
round plays each once, with the same seed, in an order that is drawn. With the --output of an
interrupted comparison, that comparison continues. Figures and conditions are recorded there before
the first run: those that are added later get no verdict.

A condition is a --fail-if. It has no answer if it is undecided, explored or too noisy to tell.

Exit codes:
""" + "".join(f"  {code:3}  {meaning}\n" for code, meaning in EXIT_CODES.items())


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declares the command `compare`. `command` makes a parser from a name, a handler, a summary
    and a help text."""
    parser = command("compare", run, "play scenarios several times, and say which is better", _HELP)
    parser.add_argument(
        "scenarios", metavar="SCENARIO", nargs="*", help="one YAML file with arms, or 2 to 8 files"
    )
    parser.add_argument(
        "--runs",
        metavar="N",
        type=int,
        help=f"runs of each arm (default: {default_runs(2)}; of 8 arms {default_runs(8)})",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="folder for runs and comparison (default: a new one)"
    )
    parser.add_argument(
        "--figures",
        metavar="NAME,...",
        help="figures to compare (default: the usual ones, and those in all arms' expectations)",
    )
    parser.add_argument(
        "--fail-if",
        metavar="CONDITION",
        action="append",
        default=[],
        help="such as 'pendingSeconds.p95 worse than 10%%'; may be given more than once",
    )
    add_binary_flag(parser, scenario="a scenario")
    parser.add_argument(
        "--no-repeat",
        action="store_true",
        help="don't repeat rounds of runs in which other programs kept the machine busy",
    )
    parser.add_argument(
        "--no-warm-up",
        action="store_true",
        help="leave out the first run of each arm, which doesn't count; a cold machine is slow",
    )
    parser.add_argument(
        "--order-seed",
        metavar="TEXT",
        default="",
        help="what the order within rounds is drawn from (default: a new one, which is recorded)",
    )
    parser.add_argument("--check", action="store_true", help="only check the scenarios")


def run(flags: argparse.Namespace) -> int:
    """Checks the scenarios or plays the comparison, and returns the exit code."""
    from kwok_operator.comparison.autoscalers import unlike_autoscalers
    from kwok_operator.comparison.fairness import what_differs
    from kwok_operator.comparison.folders import ComparisonFolder
    from kwok_operator.comparison.loading import load_arms
    from kwok_operator.comparison.rounds import in_minutes, runs_left, time_left
    from kwok_operator.rehearsal.outputs import ignored_folder

    given = binaries(flags.binary)
    paths = [Path(each) for each in flags.scenarios]
    try:
        loaded = load_arms(paths, lambda path: _around(path, given, flags.check))
        report_findings(loaded.findings)
        if loaded.findings:
            problems = counted(len(loaded.findings), "problem")
            complain(f"kwok-operator: {loaded.name}: {problems}; nothing was started")
            return 2
        check_binaries(given, [arm.scenario for arm in loaded.arms])
        plan = plan_of(flags, loaded.name, loaded.arms)
        registered = None
        if not flags.check:
            folder = Path(flags.output) if flags.output else ignored_folder(loaded.name)
            registered = ComparisonFolder(folder).registered(plan)
    except KwokOperatorError as error:
        complain(f"kwok-operator: {error}")
        return 2
    _warn(plan.under(registered) if registered else plan)
    if flags.check:
        report_unchecked(loaded.name, loaded.unchecked)
        for arm in plan.arms:
            print(f"{arm.name}: {summary(arm.scenario)}")
        runs = [*runs_left(plan, {}, cold=plan.warm_up)]
        takes = in_minutes(*time_left(runs, {}))
        print(f"{counted(len(runs), 'run')}, {takes}, {counted(len(plan.compared), 'figure')}")
        first, *others = plan.arms
        for arm in others:
            of = f" in {arm.name}" if len(others) > 1 else ""
            for each in what_differs(first, arm, {}, {}):
                print(f"differs{of}: {each.what}: {each.a}, {each.b}")
        if kinds := unlike_autoscalers(plan.arms):
            alike, said = kinds
            print(f"autoscalers{'' if alike else ', not alike'}: {said}")
        return 0
    return _play(plan, folder, given)


def plan_of(
    flags: argparse.Namespace, name: str, arms: tuple[ComparisonArm, ...]
) -> ComparisonPlan:
    """Makes the plan that the flags describe. Raises SettingsError naming flag, value, remedy."""
    from kwok_operator.comparison.failing import fail_condition
    from kwok_operator.comparison.plan import checked

    figures = [each.strip() for each in (flags.figures or "").split(",")]
    return checked(
        ComparisonPlan(
            name=name,
            arms=arms,
            runs=default_runs(len(arms)) if flags.runs is None else flags.runs,
            figures=tuple(dict.fromkeys(each for each in figures if each)),
            fail_if=tuple(fail_condition(each) for each in flags.fail_if),
            repeat_busy=not flags.no_repeat,
            warm_up=not flags.no_warm_up,
            order_seed=flags.order_seed,
        )
    )


def _warn(plan: ComparisonPlan) -> None:
    """Warns of settings that are valid, but that the user may not have intended."""
    from kwok_operator.comparison.permutation import fewest_pairs

    fewest = fewest_pairs(plan.rivals)
    if plan.runs < fewest:
        more = counted(fewest - plan.runs, f"more {plan.unit}")
        complain(
            f"kwok-operator: UNDECIDED, before it starts: {plan.runs_in_words} can show no"
            f" difference, however large: {more} needed; ask for --runs={fewest} or more"
        )
    if len({arm.scenario.seed for arm in plan.arms}) > 1:
        which = "both" if plan.rivals == 1 else "all"
        complain(f"kwok-operator: {which} arms get the seed of {plan.arms[0].name}, {plan.seed}")


def _play(plan: ComparisonPlan, folder: Path, given: dict[str, Path]) -> int:
    from kwok_operator.comparison.inmarkdown import in_lines
    from kwok_operator.comparison.running import compare
    from kwok_operator.controlplane import ControlPlaneError

    def find_program(arm: ComparisonArm) -> "FindProgram":
        return _around(Path(arm.file), given).program

    # Python's own handler, so that Ctrl-C also works between two runs, and in scripts that start
    # this with &.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        comparison = asyncio.run(
            compare(plan, folder=folder, find_program=find_program, report=complain)
        )
    except (KwokOperatorError, ControlPlaneError, OSError) as error:
        for line in f"kwok-operator: {error}".splitlines():
            complain(line)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        complain(f"kwok-operator: interrupted; --output={folder} goes on from here")
        return 130
    for line in in_lines(comparison):
        print(line)
    print(f"written: {folder}")
    if comparison.interrupted:
        complain(f"kwok-operator: interrupted; --output={folder} goes on from here")
        return 130
    return 1 if comparison.fails else 3 if comparison.undecided else 0


def _around(path: Path, given: dict[str, Path], check: bool = False) -> "LocalSurroundings":
    return surroundings(RehearseSettings(scenario=path, binaries=given), programs_later=check)
