"""Whether the figures of two arms differ, by how much, and how sure that is.

    values by pair ──> log-ratios ──> mean, 95 % interval (Student's t)
                                └──> better | worse | no difference seen, and what could be seen

The two values of a pair are of one seed, so what the seed does to both is not noise. Where a value
is not positive, differences take the place of ratios. A difference is only told where two tests
agree:

- Student's t over the pairs, by Holm's method over all figures, at 1 in 200. A figure that is equal
  in every pair can't raise an alarm, and one that moves as another does raises no more: neither
  counts;
- a test that needs no distribution: signs flipped in every way (from 8 pairs on), or all values of
  one arm beyond all of the other, which A against A brings 1 time in 126 with 5 pairs.

So of A against A at most 1 comparison in 100 tells of a difference in any figure. The simulations
are in docs/decisions/024.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist, fmean
from typing import Final

from kwok_operator.core.comparison import students

FALSE_ALARMS: Final = 0.01
"""Of comparisons of A against A."""
_BY_T: Final = FALSE_ALARMS / 2
"""Of Student's t: where values heap up at two places it raises up to twice as many as it says."""
OUTSIDE: Final = 0.05
"""Of the intervals, those that don't have the true difference in them."""
MISSED: Final = 0.05
"""Of differences as large as `smallest`."""
_FLIPPED_FROM: Final = 8
_MOST_FLIPPED: Final = 12
"""Pairs; more are flipped in so many groups."""
_APART: Final = 4.5
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
    logs: bool
    lacking: int

    @property
    def p(self) -> float:
        """Of Student's t; some pair has to move."""
        mean, error = fmean(self.moves), _error(self.moves)
        return students.two_sided_p(mean / error if error else math.inf, len(self.moves) - 1)


def compare_figures(
    a: Mapping[str, Sequence[float | None]],
    b: Mapping[str, Sequence[float | None]],
    *,
    lower_is_better: Mapping[str, bool | None],
) -> list[Effect]:
    """The effect on each figure, in the order of `a`; such as only `b` has are last.

    Value i of `a` and of `b` are a pair; None where a run has no such figure.
    """
    pairs = {name: _paired(a.get(name, ()), b.get(name, ())) for name in {**a, **b}}
    counted = {found.moves: found.p for found in pairs.values()
               if isinstance(found, _Paired) and any(found.moves)}  # fmt: skip
    proven = _holm(counted)
    return [
        _effect(
            name,
            found,
            proven=found.moves in proven,
            figures=max(1, len(counted)),
            lower_is_better=lower_is_better.get(name),
        )
        if isinstance(found, _Paired)
        else Effect(name, reason=found)
        for name, found in pairs.items()
    ]


def could_be_seen(pairs: int, figures: int) -> bool:
    """Whether so many pairs can tell of any difference in one of so many figures."""
    return pairs >= _FLIPPED_FROM or _apart_counts(pairs, figures)


def _paired(a: Sequence[float | None], b: Sequence[float | None]) -> _Paired | str:
    """Or why there is nothing to compare."""
    both = [
        (float(x), float(y))
        for x, y in zip(a, b, strict=False)
        if x is not None and y is not None and abs(x) < _LARGEST and abs(y) < _LARGEST
    ]
    if len(both) < 2:
        return f"{len(both)} of {max(len(a), len(b))} pairs of runs have it on both sides"
    logs = all(x > 0 and y > 0 for x, y in both)
    return _Paired(
        a=tuple(x for x, _ in both),
        b=tuple(y for _, y in both),
        moves=tuple(math.log(y) - math.log(x) if logs else y - x for x, y in both),
        logs=logs,
        lacking=sum((x is None) is not (y is None) for x, y in zip(a, b, strict=False)),
    )


def _effect(
    name: str, found: _Paired, *, proven: bool, figures: int, lower_is_better: bool | None
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
    if proven and _needs_no_distribution(found, figures):
        verdict = _direction(mean < 0, lower_is_better)
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
        smallest=told(_visible(found, figures)) if could_be_seen(pairs, figures) else None,
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


def _visible(found: _Paired, figures: int) -> float:
    """The smallest mean move that both tests find all but MISSED times."""
    pairs = len(found.moves)
    # Of so few, the spread comes out too small by that.
    noise = _spread(found.moves) * (1 + 0.25 / (pairs - 1))
    bar, normal = students.quantile(_BY_T / figures, pairs - 1), NormalDist()
    # Student's t with a true move: its own noise, and that of the noise it is divided by.
    wide = math.sqrt(1 + bar**2 / (2 * pairs - 2))
    move = (bar + normal.inv_cdf(1 - MISSED) * wide) * noise / math.sqrt(pairs)
    if pairs == _FLIPPED_FROM:
        # So few have to move the same way, all of them.
        return max(move, normal.inv_cdf((1 - MISSED) ** (1 / pairs)) * noise)
    if pairs < _FLIPPED_FROM:
        arms: Sequence[Sequence[float]] = (found.a, found.b)
        if found.logs:
            arms = [[math.log(value) for value in arm] for arm in arms]
        return max(move, _APART * max(_spread(arm) for arm in arms))
    return move


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


def _holm(p: Mapping[tuple[float, ...], float]) -> frozenset[tuple[float, ...]]:
    """Those that hold together (Holm, 1979)."""
    found: set[tuple[float, ...]] = set()
    for left, (moves, value) in zip(
        range(len(p), 0, -1), sorted(p.items(), key=lambda each: each[1]), strict=True
    ):
        if value > _BY_T / left:
            break
        found.add(moves)
    return frozenset(found)


def _needs_no_distribution(found: _Paired, figures: int) -> bool:
    pairs = len(found.moves)
    apart = max(found.a) < min(found.b) or max(found.b) < min(found.a)
    if apart and _apart_counts(pairs, figures):
        return True
    return pairs >= _FLIPPED_FROM and _flipped_p(found.moves) <= FALSE_ALARMS


def _apart_counts(pairs: int, figures: int) -> bool:
    """Whether it is rare enough that chance parts two arms: of all ways to deal out, two do."""
    return 2 / math.comb(2 * pairs, pairs) <= FALSE_ALARMS / figures


def _flipped_p(moves: Sequence[float]) -> float:
    """How many ways of turning pairs round move the sum as far as it is."""
    groups = [math.fsum(moves[i::_MOST_FLIPPED]) for i in range(min(len(moves), _MOST_FLIPPED))]
    sums = [0.0]
    for group in groups:
        sums = [each + turned for each in sums for turned in (group, -group)]
    bar = abs(sums[0]) * (1 - 1e-9)
    return sum(abs(each) >= bar for each in sums) / len(sums)
