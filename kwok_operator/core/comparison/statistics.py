"""Whether the figures of two arms differ, by how much, and how sure that is.

    values by pair ──> log-ratios ──> mean, 95 % interval (Student's t)
                                └──> better | worse | no difference seen, and what could be seen

The two values of a pair are of one seed, so what the seed does to both is not noise. Where a value
is not positive, differences take the place of ratios. A difference is only told where A against A
would not bring it, whatever the distribution, and where its interval says so, too:

- from 8 pairs on the pairs are turned round in every way, in all figures at once: in at most 1 of
  128 ways may any figure move as far as this one did (Westfall and Young, 1993, step by step).
  Figures that move alike count for little more than one;
- of 5 to 7 pairs there are too few ways. All values of one arm have to be beyond all of the other,
  which A against A brings 1 time in 126 with 5 pairs, over all figures at most 1 in 100.

So of A against A at most 1 comparison in 100 tells of a difference in any figure. The simulations
are in docs/decisions/024.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import add, sub
from statistics import NormalDist, fmean
from typing import Final

from kwok_operator.core.comparison import students

FALSE_ALARMS: Final = 0.01
"""Of comparisons of A against A."""
_BY_TURNING: Final = 1 / 128
"""Of those, from 8 pairs on: the rarest thing that 8 pairs can show."""
OUTSIDE: Final = 0.05
"""Of the intervals, those that don't have the true difference in them."""
MISSED: Final = 0.05
"""Of differences as large as `smallest`."""
_TURNED_FROM: Final = 8
_BITS: Final = 10
"""Of the ways of turning pairs round that are looked at: all, for up to 11 pairs."""
_COLUMNS: Final = (
    0,
    *(1 << bit for bit in range(_BITS)),
    *(column for n in range(1 << _BITS) if (column := n * 1237 % (1 << _BITS)).bit_count() > 1),
)
"""Of each pair: the bits of a way that turn it round. The first stays as it is."""
_LIGHTER: Final = 0.9
"""What the moves of other figures count, beside those that were asked about first."""
_FAR_APART: Final = 4.5
"""Standard deviations between two arms of 5 to 7 runs, for all of one to lie beyond the other."""
_LARGEST: Final = 1e100
"""Of values that are compared: their squares are finite."""


class EffectVerdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    DIFFERS = "differs"
    """In a figure of which neither more nor less is better."""
    NONE_SEEN = "no difference seen"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Effect:
    """What B does to a figure, beside A."""

    figure: str
    a: float | None = None
    """The mean of arm A."""
    b: float | None = None
    change: float | None = None
    """Relative: the geometric mean of b / a over the pairs, less 1; where there are zeros, the
    difference by the mean of A. None where that says nothing: the mean of A may as well be 0, or
    a value is below 0."""
    difference: float | None = None
    """The mean of b - a."""
    low: float | None = None
    """Of the 95 % interval of `change`, or of `difference` where that is None."""
    high: float | None = None
    pairs: int = 0
    lacking: int = 0
    """Pairs that have it on one side only, and so aren't among those."""
    verdict: EffectVerdict = EffectVerdict.NOT_COMPARABLE
    smallest: float | None = None
    """The smallest change, or difference, that so many runs with so much noise would have shown
    about 95 times of 100. None where they are too few to show any."""
    reason: str = ""
    """Why it is not comparable."""


@dataclass(frozen=True, slots=True)
class _Paired:
    """The pairs of a figure that have both values."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    moves: tuple[float, ...]
    """Of each pair: the log of the ratio, or the difference."""
    places: tuple[int, ...]
    """Which of all pairs these are."""
    logs: bool
    lacking: int


def compare_figures(
    a: Mapping[str, Sequence[float | None]],
    b: Mapping[str, Sequence[float | None]],
    *,
    lower_is_better: Mapping[str, bool | None],
    first: Collection[str] = (),
) -> list[Effect]:
    """The effect on each figure, in the order of `a`; such as only `b` has are last.

    Value i of `a` and of `b` are a pair; None where a run has no such figure. Of the figures in
    `first` smaller changes are told, and of the others only somewhat larger ones.
    """
    pairs = {name: _paired(a.get(name, ()), b.get(name, ())) for name in {**a, **b}}
    # A figure that is equal in every pair can't raise an alarm.
    moving = {name: found for name, found in pairs.items()
              if isinstance(found, _Paired) and any(found.moves)}  # fmt: skip
    figures = max(1, len({found.moves for found in moving.values()}))
    reach = _by_turning(moving, figures=figures, first=first)
    return [
        _effect(
            name,
            found,
            reach=reach.get(name, _Reach(0.0, 0.0)),
            figures=figures,
            lower_is_better=lower_is_better.get(name),
        )
        if isinstance(found, _Paired)
        else Effect(name, reason=found)
        for name, found in pairs.items()
    ]


def could_be_seen(pairs: int, figures: int) -> bool:
    """Whether so many pairs can tell of any difference in one of so many figures."""
    return pairs >= _TURNED_FROM or _apart_counts(pairs, figures)


def _paired(a: Sequence[float | None], b: Sequence[float | None]) -> _Paired | str:
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
    return _Paired(
        a=tuple(x for x, _ in both),
        b=tuple(y for _, y in both),
        moves=tuple(math.log(y) - math.log(x) if logs else y - x for x, y in both),
        places=tuple(having),
        logs=logs,
        lacking=sum((x is None) is not (y is None) for x, y in zip(a, b, strict=False)),
    )


def _effect(
    name: str,
    found: _Paired,
    *,
    reach: "_Reach",
    figures: int,
    lower_is_better: bool | None,
) -> Effect:
    a, b, pairs = fmean(found.a), fmean(found.b), len(found.moves)
    mean, error = fmean(found.moves), _error(found.moves)
    bar = students.quantile(OUTSIDE, pairs - 1)
    ratio = None if found.logs else _ratio(found.a, found.b, bar)
    relative = found.logs or ratio is not None
    scale = a if relative else 1.0

    def told(move: float) -> float:
        return math.expm1(min(move, 700.0)) if found.logs else move / scale

    low, high = ratio or (told(mean - bar * error), told(mean + bar * error))

    verdict = EffectVerdict.NONE_SEEN
    if abs(mean) > bar * error and (reach.enough or _apart(found, figures)):
        verdict = _direction(mean < 0, lower_is_better)
    smallest = _visible(found, reach.needed, figures)
    return Effect(
        figure=name,
        a=a,
        b=b,
        change=told(mean) if relative else None,
        difference=b - a,
        low=low,
        high=high,
        pairs=pairs,
        lacking=found.lacking,
        verdict=verdict,
        smallest=None if smallest is None else told(smallest),
    )


def _ratio(a: Sequence[float], b: Sequence[float], bar: float) -> tuple[float, float] | None:
    """The interval of mean b / mean a, less 1: each ratio that Student's t doesn't rule out
    (Fieller, 1954). None where the mean of a may as well be 0, and any ratio may be."""
    if min(*a, *b) < 0 or not max(a):
        return None
    largest = max(*a, *b)
    a, b = [value / largest for value in a], [value / largest for value in b]

    def product(one: Sequence[float], other: Sequence[float]) -> float:
        means, pairs = (fmean(one), fmean(other)), len(one)
        every = ((x - means[0]) * (y - means[1]) for x, y in zip(one, other, strict=True))
        return means[0] * means[1] - bar**2 * math.fsum(every) / (pairs - 1) / pairs

    square, middle = product(a, a), product(a, b)
    if square <= 0:
        return None
    half = math.sqrt(max(middle**2 - square * product(b, b), 0.0))
    return max((middle - half) / square, 0.0) - 1, (middle + half) / square - 1


def _visible(found: _Paired, needed: float, figures: int) -> float | None:
    """The smallest mean move that is told of all but MISSED times; None if none is."""
    pairs, normal = len(found.moves), NormalDist()
    # Of so few, the spread comes out too small by that.
    noise = _spread(found.moves) * (1 + 0.25 / (pairs - 1))
    if pairs >= _TURNED_FROM and needed**2 < pairs:
        # What is needed of a figure that hardly moves says little: of its own ways, few reach far.
        bar = max(
            needed * math.sqrt((pairs - 1) / (pairs - needed**2)),
            students.quantile(_BY_TURNING, pairs - 1),
        )
        # Student's t with a true move: its own noise, and that of the noise it is divided by.
        wide = math.sqrt(1 + bar**2 / (2 * pairs - 2))
        move = (bar + normal.inv_cdf(1 - MISSED) * wide) * noise / math.sqrt(pairs)
        # So few have to move the same way, all of them.
        together = normal.inv_cdf((1 - MISSED) ** (1 / pairs)) * noise
        return max(move, together) if pairs == _TURNED_FROM else move
    if _apart_counts(pairs, figures) and pairs < _TURNED_FROM:
        arms: Sequence[Sequence[float]] = (found.a, found.b)
        if found.logs:
            arms = [[math.log(value) for value in arm] for arm in arms]
        return _FAR_APART * max(_spread(arm) for arm in arms)
    return None


def _error(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    return _spread(values) / math.sqrt(len(values))


def _spread(values: Sequence[float]) -> float:
    """The standard deviation; that of the standard library takes ten times as long."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _direction(lower: bool, lower_is_better: bool | None) -> EffectVerdict:
    if lower_is_better is None:
        return EffectVerdict.DIFFERS
    return EffectVerdict.BETTER if lower is lower_is_better else EffectVerdict.WORSE


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far the pairs of a figure move together, and how far they would have to.

    In root pairs, if all move alike; less, the more they move this way and that.
    """

    found: float
    needed: float

    @property
    def enough(self) -> bool:
        return self.found * (1 - 1e-9) > self.needed


def _by_turning(
    moving: Mapping[str, _Paired], *, figures: int, first: Collection[str]
) -> dict[str, _Reach]:
    """Of each figure that has pairs enough.

    The one that reaches farthest is held against all, the next against all but that, and so on.
    """
    large = {name: each for name, each in moving.items() if len(each.moves) >= _TURNED_FROM}
    total = 1 + max((each.places[-1] for each in large.values()), default=0)
    counts = {name: 1.0 if name in first else _LIGHTER for name in large}
    ways = {name: _turned(each, total, counts[name]) for name, each in large.items()}
    # What figures of fewer pairs take of all alarms is not there for these.
    fewer = [pairs for each in moving.values() if (pairs := len(each.moves)) < _TURNED_FROM]
    taken = sum(_by_dealing(pairs) for pairs in fewer if _apart_counts(pairs, figures))
    share = min(_BY_TURNING, FALSE_ALARMS - taken)

    most = [0.0] * len(next(iter(ways.values()), ()))
    needed: dict[str, float] = {}
    for name in sorted(ways, key=lambda each: ways[each][0]):
        most = [*map(max, most, ways[name])]
        rarest = int(share * len(most))
        needed[name] = sorted(most[1:])[-rarest] if rarest else math.inf
    told = True
    bar = math.inf
    found: dict[str, _Reach] = {}
    for name in reversed(needed):
        bar = needed[name] if told else bar
        found[name] = _Reach(ways[name][0] / counts[name], bar / counts[name])
        told = told and found[name].enough
    return found


def _turned(found: _Paired, total: int, counts: float) -> list[float]:
    """How far the pairs move together, in each way of turning some of them round.

    The first way is as they were played. A Walsh transform: way w turns pair p round if w and the
    column of p have an odd number of bits in common. With more pairs than bits the ways are only
    some of all, and a group of them, which is what the test needs.
    """
    bits = min(total - 1, _BITS)
    largest = max(map(abs, found.moves))
    norm = math.sqrt(math.fsum((move / largest) ** 2 for move in found.moves)) * largest / counts
    sums = [0.0] * (1 << bits)
    for place, move in zip(found.places, found.moves, strict=True):
        sums[_COLUMNS[place % len(_COLUMNS)]] += move / norm
    for _ in range(bits):
        one, other = sums[::2], sums[1::2]
        sums = [*map(add, one, other), *map(sub, one, other)]
    return [*map(abs, sums)]


def _apart(found: _Paired, figures: int) -> bool:
    """Whether all values of one arm are beyond all of the other, and the pairs are so few."""
    pairs = len(found.moves)
    apart = max(found.a) < min(found.b) or max(found.b) < min(found.a)
    return apart and pairs < _TURNED_FROM and _apart_counts(pairs, figures)


def _apart_counts(pairs: int, figures: int) -> bool:
    """Whether it is rare enough that chance parts two arms."""
    return _by_dealing(pairs) <= FALSE_ALARMS / figures


def _by_dealing(pairs: int) -> float:
    """How often chance parts two arms: of all ways to deal out their values, two do."""
    return 2 / math.comb(2 * pairs, pairs)
