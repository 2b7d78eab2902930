"""The map of racks over time, as SVG: a row for each rack, coloured by its share of nodes in use.

Successive moments with equal use are one stroke, and all strokes of a colour are one path, so the
map of hundreds of racks stays small. Names of racks are users' input, and are escaped here.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.formats.svg import LinearAxis
from kwok_operator.rehearsal.judge.rackledger import DEGRADED, NO_NODES, Rack
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.report.plots import in_time, time_axis

MOST_RACKS: Final = 400
_WIDTH, _LEFT, _RIGHT, _BOTTOM = 920, 150, 26, 24
_ROOM: Final = 420.0
"""The height of all rows together, unless rows would become too low."""
_LOWEST, _HIGHEST = 3.0, 14.0
_BETWEEN_NAMES: Final = 12.0
_NAME: Final = 24
_USE_LEGEND: Final = {
    1: ("no pods", "r0"),
    2: ("pods on up to half of its nodes", "r1"),
    3: ("pods on more of them", "r2"),
    4: ("pods on all of its nodes", "r3"),
}
"""The uses in a picture of RackLedger, each in words and as a CSS class."""


def rack_map(judged: Judged) -> Iterator[str]:
    """Yields the map; nothing if no node was in a rack."""
    story = judged.story
    order = sorted(range(len(story.racks)), key=lambda at: _natural(story.racks[at]))
    if not order:
        return
    drawn = order[:MOST_RACKS]
    row = min(max(_ROOM / len(drawn), _LOWEST), _HIGHEST)
    height = row * len(drawn) + _BOTTOM
    across = time_axis(judged.t, start=_LEFT, end=_WIDTH - _RIGHT)
    strokes: defaultdict[str, list[str]] = defaultdict(list)
    for number, at in enumerate(drawn):
        pictures = [(s.t, s.racks[at] if at < len(s.racks) else NO_NODES) for s in story.samples]
        for of, begin, end in _spells(pictures, until=judged.t):
            x, width = across.at(begin), across.at(end) - across.at(begin)
            place = f"M{x:.1f} {(number + 0.5) * row:.1f}h{width:.1f}"
            if use := of % DEGRADED:
                strokes[_USE_LEGEND[use][1]].append(place)
            if of >= DEGRADED:
                strokes["hurt"].append(f"M{x:.1f} {(number + 0.85) * row:.1f}h{width:.1f}")
    yield f'<figure><svg class="racks" viewBox="0 0 {_WIDTH} {height:.0f}" role="img"'
    yield ' aria-label="Racks over time">'
    for kind in sorted(strokes, key=lambda kind: (kind == "hurt", kind)):
        thick = row * (0.3 if kind == "hurt" else 0.9)
        yield f'<path class="{kind}" stroke-width="{thick:.1f}" d="{"".join(strokes[kind])}"/>'
    yield from _names([story.racks[at] for at in drawn], row)
    yield from _times(across, height)
    yield "</svg>"
    yield '<ul class="legend">'
    for kind, words in [*((kind, words) for words, kind in _USE_LEGEND.values()), _DEGRADED_KEY]:
        line = f'<path class="{kind}" stroke-width="10" d="M0 5h10"/>'
        key = f'<svg viewBox="0 0 10 10" class="racks">{line}</svg>'
        yield f"<li>{key}{words}</li>"
    yield "</ul></figure>"
    if more := len(order) - len(drawn):
        yield f'<p class="small">and {more:,} more racks</p>'


_DEGRADED_KEY: Final = ("hurt", "nodes that it had are gone, or can't be used")


def _spells(
    pictures: Sequence[tuple[float, int]], *, until: float
) -> Iterator[tuple[int, float, float]]:
    """Yields (picture, begin, end), in seconds, for each time in which a rack's picture, a number
    for its use, stays the same. Leaves out times without nodes.
    """
    begin, last = 0.0, NO_NODES
    for t, of in [*pictures, (until, -1)]:
        if of != last:
            if last != NO_NODES and t > begin:
                yield last, begin, t
            begin, last = t, of


def _names(racks: Sequence[Rack], row: float) -> Iterator[str]:
    shown_at, lasts = -_BETWEEN_NAMES, Counter(rack[-1] for rack in racks)
    for number, rack in enumerate(racks):
        y = (number + 0.5) * row + 4
        if y - shown_at >= _BETWEEN_NAMES:
            shown_at = y
            # Values of wider levels are needed only if several racks have the same last value.
            alone = lasts[rack[-1]] == 1
            name = one_line(rack[-1] if alone else "/".join(rack), limit=_NAME)
            yield f'<text x="{_LEFT - 6}" y="{y:.1f}" text-anchor="end">{escape(name)}</text>'


def _times(across: LinearAxis, height: float) -> Iterator[str]:
    for number in range(int(across.high / across.step + 1e-9) + 1):
        x = across.at(number * across.step)
        words = in_time(number * across.step)
        yield f'<text x="{x:.1f}" y="{height - 6:.0f}" text-anchor="middle">{words}</text>'


def _natural(rack: Rack) -> list[tuple[int, str]]:
    """Returns a key that sorts `rack-10` after `rack-9`."""
    parts = re.split(r"([0-9]{1,15})", "/".join(rack))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
