"""Whether pairs move farther than chance moves them: the test behind each verdict.

    pairs of values ──> moves ──> turned round in every way ──> Reach: how far, how far it has to be

The pairs are turned round in every way, in all figures at once: in at most 1 of 128 ways may any
figure move as far as this one did (Westfall and Young, 1993, step by step). Figures that move alike
count for little more than one. 8 pairs are the fewest that have so many ways. They have no more, so
where another figure reaches far in one of them, all others stay undecided.

Against a bound that holds for one direction, with all moves less the bound.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, sub
from statistics import fmean
from typing import Final, TypeVar

from kwok_operator.comparison import students

BY_CHANCE: Final = 1 / 128
"""Of comparisons of A against A, those that may report anything: the rarest that 8 pairs show."""
OUTSIDE: Final = 0.05
"""Of the intervals, those that don't have the true difference in them."""
FEWEST_PAIRS: Final = 8
ALIKE: Final = 0.99
"""Of the farthest that pairs reach: they move alike, within a seventh of how far they move."""
_BITS: Final = 10
"""Of the ways of turning pairs round that are looked at: all, for up to 11 pairs."""
_COLUMNS: Final = (
    0,
    *(1 << bit for bit in range(_BITS)),
    *(column for n in range(1 << _BITS) if (column := n * 1237 % (1 << _BITS)).bit_count() > 1),
)
"""Of each pair: the bits of a way that turn it round. The first stays as it is."""
_DECIDED: Final = 0.95
"""What the moves of counts of decisions count, beside those of figures that were named first. Most
of them are equal in most pairs, so they seldom reach far by chance, and cost others little."""
_LIGHTER: Final = 0.9
"""What the moves of all others count."""
_LARGEST: Final = 1e100
"""Of values that are compared: their squares are finite."""

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Paired:
    """The pairs of a figure that have both values."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    moves: tuple[float, ...]
    """Of each pair: the log of the ratio, or the difference."""
    places: tuple[int, ...]
    """Which of all pairs these are."""
    logs: bool
    lacking: int
    """Pairs that have it on one side only."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a change is held against."""

    figure: str
    more: bool
    """The direction."""
    by: float
    relative: bool


@dataclass(frozen=True, slots=True)
class Against:
    """Where a change is, beside a bound."""

    beyond: bool
    """It is larger, beyond chance."""
    within: bool
    """The whole interval says that it isn't."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the pairs of a figure move together, and how far they would have to.

    In root pairs, if all move alike; less, the more they move this way and that.
    """

    found: float
    needed: float
    more_pairs: int = 0
    """That it takes to report even pairs that all move alike: other figures reach as far."""

    @property
    def enough(self) -> bool:
        return self.found * (1 - 1e-9) > self.needed


def paired(a: Sequence[float | None], b: Sequence[float | None]) -> Paired | str:
    """Or why there is nothing to compare."""
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
        places=tuple(having),
        logs=logs,
        lacking=sum((x is None) is not (y is None) for x, y in zip(a, b, strict=False)),
    )


def reaches(
    pairs: Mapping[str, Paired], *, first: Collection[str], decided: Collection[str]
) -> dict[str, Reach]:
    """Of each figure that has pairs enough to be turned round."""
    large = {name: each for name, each in pairs.items() if len(each.moves) >= FEWEST_PAIRS}
    total = 1 + max((each.places[-1] for each in large.values()), default=0)
    counts = {
        name: 1.0 if name in first else _DECIDED if name in decided else _LIGHTER for name in large
    }
    ways = {
        name: [*map(abs, _turned(each.moves, each.places, total, counts[name]))]
        for name, each in large.items()
    }
    return {
        name: Reach(
            ways[name][0] / counts[name],
            needed / counts[name],
            _more_pairs(ways, name, counts[name] * math.sqrt(len(large[name].moves)), needed),
        )
        for name, needed in _step_by_step(ways).items()
    }


def _more_pairs(
    ways: Mapping[str, Sequence[float]], name: str, farthest: float, needed: float
) -> int:
    """For each pair more there are twice as many ways, and others reach far in as many as now."""
    if needed < ALIKE * farthest:
        return 0
    others = zip(*(each[1:] for other, each in ways.items() if other != name), strict=True)
    hiding = sum(1 for way in others if max(way) >= ALIKE * farthest)
    return max(hiding.bit_length() - int(BY_CHANCE * len(ways[name])).bit_length() + 1, 0)


def against(pairs: Mapping[str, Paired | str], bounds: Collection[Bound]) -> dict[Bound, Against]:
    """Each whose figure has pairs enough. Any is beyond by chance at most 1 time in 128."""
    large = {
        bound: (_beside(found, bound), found)
        for bound in bounds
        if isinstance(found := pairs.get(bound.figure), Paired) and len(found.moves) >= FEWEST_PAIRS
    }
    total = 1 + max((found.places[-1] for _, found in large.values()), default=0)
    # In one direction, all pairs turned round at once are another way.
    ways = {
        bound: [*sums, *(-each for each in sums)]
        for bound, (beside, found) in large.items()
        for sums in [_turned(beside, found.places, total, 1.0)]
    }
    needed = _step_by_step(ways)
    return {
        bound: Against(
            beyond=Reach(ways[bound][0], max(needed[bound], 0.0)).enough,
            within=fmean(beside) + students.quantile(OUTSIDE, len(beside) - 1) * error(beside) <= 0,
        )
        for bound, (beside, _) in large.items()
    }


def _beside(found: Paired, bound: Bound) -> list[float]:
    """How far each pair is beyond the bound."""
    sign = 1 if bound.more else -1
    if bound.relative and found.logs:
        # Nothing is less by all of it, or more.
        edge = math.log(max(1 + sign * bound.by, 1e-300))
        return [sign * (move - edge) for move in found.moves]
    edges = [abs(a) * bound.by if bound.relative else bound.by for a in found.a]
    every = zip(found.a, found.b, edges, strict=True)
    return [sign * (b - a) - edge for a, b, edge in every]


def _step_by_step(ways: Mapping[_Key, Sequence[float]]) -> dict[_Key, float]:
    """How far each has to reach: the farthest against all, the next against all but that, ..."""
    most = [-math.inf] * len(next(iter(ways.values()), ()))
    rarest = int(BY_CHANCE * len(most))
    of_so_many: dict[_Key, list[float]] = {}
    for name in sorted(ways, key=lambda each: ways[each][0]):
        of_so_many[name] = most = [*map(max, most, ways[name])]
    bars: dict[_Key, float] = {}
    bar, reached = math.inf, True
    for name in reversed(of_so_many):
        if reached and rarest:
            bar = sorted(of_so_many[name][1:])[-rarest]
        bars[name] = bar
        reached = reached and Reach(ways[name][0], bar).enough
    return bars


def _turned(
    moves: Sequence[float], places: Sequence[int], total: int, counts: float
) -> list[float]:
    """How far the pairs move together, in each way of turning some of them round.

    The first way is as they were played. A Walsh transform: way w turns pair p round if w and the
    column of p have an odd number of bits in common. With more pairs than bits the ways are only
    some of all, and a group of them, which is what the test needs.
    """
    bits = min(total - 1, _BITS)
    largest = max(map(abs, moves)) or 1.0
    norm = math.sqrt(math.fsum((move / largest) ** 2 for move in moves)) * largest / counts or 1.0
    sums = [0.0] * (1 << bits)
    for place, move in zip(places, moves, strict=True):
        sums[_COLUMNS[place % len(_COLUMNS)]] += move / norm
    for _ in range(bits):
        one, other = sums[::2], sums[1::2]
        sums = [*map(add, one, other), *map(sub, one, other)]
    return sums


def error(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    return spread(values) / math.sqrt(len(values))


def spread(values: Sequence[float]) -> float:
    """The standard deviation; that of the standard library takes ten times as long."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
