"""Decides which round of a comparison is played next, and estimates how long the remaining runs
take.

    complete rounds  --next_round-->  (round, attempt)
    runs that are left, lengths of earlier runs  --time_left-->  seconds, from and to

A round is one run of each arm. Decisions depend only on the runs in the comparison's folder, so an
interrupted comparison goes on as if it had not been interrupted.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from kwok_operator.comparison.plan import WARM_UP, ComparisonPlan, PlannedRun
from kwok_operator.rehearsal.scenario.arrivals import last_arrival
from kwok_operator.rehearsal.scenario.model import Scenario

_IN_VAIN: Final = 2
"""After this many repeated rounds whose machine was busy again, no more rounds are repeated."""
_CLUSTER: Final = 10.0
"""About how many seconds it takes to create and delete a cluster."""
_MINUTE: Final = 60.0
_LONG: Final = 100
"""Estimates of this many minutes or more are shown in hours."""

Rounds = Mapping[int, "WholeRound"]
"""The complete rounds, by number."""


@dataclass(frozen=True, slots=True)
class WholeRound:
    """A round whose runs are all over. `attempt` is 1, or 2 once its repeat is over, too."""

    attempt: int
    busy: bool
    """Whether other programs kept the machine busy during at least one run of the round."""


def next_round(plan: ComparisonPlan, rounds: Rounds) -> tuple[int, int] | None:
    """Returns the round to play next and its attempt; None if all rounds have been played."""
    for number in range(1, plan.runs + 1):
        if number not in rounds:
            return number, 1
    # A whole round is repeated: a single repeated run would not be comparable with the others.
    return next(((number, 2) for number in _to_repeat(plan, rounds)), None)


def in_vain(rounds: Rounds) -> int:
    """Returns how many rounds were repeated on a machine that was busy again."""
    return sum(each.busy and each.attempt > 1 for each in rounds.values())


def repeats_stopped(plan: ComparisonPlan, rounds: Rounds) -> bool:
    return plan.repeat_busy and in_vain(rounds) >= _IN_VAIN


def _to_repeat(plan: ComparisonPlan, rounds: Rounds) -> list[int]:
    if not plan.repeat_busy or repeats_stopped(plan, rounds):
        return []
    return [number for number, each in sorted(rounds.items()) if each.busy and each.attempt == 1]


def runs_left(plan: ComparisonPlan, rounds: Rounds, *, cold: bool) -> Iterator[PlannedRun]:
    """Yields the runs that are still to be played, and those that will probably be repeated. With
    `cold`, a warm-up round comes first.
    """
    missing = [number for number in range(1, plan.runs + 1) if number not in rounds]
    again = _to_repeat(plan, rounds)
    if not any(each.attempt > 1 and not each.busy for each in rounds.values()):
        again = again[: _IN_VAIN - in_vain(rounds)]  # until one repeat helps, assume that none will
    if cold and (missing or again):
        yield from plan.round(WARM_UP)
    for number in missing:
        yield from plan.round(number)
    for number in again:
        yield from plan.round(number, 2)


def time_left(
    runs: Sequence[PlannedRun], took: Mapping[str, Sequence[float]]
) -> tuple[float, float]:
    """Estimates the shortest and longest time for the runs, in seconds: by how long earlier runs of
    the same arm took, else runs of other arms, else by the times in the scenarios.
    """
    every = [each for times in took.values() for each in times]

    def of_arm(run: PlannedRun) -> tuple[float, float]:
        if measured := took.get(run.arm.name) or every:
            return (fmean(measured),) * 2
        return _planned(run.arm.scenario)

    known = {run.arm.name: of_arm(run) for run in runs}
    each = [known[run.arm.name] for run in runs]
    return math.fsum(low for low, _ in each), math.fsum(high for _, high in each)


def _planned(scenario: Scenario) -> tuple[float, float]:
    until = scenario.until
    seed = scenario.draws_from
    ends = [last_arrival(workload, seed=seed) for workload in scenario.workloads]
    ends += [step.at for step in scenario.timeline if step.at is not None]
    # Without both, the run takes until `atMost`.
    open_end = until.settled is not None or until.condition is not None
    least = max(ends, default=0.0) + (until.settled or 0.0) if open_end else until.at_most
    return _CLUSTER + min(least, until.at_most), _CLUSTER + until.at_most


def in_minutes(low: float, high: float) -> str:
    """Returns a rough time in words, such as `about 6 min` or `6 to 40 min`."""
    if high < _MINUTE:
        return "less than a minute"
    hours = high >= _LONG * _MINUTE
    one, unit, digits = (_MINUTE**2, "h", 1) if hours else (_MINUTE, "min", 0)
    first, last = (f"{seconds / one:.{digits}f}" for seconds in (low, high))
    return f"about {last} {unit}" if first == last else f"{first} to {last} {unit}"
