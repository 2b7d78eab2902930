"""Parses the flags of `kwok-operator rehearse`, and runs the command."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kwok_operator.cli.validate import complain
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.formats.words import counted
from kwok_operator.offline.files import Finding
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile
from kwok_operator.rehearsal.settings import DEMO, DEMO_CLUSTER, RehearseSettings

if TYPE_CHECKING:
    from kwok_operator.rehearsal.surroundings import LocalSurroundings

REHEARSE_HELP: Final = """\
Plays a scenario on a cluster of its own, and says whether its expectations hold.

  kwok-operator rehearse --check deploy/scenarios/spot-storm.yaml
  kwok-operator rehearse --binary cluster-autoscaler=./ca deploy/scenarios/scale-up-and-down.yaml
  kwok-operator rehearse --demo --keep

A scenario is a file: which objects are applied, which programs run, which pods arrive, which steps
are done, when it ends, and what you expect. All of it is checked before anything starts; problems
go to standard error, as FILE:LINE: SENTENCE. Time is real: ten minutes take ten minutes.

Exit code 0: all expectations hold; 1: one doesn't, the run broke off, or something that the run
made could not be deleted, or its files not be written; 2: the scenario can't be played; 130:
interrupted.
"""


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declares the command `rehearse`. `command` makes a parser from a name, a handler, a summary
    and a help text."""
    what = "play a scenario, and say whether its expectations hold"
    parser = command("rehearse", run, what, REHEARSE_HELP)
    parser.add_argument("scenario", metavar="SCENARIO", nargs="?", help="a YAML file")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="folder for verdict, recording and report (default: a new one, which Git ignores)",
    )
    add_binary_flag(parser)
    parser.add_argument("--arm", metavar="NAME", help="the arm to play, in a scenario with arms")
    # $KUBECONFIG is ignored: a rehearsal creates and deletes objects only in a cluster that a flag
    # names.
    which = parser.add_argument_group("an existing cluster, instead of a new one")
    which.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to use")
    which.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument("--keep", action="store_true", help="leave the cluster as it is at the end")
    parser.add_argument(
        "--reuse",
        action="store_true",
        help="play on the cluster that an earlier --reuse left, put back to its first state, and"
        " leave it for the next: that is faster than a new one. With --clear: delete it",
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="play a tour of the operator; with --keep, its cluster, which is called demo, and the"
        " operator go on running, and the next demo replaces them",
    )
    other = parser.add_argument_group("instead of playing")
    other.add_argument("--check", action="store_true", help="only check the scenario")
    other.add_argument(
        "--clear",
        action="store_true",
        help="delete what a rehearsal left in the cluster of --kubeconfig or --context, or --reuse",
    )
    other.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of scenarios, for editors"
    )


def rehearse_settings(flags: argparse.Namespace) -> RehearseSettings:
    """The settings of `rehearse`; raises SettingsError naming flag, value, remedy."""
    from kwok_operator import controlplane

    if flags.demo and (flags.scenario or flags.arm or flags.kubeconfig or flags.context):
        raise SettingsError("--demo: goes without SCENARIO, --arm, --kubeconfig and --context")
    if not flags.scenario and not flags.demo:
        raise SettingsError("SCENARIO: none is given; name a file, such as scenario.yaml")
    if flags.reuse and (flags.demo or flags.keep or flags.kubeconfig or flags.context):
        raise SettingsError("--reuse: goes without --keep, --demo, --kubeconfig and --context")
    if flags.reuse and not controlplane.CAN_REWIND:
        raise SettingsError("--reuse: works on Linux only; leave it away")
    return RehearseSettings(
        scenario=DEMO if flags.demo else Path(flags.scenario),
        output=Path(flags.output) if flags.output else None,
        kubeconfig=flags.kubeconfig or None,
        context=flags.context or None,
        keep=flags.keep,
        reuse=flags.reuse,
        binaries=binaries(flags.binary),
        arm=flags.arm or None,
        demo=flags.demo,
    )


def run(flags: argparse.Namespace) -> int:
    """Plays or checks a scenario, or prints the schema. Returns the exit code."""
    if flags.schema:
        print(json.dumps(schema(), indent=2))
        return 0
    if flags.clear:
        return _clear(flags)
    settings = rehearse_settings(flags)
    try:
        read = checked(settings, programs_later=flags.check)
    except KwokOperatorError as error:
        complain(f"kwok-operator: {error}")
        return 2
    report_findings(read.findings)
    if read.scenario is None or read.findings:
        problems = counted(len(read.findings), "problem")
        complain(f"kwok-operator: {settings.scenario}: {problems}; nothing was started")
        return 2
    if not settings.demo:
        check_binaries(settings.binaries, [read.scenario])
    if flags.check:
        for what in read.ignored:
            complain(
                f"kwok-operator: {settings.scenario}: {what} has no effect on Karpenter's nodes"
            )
        report_unchecked(str(settings.scenario), read.unchecked)
        print(summary(read.scenario))
        return 0
    return _play(read.scenario, settings)


def _clear(flags: argparse.Namespace) -> int:
    from kwok_operator.rehearsal.borrowed import clear_cluster
    from kwok_operator.rehearsal.keptcluster import clear_reused

    if flags.scenario or bool(flags.kubeconfig or flags.context) == flags.reuse:
        raise SettingsError(
            "--clear: goes without SCENARIO, and with --kubeconfig or --context, or with --reuse"
        )
    try:
        if flags.reuse:
            deleted, used = clear_reused()
            for name in deleted:
                print(f"deleted cluster {name}")
            for name in used:
                complain(f"cluster {name} stays, as another process is using it")
            return 1 if used else 0
        clearing = clear_cluster(
            kubeconfig=flags.kubeconfig or None, context=flags.context or None, report=complain
        )
        return 0 if asyncio.run(clearing) else 1
    except (KwokOperatorError, OSError) as error:
        complain(f"kwok-operator: {error}")
        return 2


def _play(scenario: Scenario, settings: RehearseSettings) -> int:
    from kwok_operator.rehearsal.judge.verdict import summary as judgement
    from kwok_operator.rehearsal.outputs import VERDICT, results
    from kwok_operator.rehearsal.progress import screen
    from kwok_operator.rehearsal.rehearse import LeftBehindError, rehearse

    left = None
    try:
        with (
            results(settings.output, scenario.name) as folder,
            screen(sys.stderr, complain, environ=os.environ) as (report, show, say),
        ):
            judged = asyncio.run(
                rehearse(
                    scenario,
                    settings,
                    folder=folder,
                    find_program=surroundings(settings).program,
                    report=report,
                    show=show,
                    say=say,
                )
            )
    except LeftBehindError as error:
        judged, left = error.judged, error
    except (KwokOperatorError, OSError) as error:
        _complain_of(error)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        complain("kwok-operator: interrupted before it had begun")
        return 130
    for line in judgement(judged):
        print(line)
    if (folder / VERDICT).exists():
        print(f"written: {folder}")
    if settings.demo and settings.keep:
        print(_how_to_go_on())
    if left is not None:
        _complain_of(left)
    if judged.end.reason == "interrupted":
        return 130
    return 0 if judged.passed and left is None else 1


def _how_to_go_on() -> str:
    """Returns a text that says how to use the demo's cluster, which keeps running."""
    from kwok_operator import controlplane

    return "\n".join(
        [
            "",
            "The cluster and the operator go on running. To play with them:",
            "",
            *controlplane.get(DEMO_CLUSTER).exports(os.environ.get("PATH", "")),
            "  kubectl get kng",
            "  kubectl scale kng demo-even --replicas=50",
            "  kubectl get nodes -l kwok-operator.io/node-group=demo-even",
            "  kubectl describe kng demo-even",
            "  kubectl explain kng.spec",
            "",
            f"To remove them: {controlplane.removal(DEMO_CLUSTER)}",
        ]
    )


def _complain_of(error: Exception) -> None:
    for line in f"kwok-operator: {error}".splitlines():
        complain(line)


def checked(settings: RehearseSettings, *, programs_later: bool = False) -> ScenarioFile:
    """Reads a scenario and checks it. The result has the scenario and all its mistakes. Raises
    SettingsError if its file can't be read. `programs_later`: nothing is to be played now, so a
    missing program is no mistake, unless --binary names its path."""
    from kwok_operator.rehearsal.loading import load_demo, load_scenario

    around = surroundings(settings, programs_later=programs_later)
    if settings.demo:
        return load_demo(settings.scenario, around, report=complain)
    return load_scenario(settings.scenario, around, arm=settings.arm)


def surroundings(
    settings: RehearseSettings, *, programs_later: bool = False
) -> "LocalSurroundings":
    from kwok_operator.controlplane import known_versions
    from kwok_operator.rehearsal.surroundings import LocalSurroundings
    from kwok_operator.shim.troublefile import parse_plan

    return LocalSurroundings(
        settings.scenario,
        own_cluster=settings.own_cluster,
        kubernetes=known_versions(),
        binaries=settings.binaries,
        check_trouble=parse_plan,
        programs_later=programs_later,
    )


def schema() -> dict[str, object]:
    """Returns the JSON schema of a scenario, for editors."""
    scenario = Scenario.model_json_schema(by_alias=True)
    # The default of `name` is the name of the file.
    required = [name for name in scenario["required"] if name != "name"]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **scenario, "required": required}


def summary(scenario: Scenario) -> str:
    """Returns a line that says what the scenario would play."""
    pods = sum(workload.pod_count for workload in scenario.workloads)
    parts = [
        counted(len(scenario.workloads), "workload") + (f" of {pods:,} pods" if pods else ""),
        counted(len(scenario.processes), "process").replace("processs", "processes"),
        counted(len(scenario.timeline), "step"),
        counted(len(scenario.expect), "expectation"),
    ]
    return f"{scenario.name}: {', '.join(parts)}, {scenario.until.at_most:g} s at most; no problems"


def check_binaries(given: Iterable[str], scenarios: Iterable[Scenario]) -> None:
    """Raises SettingsError if --binary has names that no scenario uses."""
    from kwok_operator.rehearsal.scenario.problems import unknown

    known = frozenset[str]().union(*(each.programs for each in scenarios))
    for name in given:
        if name not in known:
            what = "program of this scenario"
            raise SettingsError(unknown(("--binary",), what, known, value=name).message)


def report_findings(findings: Iterable[Finding]) -> None:
    for finding in sorted(findings, key=lambda each: (each.file, each.line or 0)):
        complain(str(finding))


def report_unchecked(scenario: str, unchecked: Sequence[str]) -> None:
    """Prints one line that lists the parts of a scenario that were left unchecked, if any. They
    don't count as mistakes."""
    if unchecked:
        complain(f"kwok-operator: {scenario}: not checked: {'; '.join(unchecked)}")


def add_binary_flag(parser: argparse.ArgumentParser, *, scenario: str = "the scenario") -> None:
    """Declares --binary, whose values `binaries` reads."""
    parser.add_argument(
        "--binary",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help=f"path of a program that {scenario} names; may be given more than once",
    )


def binaries(given: Iterable[str]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise SettingsError(f"--binary: {text!r} is not NAME=PATH, as cluster-autoscaler=./ca")
        if name in paths:
            raise SettingsError(f"--binary: {name!r} is given twice; keep one")
        paths[name] = Path(path).absolute()
    return paths
