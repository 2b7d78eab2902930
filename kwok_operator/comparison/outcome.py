"""What came of a comparison: its runs, the effect on each figure, and who has won.

    ComparisonPlan, PlayedRun of each  --compared-->  Comparison  --comparison_json-->  the file

The same runs give the same comparison. Page and summary show what stands here, and compute nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final

from kwok_operator.comparison.failing import (
    FailAnswer,
    FailOutcome,
    bound_of,
    judged,
)
from kwok_operator.comparison.fairness import (
    FairnessCheck,
    RunFacts,
    WhatDiffers,
    fairness_checks,
    what_differs,
)
from kwok_operator.comparison.plan import ComparisonPlan
from kwok_operator.comparison.statistics import (
    DIFFERENCES,
    Effect,
    EffectVerdict,
    against_bounds,
    compare_figures,
)
from kwok_operator.formats.words import names_in_words
from kwok_operator.rehearsal.judge.figures import FIGURES

FORMAT: Final = 1
FIRST_SHOWN: Final = DIFFERENCES
_LOSERS: Final = {EffectVerdict.WORSE: 1, EffectVerdict.BETTER: 0}
_LACKS: Final = (EffectVerdict.UNDECIDED, EffectVerdict.INCOMPLETE)
_NO_EFFECT: Final = (*_LACKS, EffectVerdict.NOT_COMPARABLE)

_FAILED: Final = "failed runs"
"""A name among those of the figures. Its value is 1 for a failed run, else 0, and it is tested
together with the figures.
"""

_Values = dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run that is over, whether it passed, failed or died."""

    pair: int
    arm: str
    folder: str
    """Its path, relative to the folder of the comparison."""
    facts: RunFacts
    seconds: float
    figures: Mapping[str, float | None]
    failures: tuple[str, ...]
    """Why the run broke off, if it did, and each expectation that didn't hold."""
    died: bool = False
    """Whether the run broke off, so that its figures cover only a part of it."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """Why a figure's value is known only in part, by the figure's name."""

    @property
    def passed(self) -> bool:
        return not self.failures


@dataclass(frozen=True, slots=True)
class Comparison:
    plan: ComparisonPlan
    runs: tuple[PlayedRun, ...]
    effects: tuple[Effect, ...]
    explored: tuple[Effect, ...]
    """The effects on figures that were first named after runs had been seen."""
    fail_if: tuple[FailOutcome, ...]
    checks: tuple[FairnessCheck, ...]
    differs: tuple[WhatDiffers, ...]
    warm_ups: tuple[PlayedRun, ...] = ()
    """The warm-up runs. They don't count."""
    interrupted: bool = False
    loser: int | None = None
    """The number of the arm whose runs fail more often, beyond chance."""

    @property
    def complete(self) -> bool:
        return len(self.runs) == 2 * self.plan.runs

    @property
    def mostly(self) -> tuple[int, ...]:
        """The numbers of the arms that fail in more than half of their runs."""
        return tuple(n for n in (0, 1) if 2 * len(self.failed_runs(n)) > len(self.of_arm(n)))

    @property
    def fails(self) -> bool:
        """Whether the job should fail: an arm fails in most of its runs, or more often than the
        other beyond chance; or a condition holds. A single failed run may be chance.
        """
        lost = self.loser is not None or bool(self.mostly)
        return lost or any(each.holds for each in self.fail_if)

    @property
    def undecided(self) -> bool:
        """Whether a condition has no answer, or nothing could be compared, and nothing fails."""
        nothing = not any(effect.pairs for effect in self.effects)
        return not self.fails and (nothing or not all(each.decided for each in self.fail_if))

    @property
    def inconclusive(self) -> bool:
        """Whether the comparison shows nothing: it doesn't fail, and no figure has a verdict."""
        verdicts = {effect.verdict for effect in self.effects}
        return self.undecided or (not self.fails and verdicts.issubset(_NO_EFFECT))

    def of_arm(self, number: int) -> list[PlayedRun]:
        name = self.plan.arms[number].name
        return [run for run in self.runs if run.arm == name]

    def failed_runs(self, number: int) -> list[PlayedRun]:
        return [run for run in self.of_arm(number) if not run.passed]

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        return "; ".join(part for part in (self.failures_in_words, self._effects_in_words) if part)

    @property
    def failures_in_words(self) -> str:
        """How many runs of each arm failed, and whether that is beyond chance; empty if none
        failed.
        """
        names, failed = [arm.name for arm in self.plan.arms], [*map(self.failed_runs, (0, 1))]
        counts = [
            f"{name} failed in {len(failed[n])} of {len(self.of_arm(n))} runs"
            for n, name in enumerate(names)
        ]
        if not any(failed):
            return ""
        if self.loser is not None:
            return f"{names[1 - self.loser]} wins: {', '.join(counts)}"
        chance = "(a difference not beyond chance)"
        if not self.mostly:
            return f"{', '.join(counts[n] for n in (0, 1) if failed[n])} {chance}"
        said = ", ".join(counts)
        if len(self.mostly) == len(names):
            return f"both arms fail: {said}"
        return f"{names[self.mostly[0]]} fails: {said} {chance}"

    @property
    def _effects_in_words(self) -> str:
        named = [(verdict, self._named(verdict)) for verdict in DIFFERENCES]
        parts = [part for _, part in named if part]
        if parts:
            verb = "" if parts[0].startswith(EffectVerdict.DIFFERS) else "is "
            parts[0] = f"{self.plan.arms[1].name} {verb}{parts[0]}"
        elif any(effect.verdict not in _NO_EFFECT for effect in self.effects):
            parts = [EffectVerdict.NONE_SEEN.value]
        elif undecided := [e for e in self.effects if e.verdict is EffectVerdict.UNDECIDED]:
            return f"{EffectVerdict.UNDECIDED.value}: {undecided[0].reason}"
        elif not any(effect.verdict is EffectVerdict.INCOMPLETE for effect in self.effects):
            return "nothing could be compared"
        return "; ".join([*parts, *(part for each in _LACKS if (part := self._named(each)))])

    def _named(self, verdict: EffectVerdict) -> str:
        names = [effect.figure for effect in self.effects if effect.verdict is verdict]
        return f"{verdict.value} in {names_in_words(names, most=3)}" if names else ""


def compared(
    plan: ComparisonPlan,
    runs: Sequence[PlayedRun],
    *,
    warm_ups: Sequence[PlayedRun] = (),
    interrupted: bool = False,
) -> Comparison:
    """Computes the comparison from the runs that have been played so far."""
    by_arm = [{run.pair: run for run in runs if run.arm == arm.name} for arm in plan.arms]
    facts = [{pair: run.facts for pair, run in found.items()} for found in by_arm]
    # A pair of which only one run is over is left out.
    pairs = [n for n in range(1, plan.runs + 1) if all(n in found for found in by_arm)]
    both = _Both([found[n] for n in pairs] for found in by_arm)
    *effects, failed = _effects(plan, both)
    return Comparison(
        plan=plan,
        runs=tuple(runs),
        effects=tuple(effects),
        explored=tuple(_explored(plan, both)),
        fail_if=tuple(_conditions(plan, both, effects)),
        checks=tuple(fairness_checks(plan, *facts)),
        differs=tuple(what_differs(plan, *facts)),
        warm_ups=tuple(warm_ups),
        interrupted=interrupted,
        loser=_LOSERS.get(failed.verdict),
    )


class _Both:
    """The runs of both arms, only of pairs in which both have been played."""

    def __init__(self, arms: Iterable[Sequence[PlayedRun]]) -> None:
        self._a, self._b = arms

    def values(self, figures: Iterable[str]) -> tuple[_Values, _Values]:
        """Returns A's and B's values by figure. Of a run that died, only whether it
        failed is used.
        """
        names = [*figures]
        a, b = (
            {name: [None if r.died else r.figures.get(name) for r in runs] for name in names}
            | {_FAILED: [float(not r.passed) for r in runs]}
            for runs in (self._a, self._b)
        )
        return a, b

    @property
    def died(self) -> int:
        """The number of pairs in which both runs died."""
        return sum(a.died and b.died for a, b in zip(self._a, self._b, strict=True))

    def incomplete(self, figure: str) -> str:
        """In how many runs the figure is incomplete, and why in the first; empty if it is
        complete.
        """
        every = [run for run in (*self._a, *self._b) if not run.died]
        reasons = [run.incomplete[figure] for run in every if figure in run.incomplete]
        return f"in {len(reasons)} of {len(every)} runs: {reasons[0]}" if reasons else ""


def _effects(plan: ComparisonPlan, both: _Both) -> Iterator[Effect]:
    """Yields the effect on each figure, then the effect on how many runs fail."""
    one, other = both.values(plan.compared)
    named = {*plan.figures, *(each.figure for each in plan.fail_if)}
    for figure in plan.compared:
        nothing = all(v is None for v in (*one[figure], *other[figure]))
        if nothing and figure not in named:
            del one[figure], other[figure]  # such as the cost where nothing has a price
    known, order = {name for name in one if not both.incomplete(name)}, [*one]
    found = {effect.figure: effect for effect in _compared(plan, one, other, known)}
    for name in order:
        yield found.get(name) or _of_a_part(name, one[name], other[name], both.incomplete(name))


def _compared(
    plan: ComparisonPlan, a: _Values, b: _Values, names: Collection[str]
) -> Iterator[Effect]:
    yield from compare_figures(
        {name: values for name, values in a.items() if name in names},
        {name: values for name, values in b.items() if name in names},
        lower_is_better={name: name == _FAILED or FIGURES[name].lower_is_better for name in names},
        first={each.figure for each in plan.fail_if},
        decided={name for name in names if name == _FAILED or FIGURES[name].decisions},
    )


def _of_a_part(name: str, a: Sequence[float | None], b: Sequence[float | None], why: str) -> Effect:
    """Returns an effect without a verdict, for a figure that some runs know only in part."""
    known = [[value for value in values if value is not None] for values in (a, b)]
    one, other = (fmean(values) if values else None for values in known)
    return Effect(name, a=one, b=other, verdict=EffectVerdict.INCOMPLETE, reason=why)


def _explored(plan: ComparisonPlan, both: _Both) -> Iterator[Effect]:
    """Yields the effect on each explored figure, tested alone, without a verdict."""
    for name in plan.explored:
        one, other = both.values([name])
        why = both.incomplete(name)
        if why:
            yield _of_a_part(name, one[name], other[name], why)
            continue
        for effect in _compared(plan, one, other, [name]):
            if effect.verdict is EffectVerdict.NOT_COMPARABLE:
                yield effect
            else:
                yield replace(
                    effect,
                    verdict=EffectVerdict.EXPLORED,
                    smallest=None,
                    smallest_less=None,
                    reason="",
                )


def _conditions(
    plan: ComparisonPlan, both: _Both, effects: Sequence[Effect]
) -> Iterator[FailOutcome]:
    by_figure = {effect.figure: effect for effect in effects}
    bounds = {bound_of(each) for each in plan.fail_if}
    complete = {bound for bound in bounds if not both.incomplete(bound.figure)}
    values = both.values({bound.figure for bound in complete})
    beside = against_bounds(*values, complete)
    for each in plan.fail_if:
        yield judged(each, by_figure.get(each.figure), beside, both_died=both.died)
    for each in plan.explored_conditions:
        why = "runs had been seen before it was given; give it with a new --output"
        yield FailOutcome(each, FailAnswer.EXPLORED, why)


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Returns the content of comparison.json."""
    plan = found.plan
    return {
        "format": FORMAT,
        "name": plan.name,
        "verdict": found.headline,
        "fails": found.fails,
        "undecided": found.undecided,
        "complete": found.complete,
        "pairs": plan.runs,
        "seed": plan.seed,
        "orderSeed": plan.order_seed,
        "arms": [
            {
                "name": arm.name,
                "file": arm.file,
                "digest": arm.digest,
                "failedRuns": len(found.failed_runs(number)),
            }
            for number, arm in enumerate(plan.arms)
        ],
        "effects": [_effect_json(effect) for effect in found.effects],
        "explored": [_effect_json(effect) for effect in found.explored],
        "failIf": [
            {
                "condition": each.condition.text,
                "holds": each.holds,
                "answer": each.answer.value,
                "reason": each.reason,
            }
            for each in found.fail_if
        ],
        "fairness": [
            {"what": each.what, "held": each.held, "said": each.said} for each in found.checks
        ],
        "differs": [{"what": each.what, "a": each.a, "b": each.b} for each in found.differs],
        "runs": [_run_json(run, [*plan.compared, *plan.explored]) for run in found.runs],
        "warmUps": [_run_json(run, plan.compared) for run in found.warm_ups],
    }


def _effect_json(effect: Effect) -> dict[str, Any]:
    values = {name: getattr(effect, name) for name in Effect.__slots__}
    rounded = {k: round(v, 6) if isinstance(v, float) else v for k, v in values.items()}
    return {**rounded, "verdict": effect.verdict.value}


def _run_json(run: PlayedRun, figures: Sequence[str]) -> dict[str, Any]:
    return {
        "pair": run.pair,
        "arm": run.arm,
        "folder": run.folder,
        "seed": run.facts.seed,
        "passed": run.passed,
        "died": run.died,
        "failures": list(run.failures),
        "seconds": run.seconds,
        "othersShare": run.facts.others,
        "busy": run.facts.busy,
        "repeated": run.facts.repeated,
        "figures": {name: run.figures.get(name) for name in figures},
        "incomplete": {name: why for name, why in run.incomplete.items() if name in figures},
    }
