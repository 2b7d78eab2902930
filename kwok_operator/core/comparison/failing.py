"""What fails a comparison: `--fail-if 'pendingSeconds.p95 worse than 10%'`.

    text --fail_condition--> FailCondition;  with the effects --judged--> FailOutcome

A condition holds where the difference is there beyond chance, and the measured one is larger than
the bound. So it isn't noise that fails a job.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kwok_operator.core.comparison.statistics import Effect, EffectVerdict
from kwok_operator.core.rehearsal.figures import FIGURES, in_words
from kwok_operator.core.words import nearest, shown
from kwok_operator.errors import SettingsError, one_line

_FORM: Final = re.compile(
    r"(?P<figure>[A-Za-z0-9.]+) (?P<way>worse|more|less)"
    r"( than (?P<bound>[0-9]{1,12}(\.[0-9]{1,9})?) ?(?P<unit>%|ms|s|m|h)?)?"
)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_REMEDY: Final = "write FIGURE worse than 10%, or with more or less, or with a number"
_LOW: Final = (
    "pendingSeconds.",
    "startSeconds.",
    "gangs.completionSeconds.",
    "pods.pending",
    "pods.failed",
    "pods.gone",
    "nodes.notReady",
    "nodeHours",
    "cost",
    "churn.",
    "evictions",
    "restarts",
    "disruptions.",
)
_HIGH: Final = ("pods.running", "pods.succeeded", "utilisation.")


def lower_is_better(figure: str) -> bool | None:
    """None where neither more nor less is better, as of nodes: it depends on what is wanted."""
    if figure.startswith(_LOW):
        return True
    return False if figure.startswith(_HIGH) else None


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


@dataclass(frozen=True, slots=True)
class FailOutcome:
    condition: FailCondition
    holds: bool
    reason: str


def fail_condition(text: str) -> FailCondition:
    """The condition in a text. Raises SettingsError: value, remedy."""
    flag, found = "--fail-if", _FORM.fullmatch(one_line(text))
    if found is None:
        raise SettingsError(f"{flag}: {shown(text)} can't be read; {_REMEDY}")
    figure, way = found["figure"], FailWay(found["way"])
    if figure not in FIGURES:
        near = nearest(figure, FIGURES)
        hint = f"did you mean {near}?" if near else "docs/rehearsals.md has all"
        raise SettingsError(f"{flag}: {shown(figure)} is no figure; {hint}")
    if way is FailWay.WORSE and lower_is_better(figure) is None:
        raise SettingsError(
            f"{flag}: {figure} has no worse, as neither more nor less of it is better;"
            " write more than or less than"
        )
    bound, unit = float(found["bound"] or 0), found["unit"]
    relative = unit == "%" or not found["bound"]
    if not relative and unit is not None and FIGURES[figure].unit != "s":
        raise SettingsError(f"{flag}: {shown(text)}: {figure} is no time; write a number or a %")
    scaled = bound / 100 if relative else bound * _UNITS.get(unit or "", 1.0)
    return FailCondition(one_line(text), figure, way, scaled, relative)


def judged(condition: FailCondition, effects: Mapping[str, Effect]) -> FailOutcome:
    """Whether it holds. What can't be told holds: nobody has seen that all is well."""
    effect = effects.get(condition.figure)
    if effect is None or effect.verdict is EffectVerdict.NOT_COMPARABLE:
        why = effect.reason if effect else "no run has it"
        return FailOutcome(condition, True, f"it can't be told: {why}")
    found = _of_pairs(condition, effect)
    if not found.holds and (unseen := _unseen(effect)):
        return FailOutcome(condition, True, f"it can't be told: {unseen}")
    return found


def _of_pairs(condition: FailCondition, effect: Effect) -> FailOutcome:
    """As the pairs say that have it on both sides."""
    if effect.verdict is EffectVerdict.NONE_SEEN:
        return FailOutcome(condition, False, f"no difference seen{_blind(condition, effect)}")
    moved = effect.difference if effect.change is None else effect.change
    more = (moved or 0.0) > 0
    goes = {
        FailWay.WORSE: effect.verdict is EffectVerdict.WORSE,
        FailWay.MORE: more,
        FailWay.LESS: not more,
    }[condition.way]
    far = _far(condition, effect, 1 if more else -1)
    said = f"{effect.verdict.value}, {_size(condition, far)}"
    return FailOutcome(condition, goes and far > condition.bound, said)


def _far(condition: FailCondition, effect: Effect, sign: int) -> float:
    """In the direction of `sign`. A few pairs that are much larger than the others can turn the
    difference of the means round: then it is below 0."""
    difference = (effect.difference or 0.0) * sign
    if not condition.relative:
        return difference
    if effect.change is not None:
        return abs(effect.change)
    # Of nothing, anything is more than any share.
    return difference / abs(effect.a) if effect.a else math.inf


def _size(condition: FailCondition, far: float) -> str:
    if math.isinf(far):
        return "from nothing to something"
    if condition.relative:
        return f"by {far * 100:.1f} %"
    return f"by {in_words(far, FIGURES[condition.figure].unit)}"


def _blind(condition: FailCondition, effect: Effect) -> str:
    """A warning, where these runs could have missed what is asked for."""
    if not condition.relative or effect.change is None or effect.smallest is None:
        return ""
    if effect.smallest > max(condition.bound, 0.0) > 0:
        return f"; one below {effect.smallest * 100:.1f} % could have been missed"
    return ""


def _unseen(effect: Effect) -> str:
    """Why those pairs don't say it all."""
    if effect.lacking:
        of = effect.lacking + effect.pairs
        return f"in {effect.lacking} of {of} pairs only one of both runs has it"
    # What is the same in all pairs needs no test.
    if effect.smallest is None and (effect.low or effect.high):
        return f"{effect.pairs} pairs can't show any; ask for more --runs, or fewer --figures"
    return ""
