"""Plots over the time of a rehearsal, as SVG in a page.

This module only computes positions. Colours come from the page's CSS classes, so that they follow
its light and dark mode. Names are users' input, and are escaped here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.formats.svg import (
    BOUNDS,
    COLOURS,
    GREY,
    RED,
    LinearAxis,
    short_number,
    smooth_path,
    steps_path,
)
from kwok_operator.rehearsal.judge.story import BACK, FAILED

_WIDTH: Final = 460
_HEIGHT: Final = 226
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 14, 56
_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
_LONG: Final = (86_400.0, 172_800.0, 604_800.0, 2_592_000.0)
_NAME: Final = 40
SHADES: Final = {
    "faint": "lighter: not ready",
    "fainter": "lightest: being created",
    "failing": "no node came",
}
"""The lighter shades by their CSS classes, in words."""
_COLOUR_OF: Final = {"failing": RED}
_WHOLE: Final = [bound for bound in BOUNDS if bound >= 1]

Steps = Sequence[tuple[float, float | None]]
"""Times, each with the value from then on; None if there is nothing to measure."""


@dataclass(frozen=True, slots=True)
class PlotLine:
    name: str
    steps: Steps
    colour: int = 0
    smooth: bool = False
    """Whether the line is straight between two times, rather than a step."""
    shade: str = ""
    """One of SHADES, if the line is drawn lighter, as its values are a part of those of the line in
    the same colour.
    """
    over: bool = False
    """Whether the line is drawn dashed over stacked areas, and isn't one of them."""
    wide: bool = False
    """Whether the line is wide and lighter, so that a line at the same place stays visible."""
    of: str = ""
    """The subject of the line, such as a group: see `pageparts.marking`."""


@dataclass(frozen=True, slots=True)
class TimePlot:
    title: str
    lines: Sequence[PlotLine]
    stacked: bool = False
    """Whether each line is drawn as an area on top of the one before."""
    percent: bool = False
    counts: bool = False
    """Whether the values are integers, so that the axis has no fractions."""
    marks: Sequence[float] = field(default_factory=tuple)
    """When steps of the timeline were done. The marks are numbered from 1."""
    requested_at: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """When the autoscaler requested what, as in `Story.requested_at`."""


def draw(plot: TimePlot, *, until: float) -> str:
    """Draws a plot with its title and legend."""
    caption = f"<figure><figcaption>{escape(plot.title)}</figcaption>"
    return "".join([caption, _picture(plot, until=until), *_legend(plot.lines), "</figure>"])


def _picture(plot: TimePlot, *, until: float) -> str:
    lines = _stacked(plot.lines) if plot.stacked else list(plot.lines)
    most = max((value or 0.0 for line in lines for _, value in line.steps), default=0.0)
    across = time_axis(until)
    highest = 1.0 if plot.percent and most <= 1 else most
    steps = _WHOLE if plot.counts else BOUNDS
    up = LinearAxis.up_to(highest, start=_HEIGHT - _BOTTOM, end=_TOP, ticks=5, steps=steps)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(plot.title)}">',
        *_grid(across, up, percent=plot.percent),
        *_marks(plot, across),
        *(_areas(lines, across, up) if plot.stacked else _lines(lines, across, up)),
        *_triangles(plot, across),
        "</svg>",
    ]
    return "".join(parts)


def in_time(seconds: float) -> str:
    """Returns a moment as people read it, such as 45 s, 3:20 min or 1:05 h."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if whole < 3_600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3_600}:{whole % 3_600 // 60:02} h"


def time_axis(until: float, *, start: float = _LEFT, end: float = _WIDTH - _RIGHT) -> LinearAxis:
    """Returns the axis of a run's time, which ends with the run."""
    axis = LinearAxis.up_to(
        until, start=start, end=end, ticks=6, steps=(*map(float, _SECONDS), *_LONG)
    )
    # It ends with the run, which need not be at a tick.
    return LinearAxis(max(until, 1e-3), axis.step, axis.start, axis.end)


def _stacked(lines: Sequence[PlotLine]) -> list[PlotLine]:
    """Returns each line with the sums of all lines up to it. All lines must have the same times."""
    total: list[float] = [0.0] * (len(lines[0].steps) if lines else 0)
    stacked = []
    for line in lines:
        if line.over:
            stacked.append(line)
            continue
        total = [
            below + (value or 0.0) for below, (_, value) in zip(total, line.steps, strict=True)
        ]
        steps = [(t, value) for (t, _), value in zip(line.steps, total, strict=True)]
        stacked.append(replace(line, steps=steps))
    return stacked


def _grid(across: LinearAxis, up: LinearAxis, *, percent: bool) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    ticks = [n * across.step for n in range(int(across.high / across.step + 1e-9) + 1)]
    path = "".join(f"M{across.at(tick):.1f} {_TOP}V{bottom}" for tick in ticks)
    path += "".join(f"M{_LEFT} {up.at(tick):.1f}H{right}" for tick in up.ticks())
    yield f'<path class="grid" d="{path}"/>'
    for tick in ticks:
        at_the_end = across.at(tick) > right - 20
        x = right + 6 if at_the_end else across.at(tick)
        yield _text(x, bottom + 46, in_time(tick), anchor="end" if at_the_end else "middle")
    for tick in up.ticks():
        label = f"{tick * 100:g} %" if percent else short_number(round(tick, 9))
        yield _text(_LEFT - 5, up.at(tick) + 4, label, anchor="end")


def _marks(plot: TimePlot, across: LinearAxis) -> Iterator[str]:
    shown_at = -100.0
    for number, t in enumerate(plot.marks, start=1):
        x = across.at(min(t, across.high))
        yield f'<path class="mark" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
        if x - shown_at > 12:  # otherwise numbers would overlap
            yield _text(x, _TOP - 4, str(number), anchor="middle")
            shown_at = x


def _triangles(plot: TimePlot, across: LinearAxis) -> Iterator[str]:
    """Draws the autoscaler's requests as triangles below the plot, each kind in its own row.
    Triangles at the same place are drawn once.
    """
    base = _HEIGHT - _BOTTOM
    kinds = (("up", 2, 10), (FAILED, 2, 10), ("down", 20, 12), (BACK, 30, 22))
    for name, tip, foot in kinds:
        times = plot.requested_at.get(name, ())
        places = sorted({round(across.at(min(t, across.high)), 0) for t in times})
        path = "".join(f"M{x:.0f} {base + tip}l4 {foot - tip}h-8z" for x in places)
        if path:
            yield f'<path class="{name}" d="{path}"/>'


def _areas(lines: Sequence[PlotLine], across: LinearAxis, up: LinearAxis) -> Iterator[str]:
    below = f"H{across.start:.1f}Z"
    bottom = up.at(0)
    areas, over = [line for line in lines if not line.over], [line for line in lines if line.over]
    paths = []
    for line in areas:
        path = steps_path([(across.at(t), up.at(value or 0.0)) for t, value in line.steps])
        paths.append(f"{path}V{bottom:.1f}{below}" if path else "")
    # The highest is drawn first, and those below it over it.
    for line, path in reversed(list(zip(areas, paths, strict=True))):
        if line.shade:
            # The areas below must not shine through.
            yield f'<path class="under" d="{path}"/>'
        shade = f' class="{line.shade}"' if line.shade else ""
        yield f'<path{shade} fill="{_colour(line)}" d="{path}"/>'
    yield from _lines(over, across, up)


def _lines(lines: Sequence[PlotLine], across: LinearAxis, up: LinearAxis) -> Iterator[str]:
    for line in lines:
        form = smooth_path if line.smooth else steps_path
        pieces = ([(across.at(t), up.at(value)) for t, value in piece] for piece in _pieces(line))
        path = "".join(map(form, pieces))
        kind = "line over" if line.over else "line thick" if line.wide else "line"
        yield f'<path class="{kind}" stroke="{_colour(line)}" d="{path}"/>'


def _pieces(line: PlotLine) -> Iterator[list[tuple[float, float]]]:
    """Yields the parts of a line that have values; a part ends where the next value is missing."""
    piece: list[tuple[float, float]] = []
    for t, value in line.steps:
        if value is not None:
            piece.append((t, value))
        elif piece:
            yield [*piece, (t, piece[-1][1])]
            piece = []
    if piece:
        yield piece


def _legend(lines: Sequence[PlotLine]) -> Iterator[str]:
    yield '<ul class="legend">'
    for name, fill, shade in _keys(lines):
        key = f'<rect{shade} width="10" height="10" fill="{fill}"/>'
        yield f'<li><svg viewBox="0 0 10 10">{key}</svg>{name}</li>'
    yield "</ul>"


def _keys(lines: Sequence[PlotLine]) -> Iterator[tuple[str, str, str]]:
    """Yields name, colour and class of each line for the legend. Lines of one shade share one
    entry.
    """
    for line in lines:
        if not line.shade:
            yield escape(one_line(line.name, limit=_NAME)), _colour(line), ""
    for shade, words in SHADES.items():
        if any(line.shade == shade for line in lines):
            yield words, _COLOUR_OF.get(shade, GREY), f' class="{shade}"'


def _colour(line: PlotLine) -> str:
    if line.over:
        return GREY
    return _COLOUR_OF.get(line.shade, COLOURS[line.colour % len(COLOURS)])


def live(plots: Sequence[TimePlot]) -> Iterator[dict[str, Any]]:
    """Yields the data of each plot, as JSON, from which the report's script draws it. All lines of
    all plots must have the same times."""
    for plot in plots:
        lines = [
            {
                "name": one_line(line.name, limit=_NAME),
                "colour": _colour(line),
                "shade": line.shade,
                "over": line.over,
                "wide": line.wide,
                "smooth": line.smooth,
                "of": line.of,
                "values": [_short(value) for _, value in line.steps],
            }
            for line in plot.lines
        ]
        yield {
            "title": plot.title,
            "stacked": plot.stacked,
            "percent": plot.percent,
            "counts": plot.counts,
            "lines": lines,
        }


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


def _text(x: float, y: float, text: str, *, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
