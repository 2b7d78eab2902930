"""Effects as people read them: `+12.3 %`, `from -2.1 % to +0.4 %`. Page, summary, terminal."""

from kwok_operator.core.comparison.statistics import Effect, EffectVerdict
from kwok_operator.core.rehearsal.figures import FIGURES, in_words


def amount(effect: Effect, value: float | None) -> str:
    """A mean of an arm."""
    return in_words(value, FIGURES[effect.figure].unit)


def change(effect: Effect) -> str:
    value = effect.difference if effect.change is None else effect.change
    return "none" if value is None else _told(effect, value)


def interval(effect: Effect) -> str:
    if effect.low is None or effect.high is None:
        return "none"
    return f"{_told(effect, effect.low)} to {_told(effect, effect.high)}"


def smallest(effect: Effect) -> str:
    """What would have been seen, had it been there."""
    if effect.verdict is EffectVerdict.NOT_COMPARABLE:
        return ""
    if effect.smallest is None:
        return "too few runs to see any"
    return _told(effect, effect.smallest).lstrip("+")


def verdict(effect: Effect) -> str:
    reason = f": {effect.reason}" if effect.reason else ""
    return f"{effect.verdict.value}{reason}"


def _told(effect: Effect, value: float) -> str:
    """With its sign."""
    if effect.change is not None:
        percent = value * 100
        digits = 1 if abs(percent) < 1_000 else 0
        return "0 %" if abs(percent) < 0.05 else f"{percent:+,.{digits}f} %"
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return sign + in_words(abs(value), FIGURES[effect.figure].unit)
