"""The result of a comparison: its runs, the effect of each arm on each figure, and the verdict.

    ComparisonPlan, PlayedRun of each  --compared-->  Comparison  --comparison_json-->  the file

The same runs always give the same result. Page and summary only show it.
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
from kwok_operator.comparison.plan import ComparisonArm, ComparisonPlan
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
_LACKS: Final = (EffectVerdict.UNDECIDED, EffectVerdict.INCOMPLETE)
_NO_EFFECT: Final = (*_LACKS, EffectVerdict.NOT_COMPARABLE)

_FAILED: Final = "failed runs"
"""The name of a pseudo-figure that is tested with the real ones: 1 for a failed run, else 0."""

_Values = dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run that is over: it passed, failed or died."""

    pair: int
    arm: str
    folder: str
    """The path of the run's folder, relative to the comparison's folder."""
    facts: RunFacts
    seconds: float
    figures: Mapping[str, float | None]
    failures: tuple[str, ...]
    """Why the run broke off, if it did, and each expectation that was not met."""
    died: bool = False
    """Whether the run broke off, so that its figures cover only a part of it."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """Why a figure's value covers only a part of the run, by the figure's name."""

    @property
    def passed(self) -> bool:
        return not self.failures


@dataclass(frozen=True, slots=True)
class Contrast:
    """The comparison of one arm with the first."""

    arm: ComparisonArm
    effects: tuple[Effect, ...]
    explored: tuple[Effect, ...]
    """The effects on figures that were added after runs had been seen."""
    fail_if: tuple[FailOutcome, ...]
    differs: tuple[WhatDiffers, ...]
    failing: EffectVerdict
    """The verdict on how often the arm's runs fail, compared with the first arm's."""

    @property
    def has_differences(self) -> bool:
        return any(effect.verdict in DIFFERENCES for effect in self.effects)

    @property
    def in_words(self) -> str:
        """The verdict on the figures, in words; with the arm's name if there is a difference."""
        named = [self._named(verdict) for verdict in DIFFERENCES]
        parts = [part for part in named if part]
        if parts:
            verb = "" if parts[0].startswith(EffectVerdict.DIFFERS) else "is "
            parts[0] = f"{self.arm.name} {verb}{parts[0]}"
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


@dataclass(frozen=True, slots=True)
class Comparison:
    plan: ComparisonPlan
    runs: tuple[PlayedRun, ...]
    contrasts: tuple[Contrast, ...]
    """The comparison of each further arm with the first."""
    checks: tuple[FairnessCheck, ...]
    warm_ups: tuple[PlayedRun, ...] = ()
    """The warm-up runs, which don't count."""
    interrupted: bool = False

    @property
    def effects(self) -> tuple[Effect, ...]:
        return tuple(effect for each in self.contrasts for effect in each.effects)

    @property
    def explored(self) -> tuple[Effect, ...]:
        return tuple(effect for each in self.contrasts for effect in each.explored)

    @property
    def fail_if(self) -> tuple[FailOutcome, ...]:
        return tuple(outcome for each in self.contrasts for outcome in each.fail_if)

    @property
    def by_figure(self) -> dict[str, list[Effect | None]]:
        """By figure, the effect for each further arm, in the order of the arms; None for an arm
        whose pairs lack the figure.
        """
        arms = [{effect.figure: effect for effect in each.effects} for each in self.contrasts]
        names = dict.fromkeys(effect.figure for effect in self.effects)
        return {name: [each.get(name) for each in arms] for name in names}

    def labels(self, contrast: Contrast) -> tuple[str, str]:
        """The column headings of a contrast: A and B; with more than two arms, their names."""
        return (
            ("A", "B") if len(self.contrasts) == 1 else (self.plan.arms[0].name, contrast.arm.name)
        )

    @property
    def complete(self) -> bool:
        return len(self.runs) == len(self.plan.arms) * self.plan.runs

    @property
    def losers(self) -> tuple[int, ...]:
        """The indices of the arms that fail more often, beyond chance: each arm that fails more
        often than the first; and the first arm, if it fails more often than another.
        """
        verdicts = [each.failing for each in self.contrasts]
        first = (0,) if EffectVerdict.BETTER in verdicts else ()
        return (*first, *(n for n, v in enumerate(verdicts, 1) if v is EffectVerdict.WORSE))

    @property
    def mostly(self) -> tuple[int, ...]:
        """The numbers of the arms of which more than half of the runs fail."""
        every = range(len(self.plan.arms))
        return tuple(n for n in every if 2 * len(self.failed_runs(n)) > len(self.of_arm(n)))

    @property
    def fails(self) -> bool:
        """Whether the CI job should fail: more than half of an arm's runs fail; or, of two arms
        that are compared, one fails more often, beyond chance; or a condition holds. A single
        failed run may be chance.
        """
        return bool(self.losers or self.mostly) or any(each.holds for each in self.fail_if)

    @property
    def undecided(self) -> bool:
        """Whether the comparison doesn't fail, but leaves a condition undecided, or has no pair of
        values to compare.
        """
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
        """The verdict, in one sentence."""
        return "; ".join(part for part in (self.failures_in_words, self._effects_in_words) if part)

    @property
    def failures_in_words(self) -> str:
        """How many runs of each arm failed, in words, and whether that is beyond chance; empty if
        none failed.
        """
        names = [arm.name for arm in self.plan.arms]
        failed = [self.failed_runs(n) for n in range(len(names))]
        counts = [
            f"{name} failed in {len(failed[n])} of {len(self.of_arm(n))} runs"
            for n, name in enumerate(names)
        ]
        if not any(failed):
            return ""
        every = ", ".join(counts)
        if self.losers and len(names) == 2:
            return f"{names[1 - self.losers[0]]} wins: {every}"
        if self.losers:
            lost = names_in_words([names[n] for n in self.losers])
            return f"{lost} failed more often, beyond chance: {every}"
        chance = "(a difference not beyond chance)"
        if not self.mostly:
            return f"{', '.join(counts[n] for n, runs in enumerate(failed) if runs)} {chance}"
        if len(self.mostly) == len(names):
            return f"{'both' if len(names) == 2 else 'all'} arms fail: {every}"
        fail = "fails" if len(self.mostly) == 1 else "fail"
        return f"{names_in_words([names[n] for n in self.mostly])} {fail}: {every} {chance}"

    @property
    def _effects_in_words(self) -> str:
        texts = {each.in_words for each in self.contrasts}
        if len(texts) == 1:
            return texts.pop()
        return "; ".join(
            each.in_words if each.has_differences else f"{each.arm.name}: {each.in_words}"
            for each in self.contrasts
        )


def differences_first(effects: Iterable[Effect]) -> list[Effect]:
    order = {verdict: place for place, verdict in enumerate(DIFFERENCES)}
    return sorted(effects, key=lambda each: order.get(each.verdict, len(order)))


def compared(
    plan: ComparisonPlan,
    runs: Sequence[PlayedRun],
    *,
    warm_ups: Sequence[PlayedRun] = (),
    interrupted: bool = False,
) -> Comparison:
    """Computes the comparison from the runs that have been played so far."""
    by_arm = [{run.pair: run for run in runs if run.arm == arm.name} for arm in plan.arms]
    facts = [{pair: run.facts for pair, run in by_pair.items()} for by_pair in by_arm]
    lengths = [[run.seconds for run in by_pair.values() if not run.died] for by_pair in by_arm]

    def contrast(number: int) -> Contrast:
        arm, one, other = plan.arms[number], by_arm[0], by_arm[number]
        # A pair with only one run that is over is left out.
        pairs = [n for n in range(1, plan.runs + 1) if n in one and n in other]
        both = _Both(plan, arm, [one[n] for n in pairs], [other[n] for n in pairs])
        *effects, failed = both.effects()
        return Contrast(
            arm=arm,
            effects=tuple(effects),
            explored=tuple(both.explored()),
            fail_if=tuple(both.conditions(effects)),
            differs=tuple(what_differs(plan.arms[0], arm, facts[0], facts[number])),
            failing=failed.verdict,
        )

    return Comparison(
        plan=plan,
        runs=tuple(runs),
        contrasts=tuple(map(contrast, range(1, len(plan.arms)))),
        checks=tuple(fairness_checks(plan, facts, lengths=lengths)),
        warm_ups=tuple(warm_ups),
        interrupted=interrupted,
    )


class _Both:
    """The runs of two arms, the first and another one: only of pairs whose runs are both over."""

    def __init__(
        self,
        plan: ComparisonPlan,
        arm: ComparisonArm,
        a: Sequence[PlayedRun],
        b: Sequence[PlayedRun],
    ) -> None:
        self._plan, self._arm, self._a, self._b = plan, arm, a, b
        self._conditions = [each for each in plan.fail_if if each.arm in ("", arm.name)]

    def effects(self) -> Iterator[Effect]:
        """Yields the effect on each figure, then the effect on the number of failed runs."""
        plan = self._plan
        one, other = self._values(plan.compared)
        named = {*plan.figures, *(each.figure for each in plan.fail_if)}
        for figure in plan.compared:
            nothing = all(v is None for v in (*one[figure], *other[figure]))
            if nothing and figure not in named:
                del one[figure], other[figure]  # such as the cost, if nothing has a price
        known, order = {name for name in one if not self._incomplete(name)}, [*one]
        complete = {effect.figure: effect for effect in self._compared(one, other, known)}
        for name in order:
            yield complete.get(name) or self._of_a_part(name, one[name], other[name])

    def explored(self) -> Iterator[Effect]:
        """Yields the effect on each figure that the user added only after runs could be seen. These
        effects get no verdict.
        """
        for name in self._plan.explored:
            one, other = self._values([name])
            if self._incomplete(name):
                yield self._of_a_part(name, one[name], other[name])
                continue
            for effect in self._compared(one, other, [name]):
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

    def conditions(self, effects: Sequence[Effect]) -> Iterator[FailOutcome]:
        by_figure = {effect.figure: effect for effect in effects}
        bounds = {bound_of(each) for each in self._conditions}
        complete = {bound for bound in bounds if not self._incomplete(bound.figure)}
        values = self._values({bound.figure for bound in complete})
        beside = against_bounds(*values, complete, rivals=self._plan.rivals)
        died = sum(a.died and b.died for a, b in zip(self._a, self._b, strict=True))
        name = self._arm.name if self._plan.rivals > 1 else ""
        for each in self._conditions:
            outcome = judged(each, by_figure.get(each.figure), beside, both_died=died)
            yield replace(outcome, arm=name)
        for each in self._plan.explored_conditions:
            if each.arm in ("", self._arm.name):
                why = "runs had been seen before it was given; give it with a new --output"
                yield FailOutcome(each, FailAnswer.EXPLORED, why, name)

    def _values(self, figures: Iterable[str]) -> tuple[_Values, _Values]:
        """Returns the values of both arms by figure. Of a run that died, only `failed runs` has a
        value.
        """
        names = [*figures]
        a, b = (
            {name: [None if r.died else r.figures.get(name) for r in runs] for name in names}
            | {_FAILED: [float(not r.passed) for r in runs]}
            for runs in (self._a, self._b)
        )
        return a, b

    def _compared(self, a: _Values, b: _Values, names: Collection[str]) -> list[Effect]:
        better = {name: name == _FAILED or FIGURES[name].lower_is_better for name in names}
        return compare_figures(
            {name: values for name, values in a.items() if name in names},
            {name: values for name, values in b.items() if name in names},
            lower_is_better=better,
            first={each.figure for each in self._conditions},
            decided={name for name in names if name == _FAILED or FIGURES[name].decisions},
            rivals=self._plan.rivals,
        )

    def _incomplete(self, figure: str) -> str:
        """Returns in how many runs the figure is incomplete, and why in the first of them; empty if
        in none.
        """
        every = [run for run in (*self._a, *self._b) if not run.died]
        reasons = [run.incomplete[figure] for run in every if figure in run.incomplete]
        return f"in {len(reasons)} of {len(every)} runs: {reasons[0]}" if reasons else ""

    def _of_a_part(self, name: str, a: Sequence[float | None], b: Sequence[float | None]) -> Effect:
        """Returns an effect without a verdict, for a figure that is incomplete in some runs."""
        known = [[value for value in values if value is not None] for values in (a, b)]
        one, other = (fmean(values) if values else None for values in known)
        why = self._incomplete(name)
        return Effect(name, a=one, b=other, verdict=EffectVerdict.INCOMPLETE, reason=why)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Returns the content of comparison.json. With more than two arms, each part names its arm."""
    plan = comparison.plan
    parts = [({} if plan.rivals == 1 else {"arm": c.arm.name}, c) for c in comparison.contrasts]
    return {
        "format": FORMAT,
        "name": plan.name,
        "verdict": comparison.headline,
        "fails": comparison.fails,
        "undecided": comparison.undecided,
        "complete": comparison.complete,
        "pairs": plan.runs,
        "seed": plan.seed,
        "orderSeed": plan.order_seed,
        "arms": [
            {
                "name": arm.name,
                "file": arm.file,
                "digest": arm.digest,
                "failedRuns": len(comparison.failed_runs(number)),
            }
            for number, arm in enumerate(plan.arms)
        ],
        "effects": [arm | _effect_json(effect) for arm, each in parts for effect in each.effects],
        "explored": [arm | _effect_json(effect) for arm, each in parts for effect in each.explored],
        "failIf": [
            {
                **arm,
                "condition": outcome.condition.text,
                "holds": outcome.holds,
                "answer": outcome.answer.value,
                "reason": outcome.reason,
            }
            for arm, each in parts
            for outcome in each.fail_if
        ],
        "fairness": [
            {"what": each.what, "held": each.held, "said": each.said} for each in comparison.checks
        ],
        "differs": [
            {**arm, "what": fact.what, "a": fact.a, "b": fact.b}
            for arm, each in parts
            for fact in each.differs
        ],
        "runs": [_run_json(run, [*plan.compared, *plan.explored]) for run in comparison.runs],
        "warmUps": [_run_json(run, plan.compared) for run in comparison.warm_ups],
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
