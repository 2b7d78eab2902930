"""Converts draws to spans of time in whole milliseconds, by a table that jq and Python share.

A distribution is approximated by straight pieces, as many as are needed to be within half a
percent. Samples become constant pieces. Both jq and Python find the piece in the table and divide
whole numbers, so both give the same span.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kwok_operator.cloud.api.delay import Delay
from kwok_operator.cloud.draws import milliseconds, span
from kwok_operator.podprofiles.draws import RANGE

_TOLERANCE: Final = 200
"""A straight piece is exact enough if its error is at most 1/_TOLERANCE of the span, or
_SMALLEST."""
_SMALLEST: Final = 20
"""Milliseconds; a smaller error is always accepted, as timestamps have whole seconds."""
_MOST_HALVINGS: Final = 24


@dataclass(frozen=True, slots=True)
class Piece:
    """A straight piece of a distribution: `low` ms at the draw `first`, rising by `rise` ms over
    `width` draws."""

    first: int
    low: int
    rise: int
    width: int

    def at(self, drawn: int) -> int:
        return self.low + (drawn - self.first) * self.rise // self.width


@dataclass(frozen=True, slots=True)
class Spans:
    """A distribution as pieces, ordered by their first draws, from 0 on."""

    pieces: tuple[Piece, ...]

    def at(self, drawn: int) -> int:
        return next(piece for piece in reversed(self.pieces) if piece.first <= drawn).at(drawn)

    @property
    def least(self) -> int:
        return self.at(0)

    @property
    def most(self) -> int:
        return self.at(RANGE - 1)

    @property
    def fixed(self) -> bool:
        return self.least == self.most

    def jq(self) -> str:
        """Returns jq for the span; its input is the draw."""
        return str(self.least) if self.fixed else f"(. as $d | {_tree(self.pieces)})"


NONE: Final = Spans((Piece(0, 0, 0, RANGE),))


def _tree(pieces: tuple[Piece, ...]) -> str:
    if len(pieces) > 1:
        half = len(pieces) // 2
        low, high = _tree(pieces[:half]), _tree(pieces[half:])
        return f"if $d < {pieces[half].first} then {low} else {high} end"
    (piece,) = pieces
    if not piece.rise:
        return str(piece.low)
    # The remainder is subtracted first, because only divisions without one are exact in jq.
    return (
        f"((($d - {piece.first}) * {piece.rise}) as $n"
        f" | {piece.low} + ($n - $n % {piece.width}) / {piece.width})"
    )


@lru_cache(maxsize=1_024)
def spans(delay: Delay | None) -> Spans:
    """Returns the table of a distribution. Without a distribution, all spans are 0."""
    if delay is None:
        return NONE
    if delay.samples:
        return Spans(tuple(_steps(delay.samples)))
    return Spans(tuple(_straight(delay, 0, RANGE - 1, _MOST_HALVINGS)))


def _steps(samples: tuple[str, ...]) -> Iterator[Piece]:
    measured = sorted(milliseconds(text) for text in samples)
    firsts = [-(-i * RANGE // len(measured)) for i in range(len(measured) + 1)]
    for i, low in enumerate(measured):
        yield Piece(firsts[i], low, 0, firsts[i + 1] - firsts[i])


def _straight(delay: Delay, first: int, last: int, halvings: int) -> Iterator[Piece]:
    low, high = _exact(delay, first), _exact(delay, last)
    piece = Piece(first, low, high - low, max(1, last - first))
    if halvings and last - first > 1 and not _close(delay, piece, last):
        middle = (first + last) // 2
        yield from _straight(delay, first, middle, halvings - 1)
        yield from _straight(delay, middle, last, halvings - 1)
    else:
        yield piece


def _close(delay: Delay, piece: Piece, last: int) -> bool:
    # Compared at three places, as a curve may cross its chord in the middle.
    for part in (1, 2, 3):
        drawn = piece.first + (last - piece.first) * part // 4
        exact = _exact(delay, drawn)
        if abs(piece.at(drawn) - exact) > max(_SMALLEST, exact // _TOLERANCE):
            return False
    return True


def _exact(delay: Delay, drawn: int) -> int:
    return span(delay, (drawn + 0.5) / RANGE)
