"""What is compared: two arms, how many runs of each, which figures, what counts as failure.

    two scenarios, flags  --checked-->  ComparisonPlan  --under-->  one that is judged as Registered

Pair i of the runs has the same seed in both arms, and which arm goes first is drawn. Figures,
conditions, number and order are registered before the first run that counts. What is added later
was chosen with the runs in sight: it is explored, and gets no verdict.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator.comparison.failing import FailCondition
from kwok_operator.comparison.turning import FEWEST_PAIRS
from kwok_operator.errors import SettingsError
from kwok_operator.formats.words import names_in_words, nearest, shown
from kwok_operator.rehearsal.judge.figures import FIGURES
from kwok_operator.rehearsal.scenario.expectation import Expectation
from kwok_operator.rehearsal.scenario.model import Scenario

DEFAULT_RUNS: Final = 10
"""Two more than the fewest: with those, one count that goes up and down hides all other figures."""
_FEWEST_RUNS: Final = 2
_MOST_RUNS: Final = 1_000
USUAL: Final = (
    "pendingSeconds.p50",
    "pendingSeconds.p95",
    "pendingSeconds.mean",
    "pendingSeconds.max",
    "pods.unserved",
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
# Part of every draw, and never changed: a comparison that goes on keeps its order.
_DOMAIN: Final = "kwok-operator/order/1"
WARM_UP: Final = 0
"""The pair before the first one. It doesn't count."""


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
    """From 1 on, and WARM_UP."""
    arm: ComparisonArm
    seed: str
    attempt: int = 1

    @property
    def folder(self) -> str:
        """One for each run: what was repeated stays."""
        # Names of arms may begin with digits, so the words stand in front.
        if self.pair == WARM_UP:
            return f"warm-up-{self.arm.name}"
        return f"{'again-' if self.attempt > 1 else ''}{self.pair}-{self.arm.name}"

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
class Registered:
    """What was laid down before the first run that counts."""

    runs: int
    figures: tuple[str, ...]
    """Those that were named; without any, the usual ones."""
    compared: tuple[str, ...]
    """All that are judged together: each one more makes differences harder to see."""
    fail_if: tuple[FailCondition, ...]
    order_seed: str
    repeat_busy: bool


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    name: str
    arms: tuple[ComparisonArm, ComparisonArm]
    runs: int = DEFAULT_RUNS
    figures: tuple[str, ...] = ()
    """Those that were named; without any, the usual ones."""
    fail_if: tuple[FailCondition, ...] = ()
    repeat_busy: bool = True
    """Whether a pair with a run on a busy machine is repeated at the end."""
    warm_up: bool = True
    order_seed: str = ""
    registered: Registered | None = None
    explored: tuple[str, ...] = ()
    """Figures that were named once runs had been seen, also by conditions: without a verdict."""
    explored_conditions: tuple[FailCondition, ...] = ()

    @property
    def seed(self) -> str:
        """Of both arms, before the number of the pair."""
        return self.arms[0].scenario.draws_from[:_MOST_SEED]

    def pair(self, number: int, attempt: int = 1) -> tuple[PlannedRun, PlannedRun]:
        """Its two runs, in the order in which they are played."""
        # The test turns pairs round. That is exact if, whatever befell the two places of a pair,
        # each arm was as likely to have either of them, independently of all other pairs. A fixed
        # order lets a disturbance that keeps time hit one arm; an order that is kept balanced ties
        # the pairs to each other. A repeat is drawn anew: whether there is one may depend on the
        # first attempt in any way, its order included.
        drawn = f"{_DOMAIN}\0{self.order_seed}\0{number}\0{attempt}"
        turned = hashlib.sha256(drawn.encode(errors="surrogatepass")).digest()[0] & 1
        first, second = self.arms[::-1] if turned else self.arms
        seed = f"{self.seed}-{number}"
        return PlannedRun(number, first, seed, attempt), PlannedRun(number, second, seed, attempt)

    def registering(self) -> "ComparisonPlan":
        """As it is laid down: all that it judges is chosen before anything has been seen."""
        found = Registered(
            self.runs,
            self.figures,
            tuple(self.compared),
            self.fail_if,
            self.order_seed,
            self.repeat_busy,
        )
        return replace(self, registered=found)

    def under(self, registered: Registered) -> "ComparisonPlan":
        """What is registered is judged, all of it; what was named beside that is explored."""
        known = {replace(each, text="") for each in registered.fail_if}
        later = tuple(each for each in self.fail_if if replace(each, text="") not in known)
        named = dict.fromkeys((*self.figures, *(each.figure for each in later)))
        return replace(
            self,
            registered=registered,
            figures=registered.figures,
            fail_if=registered.fail_if,
            order_seed=registered.order_seed,
            repeat_busy=registered.repeat_busy,
            explored=tuple(name for name in named if name not in registered.compared),
            explored_conditions=later,
        )

    @property
    def in_words(self) -> str:
        """What is played, and in which order."""
        every = (self.pair(number) for number in range(1, self.runs + 1))
        orders = [" ".join(run.arm.name for run in pair) for pair in every]
        warm_up = "a warm-up of each arm that doesn't count, then " if self.warm_up else ""
        return (
            f"{warm_up}{self.runs} pairs of runs, in an order drawn by seed {self.order_seed}:"
            f" {names_in_words(orders)}"
        )

    @property
    def judged_in_words(self) -> str:
        figures = names_in_words(self.compared, most=3)
        conditions = names_in_words([each.text for each in self.fail_if]) or "no --fail-if"
        repeats = "" if self.repeat_busy else "not "
        return f"{figures}; {conditions}; busy pairs are {repeats}repeated"

    @property
    def explored_in_words(self) -> str:
        """Or nothing, where nothing was named later."""
        later = [*self.explored, *(each.text for each in self.explored_conditions)]
        return names_in_words(later, most=3)

    @property
    def compared(self) -> list[str]:
        """The figures that get a verdict, in the order in which they are shown."""
        if self.registered is not None:
            return [*self.registered.compared]
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
    """The plan, if it can show anything. Raises SettingsError: field, value, remedy."""
    if plan.runs < _FEWEST_RUNS:
        raise SettingsError(
            f"--runs: {plan.runs} of each arm can't tell a difference from chance;"
            f" ask for {_FEWEST_RUNS} or more, such as {DEFAULT_RUNS}"
        )
    if plan.runs > _MOST_RUNS:
        raise SettingsError(f"--runs: {plan.runs:,} is more than {_MOST_RUNS:,}; ask for fewer")
    if plan.fail_if and plan.runs < FEWEST_PAIRS:
        raise SettingsError(
            f"--fail-if: undecided, as {plan.runs} runs of each arm can't show any difference:"
            f" {FEWEST_PAIRS} pairs are needed; ask for --runs={FEWEST_PAIRS} or more"
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
