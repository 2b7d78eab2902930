"""The drawings on the page of a comparison: intervals on one scale, and a dot for each run.

This module only computes positions. Colours come from the page's CSS classes and `formats/svg`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kwok_operator.comparison.statistics import Effect, EffectVerdict
from kwok_operator.formats.svg import COLOURS

WIDTH: Final = 240
_ROW: Final = 22
_BAND: Final = 13
"""The height of one arm's row of dots."""
_PAD: Final = 8
_LEAST: Final = 0.05
_MOST: Final = 2.0
"""The end of the scale, as a relative change. Larger changes are drawn at the end."""
_SHADES: Final = {EffectVerdict.BETTER: "held", EffectVerdict.WORSE: "missed"}


def scale_of(effects: Sequence[Effect]) -> float:
    """Returns the largest relative change on the scale that all intervals share."""
    ends = [
        abs(end)
        for effect in effects
        if effect.change is not None
        for end in (effect.low, effect.high)
        if end is not None
    ]
    return min(max([*ends, _LEAST]), _MOST)


def interval_picture(effect: Effect, *, scale: float) -> str:
    """Draws the interval of a change, with 0 in the middle. Empty if there is no change to draw."""
    if effect.change is None or effect.low is None or effect.high is None:
        return ""

    def at(change: float) -> float:
        share = max(-1.0, min(change / scale, 1.0))
        return WIDTH / 2 + share * (WIDTH / 2 - _PAD)

    middle, shade = _ROW / 2, _SHADES.get(effect.verdict, "small")
    left, right = at(effect.low), at(effect.high)
    return "".join(
        [
            f'<svg class="{shade}" viewBox="0 0 {WIDTH} {_ROW}" width="{WIDTH}" role="img"'
            f' aria-label="interval of {effect.figure}">',
            f'<path class="mark" d="M{WIDTH / 2:.0f} 0V{_ROW}"/>',
            f'<path class="line" stroke="currentColor" d="M{left:.1f} {middle:.0f}H{right:.1f}'
            f'M{left:.1f} {middle - 4:.0f}v8M{right:.1f} {middle - 4:.0f}v8"/>',
            f'<circle fill="currentColor" r="4" cx="{at(effect.change):.1f}" cy="{middle:.0f}"/>',
            "</svg>",
        ]
    )


def dots_picture(figure: str, arms: Sequence[Sequence[float]]) -> str:
    """Draws a row of dots for each arm, on one scale from the smallest to the largest value."""
    values = [value for arm in arms for value in arm]
    if not values:
        return ""
    low, high = min(values), max(values)

    def at(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return _PAD + share * (WIDTH - 2 * _PAD)

    def row(number: int, arm: Sequence[float]) -> Iterator[str]:
        y = _BAND * number + _ROW / 4
        yield f'<path class="grid" d="M{_PAD} {y:.1f}H{WIDTH - _PAD}"/>'
        # Dots at the same position are drawn once, so the picture doesn't grow with the runs.
        places = sorted({round(at(value) * 2) / 2 for value in arm})
        path = "".join(f"M{x:g} {y:.1f}h0" for x in places)
        yield (
            f'<path d="{path}" stroke="{COLOURS[number]}" stroke-width="7" stroke-linecap="round"'
            ' stroke-opacity="0.65" fill="none"/>'
        )

    head = f'<svg viewBox="0 0 {WIDTH} {_BAND * len(arms)}" width="{WIDTH}" role="img"'
    rows = [part for number, arm in enumerate(arms) for part in row(number, arm)]
    return "".join([head, f' aria-label="runs, {figure}">', *rows, "</svg>"])


def key(number: int) -> str:
    """Returns an SVG dot in the colour of an arm, for the legend."""
    dot = f'<circle cx="5" cy="5" r="4" fill="{COLOURS[number]}"/>'
    return f'<svg viewBox="0 0 10 10" width="10" height="10">{dot}</svg>'
