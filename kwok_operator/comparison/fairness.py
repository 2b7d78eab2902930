"""Checks that all arms of a comparison had the same chances, and lists what differed between them.

    recording --recorded_facts--> a part of RunFacts
    RunFacts of all arms --> what is checked, what differs

The list has the differences between the scenarios, which are intended, and all other differences:
in versions, in the machine, and in its load.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean
from typing import Any, Final

from kwok_operator.comparison.autoscalers import unlike_autoscalers
from kwok_operator.comparison.plan import ComparisonArm, ComparisonPlan, Registered
from kwok_operator.comparison.rounds import WholeRound, in_vain, repeats_stopped
from kwok_operator.errors import one_line
from kwok_operator.formats.words import names_in_words
from kwok_operator.formats.yamltext import Path, in_words
from kwok_operator.rehearsal.judge.figures import is_workload
from kwok_operator.rehearsal.judge.recording import (
    GroupLine,
    GroupState,
    MarkLine,
    NodeLine,
    NodeState,
    PodLine,
    PodState,
    RecordingReader,
)
from kwok_operator.rehearsal.scenario.arrivals import arrivals_of
from kwok_operator.rehearsal.scenario.model import Scenario

BUSY: Final = 0.2
"""The machine is busy if other programs use more than this share of its processors on average."""
_UNLIKE: Final = 0.1
"""The arms' average loads of the machine may differ by this share of its processors."""
_APART: Final = 2.0
"""The same pods may be created at most this many seconds apart in different arms."""
_BEGINNING: Final = 1.0
_LENGTHS: Final = 0.05
"""The average lengths of the arms' runs may differ by this share."""
_OVER_TIME: Final = ("cost", "nodeHours")
"""Figures that grow with the length of a run, even when nothing happens any more."""
_OF_RUNS: Final = ("versions", "programs", "machine")
_MOST_DIFFERENCES: Final = 100
_SHOWN: Final = 80

Facts = Mapping[int, "RunFacts"]
"""The facts of one arm's runs, by the number of the round."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of one run that must be equal in all arms, or that are reported if they differ."""

    seed: str = ""
    arrivals: str = ""
    """A digest of which objects the scenario's workloads plan to create, and when."""
    came: Mapping[str, float] = field(default_factory=dict)
    """When the first pods of each workload were created, on average, in seconds since the run
    began.
    """
    missing: int = 0
    """How many pods of workloads were planned, and never created."""
    lacked: int = 0
    """How many machines the timeline's steps were to take away, and didn't find."""
    start: str = ""
    """A digest of the start: the targets of the groups in the first second, and the number of nodes
    of each shape of Karpenter's NodePools; empty if there was neither.
    """
    versions: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    """A digest of each program's file, by the program's name."""
    machine: Mapping[str, str] = field(default_factory=dict)
    others: float | None = None
    """The share of the processors that other programs used; None if it is unknown."""
    repeated: bool = False
    seen_before: bool = False
    """Whether this run was repeated after its first result had been deleted or edited."""
    took: float | None = None
    """How many seconds the run took, with making or resetting the cluster; None if unknown."""

    @property
    def busy(self) -> bool:
        return self.others is not None and self.others > BUSY


@dataclass(frozen=True, slots=True)
class FairnessCheck:
    what: str
    held: bool
    said: str


@dataclass(frozen=True, slots=True)
class WhatDiffers:
    what: str
    a: str
    b: str


def planned_arrivals(scenario: Scenario) -> str:
    """Returns a digest of which objects the scenario's workloads create, and when."""
    digest = hashlib.sha256()
    for each in arrivals_of(scenario):
        digest.update(f"{each.at} {each.workload} {each.number}\n".encode())
    for workload in scenario.workloads:
        digest.update(f"{workload.name} {workload.arrivals.trace}\n".encode())
    return digest.hexdigest()[:16]


def recorded_facts(recording: RecordingReader, scenario: Scenario) -> RunFacts:
    """Reads from a recording when the pods were created, how many pods are missing, how many
    machines were too few for steps with a `count`, and a digest of the cluster's state at the
    start.
    """
    created: dict[str, list[float]] = {workload.name: [] for workload in scenario.workloads}
    owners: dict[tuple[str, str], str | None] = {}
    seen: set[str] = set()
    start: dict[str, int] = {}
    nodes = Counter[str]()
    steps = [step.interrupt or step.lose for step in scenario.timeline]
    counts = [each.count for each in steps if each is not None]
    taken = 0
    for line in recording.lines():
        match line:
            case PodLine(state=PodState() as state) if line.name not in seen:
                seen.add(line.name)
                whose = state.workload, state.rehearsed
                if whose not in owners:
                    owners[whose] = next(
                        (name for name in created if is_workload(name, *whose)), None
                    )
                if owner := owners[whose]:
                    created[owner].append(state.created)
            case GroupLine(state=GroupState() as group) if line.t < _BEGINNING:
                start.setdefault(line.name, group.target)
            case NodeLine(t=0, state=NodeState(pool=pool) as node) if pool:
                nodes[f"{pool} {node.shape}"] += 1
            case MarkLine(what="interrupt" | "lose"):
                number, _, rest = line.detail.partition(" of ")
                taken += int(number) if rest and number.isdecimal() else 0
    # A pod that replaces another one isn't a new arrival.
    first = {w.name: sorted(created[w.name])[: w.pod_count] for w in scenario.workloads}
    came = {name: round(fmean(times), 3) for name, times in first.items() if times}
    there = [sorted(each.items()) for each in (start, nodes)]
    digest = hashlib.sha256(json.dumps(there).encode()).hexdigest()[:16] if any(there) else ""
    missing = sum(w.pod_count - len(first[w.name]) for w in scenario.workloads)
    # Steps that take a share of the machines, or all, take more where there are more.
    lacked = 0 if None in counts else max(0, sum(each or 0 for each in counts) - taken)
    return RunFacts(came=came, missing=missing, lacked=lacked, start=digest)


def whole_rounds(arms: Iterable[Facts]) -> dict[int, WholeRound]:
    """Returns the rounds whose runs are all over."""
    return {
        number: WholeRound(2 if runs[0].repeated else 1, any(run.busy for run in runs))
        for number, runs in _together(arms).items()
    }


def _together(arms: Iterable[Facts]) -> dict[int, list[RunFacts]]:
    """Returns the runs of each complete round by its number, in the order of the arms."""
    first, *others = arms
    numbers = sorted(first.keys() & set.intersection(*({*each} for each in others)))
    return {n: [first[n], *(each[n] for each in others)] for n in numbers}


def fairness_checks(
    plan: ComparisonPlan, arms: Sequence[Facts], *, lengths: Sequence[Sequence[float]] = ()
) -> Iterator[FairnessCheck]:
    """Yields one check for each property that must be equal in all arms. `lengths` has, for each
    arm, the seconds of its rehearsals that did not break off.
    """
    rounds = _together(arms)
    if not rounds:
        return
    if plan.registered is not None:
        yield _as_registered(plan, plan.registered, arms)
    of = f"of {len(rounds)} {plan.unit}s"
    missing = [run.missing for facts in arms for run in facts.values() if run.missing]
    for what, field_name in (
        ("seeds", "seed"),
        ("arrivals as planned", "arrivals"),
        ("state at the beginning", "start"),
    ):
        unlike = sum(
            len({getattr(run, field_name) for run in each}) > 1 for each in rounds.values()
        )
        held, detail = not unlike, f"differ in {unlike} {of}" if unlike else f"the same in all {of}"
        if field_name == "arrivals" and missing:
            detail += f"; up to {max(missing):,} pods did not come, in {len(missing)} runs"
            held = False
        if field_name == "start":
            nothing = not any(run.start for each in rounds.values() for run in each)
            of_what = "nothing is there" if nothing else "targets of groups, Karpenter's nodes"
            detail = f"{of_what}: {detail}"
        yield FairnessCheck(what, held, detail)
    if lacked := [run.lacked for facts in arms for run in facts.values() if run.lacked]:
        detail = f"up to {max(lacked):,} fewer than counted were there, in {len(lacked)} runs"
        yield FairnessCheck("machines that steps take", False, detail)
    if kinds := unlike_autoscalers(plan.arms):
        yield FairnessCheck("autoscalers", *kinds)
    yield _came(rounds.values())
    figures = [name for name in _OVER_TIME if name in plan.compared]
    if figures and lengths and all(lengths):
        yield _lengths(plan, [*map(fmean, lengths)], figures)
    yield _unchanged(plan, arms)
    loads = [[run.others for run in facts.values() if run.others is not None] for facts in arms]
    if all(loads):
        means = [*map(fmean, loads)]
        shares = [
            f"{mean * 100:.0f} % {'' if n else 'of the processors '}in {arm.name}"
            for n, (mean, arm) in enumerate(zip(means, plan.arms, strict=True))
        ]
        detail = f"others used {', '.join(shares)}"
        yield FairnessCheck("machine load", max(means) - min(means) <= _UNLIKE, detail)
    yield _order(plan, arms)
    yield _quiet(plan, arms)


def _came(rounds: Iterable[Sequence[RunFacts]]) -> FairnessCheck:
    """Checks that the pods of each workload were created in all arms, at about the same time."""
    apart = 0.0
    lone: set[str] = set()
    for runs in rounds:
        for name in {name for run in runs for name in run.came}:
            times = [run.came[name] for run in runs if name in run.came]
            if len(times) < len(runs):
                lone.add(name)
            else:
                apart = max(apart, max(times) - min(times))
    said = f"{apart:.1f} s apart at most, on the average of a workload"
    if lone:
        said = f"of {names_in_words(sorted(lone), most=3)} not in all arms"
    return FairnessCheck("pods as they came", apart <= _APART and not lone, said)


def _lengths(plan: ComparisonPlan, means: Sequence[float], figures: Sequence[str]) -> FairnessCheck:
    """Checks that the runs of all arms took about as long, as some figures add up over a run.
    Unlike lengths are fair if every run ends once a condition holds, as an arm's work is done then.
    """
    each = [f"{mean:.0f} s in {arm.name}" for mean, arm in zip(means, plan.arms, strict=True)]
    said = f"{', '.join(each)} on average"
    if max(means) - min(means) <= _LENGTHS * max(means):
        return FairnessCheck("length of runs", True, said)
    which = names_in_words(figures)
    if all(arm.scenario.until.condition is not None for arm in plan.arms):
        said += f"; {which} add up until the condition holds"
        return FairnessCheck("length of runs", True, said)
    said += (
        f"; {which} add up over that time, so they favour what ends first: to compare them, let all"
        f" runs take as long, by until: {{atMost: {ceil(max(means))}s}} without settledFor"
    )
    return FairnessCheck("length of runs", False, said)


def _as_registered(
    plan: ComparisonPlan, registered: Registered, arms: Sequence[Facts]
) -> FairnessCheck:
    wrong = []
    if plan.runs != registered.runs:
        # The numbers come from simulations that check results after 8, 12, 16 and 24 pairs.
        wrong.append(
            f"{registered.runs} runs of each arm were registered, {plan.runs} are compared: with"
            " runs added, or left out, once others have been seen, 1 to 3 of 100 comparisons of A"
            " with A report a difference, where it would be 1"
        )
    seen = [
        f"{number}-{arm.name}"
        for arm, facts in zip(plan.arms, arms, strict=True)
        for number, run in facts.items()
        if run.seen_before
    ]
    if seen:
        wrong.append(
            f"{names_in_words(seen, most=3)} had been seen, then deleted or edited, and"
            " played again: which runs are replaced may have been chosen"
        )
    if later := plan.explored_in_words:
        wrong.append(f"{later} named later, explored without a verdict")
    said = f"{registered.runs} runs of each arm, {len(registered.compared)} figures"
    return FairnessCheck(
        "registered before the first run", not wrong, "; ".join(wrong) or f"{said}, as compared"
    )


def _order(plan: ComparisonPlan, arms: Sequence[Facts]) -> FairnessCheck:
    there = whole_rounds(arms)
    name = plan.arms[0].name
    first = sum(plan.round(n, each.attempt)[0].arm.name == name for n, each in there.items())
    drawn = f"drawn for each {plan.unit} alone, by seed {plan.order_seed or 'none'}"
    said = f"{drawn}: {name} first in {first} of {len(there)}"
    return FairnessCheck(f"order within {plan.unit}s", True, said)


def _quiet(plan: ComparisonPlan, arms: Sequence[Facts]) -> FairnessCheck:
    runs = [run for facts in arms for run in facts.values()]
    busy = sum(run.busy for run in runs)
    said = [f"{busy} of {len(runs)} runs were on a machine that other programs kept busy"]
    there = whole_rounds(arms)
    if repeats_stopped(plan, there):
        said.append(f"{in_vain(there)} repeats were as busy, so no more {plan.unit}s were repeated")
    if busy:
        said.append(
            f"which run of a {plan.unit} it met was left to the draw, so it favours no arm; its"
            " noise widens the intervals, so smaller differences go unseen, and times are those of"
            " a busy machine"
        )
    return FairnessCheck("quiet machine", not busy, "; ".join(said))


def _unchanged(plan: ComparisonPlan, arms: Sequence[Facts]) -> FairnessCheck:
    """Checks that all runs of an arm had the same versions and the same machine. They may differ if
    the comparison was continued later.
    """
    mixed = [
        f"{key} is {', '.join(values)} in {arm.name}"
        for arm, facts in zip(plan.arms, arms, strict=True)
        for name in _OF_RUNS
        for key, values in sorted(_values(name, facts).items())
        if len(values) > 1
    ]
    said = "; ".join(mixed) or "the same in all runs of an arm"
    return FairnessCheck("versions and machine", not mixed, said)


def what_differs(
    one: ComparisonArm, other: ComparisonArm, a: Facts, b: Facts
) -> Iterator[WhatDiffers]:
    """Yields the differences between scenarios, then between versions, programs and machines."""
    yield from list(_scenario_differences(one, other))[:_MOST_DIFFERENCES]
    for name in _OF_RUNS:
        both = [_values(name, facts) for facts in (a, b)]
        for key in sorted({*both[0], *both[1]}) if all(both) else ():
            values = [", ".join(each.get(key, ["none"])) for each in both]
            if values[0] != values[1]:
                yield WhatDiffers(key, *values)


def _values(name: str, facts: Facts) -> dict[str, list[str]]:
    """Returns, by key, all values that `name`, a map in RunFacts, had in the runs."""
    every: list[Mapping[str, str]] = [getattr(run, name) for run in facts.values()]
    keys = {key for each in every for key in each}
    return {key: sorted({each.get(key, "none") for each in every}) for key in keys}


def _scenario_differences(one: ComparisonArm, other: ComparisonArm) -> Iterator[WhatDiffers]:
    """Yields the differences between the scenarios, then between the files that they read."""
    dumps = [arm.scenario.dump() for arm in (one, other)]
    for dump in dumps:
        for key in ("name", "teaches", "seed"):
            dump.pop(key, None)
    yield from _unlike(dumps[0], dumps[1], ())
    for name in dict.fromkeys((*one.files, *other.files)):
        digests = [arm.files.get(name, "none") for arm in (one, other)]
        if digests[0] != digests[1]:
            yield WhatDiffers(f"file {name}", *digests)


def _unlike(a: Any, b: Any, at: Path) -> Iterator[WhatDiffers]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            yield from _unlike(a.get(key), b.get(key), (*at, key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for place, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from _unlike(one, other, (*at, place))
    elif a != b:
        yield WhatDiffers(in_words(at), _shown(a), _shown(b))


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return one_line(value if isinstance(value, str) else json.dumps(value), limit=_SHOWN)
