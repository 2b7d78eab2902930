"""Plots of how cost grows with the number of nodes: SVG files, made from a results file.

    python -m tests.bench.plots RESULT.json DIRECTORY

    time.svg      seconds to create N nodes, and to delete them
    memory.svg    resident memory with N nodes
    calls.svg     requests to the API server for N nodes

The same results give the same bytes. No scripts, no fonts, no addresses are in a file; its
background is that of the page, and its colours can be read on a light and on a dark one. Both axes
are logarithmic, so one picture shows 1,000 nodes as well as 50,000.
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kwok_operator.formats.svg import BOUNDS, COLOURS, GREY, short_number
from tests.bench import results
from tests.bench.measures import Measure

Point = tuple[float, float]
Lines = Mapping[str, Sequence[Point]]

WIDTH, HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 34, 44
_LINE_HEIGHT = 15


@dataclass(frozen=True, slots=True)
class LogAxis:
    """From values to places in a picture, logarithmically, over whole decades or parts of them."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], *, start: float, end: float) -> "LogAxis":
        """On which all values have a place, between the ticks around them."""
        found = list(values)
        low = max(bound for bound in BOUNDS if bound <= min(found))
        high = min(bound for bound in BOUNDS if bound >= max(found) and bound > low)
        return cls(low, high, start, end)

    def at(self, value: float) -> float:
        share = (math.log10(value) - math.log10(self.low)) / (
            math.log10(self.high) - math.log10(self.low)
        )
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """1, 2, 5, 10, 20, ...; in a range of many decades the powers of ten alone."""
        steps = (1, 2, 5) if self.high / self.low <= 2_000 else (1,)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [tick for tick in every if self.low <= tick * 1.0001 and tick <= self.high * 1.0001]


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: lines over the number of nodes."""

    title: str
    unit: str
    lines: Lines


def draw(panels: Sequence[Panel]) -> str:
    """The SVG of some diagrams side by side."""
    legend = list(dict.fromkeys(who for panel in panels for who in panel.lines))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(legend)}
    width = WIDTH * len(panels)
    height = HEIGHT + _LINE_HEIGHT * math.ceil(len(legend) / (2 * len(panels))) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11" fill="{GREY}">'
    ]
    for place, panel in enumerate(panels):
        parts.append(f'<g transform="translate({place * WIDTH} 0)">')
        parts += _panel(panel, colours)
        parts.append("</g>")
    parts += _legend(colours, width=width)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, colours: Mapping[str, str]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    across = LogAxis.around((x for x, _ in points), start=_LEFT, end=WIDTH - _RIGHT)
    up = LogAxis.around((y for _, y in points), start=HEIGHT - _BOTTOM, end=_TOP)
    title = escape(f"{panel.title}, {panel.unit}" if panel.unit else panel.title)
    parts = [
        f'<text x="{_LEFT}" y="16" font-size="13" font-weight="bold">{title}</text>',
        f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 10}" text-anchor="end">nodes</text>',
        f'<g stroke="{GREY}" stroke-opacity="0.3">',
    ]
    for tick in across.ticks():
        parts.append(f'<path d="M{across.at(tick):.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>')
    for tick in up.ticks():
        parts.append(f'<path d="M{_LEFT} {up.at(tick):.1f}H{WIDTH - _RIGHT}"/>')
    parts.append("</g>")
    for tick in across.ticks():
        at = f'x="{across.at(tick):.1f}" y="{HEIGHT - _BOTTOM + 15}"'
        parts.append(f'<text {at} text-anchor="middle">{short_number(tick)}</text>')
    for tick in up.ticks():
        at = f'x="{_LEFT - 6}" y="{up.at(tick) + 4:.1f}"'
        parts.append(f'<text {at} text-anchor="end">{short_number(tick)}</text>')
    for who, line in panel.lines.items():
        places = [f"{across.at(x):.1f} {up.at(y):.1f}" for x, y in line]
        colour = colours[who]
        parts.append(
            f'<path d="M{"L".join(places)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        for each in places:
            x, y = each.split()
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
    return parts


def _legend(colours: Mapping[str, str], *, width: int) -> list[str]:
    columns = max(1, width // (WIDTH // 2))
    parts = []
    for place, (who, colour) in enumerate(colours.items()):
        x = _LEFT + (place % columns) * (WIDTH // 2)
        y = HEIGHT + _LINE_HEIGHT * (place // columns) + 4
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="{y + 4}">{escape(who)}</text>')
    return parts


def lines(
    measures: Iterable[Measure], *, case: str, work: str, figure: str, only: str = ""
) -> Lines:
    """A line for each rival that has such measures: the medians over the number of nodes."""
    found: dict[str, dict[float, float]] = {}
    for each in measures:
        fits = (each.case, each.work, each.figure) == (case, work, figure)
        if fits and each.n > 0 and each.median > 0 and only in ("", each.who):
            found.setdefault(each.who, {})[each.n] = each.median
    return {who: sorted(line.items()) for who, line in found.items()}


def pictures(measures: Sequence[Measure]) -> dict[str, list[Panel]]:
    """All diagrams that there are measures for, by the name of their file."""
    time = [
        Panel(title, "s", lines(measures, case="usable", work=work, figure="seconds"))
        for work, title in (("create", "0 to N, all usable"), ("delete", "N to 0, all gone"))
    ]
    memory = {
        **lines(measures, case="memory", work="with nodes", figure="memory"),
        **lines(measures, case="shim", work="with nodes", figure="memory", only="shim"),
    }
    calls = [
        Panel(title, "", lines(measures, case="calls", work=work, figure="API calls"))
        for work, title in (
            ("create", "API calls to create N"),
            ("delete", "API calls to delete N"),
        )
    ]
    every = {
        "time.svg": time,
        "memory.svg": [Panel("resident memory with N nodes", "MB", memory)],
        "calls.svg": calls,
    }
    drawable = {name: [panel for panel in panels if panel.lines] for name, panels in every.items()}
    return {name: panels for name, panels in drawable.items() if panels}


def write(measures: Sequence[Measure], directory: Path) -> list[Path]:
    """Write the files; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, panels in pictures(measures).items():
        path = directory / name
        path.write_text(draw(panels), encoding="utf-8")
        written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.plots", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("results", type=Path, metavar="RESULT.json")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    arguments = parser.parse_args()
    for path in write(results.load(arguments.results), arguments.directory):
        print(path)


if __name__ == "__main__":
    main()
