"""The plan of a comparison: the arms, the number of runs of each, the figures, and what fails it.

    scenarios, flags                 --checked-->  ComparisonPlan
    ComparisonPlan, Registered       --under-->    the plan, with verdicts on these only

A round plays each arm once, with the same seed, in a random order. The run of each further arm and
that of the first form a pair; with two arms, the round itself is called a pair. Figures,
conditions, number of runs and order are registered before the first run that counts. Figures and
conditions that the user adds later, knowing results of runs, are only *explored*: shown without a
verdict.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator.comparison.failing import FailCondition
from kwok_operator.comparison.permutation import fewest_pairs
from kwok_operator.errors import SettingsError
from kwok_operator.formats.words import names_in_words, nearest, shown
from kwok_operator.rehearsal.judge.figures import FIGURES
from kwok_operator.rehearsal.scenario.expectation import Expectation
from kwok_operator.rehearsal.scenario.model import Scenario

_SPARE_RUNS: Final = 2
"""By default, this many more pairs are played than are needed: with the fewest, one noisy figure
can hide differences in all others.
"""
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
"""The figures that are compared if the user names none; figures that all scenarios have
expectations of are added. Each further figure makes small differences harder to see.
"""
_MOST_SEED: Final = 50
# A part of each random draw. Never change it: a continued comparison must draw the same order.
_DOMAIN: Final = "kwok-operator/order/1"
WARM_UP: Final = 0
"""The number of the warm-up round, which is played before round 1 and doesn't count."""


def default_runs(arms: int) -> int:
    return fewest_pairs(arms - 1) + _SPARE_RUNS


@dataclass(frozen=True, slots=True)
class ComparisonArm:
    name: str
    file: str
    """The path of the scenario's file."""
    scenario: Scenario
    digest: str
    """A digest of the scenario, its files and its programs. If it changes, earlier runs no longer
    count.
    """
    files: Mapping[str, str] = field(default_factory=dict)
    """A digest of each file that the scenario reads, by the path in the scenario."""
    unlike: tuple[str, ...] = ()
    """Sentences on how the nodes of Karpenter differ from those of the groups."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    pair: int
    """The number of the round, from 1; or WARM_UP."""
    arm: ComparisonArm
    seed: str
    attempt: int = 1

    @property
    def folder(self) -> str:
        """The name of the run's folder. A repeat has its own, so that the first attempt stays."""
        # Names of arms may begin with digits, so the words come first.
        if self.pair == WARM_UP:
            return f"warm-up-{self.arm.name}"
        return f"{'again-' if self.attempt > 1 else ''}{self.pair}-{self.arm.name}"

    @property
    def scenario(self) -> Scenario:
        """The scenario with the round's seed, also in groups and pod profiles that it applies."""
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
    """What a comparison judges; it is written to a file before the first run that counts."""

    runs: int
    figures: tuple[str, ...]
    """The figures that the user named; empty if the usual ones are compared."""
    compared: tuple[str, ...]
    """All figures that get a verdict. Each further one makes differences harder to see."""
    fail_if: tuple[FailCondition, ...]
    order_seed: str
    repeat_busy: bool


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    name: str
    arms: tuple[ComparisonArm, ...]
    """At least two arms; each further one is compared with the first."""
    runs: int = default_runs(2)
    figures: tuple[str, ...] = ()
    """The figures that the user named; if empty, the usual ones are compared."""
    fail_if: tuple[FailCondition, ...] = ()
    repeat_busy: bool = True
    """Whether a round is repeated once, at the end, if the machine was busy in one of its runs."""
    warm_up: bool = True
    order_seed: str = ""
    registered: Registered | None = None
    explored: tuple[str, ...] = ()
    """Figures that were added, also in conditions, after runs had been seen; without a verdict."""
    explored_conditions: tuple[FailCondition, ...] = ()

    @property
    def seed(self) -> str:
        """The seed of all arms. Each round appends its number to it."""
        return self.arms[0].scenario.draws_from[:_MOST_SEED]

    @property
    def rivals(self) -> int:
        """The number of rivals: arms that are compared with the first."""
        return len(self.arms) - 1

    @property
    def unit(self) -> str:
        """The word for a round: `pair` if there are two arms."""
        return "pair" if self.rivals == 1 else "round"

    @property
    def runs_in_words(self) -> str:
        each = "" if self.rivals == 1 else f"{len(self.arms)} "
        return f"{self.runs} {self.unit}s of {each}runs"

    def round(self, number: int, attempt: int = 1) -> tuple[PlannedRun, ...]:
        """Returns the runs of a round, one of each arm, in the order in which they are played."""
        # The permutation test flips the signs of pairs. That is exact if, whatever disturbs the
        # positions of a round, each arm was as likely to have any position, independently of other
        # rounds. With a fixed order, a periodic disturbance could always hit one arm; a balanced
        # order would make rounds depend on each other. A repeat draws a new order, as whether there
        # is one may depend on the first attempt, its order included.
        drawn = f"{_DOMAIN}\0{self.order_seed}\0{number}\0{attempt}"
        digest = hashlib.sha256(drawn.encode(errors="surrogatepass")).digest()
        order = [self.arms[0]]
        for place, arm in enumerate(self.arms[1:], 1):
            draw = int.from_bytes(digest[4 * place - 4 : 4 * place], "little")
            order.insert(place - draw % (place + 1), arm)
        return tuple(PlannedRun(number, arm, f"{self.seed}-{number}", attempt) for arm in order)

    def registering(self) -> "ComparisonPlan":
        """Returns the plan with everything in it registered, so that all of it is judged. Called
        before any run was seen.
        """
        registered = Registered(
            self.runs,
            self.figures,
            tuple(self.compared),
            self.fail_if,
            self.order_seed,
            self.repeat_busy,
        )
        return replace(self, registered=registered)

    def under(self, registered: Registered) -> "ComparisonPlan":
        """Returns the plan that judges exactly what was registered. What the user has added since
        is only explored.
        """
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
        """Returns a sentence on how many rounds are played, and in which order."""
        every = (self.round(number) for number in range(1, self.runs + 1))
        orders = [" ".join(run.arm.name for run in runs) for runs in every]
        warm_up = "a warm-up of each arm that doesn't count, then " if self.warm_up else ""
        return (
            f"{warm_up}{self.runs_in_words}, in an order drawn by seed {self.order_seed}:"
            f" {names_in_words(orders)}"
        )

    @property
    def judged_in_words(self) -> str:
        figures = names_in_words(self.compared, most=3)
        conditions = names_in_words([each.text for each in self.fail_if]) or "no --fail-if"
        repeats = "" if self.repeat_busy else "not "
        return f"{figures}; {conditions}; busy {self.unit}s are {repeats}repeated"

    @property
    def explored_in_words(self) -> str:
        """The figures and conditions that are only explored, in words; empty if there are none."""
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
            first, *others = (
                [each.figure for each in arm.scenario.expect if each.figure] for arm in self.arms
            )
            shared = [name for name in first if all(name in each for each in others)]
            wanted = [*USUAL, *shared]
        return [*dict.fromkeys([*wanted, *(each.figure for each in self.fail_if)])]


def _seeded(given: dict[str, Any], pair: int) -> dict[str, Any]:
    """Returns an applied object; if it is a group with a cloud, or a pod profile, with the round's
    seed.
    """
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
    """Returns the plan if it has enough runs, known figures and something to compare. Otherwise
    raises SettingsError, which names the flag or the arms, and the remedy.
    """
    if plan.runs < _FEWEST_RUNS:
        raise SettingsError(
            f"--runs: {plan.runs} of each arm can't tell a difference from chance;"
            f" ask for {_FEWEST_RUNS} or more, such as {default_runs(len(plan.arms))}"
        )
    if plan.runs > _MOST_RUNS:
        raise SettingsError(f"--runs: {plan.runs:,} is more than {_MOST_RUNS:,}; ask for fewer")
    fewest = fewest_pairs(plan.rivals)
    if plan.fail_if and plan.runs < fewest:
        raise SettingsError(
            f"--fail-if: undecided, as {plan.runs} runs of each arm can't show any difference:"
            f" {fewest} {plan.unit}s are needed; ask for --runs={fewest} or more"
        )
    for name in plan.figures:
        known_figure(name, flag="--figures")
    _check_conditions(plan)
    if len({arm.digest for arm in plan.arms}) == 1:
        return plan  # comparing A with A shows how much noise there is
    if not (plan.figures or set.intersection(*(_expected(arm.scenario) for arm in plan.arms))):
        raise SettingsError(
            f"{names_in_words([arm.name for arm in plan.arms])}: they have nothing in common, as no"
            " expectation of one is about what one of the others is; compare scenarios that expect"
            " the same, or name --figures"
        )
    return plan


def _check_conditions(plan: ComparisonPlan) -> None:
    first, *others = (arm.name for arm in plan.arms)
    for each in plan.fail_if:
        if each.arm and each.arm not in others:
            why = "is the first arm" if each.arm == first else "is no arm"
            raise SettingsError(
                f"--fail-if: {shown(each.text)}: {shown(each.arm)} {why}; write one that is"
                f" compared with {first}: {names_in_words(others)}"
            )


def known_figure(name: str, *, flag: str) -> str:
    """Returns the name if a figure has it; else raises SettingsError, which names `flag`."""
    if name in FIGURES:
        return name
    near = nearest(name, FIGURES)
    hint = f"did you mean {near}?" if near else f"there is {', '.join(USUAL)} and others"
    raise SettingsError(f"{flag}: {shown(name)} is no figure; {hint}")


def _expected(scenario: Scenario) -> set[str]:
    """Returns the subjects of the scenario's expectations: figures, Events and waits."""
    return {_subject(each) for each in scenario.expect}


def _subject(each: Expectation) -> str:
    if each.figure is not None:
        return f"figure {each.figure}"
    return f"event {each.event!r}" if each.event is not None else f"wait {each.wait}"
