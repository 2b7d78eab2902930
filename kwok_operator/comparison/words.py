"""Effects in words, such as `+12.3 %` or `from -2.1 % to +0.4 %`, for all outputs."""

from collections.abc import Iterable
from typing import Final

from kwok_operator.comparison.statistics import Effect, EffectVerdict
from kwok_operator.rehearsal.judge.figures import FIGURES, in_words

_WITHOUT: Final = (
    EffectVerdict.NOT_COMPARABLE,
    EffectVerdict.INCOMPLETE,
    EffectVerdict.EXPLORED,
)


def amount(effect: Effect, value: float | None) -> str:
    """Returns a value, such as the mean of an arm, with the unit of the effect's figure."""
    return in_words(value, FIGURES[effect.figure].unit)


def change(effect: Effect) -> str:
    value = effect.difference if effect.change is None else effect.change
    return "none" if value is None else _signed(effect, value)


def interval(effect: Effect) -> str:
    if effect.low is None or effect.high is None:
        return "none"
    return f"{_signed(effect, effect.low)} to {_signed(effect, effect.high)}"


def smallest(effect: Effect) -> str:
    """Returns in words the smallest decrease and increase that this comparison could have
    reported.
    """
    if effect.smallest is None:
        return "" if effect.verdict in _WITHOUT else "too few runs to see any"
    less = "no decrease"
    if effect.smallest_less is not None:
        less = _signed(effect, effect.smallest_less)
    return f"{less} or {_signed(effect, effect.smallest)}" if effect.smallest else "any"


def of_first_arm(effects: Iterable[Effect | None]) -> str:
    """Returns in words the first arm's mean of one figure, which is the same in all `effects` that
    have it; `none` if no effect does.
    """
    return next((amount(each, each.a) for each in effects if each and each.a is not None), "none")


def in_a_cell(effect: Effect | None) -> str:
    """Returns the change and the verdict, for a table with a column for each arm."""
    if effect is None:
        return ""
    return f"{change(effect)}, {effect.verdict.value}" if effect.pairs else effect.verdict.value


def size(effect: Effect, value: float) -> str:
    """Returns a change in percent, without the sign; or, if the effect has none, a difference with
    its unit.
    """
    return _signed(effect, value).lstrip("+-")


def verdict(effect: Effect) -> str:
    reason = f": {effect.reason}" if effect.reason else ""
    return f"{effect.verdict.value}{reason}"


def _signed(effect: Effect, value: float) -> str:
    """Returns a change in percent, with the sign; or, if the effect has none, a difference with its
    unit.
    """
    if effect.change is not None:
        percent = value * 100
        digits = 1 if abs(percent) < 1_000 else 0
        return "0 %" if abs(percent) < 0.05 else f"{percent:+,.{digits}f} %"
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return sign + in_words(abs(value), FIGURES[effect.figure].unit)
