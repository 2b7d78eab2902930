"""What is compared: two arms, how many runs of each, which figures, what counts as failure.

    two scenarios, flags  --checked-->  ComparisonPlan

Pair i of the runs has the same seed in both arms, and which arm goes first alternates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.core.comparison.failing import FailCondition
from kwok_operator.core.comparison.statistics import could_be_seen
from kwok_operator.core.rehearsal.figures import FIGURES
from kwok_operator.core.words import nearest, shown
from kwok_operator.errors import SettingsError
from kwok_operator.models.expectation import Expectation
from kwok_operator.models.scenario import Scenario

DEFAULT_RUNS: Final = 8
_FEWEST_RUNS: Final = 2
_MOST_RUNS: Final = 1_000
USUAL: Final = (
    "pendingSeconds.p50",
    "pendingSeconds.p95",
    "pendingSeconds.max",
    "nodes.max",
    "nodeHours",
    "cost",
    "utilisation.cpu",
    "churn.created",
    "evictions",
)
"""Figures that are compared if none are asked for, beside those that both arms expect something
of. The more there are, the larger a difference must be to be told from chance."""
_MOST_SEED: Final = 50


@dataclass(frozen=True, slots=True)
class ComparisonArm:
    name: str
    file: str
    """Where its scenario is."""
    scenario: Scenario
    digest: str
    """Of all that it is made of: runs with another one are of another arm."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What the scenario reads beside itself, as it names it: a digest of each."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    pair: int
    """From 1 on."""
    arm: ComparisonArm
    seed: str

    @property
    def folder(self) -> str:
        return f"{self.pair}-{self.arm.name}"

    @property
    def scenario(self) -> Scenario:
        """As it is played: with its seed, also for what the groups and profiles in it draw."""
        scenario = self.arm.scenario
        apply = tuple(
            source
            if source.object is None
            else source.model_copy(update={"object": _seeded(source.object, self.pair)})
            for source in scenario.apply
        )
        return scenario.model_copy(update={"seed": self.seed, "apply": apply})


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    name: str
    arms: tuple[ComparisonArm, ComparisonArm]
    runs: int = DEFAULT_RUNS
    figures: tuple[str, ...] = ()
    """Those that were asked for; without any, the usual ones."""
    fail_if: tuple[FailCondition, ...] = ()
    repeat_busy: bool = True
    """Whether a run on a busy machine is repeated at the end."""

    @property
    def seed(self) -> str:
        """Of both arms, before the number of the pair."""
        return self.arms[0].scenario.draws_from[:_MOST_SEED]

    @property
    def all_runs(self) -> Iterator[PlannedRun]:
        """In the order in which they are played: A B, B A, A B, ..."""
        for pair in range(1, self.runs + 1):
            for arm in self.arms if pair % 2 else self.arms[::-1]:
                yield PlannedRun(pair, arm, f"{self.seed}-{pair}")

    @property
    def compared(self) -> list[str]:
        """The figures, in the order in which they are shown."""
        if self.figures:
            wanted: Sequence[str] = self.figures
        else:
            one, other = (
                [each.figure for each in arm.scenario.expect if each.figure] for arm in self.arms
            )
            wanted = [*USUAL, *(name for name in one if name in other)]
        return [*dict.fromkeys([*wanted, *(each.figure for each in self.fail_if)])]


def _seeded(given: dict[str, Any], pair: int) -> dict[str, Any]:
    """An object whose draws are those of the pair."""
    spec, metadata = given.get("spec"), given.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        return given
    if given.get("kind") == "KwokPodProfile":
        return {**given, "spec": {**spec, "seed": _seed_of(spec, metadata, pair)}}
    cloud = spec.get("cloud")
    if given.get("kind") == "KwokNodeGroup" and isinstance(cloud, dict):
        seeded = {**cloud, "seed": _seed_of(cloud, metadata, pair)}
        return {**given, "spec": {**spec, "cloud": seeded}}
    return given


def _seed_of(place: dict[str, Any], metadata: dict[str, Any], pair: int) -> str:
    return f"{str(place.get('seed') or metadata.get('name'))[:_MOST_SEED]}-{pair}"


def checked(plan: ComparisonPlan) -> ComparisonPlan:
    """The plan, if it can tell anything. Raises SettingsError: field, value, remedy."""
    if plan.runs < _FEWEST_RUNS:
        raise SettingsError(
            f"--runs: {plan.runs} of each arm can't tell a difference from chance;"
            f" ask for {_FEWEST_RUNS} or more, such as {DEFAULT_RUNS}"
        )
    if plan.runs > _MOST_RUNS:
        raise SettingsError(f"--runs: {plan.runs:,} is more than {_MOST_RUNS:,}; ask for fewer")
    fewest = next(pairs for pairs in range(_MOST_RUNS) if could_be_seen(pairs, 1))
    if plan.fail_if and plan.runs < fewest:
        raise SettingsError(
            f"--fail-if: {plan.runs} runs of each arm can't show any difference, so it would hold"
            f" always; ask for --runs={fewest} or more"
        )
    for name in plan.figures:
        known_figure(name, flag="--figures")
    one, other = plan.arms
    if one.digest == other.digest:
        return plan  # A against A is how one learns what noise there is
    shared = _expected(one.scenario) & _expected(other.scenario)
    if not (shared or plan.figures):
        raise SettingsError(
            f"{one.name}, {other.name}: they have nothing in common, as no expectation of one is"
            " about what one of the other is; compare scenarios that expect the same, or name"
            " --figures"
        )
    return plan


def known_figure(name: str, *, flag: str) -> str:
    """The name, if there is such a figure."""
    if name in FIGURES:
        return name
    near = nearest(name, FIGURES)
    hint = f"did you mean {near}?" if near else f"there is {', '.join(USUAL)} and others"
    raise SettingsError(f"{flag}: {shown(name)} is no figure; {hint}")


def _expected(scenario: Scenario) -> set[str]:
    """What its expectations are about."""
    return {_subject(each) for each in scenario.expect}


def _subject(each: Expectation) -> str:
    if each.figure is not None:
        return f"figure {each.figure}"
    return f"event {each.event!r}" if each.event is not None else f"wait {each.wait}"
