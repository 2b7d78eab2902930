"""Decides whether a comparison fails: `--fail-if 'pendingSeconds.p95 worse than 10%'`.

    text --fail_condition--> FailCondition;  with the effects and bounds --judged--> FailOutcome

A condition holds if the difference is larger than chance explains and, by a separate test, larger
than the condition's bound. If the true change equals the bound, that happens in at most 1 of 100
comparisons. A condition does not hold if the 95 % interval of the change ends before the bound.
Otherwise the runs are too noisy to decide. Pairs that lack the figure, as a run of them died, can't
show that the condition doesn't hold; the other pairs can show that it holds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kwok_operator.comparison import words
from kwok_operator.comparison.permutation import Bound, BoundTest
from kwok_operator.comparison.statistics import DIFFERENCES, Effect, EffectVerdict
from kwok_operator.errors import SettingsError, one_line
from kwok_operator.formats.words import nearest, shown
from kwok_operator.rehearsal.judge.figures import FIGURES

_FORM: Final = re.compile(
    r"(?P<figure>[A-Za-z0-9.]+) (?P<way>worse|more|less)"
    r"( than (?P<bound>[0-9]{1,12}(\.[0-9]{1,9})?) ?(?P<unit>%|ms|s|m|h)?)?"
    r"( in (?P<arm>.+))?"
)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_REMEDY: Final = (
    "write FIGURE worse than 10%, or with more or less, or with a number; in ARM may follow"
)
_UNKNOWN: Final = (
    EffectVerdict.NOT_COMPARABLE,
    EffectVerdict.INCOMPLETE,
    EffectVerdict.UNDECIDED,
)


class FailWay(StrEnum):
    WORSE = "worse"
    MORE = "more"
    LESS = "less"


@dataclass(frozen=True, slots=True)
class FailCondition:
    text: str
    figure: str
    way: FailWay
    bound: float = 0.0
    relative: bool = True
    arm: str = ""
    """The arm that the condition is about; any arm if it is empty."""


class FailAnswer(StrEnum):
    HOLDS = "holds"
    HOLDS_NOT = "does not hold"
    NOISY = "too noisy to tell"
    """The runs don't show on which side of the bound the change is."""
    UNDECIDED = "undecided"
    """There are too few pairs of runs, or some pairs lack the figure."""
    EXPLORED = "explored"
    """The condition was added after runs had been seen, so it is not decided."""


@dataclass(frozen=True, slots=True)
class FailOutcome:
    condition: FailCondition
    answer: FailAnswer
    reason: str
    arm: str = ""
    """The arm that the answer is about; empty in a comparison of two arms."""

    @property
    def text(self) -> str:
        """The condition's text, with the name of the arm for which it was decided."""
        named = self.condition.arm or not self.arm
        return self.condition.text if named else f"{self.condition.text} in {self.arm}"

    @property
    def holds(self) -> bool:
        return self.answer is FailAnswer.HOLDS

    @property
    def said(self) -> str:
        """The answer to whether the condition holds: `FAILS` if so, `not so`, or, if that is
        unknown, the answer in capitals, such as `UNDECIDED`.
        """
        known = {FailAnswer.HOLDS: "FAILS", FailAnswer.HOLDS_NOT: "not so"}
        return known.get(self.answer, self.answer.value.upper())

    @property
    def decided(self) -> bool:
        return self.answer in (FailAnswer.HOLDS, FailAnswer.HOLDS_NOT)


def fail_condition(text: str) -> FailCondition:
    """Parses a condition. Raises SettingsError with the value and the remedy."""
    flag = "--fail-if"
    match = _FORM.fullmatch(one_line(text))
    if match is None:
        raise SettingsError(f"{flag}: {shown(text)} can't be read; {_REMEDY}")
    figure, way = match["figure"], FailWay(match["way"])
    if figure not in FIGURES:
        near = nearest(figure, FIGURES)
        hint = f"did you mean {near}?" if near else "docs/rehearsals.md has all"
        raise SettingsError(f"{flag}: {shown(figure)} is no figure; {hint}")
    if way is FailWay.WORSE and FIGURES[figure].lower_is_better is None:
        raise SettingsError(
            f"{flag}: {figure} has no worse, as neither more nor less of it is better;"
            " write more than or less than"
        )
    bound, unit = float(match["bound"] or 0), match["unit"]
    relative = unit == "%" or not match["bound"]
    if not relative and unit is not None and FIGURES[figure].unit != "s":
        raise SettingsError(f"{flag}: {shown(text)}: {figure} is no time; write a number or a %")
    scaled = bound / 100 if relative else bound * _UNITS.get(unit or "", 1.0)
    condition = FailCondition(one_line(text), figure, way, scaled, relative, match["arm"] or "")
    most = "a share changes by less than 1" if FIGURES[figure].unit == "share" else ""
    if relative:
        most = "" if bound_of(condition).more else "nothing becomes less by 100 % or more"
    if most and scaled >= 1:
        raise SettingsError(f"{flag}: {shown(text)} can't come true: {most}; lower the bound")
    return condition


def bound_of(condition: FailCondition) -> Bound:
    """Returns the condition's limit, which the change is compared with."""
    worse = FIGURES[condition.figure].lower_is_better
    more = worse is True if condition.way is FailWay.WORSE else condition.way is FailWay.MORE
    return Bound(condition.figure, more, condition.bound, condition.relative)


def judged(
    condition: FailCondition,
    effect: Effect | None,
    beside: Mapping[Bound, BoundTest],
    *,
    both_died: int = 0,
) -> FailOutcome:
    """Decides whether the condition holds, as far as the runs show. `both_died` is the number of
    pairs in which both runs died.
    """
    bound, undecided = bound_of(condition), FailAnswer.UNDECIDED
    if effect is None:
        return FailOutcome(condition, undecided, "no run has it")
    lacking = effect.lacking + both_died
    lacks = f"in {lacking} of {lacking + effect.pairs} pairs a run lacks it"
    if bound not in beside or effect.verdict in _UNKNOWN:
        why = lacks if lacking else f"{condition.figure}: {words.verdict(effect)}"
        return FailOutcome(condition, undecided, why)
    moved = effect.difference if effect.change is None else effect.change
    goes_there = effect.verdict in DIFFERENCES and ((moved or 0.0) > 0) is bound.more
    detail = f"{words.change(effect)} ({words.interval(effect)})"
    if goes_there and (beside[bound].beyond or not condition.bound):
        detail += f"; {lacks}" if lacking else ""
        return FailOutcome(condition, FailAnswer.HOLDS, f"{effect.verdict.value}, {detail}")
    if lacking:
        return FailOutcome(condition, undecided, lacks)
    if condition.bound and not beside[bound].within:
        why = f"{detail}; more --runs or a quieter machine would narrow that"
        return FailOutcome(condition, FailAnswer.NOISY, why)
    if effect.verdict in DIFFERENCES:
        return FailOutcome(condition, FailAnswer.HOLDS_NOT, f"{effect.verdict.value}, {detail}")
    missed = "" if condition.bound else _missed(effect, bound)
    return FailOutcome(condition, FailAnswer.HOLDS_NOT, f"no difference seen, {detail}{missed}")


def _missed(effect: Effect, bound: Bound) -> str:
    """Returns a clause on how large a change these runs could have missed; empty if they could not
    have missed any.
    """
    smallest = effect.smallest if bound.more else effect.smallest_less
    way = "increase" if bound.more else "decrease"
    if not smallest:
        return "" if smallest == 0 else f"; any {way} could have been missed"
    return f"; {way}s below {words.size(effect, smallest)} could have been missed"
