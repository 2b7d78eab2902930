"""Plots over the time of a rehearsal, as SVG inside of a page.

This module only places things. Colours come from the page's CSS classes, so that they follow its
light and dark mode. Names are users' input, and are escaped here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.formats.svg import (
    BOUNDS,
    COLOURS,
    GREY,
    LinearAxis,
    short_number,
    smooth_path,
    steps_path,
)

WIDTH: Final = 460
HEIGHT: Final = 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 14, 40
_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
_LONG: Final = (86_400.0, 172_800.0, 604_800.0, 2_592_000.0)
_NAME: Final = 40
_WHOLE: Final = [bound for bound in BOUNDS if bound >= 1]

Steps = Sequence[tuple[float, float]]
"""Times, each with the value from then on."""


@dataclass(frozen=True, slots=True)
class PlotLine:
    name: str
    steps: Steps
    colour: int = 0
    smooth: bool = False
    """Whether the line is straight between two times, rather than a step."""
    faint: bool = False
    """Whether the line is drawn lighter, as a part of what the line of the same colour shows. All
    such lines have the same name.
    """


@dataclass(frozen=True, slots=True)
class TimePlot:
    title: str
    lines: Sequence[PlotLine]
    stacked: bool = False
    """Whether each line is drawn as an area on top of the one before."""
    percent: bool = False
    counts: bool = False
    """Whether the values are whole numbers, so that the axis has no fractions."""
    marks: Sequence[float] = field(default_factory=tuple)
    """When the timeline did something. The marks are numbered from 1."""
    ups: Sequence[float] = field(default_factory=tuple)
    downs: Sequence[float] = field(default_factory=tuple)
    """When the autoscaler asked for more nodes (`ups`) and for fewer (`downs`)."""


def draw(plot: TimePlot, *, until: float) -> str:
    """Draws a plot with its title and legend."""
    caption = f"<figure><figcaption>{escape(plot.title)}</figcaption>"
    return "".join([caption, picture(plot, until=until), *_legend(plot.lines), "</figure>"])


def picture(plot: TimePlot, *, until: float, attributes: str = "") -> str:
    """Draws the plot alone, without title and legend."""
    lines = _stacked(plot.lines) if plot.stacked else list(plot.lines)
    most = max((value for line in lines for _, value in line.steps), default=0.0)
    across = _time_axis(until)
    highest = 1.0 if plot.percent and most <= 1 else most
    steps = _WHOLE if plot.counts else BOUNDS
    up = LinearAxis.up_to(highest, start=HEIGHT - _BOTTOM, end=_TOP, ticks=5, steps=steps)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(plot.title)}"{attributes}>',
        *_grid(across, up, percent=plot.percent),
        *_marks(plot, across),
        *(_areas(lines, across, up) if plot.stacked else _lines(lines, across, up)),
        *_triangles(plot, across),
        "</svg>",
    ]
    return "".join(parts)


def in_time(seconds: float) -> str:
    """A moment as people read it, such as 45 s, 3:20 min or 1:05 h."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if whole < 3_600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3_600}:{whole % 3_600 // 60:02} h"


def _time_axis(until: float) -> LinearAxis:
    axis = LinearAxis.up_to(
        until, start=_LEFT, end=WIDTH - _RIGHT, ticks=6, steps=(*map(float, _SECONDS), *_LONG)
    )
    # Its end is that of the run, which need not be at a tick.
    return LinearAxis(max(until, 1e-3), axis.step, axis.start, axis.end)


def _stacked(lines: Sequence[PlotLine]) -> list[PlotLine]:
    """Returns each line with the sums of all lines up to it. All lines must have the same times."""
    total: list[float] = [0.0] * (len(lines[0].steps) if lines else 0)
    found = []
    for line in lines:
        total = [below + value for below, (_, value) in zip(total, line.steps, strict=True)]
        steps = [(t, value) for (t, _), value in zip(line.steps, total, strict=True)]
        found.append(replace(line, steps=steps))
    return found


def _grid(across: LinearAxis, up: LinearAxis, *, percent: bool) -> Iterator[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    ticks = [n * across.step for n in range(int(across.high / across.step + 1e-9) + 1)]
    path = "".join(f"M{across.at(tick):.1f} {_TOP}V{bottom}" for tick in ticks)
    path += "".join(f"M{_LEFT} {up.at(tick):.1f}H{right}" for tick in up.ticks())
    yield f'<path class="grid" d="{path}"/>'
    for tick in ticks:
        at_the_end = across.at(tick) > right - 20
        x = right + 6 if at_the_end else across.at(tick)
        yield _text(x, bottom + 26, in_time(tick), anchor="end" if at_the_end else "middle")
    for tick in up.ticks():
        told = f"{tick * 100:g} %" if percent else short_number(round(tick, 9))
        yield _text(_LEFT - 5, up.at(tick) + 4, told, anchor="end")


def _marks(plot: TimePlot, across: LinearAxis) -> Iterator[str]:
    shown_at = -100.0
    for number, t in enumerate(plot.marks, start=1):
        x = across.at(min(t, across.high))
        yield f'<path class="mark" d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
        if x - shown_at > 12:  # numbers would run into each other
            yield _text(x, _TOP - 4, str(number), anchor="middle")
            shown_at = x


def _triangles(plot: TimePlot, across: LinearAxis) -> Iterator[str]:
    """Draws the autoscaler's requests as triangles below the plot. Those at the same place are
    drawn once.
    """
    base = HEIGHT - _BOTTOM
    for name, times, tip, foot in (("up", plot.ups, 3, 11), ("down", plot.downs, 11, 3)):
        places = sorted({round(across.at(min(t, across.high)), 0) for t in times})
        path = "".join(f"M{x:.0f} {base + tip}l4 {foot - tip}h-8z" for x in places)
        if path:
            yield f'<path class="{name}" d="{path}"/>'


def _areas(lines: Sequence[PlotLine], across: LinearAxis, up: LinearAxis) -> Iterator[str]:
    below = f"H{across.start:.1f}Z"
    bottom = up.at(0)
    paths = []
    for line in lines:
        path = steps_path([(across.at(t), up.at(value)) for t, value in line.steps])
        paths.append(f"{path}V{bottom:.1f}{below}" if path else "")
    # The highest is drawn first, and those below it over it.
    for line, path in reversed(list(zip(lines, paths, strict=True))):
        if line.faint:
            # The areas below must not shine through.
            yield f'<path class="under" d="{path}"/>'
        shade = ' class="faint"' if line.faint else ""
        yield f'<path{shade} fill="{_colour(line)}" d="{path}"/>'


def _lines(lines: Sequence[PlotLine], across: LinearAxis, up: LinearAxis) -> Iterator[str]:
    for line in lines:
        places = [(across.at(t), up.at(value)) for t, value in line.steps]
        path = smooth_path(places) if line.smooth else steps_path(places)
        yield f'<path class="line" stroke="{_colour(line)}" d="{path}"/>'


def _legend(lines: Sequence[PlotLine]) -> Iterator[str]:
    yield '<ul class="legend">'
    for name, fill, shade in keys(lines):
        key = f'<rect{shade} width="10" height="10" fill="{fill}"/>'
        yield f'<li><svg viewBox="0 0 10 10">{key}</svg>{name}</li>'
    yield "</ul>"


def keys(lines: Sequence[PlotLine]) -> Iterator[tuple[str, str, str]]:
    """Returns name, colour and class of each line for the legend; faint lines share one entry."""
    for line in lines:
        if not line.faint:
            yield escape(one_line(line.name, limit=_NAME)), _colour(line), ""
    for line in [line for line in lines if line.faint][:1]:
        yield escape(line.name), GREY, ' class="faint"'


def _colour(line: PlotLine) -> str:
    return COLOURS[line.colour % len(COLOURS)]


def _text(x: float, y: float, text: str, *, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
