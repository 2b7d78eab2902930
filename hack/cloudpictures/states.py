"""The states of an instance and how one leads to another, as SVG: boxes and arrows.

Below the name of a state stands what makes it last, or what leads there.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from hack.cloudpictures.drawing import COLOURS, GREY
from kwok_operator.cloud.states import State

_WIDE, _HIGH, _COLUMN, _ROW, _LEFT, _TOP = 116, 42, 140, 66, 12, 34
_WITHOUT_NODE: Final = 3
"""Columns."""
_BOXES: Final[Mapping[State, tuple[int, int, str]]] = {
    State.WAITING: (0, 0, "outage, no such pool"),
    State.CREATING: (1, 0, "provisioningDelay"),
    State.FAILED: (1, 1, "no room, creation"),
    State.DUE: (2, 0, "Node is written"),
    State.UNREGISTERED: (2, 1, "neverRegisters"),
    State.STARTING: (3, 0, "readinessDelay"),
    State.INITIALIZING: (4, 0, "taints, resources"),
    State.READY: (5, 0, ""),
    State.NOT_READY: (5, 1, "flapping, outage"),
    State.INTERRUPTED: (4, 1, "notice"),
    State.DELETING: (4, 2, "slowDeletion"),
    State.GONE: (3, 1, ""),
}
_ARROWS: Final = (
    (State.WAITING, State.CREATING),
    (State.WAITING, State.FAILED),
    (State.CREATING, State.FAILED),
    (State.FAILED, State.CREATING),
    (State.CREATING, State.DUE),
    (State.CREATING, State.UNREGISTERED),
    (State.DUE, State.STARTING),
    (State.STARTING, State.INITIALIZING),
    (State.INITIALIZING, State.READY),
    (State.READY, State.NOT_READY),
    (State.NOT_READY, State.READY),
    (State.READY, State.INTERRUPTED),
    (State.INTERRUPTED, State.GONE),
    (State.DELETING, State.GONE),
)


def draw() -> str:
    width = _LEFT + 6 * _COLUMN
    height = _TOP + 3 * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="sans-serif" font-size="10" fill="{GREY}" role="img">',
        "<title>The states of an instance</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
        f' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>',
        *_halves(width, height),
    ]
    for start, end in _ARROWS:
        parts.append(_arrow(start, end))
    for state in _BOXES:
        parts += _box(state)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _halves(width: int, height: int) -> Iterator[str]:
    border = _LEFT + _WITHOUT_NODE * _COLUMN - (_COLUMN - _WIDE) // 2
    yield f'<path d="M{border} 4V{height - 4}" stroke="{GREY}" stroke-dasharray="4 4"/>'
    for x, anchor, text in (
        (border - 10, "end", "no Node: status.cloud.instances"),
        (border + 10, "start", "a Node: its annotation kwok-operator.io/life"),
    ):
        yield f'<text x="{x}" y="16" text-anchor="{anchor}" font-style="italic">{text}</text>'


def _box(state: State) -> Iterator[str]:
    x, y = _corner(state)
    middle = x + _WIDE // 2
    below = _BOXES[state][2]
    yield (
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="5" fill="{COLOURS[state]}"'
        f' fill-opacity="0.18" stroke="{COLOURS[state]}" stroke-width="1.5"/>'
    )
    yield (
        f'<text x="{middle}" y="{y + (18 if below else 25)}" text-anchor="middle" font-size="12"'
        f' font-weight="bold">{state}</text>'
    )
    if below:
        yield f'<text x="{middle}" y="{y + 33}" text-anchor="middle">{below}</text>'


def _arrow(start: State, end: State) -> str:
    (a, b), (c, d) = _corner(start), _corner(end)
    both = (end, start) in _ARROWS
    if b == d:
        x1, x2 = (a + _WIDE, c) if a < c else (a, c + _WIDE)
        y1 = y2 = b + _HIGH // 2
    elif a == c:
        side = (-12 if b < d else 12) if both else 0
        x1 = x2 = a + _WIDE // 2 + side
        y1, y2 = (b + _HIGH, d) if b < d else (b, d + _HIGH)
    else:
        x1, x2 = (a + _WIDE - 14, c + 14) if a < c else (a + 14, c + _WIDE - 14)
        y1, y2 = (b + _HIGH, d) if b < d else (b, d + _HIGH)
    return f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{GREY}" marker-end="url(#tip)"/>'


def _corner(state: State) -> tuple[int, int]:
    column, row, _ = _BOXES[state]
    return _LEFT + column * _COLUMN, _TOP + row * _ROW
