"""A page that shows what the Grafana dashboard shows, as one SVG: for the docs, without a Grafana.

    panels with their series (Prometheus' answers)  --draw-->  SVG

Rows, titles, queries and units are the dashboard's. No scripts, no fonts, no addresses are in the
file, and its colours can be read on a light and on a dark background. The same answers give the
same bytes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

Point = tuple[float, float]
"""Seconds since the start of the page, and a value."""

WIDTH: Final = 1200
COLUMNS: Final = 3
STATS: Final = 6
MAX_LINES: Final = 8
"""Series of a panel that are drawn; the legend says how many more there are."""
_GAP, _ROW, _STAT, _PLOT = 8, 30, 78, 132
_LINE = 14
_LEFT, _RIGHT, _TOP = 52, 10, 26
_GREY: Final = "#848d97"
_COLOURS: Final = (
    "#3b82f6",
    "#f97316",
    "#22a06b",
    "#c026d3",
    "#ca8a04",
    "#ef4444",
    "#0891b2",
    "#65a30d",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its legend, and its values over time."""

    legend: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel with what Prometheus has answered."""

    row: str
    title: str
    kind: str
    unit: str
    lines: Sequence[Line]


def draw(panels: Iterable[Shown], *, seconds: float) -> str:
    """The page; all panels show the same `seconds`."""
    rows: dict[str, list[Shown]] = {}
    for panel in panels:
        rows.setdefault(panel.row, []).append(panel)
    body: list[str] = []
    y = 0
    for title, members in rows.items():
        body.append(
            f'<text x="4" y="{y + 20}" font-size="15" font-weight="bold">{escape(title)}</text>'
        )
        y += _ROW
        stats = [panel for panel in members if panel.kind != "timeseries"]
        plots = [panel for panel in members if panel.kind == "timeseries"]
        y = _lay_out(body, stats, columns=STATS, y=y, seconds=seconds)
        y = _lay_out(body, plots, columns=COLUMNS, y=y, seconds=seconds)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" font-family="sans-serif" font-size="11" fill="{_GREY}">'
    )
    return "\n".join([head, *body, "</svg>"]) + "\n"


def _lay_out(
    body: list[str], panels: Sequence[Shown], *, columns: int, y: int, seconds: float
) -> int:
    """Draws panels side by side, in as many lines as it takes; gives where the next one begins."""
    width = (WIDTH - _GAP * (columns - 1)) // columns
    for first in range(0, len(panels), columns):
        line = panels[first : first + columns]
        height = max(_height(panel) for panel in line)
        for place, panel in enumerate(line):
            body.append(f'<g transform="translate({place * (width + _GAP)} {y})">')
            body.append(
                f'<rect width="{width}" height="{height}" rx="3" fill="none" stroke="{_GREY}"'
                ' stroke-opacity="0.4"/>'
            )
            body.append(f'<text x="8" y="16" font-weight="bold">{escape(panel.title)}</text>')
            if panel.kind == "timeseries":
                body += _plot(panel, width=width, seconds=seconds)
            else:
                body += _stat(panel, width=width)
            body.append("</g>")
        y += height + _GAP
    return y


def _height(panel: Shown) -> int:
    if panel.kind != "timeseries":
        return _STAT
    return _TOP + _PLOT + 22 + _LINE * math.ceil(min(len(panel.lines), MAX_LINES + 1) / 2)


def _stat(panel: Shown, *, width: int) -> list[str]:
    parts = []
    for place, line in enumerate(panel.lines[:2]):
        value = number(line.points[-1][1], panel.unit)
        if panel.kind == "table":
            parts.append(f'<text x="8" y="{38 + 16 * place}" font-size="10">{_text(line)}</text>')
        else:
            parts.append(
                f'<text x="{width / 2:.0f}" y="56" font-size="30" text-anchor="middle"'
                f' fill="{_COLOURS[2]}">{value}</text>'
            )
    return parts or _nothing(width=width, height=_STAT)


def _nothing(*, width: int, height: int) -> list[str]:
    return [
        f'<text x="{width / 2:.0f}" y="{height / 2 + 8:.0f}" text-anchor="middle">No data</text>'
    ]


def _plot(panel: Shown, *, width: int, seconds: float) -> list[str]:
    values = [value for line in panel.lines for _, value in line.points]
    if not values:
        return _nothing(width=width, height=_TOP + _PLOT)
    bottom, right = _TOP + _PLOT, width - _RIGHT
    each = 2**20 if panel.unit == "bytes" else 1
    ticks = [tick * each for tick in scale(max(values) / each)]
    parts = []
    for tick in ticks:
        y = bottom - _PLOT * tick / ticks[-1]
        parts.append(
            f'<path d="M{_LEFT} {y:.0f}H{right}" stroke="{_GREY}" stroke-opacity="0.25"/>'
            f'<text x="{_LEFT - 5}" y="{y + 4:.0f}" text-anchor="end" font-size="10">'
            f"{number(tick, panel.unit)}</text>"
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _LEFT + share * (right - _LEFT)
        parts.append(
            f'<text x="{x:.0f}" y="{bottom + 14}" text-anchor="middle" font-size="10">'
            f"{clock(share * seconds)}</text>"
        )
    for place, line in enumerate(_highest(panel.lines)):
        places = [
            f"{_LEFT + (right - _LEFT) * at / seconds:.0f} {bottom - _PLOT * v / ticks[-1]:.1f}"
            for at, v in line.points
        ]
        parts.append(
            f'<path d="M{"L".join(places)}" fill="none" stroke="{_COLOURS[place]}"'
            ' stroke-width="1.6"/>'
        )
    return parts + _legend(panel, width=width, y=bottom + 28)


def _legend(panel: Shown, *, width: int, y: int) -> list[str]:
    parts = []
    for place, line in enumerate(_highest(panel.lines)):
        x, at = 10 + (place % 2) * (width // 2), y + _LINE * (place // 2)
        parts.append(f'<path d="M{x} {at - 4}h10" stroke="{_COLOURS[place]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 14}" y="{at}" font-size="10">{_text(line)}</text>')
    more = len(panel.lines) - MAX_LINES
    if more > 0:
        at = y + _LINE * (MAX_LINES // 2)
        parts.append(f'<text x="24" y="{at}" font-size="10">and {more} more</text>')
    return parts


def _highest(lines: Sequence[Line]) -> list[Line]:
    """As many as are drawn: those that reach highest, in the order they came in."""
    peaks = sorted((max(value for _, value in line.points) for line in lines), reverse=True)
    least = peaks[MAX_LINES - 1] if len(peaks) > MAX_LINES else -math.inf
    high = [line for line in lines if max(value for _, value in line.points) >= least]
    return high[:MAX_LINES]


def _text(line: Line) -> str:
    return escape(line.legend if len(line.legend) < 34 else f"{line.legend[:32]}…")


def scale(largest: float) -> list[float]:
    """Four or five ticks from 0 to a round number that is not below the largest value."""
    if largest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest))
    top = next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= largest * 0.9999)
    return [top * part / 4 for part in range(5)]


def clock(seconds: float) -> str:
    """Minutes and seconds since the page begins."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def number(value: float, unit: str) -> str:
    """A value as Grafana prints it: 12.5k, 40 ms, 120 MiB, 30 %."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "bytes":
        return f"{value / 2**20:.3g} MiB"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1_000:.3g} ms"
    text = f"{value / 1_000:.3g}k" if value >= 1_000 else f"{value:.3g}"
    return f"{text} s" if unit == "s" else text
