"""What came of a comparison: its runs, the effect on each figure, and who has won.

    ComparisonPlan, PlayedRun of each  --compared-->  Comparison  --comparison_json-->  the file

The same runs give the same comparison. Page and summary show what stands here, and compute nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.core.comparison.failing import FailOutcome, judged, lower_is_better
from kwok_operator.core.comparison.fairness import (
    FairnessCheck,
    RunFacts,
    WhatDiffers,
    fairness_checks,
    what_differs,
)
from kwok_operator.core.comparison.plan import ComparisonPlan
from kwok_operator.core.comparison.statistics import Effect, EffectVerdict, compare_figures
from kwok_operator.core.words import names_in_words

FORMAT: Final = 1
FIRST_SHOWN: Final = (EffectVerdict.WORSE, EffectVerdict.BETTER, EffectVerdict.DIFFERS)


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run that has come to its end, however that was."""

    pair: int
    arm: str
    folder: str
    """Relative to that of the comparison."""
    facts: RunFacts
    seconds: float
    figures: Mapping[str, float | None]
    failures: tuple[str, ...]
    """What was expected and didn't hold, and why it broke off."""

    @property
    def passed(self) -> bool:
        return not self.failures


@dataclass(frozen=True, slots=True)
class Comparison:
    plan: ComparisonPlan
    runs: tuple[PlayedRun, ...]
    effects: tuple[Effect, ...]
    fail_if: tuple[FailOutcome, ...]
    checks: tuple[FairnessCheck, ...]
    differs: tuple[WhatDiffers, ...]
    warm_ups: tuple[PlayedRun, ...] = ()
    """They don't count."""
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        return len(self.runs) == 2 * self.plan.runs

    @property
    def fails(self) -> bool:
        """Whether a job should fail."""
        return any(each.holds for each in self.fail_if) or any(self.failed_runs(n) for n in (0, 1))

    def of_arm(self, number: int) -> list[PlayedRun]:
        name = self.plan.arms[number].name
        return [run for run in self.runs if run.arm == name]

    def failed_runs(self, number: int) -> list[PlayedRun]:
        return [run for run in self.of_arm(number) if not run.passed]

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        a, b = (arm.name for arm in self.plan.arms)
        lost = [len(self.failed_runs(number)) for number in (0, 1)]
        if all(lost):
            return f"both fail: {a} in {lost[0]}, {b} in {lost[1]} of {self.plan.runs} runs"
        for number, (loser, winner) in enumerate(((a, b), (b, a))):
            if lost[number]:
                of = len(self.of_arm(number))
                return f"{winner} wins: {loser} fails in {lost[number]} of {of} runs"
        parts = [part for verdict in FIRST_SHOWN if (part := self._named(verdict))]
        if not parts:
            verdicts = {effect.verdict for effect in self.effects}
            looked = verdicts - {EffectVerdict.NOT_COMPARABLE}
            return "no difference seen" if looked else "nothing could be compared"
        verb = "" if parts[0].startswith(EffectVerdict.DIFFERS) else "is "
        return f"{b} {verb}{'; '.join(parts)}"

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
    """What the runs that there are say."""
    effects = tuple(_effects(plan, runs))
    by_figure = {effect.figure: effect for effect in effects}
    by_arm = [{run.pair: run.facts for run in runs if run.arm == arm.name} for arm in plan.arms]
    return Comparison(
        plan=plan,
        runs=tuple(runs),
        effects=effects,
        fail_if=tuple(judged(condition, by_figure) for condition in plan.fail_if),
        checks=tuple(fairness_checks(plan, *by_arm)),
        differs=tuple(what_differs(plan, *by_arm)),
        warm_ups=tuple(warm_ups),
        interrupted=interrupted,
    )


def _effects(plan: ComparisonPlan, runs: Sequence[PlayedRun]) -> Iterator[Effect]:
    of = {(run.arm, run.pair): run.figures for run in runs}

    names = [arm.name for arm in plan.arms]
    # Of a pair that is half played nothing is known yet.
    pairs = [n for n in range(1, plan.runs + 1) if all((name, n) in of for name in names)]

    def values(arm: str, figure: str) -> list[float | None]:
        return [of[arm, pair].get(figure) for pair in pairs]

    one, other = (
        {figure: values(arm.name, figure) for figure in plan.compared} for arm in plan.arms
    )
    asked = {*plan.figures, *(each.figure for each in plan.fail_if)}
    for figure in plan.compared:
        nothing = all(v is None for v in (*one[figure], *other[figure]))
        if nothing and figure not in asked:
            del one[figure], other[figure]  # such as the cost where nothing has a price
    better = {figure: lower_is_better(figure) for figure in plan.compared}
    first = {each.figure for each in plan.fail_if}
    yield from compare_figures(one, other, lower_is_better=better, first=first)


def comparison_json(found: Comparison) -> dict[str, Any]:
    """What comparison.json holds."""
    plan = found.plan
    return {
        "format": FORMAT,
        "name": plan.name,
        "verdict": found.headline,
        "fails": found.fails,
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
        "effects": [_effect_told(effect) for effect in found.effects],
        "failIf": [
            {"condition": each.condition.text, "holds": each.holds, "reason": each.reason}
            for each in found.fail_if
        ],
        "fairness": [
            {"what": each.what, "held": each.held, "said": each.said} for each in found.checks
        ],
        "differs": [{"what": each.what, "a": each.a, "b": each.b} for each in found.differs],
        "runs": [_run_told(run, plan.compared) for run in found.runs],
        "warmUps": [_run_told(run, plan.compared) for run in found.warm_ups],
    }


def _effect_told(effect: Effect) -> dict[str, Any]:
    told = {name: getattr(effect, name) for name in Effect.__slots__}
    rounded = {k: round(v, 6) if isinstance(v, float) else v for k, v in told.items()}
    return {**rounded, "verdict": effect.verdict.value}


def _run_told(run: PlayedRun, figures: Sequence[str]) -> dict[str, Any]:
    return {
        "pair": run.pair,
        "arm": run.arm,
        "folder": run.folder,
        "seed": run.facts.seed,
        "passed": run.passed,
        "failures": list(run.failures),
        "seconds": run.seconds,
        "othersShare": run.facts.others,
        "busy": run.facts.busy,
        "repeated": run.facts.repeated,
        "figures": {name: run.figures.get(name) for name in figures},
    }
