"""Instances over time as SVG: a bar for each, in the colour of its state.

A bar is thin while there is no Node, and thick while there is one. The same tracks give the same
bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from hack.cloudpictures.rehearsal import Track
from hack.frame import RIGHT, THICK, THIN, TOP, WIDTH, bar, framed
from kwok_operator.cloud.draws import SECOND
from kwok_operator.cloud.states import State
from kwok_operator.formats.svg import GREY, LinearAxis

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
_LEFT = 40
_ROOMY, _TIGHT, _MANY = 16, 11, 16
_SMALL, _TINY = 11, 9
_HEADING = 20
_STEPS: Final = (5, 10, 15, 30, 60, 120, 300, 600)


def draw(
    title: str, tracks: Sequence[Track], *, end: int, marks: Mapping[int, str] | None = None
) -> str:
    """`end` is in seconds, and so are the `marks`: what somebody does, by when."""
    groups = list(dict.fromkeys(track.group for track in tracks))
    row = _ROOMY if len(tracks) <= _MANY else _TIGHT
    axis = LinearAxis.up_to(end, start=_LEFT, end=WIDTH - RIGHT, ticks=12, steps=_STEPS)
    parts, y = list[str](), TOP
    for group in groups:
        if len(groups) > 1:
            parts.append(f'<text x="{_LEFT}" y="{y + 13}" font-style="italic">{group}</text>')
            y += _HEADING
        for track in tracks:
            if track.group == group:
                parts += _bar(track, axis, y=y, row=row, end=end)
                y += row
    parts += _marks(marks or {}, axis, bottom=y + 4)
    used = {span.state for track in tracks for span in track.spans}
    legend = {s.value: (c, THIN if s in _THIN else THICK) for s, c in COLOURS.items() if s in used}

    def label(second: float) -> str:
        return f"{second / 60:g} min" if end > 300 else f"{second:g} s"

    return framed(title, parts, axis, y + 4, legend=legend, label=label)


def _bar(track: Track, axis: LinearAxis, *, y: int, row: int, end: int) -> Iterator[str]:
    size = _SMALL if row == _ROOMY else _TINY
    place = f'x="{_LEFT - 8}" y="{y + row // 2 + 4}" text-anchor="end" font-size="{size}"'
    yield f"<text {place}>{track.serial}</text>"
    for span in track.spans:
        height = row // 4 if span.state in _THIN else row - 4
        begin, until = span.start / SECOND, min(span.end / SECOND, end)
        yield bar(axis, begin, until, y + (row - height) / 2, height, COLOURS[span.state])


def _marks(marks: Mapping[int, str], axis: LinearAxis, *, bottom: int) -> Iterator[str]:
    for second, text in marks.items():
        x = f"{axis.at(second):.1f}"
        yield f'<path d="M{x} {TOP - 6}V{bottom}" stroke="{GREY}" stroke-dasharray="3 3"/>'
        yield f'<text x="{x}" y="{TOP - 10}" text-anchor="middle">{escape(text)}</text>'
