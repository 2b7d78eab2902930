"""Tests whether the values of pairs differ by more than chance. Each verdict is based on this test.

    pairs of values ──> moves ──> all combinations of signs ──> Reach: how far, how far it must be

A pair's move is the difference of its two values, or of their logarithms. A permutation test flips
the signs of the pairs' moves in all combinations, in all figures at once. A figure's difference is
reported if in at most 1 of 128 combinations any figure moves as far as this one really did
(Westfall and Young, 1993, step by step). Figures that always move alike count for little more than
one figure. 8 pairs have 256 combinations of signs, 128 without their mirror images: just enough. So
with 8 pairs, a single combination in which another figure moves as far prevents the report.

For a test against a bound, the bound is subtracted from every move, and the test is one-sided.

Each further arm (a rival) is tested against the first. The `rivals` share the 1 in 128: with three
arms each of the two rivals has 1 in 256, for which 9 pairs are just enough.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, sub
from statistics import fmean
from typing import Final, TypeVar

from kwok_operator.comparison import studentt

BY_CHANCE: Final = 1 / 128
"""The rate of false alarms: at most this share of comparisons of two equal arms reports any
difference. It is the smallest that 8 pairs allow.
"""
OUTSIDE: Final = 0.05
"""The share of intervals that don't contain the true difference: 95 % intervals."""
_FEWEST_PAIRS: Final = 8
ALIKE: Final = 0.99
"""Pairs that reach at least this share of the largest possible reach count as moving alike: they
vary by at most a seventh of their mean move.
"""
_BITS: Final = 10
"""The number of tested combinations of signs is at most 2 to the power of this, for one rival. With
more pairs than this plus one, only some of the combinations are tested.
"""
_DECIDED: Final = 0.95
"""The weight of figures that count decisions; figures that the user named have 1. Such counts are
equal in most pairs, so they seldom reach far by chance, and hardly hide other figures.
"""
_LIGHTER: Final = 0.9
"""The weight of all other figures."""
_LARGEST: Final = 1e100
"""The largest value that is compared: its square is still finite."""

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Paired:
    """The values of one figure in all pairs in which both runs have it."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    moves: tuple[float, ...]
    """For each pair, log(b / a) if all values are positive, else b - a."""
    pair_indices: tuple[int, ...]
    """The index of each of these pairs among all pairs."""
    logs: bool
    lacking: int
    """The number of pairs in which only one run has the figure."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The limit that a change is compared with, from a --fail-if condition."""

    figure: str
    more: bool
    """Whether the bound limits an increase; otherwise it limits a decrease."""
    by: float
    relative: bool


@dataclass(frozen=True, slots=True)
class BoundTest:
    """The result of comparing a change with a bound."""

    beyond: bool
    """Whether the change is larger than the bound, beyond chance."""
    within: bool
    """Whether the whole 95 % interval of the change lies within the bound."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the pairs of a figure move together, and how far they must move to be reported.

    The measure is the sum of the moves, divided by the square root of the sum of their squares. If
    all pairs move alike, it is the square root of the number of pairs; the more they differ, the
    smaller it is.
    """

    reached: float
    needed: float
    more_pairs: int = 0
    """How many more pairs are needed before even a clear move can be reported, because other
    figures reach as far by chance.
    """

    @property
    def enough(self) -> bool:
        return self.reached * (1 - 1e-9) > self.needed


def fewest_pairs(rivals: int) -> int:
    """Returns how many pairs are needed to report any difference, with `rivals` arms beside the
    first.
    """
    return _FEWEST_PAIRS + _doublings(rivals)


def _doublings(rivals: int) -> int:
    """Returns how often the number of combinations must be doubled to grow at least `rivals`-fold,
    as the rivals share the 1 in 128.
    """
    return (rivals - 1).bit_length()


def _allowed(combinations: int, rivals: int) -> int:
    """Returns in how many combinations, at most, any figure may move as far as a reported one."""
    return int(BY_CHANCE * combinations / rivals)


@lru_cache(maxsize=8)
def _columns(bits: int) -> tuple[int, ...]:
    """Returns a bit mask for each pair. Combination number w flips the sign of a pair if w and the
    pair's mask have an odd number of bits in common. The first pair's mask is 0, so its sign is
    never flipped.
    """
    every = (n * 1237 % (1 << bits) for n in range(1 << bits))
    return (0, *(1 << bit for bit in range(bits)), *(c for c in every if c.bit_count() > 1))


def paired(a: Sequence[float | None], b: Sequence[float | None]) -> Paired | str:
    """Returns the pairs that have both values; or a text on why they are too few to compare."""
    having = {
        place: (float(x), float(y))
        for place, (x, y) in enumerate(zip(a, b, strict=False))
        if x is not None and y is not None and abs(x) < _LARGEST and abs(y) < _LARGEST
    }
    both = [*having.values()]
    if len(both) < 2:
        return f"{len(both)} of {max(len(a), len(b))} pairs of runs have it on both sides"
    logs = all(x > 0 and y > 0 for x, y in both)
    return Paired(
        a=tuple(x for x, _ in both),
        b=tuple(y for _, y in both),
        moves=tuple(math.log(y) - math.log(x) if logs else y - x for x, y in both),
        pair_indices=tuple(having),
        logs=logs,
        lacking=sum((x is None) is not (y is None) for x, y in zip(a, b, strict=False)),
    )


def reaches(
    pairs: Mapping[str, Paired],
    *,
    first: Collection[str],
    decided: Collection[str],
    rivals: int = 1,
) -> dict[str, Reach]:
    """Returns the reach of each figure that has at least `fewest_pairs` pairs. The test is most
    sensitive for figures in `first`, a little less for those in `decided`, least for all others.
    `rivals` is the number of arms that are compared with the first.
    """
    fewest = fewest_pairs(rivals)
    large = {name: each for name, each in pairs.items() if len(each.moves) >= fewest}
    total = 1 + max((each.pair_indices[-1] for each in large.values()), default=0)
    counts = {
        name: 1.0 if name in first else _DECIDED if name in decided else _LIGHTER for name in large
    }
    ways = {
        name: [*map(abs, _signed_sums(each.moves, each.pair_indices, total, counts[name], rivals))]
        for name, each in large.items()
    }
    return {
        name: Reach(
            ways[name][0] / counts[name],
            needed / counts[name],
            _more_pairs(
                ways, name, counts[name] * math.sqrt(len(large[name].moves)), needed, rivals
            ),
        )
        for name, needed in _step_by_step(ways, rivals).items()
    }


def _more_pairs(
    ways: Mapping[str, Sequence[float]], name: str, farthest: float, needed: float, rivals: int
) -> int:
    """Estimates how many more pairs are needed to report a figure's difference. Each further pair
    doubles the number of combinations; the estimate assumes that the number of combinations in
    which other figures reach as far stays the same.
    """
    if needed < ALIKE * farthest:
        return 0
    others = zip(*(each[1:] for other, each in ways.items() if other != name), strict=True)
    hiding = sum(1 for way in others if max(way) >= ALIKE * farthest)
    return max(hiding.bit_length() - _allowed(len(ways[name]), rivals).bit_length() + 1, 0)


def compare_with_bounds(
    pairs: Mapping[str, Paired | str], bounds: Collection[Bound], *, rivals: int = 1
) -> dict[Bound, BoundTest]:
    """Compares changes with bounds, for figures with enough pairs. If no true change is beyond its
    bound, the chance of reporting any is at most 1 in 128, over all rivals.
    """
    fewest = fewest_pairs(rivals)
    large = {
        bound: (_beside(paired, bound), paired)
        for bound in bounds
        if isinstance(paired := pairs.get(bound.figure), Paired) and len(paired.moves) >= fewest
    }
    total = 1 + max((paired.pair_indices[-1] for _, paired in large.values()), default=0)
    # The test is one-sided, so each combination and its opposite count separately.
    ways = {
        bound: [*sums, *(-each for each in sums)]
        for bound, (beside, paired) in large.items()
        for sums in [_signed_sums(beside, paired.pair_indices, total, 1.0, rivals)]
    }
    needed = _step_by_step(ways, rivals)
    return {
        bound: BoundTest(
            beyond=Reach(ways[bound][0], max(needed[bound], 0.0)).enough,
            within=fmean(beside) + studentt.quantile(OUTSIDE, len(beside) - 1) * error(beside) <= 0,
        )
        for bound, (beside, _) in large.items()
    }


def _beside(paired: Paired, bound: Bound) -> list[float]:
    """Returns for each pair by how much its move exceeds the bound."""
    sign = 1 if bound.more else -1
    if bound.relative and paired.logs:
        # A positive value can't decrease by 100 % or more.
        edge = math.log(max(1 + sign * bound.by, 1e-300))
        return [sign * (move - edge) for move in paired.moves]
    edges = [abs(a) * bound.by if bound.relative else bound.by for a in paired.a]
    every = zip(paired.a, paired.b, edges, strict=True)
    return [sign * (b - a) - edge for a, b, edge in every]


def _step_by_step(ways: Mapping[_Key, Sequence[float]], rivals: int) -> dict[_Key, float]:
    """Returns how far each figure must reach to be reported. The figure that reaches farthest is
    tested against all figures, the next one against all but that one, and so on.
    """
    most = [-math.inf] * len(next(iter(ways.values()), ()))
    rarest = _allowed(len(most), rivals)
    of_so_many: dict[_Key, list[float]] = {}
    for name in sorted(ways, key=lambda each: ways[each][0]):
        of_so_many[name] = most = [x if x > y else y for x, y in zip(most, ways[name], strict=True)]
    bars: dict[_Key, float] = {}
    bar, reached = math.inf, True
    for name in reversed(of_so_many):
        if reached and rarest:
            bar = sorted(of_so_many[name][1:])[-rarest]
        bars[name] = bar
        reached = reached and Reach(ways[name][0], bar).enough
    return bars


def _signed_sums(
    moves: Sequence[float], places: Sequence[int], total: int, counts: float, rivals: int
) -> list[float]:
    """Returns how far the pairs move together in each combination of flipped signs.

    The first combination flips no sign. With many pairs, only some combinations are tested; these
    form a group in the mathematical sense, as the test requires.
    """
    bits = min(total - 1, _BITS + _doublings(rivals))
    columns = _columns(bits)
    largest = max(map(abs, moves)) or 1.0
    norm = math.sqrt(math.fsum((move / largest) ** 2 for move in moves)) * largest / counts or 1.0
    of_mask: dict[int, float] = defaultdict(float)
    for place, move in zip(places, moves, strict=True):
        of_mask[columns[place % len(columns)]] += move / norm
    return _walsh(of_mask, bits)


def _walsh(values: Mapping[int, float], bits: int) -> list[float]:
    """Returns the Walsh transform of the values at these bit masks: in its element w, the sign of a
    value is flipped if w and the value's mask have an odd number of bits in common.

    The masks are split by their top bit, again and again. As most masks have a single bit, most
    parts have only the mask 0, and need no further split: their transform is constant.
    """
    if not any(values):
        return [values.get(0, 0.0)] * (1 << bits)
    top = 1 << bits - 1
    without = {mask: value for mask, value in values.items() if not mask & top}
    having = {mask ^ top: value for mask, value in values.items() if mask & top}
    one, other = _walsh(without, bits - 1), _walsh(having, bits - 1)
    return [*map(add, one, other), *map(sub, one, other)]


def error(values: Sequence[float]) -> float:
    """Returns the standard error of the mean."""
    return spread(values) / math.sqrt(len(values))


def spread(values: Sequence[float]) -> float:
    """Returns the standard deviation, about ten times as fast as the standard library."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
