"""What the pictures of lives have around their bars: a title, an axis of time, a legend.

A file has no scripts, fonts or addresses. Its background is that of the page, and its colours can
be read on a light and on a dark one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Final

from kwok_operator.formats.svg import GREY, LinearAxis

WIDTH, RIGHT, TOP = 760, 16, 40
THICK, THIN = 10, 4
SEEN: Final = {"font-family": "sans-serif", "font-size": "11", "fill": GREY, "role": "img"}


def framed(
    title: str,
    parts: Iterable[str],
    axis: LinearAxis,
    bottom: int,
    *,
    legend: Mapping[str, tuple[str, int]],
    label: Callable[[float], str] = "{:g} s".format,
) -> str:
    """The SVG; `bottom`: where the axis is, `legend`: colour and height by state."""
    height = bottom + 52
    look = " ".join(f'{name}="{value}"' for name, value in SEEN.items())
    left = axis.start
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" {look}>',
        f"<title>{escape(title)}</title>",
        f'<text x="{left:g}" y="16" font-size="13" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in axis.ticks():
        x = f"{axis.at(tick):.1f}"
        head.append(f'<path d="M{x} {TOP - 4}V{bottom}" stroke="{GREY}" stroke-opacity="0.3"/>')
        head.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{label(tick)}</text>')
    return "\n".join([*head, *parts, *_legend(legend, left, bottom + 34), "</svg>"]) + "\n"


def bar(axis: LinearAxis, begin: float, end: float, y: float, height: int, colour: str) -> str:
    """A state from a second to another."""
    left, right = axis.at(begin), axis.at(end)
    size = f'width="{right - left:.1f}" height="{height}"'
    return f'<rect x="{left:.1f}" y="{y:g}" {size} fill="{colour}"/>'


def _legend(legend: Mapping[str, tuple[str, int]], x: float, y: int) -> Iterator[str]:
    for state, (colour, height) in legend.items():
        place = f'x="{x:g}" y="{y - height / 2:g}" width="18" height="{height}"'
        yield f'<rect {place} fill="{colour}"/>'
        yield f'<text x="{x + 24:g}" y="{y + 4}">{state}</text>'
        x += 40 + 7 * len(state)
