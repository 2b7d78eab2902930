"""Instances over time as SVG: a bar for each, in the colour of its state.

A bar is thin while there is no Node, and thick while there is one. No scripts, no fonts, no
addresses are in a file; its background is that of the page, and its colours can be read on a light
and on a dark one. The same tracks give the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from hack.cloudpictures.rehearsal import Span, Track
from kwok_operator.cloud.draws import SECOND
from kwok_operator.cloud.states import State

GREY: Final = "#768390"
COLOURS: Final[Mapping[State, str]] = {
    State.WAITING: "#9ca3af",
    State.CREATING: "#60a5fa",
    State.FAILED: "#ef4444",
    State.UNREGISTERED: "#a855f7",
    State.DUE: "#60a5fa",
    State.STARTING: "#eab308",
    State.INITIALIZING: "#84cc16",
    State.READY: "#22a06b",
    State.NOT_READY: "#f97316",
    State.INTERRUPTED: "#db2777",
    State.DELETING: "#64748b",
    State.GONE: "#64748b",
}
_THIN: Final = frozenset({State.WAITING, State.CREATING, State.FAILED, State.UNREGISTERED})
_WIDTH, _LEFT, _RIGHT, _TOP = 760, 40, 16, 40
_ROOMY, _TIGHT, _MANY = 16, 11, 16
_SMALL, _TINY = 11, 9
_HEADING, _LEGEND_LINE = 20, 18
_STEPS: Final = (5, 10, 15, 30, 60, 120, 300, 600)


def draw(
    title: str, tracks: Sequence[Track], *, end: int, marks: Mapping[int, str] | None = None
) -> str:
    """`end` is in seconds, and so are the `marks`: what somebody does, by when."""
    groups = list(dict.fromkeys(track.group.name for track in tracks))
    row = _ROOMY if len(tracks) <= _MANY else _TIGHT
    headings = _HEADING if len(groups) > 1 else 0
    bottom = _TOP + len(tracks) * row + len(groups) * headings + 4
    used = {span.state for track in tracks for span in track.spans}
    legend = [state for state in COLOURS if state in used]
    height = bottom + 34 + _LEGEND_LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}" font-family="sans-serif" font-size="11" fill="{GREY}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="{_LEFT}" y="16" font-size="13" font-weight="bold">{escape(title)}</text>',
        *_axis(end, bottom=bottom),
    ]
    y = _TOP
    for group in groups:
        if headings:
            parts.append(f'<text x="{_LEFT}" y="{y + 13}" font-style="italic">{group}</text>')
            y += headings
        for track in tracks:
            if track.group.name == group:
                parts += _bar(track, y=y, row=row, end=end)
                y += row
    parts += _marks(marks or {}, end=end, bottom=bottom)
    parts += _legend(legend, y=bottom + 34)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis(end: int, *, bottom: int) -> Iterator[str]:
    step = next(step for step in _STEPS if end / step <= 12)
    for second in range(0, end + 1, step):
        x = _at(second * SECOND, end)
        yield f'<path d="M{x} {_TOP - 4}V{bottom}" stroke="{GREY}" stroke-opacity="0.3"/>'
        yield f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{_time(second, end)}</text>'


def _bar(track: Track, *, y: int, row: int, end: int) -> Iterator[str]:
    size = _SMALL if row == _ROOMY else _TINY
    place = f'x="{_LEFT - 8}" y="{y + row // 2 + 4}" text-anchor="end" font-size="{size}"'
    yield f"<text {place}>{track.serial}</text>"
    for span in track.spans:
        yield _piece(span, y=y, row=row, end=end)


def _piece(span: Span, *, y: int, row: int, end: int) -> str:
    height = row // 4 if span.state in _THIN else row - 4
    left, right = _at(span.start, end), _at(min(span.end, end * SECOND), end)
    return (
        f'<rect x="{left}" y="{y + (row - height) / 2:g}" width="{right - left:.1f}"'
        f' height="{height}" fill="{COLOURS[span.state]}"/>'
    )


def _marks(marks: Mapping[int, str], *, end: int, bottom: int) -> Iterator[str]:
    for second, text in marks.items():
        x = _at(second * SECOND, end)
        yield f'<path d="M{x} {_TOP - 6}V{bottom}" stroke="{GREY}" stroke-dasharray="3 3"/>'
        yield f'<text x="{x}" y="{_TOP - 10}" text-anchor="middle">{escape(text)}</text>'


def _legend(states: Iterable[State], *, y: int) -> Iterator[str]:
    x = float(_LEFT)
    for state in states:
        height = 4 if state in _THIN else 10
        colour = COLOURS[state]
        place = f'x="{x:g}" y="{y - height / 2:g}" width="18" height="{height}"'
        yield f'<rect {place} fill="{colour}"/>'
        yield f'<text x="{x + 24:g}" y="{y + 4}">{state}</text>'
        x += 24 + 7 * len(state) + 16


def _at(time: int, end: int) -> float:
    """From milliseconds to a place."""
    return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * time / (end * SECOND), 1)


def _time(second: int, end: int) -> str:
    return f"{second // 60} min" if end > 300 else f"{second} s"
