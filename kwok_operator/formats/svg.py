"""Parts of SVG plots: axes, colours, numbers, lines. The same values give the same text.

The plots contain no scripts, fonts or addresses. Their colours can be seen on a light and on a dark
background.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

GREY: Final = "#848d97"
RED: Final = "#ef4444"
COLOURS: Final = (
    "#3b82f6",
    "#f97316",
    "#22a06b",
    "#c026d3",
    "#ca8a04",
    RED,
    "#0891b2",
    "#64748b",
)

BOUNDS: Final = [step * 10.0**power for power in range(-6, 12) for step in (1, 2, 5)]


@dataclass(frozen=True, slots=True)
class LinearAxis:
    """Maps values, from zero on, to positions on an axis, with a tick at every multiple of
    `step`."""

    high: float
    step: float
    start: float
    end: float

    @classmethod
    def up_to(
        cls, most: float, *, start: float, end: float, ticks: int, steps: Iterable[float] = BOUNDS
    ) -> "LinearAxis":
        """Makes an axis with at most `ticks` ticks; `steps` are the allowed distances between them,
        small ones first."""
        step = next((step for step in steps if most / step <= ticks), max(most, 1.0))
        return cls(max(math.ceil(most / step - 1e-9), 1) * step, step, start, end)

    def at(self, value: float) -> float:
        return self.start + value / self.high * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [n * self.step for n in range(round(self.high / self.step) + 1)]


def short_number(value: float) -> str:
    """Writes a number for an axis: 20k rather than 20000."""
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"


def steps_path(points: Sequence[tuple[float, float]]) -> str:
    """Returns the path of a line in steps: each value lasts until the next one.

    The path leaves out changes that vanish when coordinates are rounded to 0.1.
    """
    path: list[str] = []
    last_x, last_y = "", ""
    for x, y in points:
        here, level = f"{x:.1f}", f"{y:.1f}"
        if not path:
            path.append(f"M{here} {level}")
        elif level != last_y:
            path += ([f"H{here}"] if here != last_x else []) + [f"V{level}"]
        else:
            continue
        last_x, last_y = here, level
    if points and f"{points[-1][0]:.1f}" != last_x:
        path.append(f"H{points[-1][0]:.1f}")
    return "".join(path)


def smooth_path(points: Sequence[tuple[float, float]]) -> str:
    """Returns the path of a line from each point to the next. Invisible parts are left out."""
    places = list(dict.fromkeys(f"{x:.1f} {y:.1f}" for x, y in points))
    return f"M{'L'.join(places)}" if places else ""
