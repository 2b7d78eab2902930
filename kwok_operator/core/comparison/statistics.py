"""Whether the figures of two arms differ, by how much, and how sure that is.

    values by pair ──> log-ratios ──> mean, 95 % interval (Student's t)
                                └──> better | worse | no difference seen | undecided

The two values of a pair are of one seed, so what the seed does to both is not noise. Where a value
is not positive, differences take the place of ratios. A difference is only reported where A against
A would not bring it (`turning`), and where its interval says so, too.

So at most 1 comparison of A against A in 100 reports a difference in any figure, or in how often
runs fail (`fisher`), whatever the distribution, if the two runs of a pair are exchangeable: either
order of the two is as likely. The simulations are in docs/decisions/024.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist, fmean
from typing import Final

from kwok_operator.core.comparison import students, turning
from kwok_operator.core.comparison.fisher import BY_TURNING
from kwok_operator.core.comparison.turning import (
    OUTSIDE,
    TURNED_FROM,
    Against,
    Bound,
    Paired,
    Reach,
    spread,
)

MISSED: Final = 0.05
"""Of differences as large as `smallest`."""
_FAR_APART: Final = 4.5
"""Standard deviations between two arms of 5 to 7 runs, for all of one to lie beyond the other."""
_NEAR: Final = 0.8
"""Of a change: a smallest one above this share of it is near it."""


class EffectVerdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    DIFFERS = "differs"
    """In a figure of which neither more nor less is better."""
    NONE_SEEN = "no difference seen"
    UNDECIDED = "undecided"
    """So few pairs can show no difference, however large."""
    INCOMPLETE = "incomplete"
    """Some runs know it only in part."""
    EXPLORED = "explored"
    """It was chosen when runs had been seen already."""
    NOT_COMPARABLE = "not comparable"


DIFFERENCES: Final = (EffectVerdict.WORSE, EffectVerdict.BETTER, EffectVerdict.DIFFERS)


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
    """The smallest increase that so many runs with so much noise would have shown about 95 times
    of 100. None where they are too few to show any."""
    smallest_less: float | None = None
    """The same of a decrease, below 0. None also where all of it would not have been enough."""
    reason: str = ""
    """Why there is no other verdict, or what to keep in mind about this one."""


def compare_figures(
    a: Mapping[str, Sequence[float | None]],
    b: Mapping[str, Sequence[float | None]],
    *,
    lower_is_better: Mapping[str, bool | None],
    first: Collection[str] = (),
    decided: Collection[str] = (),
) -> list[Effect]:
    """The effect on each figure, in the order of `a`; such as only `b` has are last.

    Value i of `a` and of `b` are a pair; None where a run has no such figure. Of the figures in
    `first` the smallest changes are reported, then of those in `decided`, which count decisions,
    and of the others only somewhat larger ones.
    """
    pairs = {name: turning.paired(a.get(name, ()), b.get(name, ())) for name in {**a, **b}}
    # A figure that is equal in every pair can't raise an alarm.
    moving = {name: found for name, found in pairs.items()
              if isinstance(found, Paired) and any(found.moves)}  # fmt: skip
    family = _Family(
        figures=_ways_to_move(moving.values()),
        first=_ways_to_move(found for name, found in moving.items() if name in first),
        named=len(pairs),
        played=max((len(values) for values in (*a.values(), *b.values())), default=0),
        turned=any(len(found.moves) >= TURNED_FROM for found in moving.values()),
    )
    reach = turning.reaches(moving, first=first, decided=decided)
    return [
        _effect(
            name,
            found,
            reach=reach.get(name, Reach(0.0, 0.0)),
            family=family.of_first if name in first and not family.turned else family,
            lower_is_better=lower_is_better.get(name),
        )
        if isinstance(found, Paired)
        else Effect(name, reason=found)
        for name, found in pairs.items()
    ]


def _ways_to_move(moving: Iterable[Paired]) -> int:
    """How many figures there are, in effect: such as move in the same way are one."""
    return max(1, len({found.moves for found in moving}))


def against_bounds(
    a: Mapping[str, Sequence[float | None]],
    b: Mapping[str, Sequence[float | None]],
    bounds: Collection[Bound],
) -> dict[Bound, Against]:
    """Where the changes are beside these bounds; without those whose figures can't be compared."""
    names = {bound.figure for bound in bounds} & a.keys() & b.keys()
    return turning.against({name: turning.paired(a[name], b[name]) for name in names}, bounds)


@dataclass(frozen=True, slots=True)
class _Family:
    """All figures that share the false alarms."""

    figures: int
    """That move, each its own way."""
    first: int
    """Of these, those that were named first."""
    named: int
    """All."""
    played: int
    """Pairs, with or without values."""
    turned: bool
    """Whether any has pairs enough for that."""

    @property
    def of_first(self) -> "_Family":
        """Of 5 to 7 pairs those that were named first share the false alarms without the others."""
        return replace(self, figures=self.first, named=self.first)

    def needs(self, pairs: int) -> int:
        """How many more pairs a figure needs for any verdict."""
        if pairs >= TURNED_FROM:
            return 0
        if self.turned:
            return TURNED_FROM - pairs
        if turning.apart_counts(pairs, self.figures, played=self.played):
            return 0
        return max(turning.pairs_needed(self.named) - pairs, 1)


def _effect(
    name: str,
    found: Paired,
    *,
    reach: Reach,
    family: _Family,
    lower_is_better: bool | None,
) -> Effect:
    a, b, pairs = fmean(found.a), fmean(found.b), len(found.moves)
    mean, error = fmean(found.moves), turning.error(found.moves)
    bar = students.quantile(OUTSIDE, pairs - 1)
    ratio = None if found.logs else _ratio(found.a, found.b, bar)
    relative = found.logs or ratio is not None
    scale = a if relative else 1.0

    def as_change(move: float) -> float:
        return math.expm1(min(move, 700.0)) if found.logs else move / scale

    low, high = ratio or (as_change(mean - bar * error), as_change(mean + bar * error))
    decided = not family.needs(pairs)
    far = reach.enough if pairs >= TURNED_FROM else turning.apart(found)
    outside = abs(mean) > bar * error
    verdict = EffectVerdict.NONE_SEEN if decided else EffectVerdict.UNDECIDED
    if decided and outside and far:
        verdict = _direction(mean < 0, lower_is_better)
    smallest = _visible(found, reach.needed) if decided else None
    less = None if smallest is None else as_change(-smallest)
    return Effect(
        figure=name,
        a=a,
        b=b,
        change=as_change(mean) if relative else None,
        difference=b - a,
        low=low,
        high=high,
        pairs=pairs,
        lacking=found.lacking,
        verdict=verdict,
        smallest=None if smallest is None else as_change(smallest),
        smallest_less=None if less is None or (relative and less <= -1) else less,
        reason="; ".join(
            _reasons(
                verdict,
                family=family,
                found=found,
                outside=outside,
                weak=smallest is not None and smallest > _NEAR * abs(mean),
            )
        ),
    )


def _reasons(
    verdict: EffectVerdict, *, family: _Family, found: Paired, outside: bool, weak: bool
) -> Iterator[str]:
    pairs = len(found.moves)
    if verdict is EffectVerdict.UNDECIDED:
        more = family.needs(pairs)
        of = f" that have it, as {pairs} of {family.played} do" if pairs < family.played else ""
        yield f"{more} more {'pair is' if more == 1 else 'pairs are'} needed{of}"
        return
    if found.lacking:
        yield f"in {found.lacking} of {found.lacking + pairs} pairs only one run has it"
    if verdict is EffectVerdict.NONE_SEEN and outside:
        if family.figures > 1:
            yield f"of {family.figures} figures compared, chance moves one so far"
        else:
            yield "its interval leaves 0 out, but 1 of 20 intervals does that by chance"
    if verdict in DIFFERENCES and weak:
        yield "the true change is probably smaller, as these pairs would often miss one like it"


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


def _visible(found: Paired, needed: float) -> float | None:
    """The smallest mean move that is reported all but MISSED times; None if none is."""
    pairs, normal = len(found.moves), NormalDist()
    # Of so few, the spread comes out too small by that.
    noise = spread(found.moves) * (1 + 0.25 / (pairs - 1))
    if pairs >= TURNED_FROM and needed**2 < pairs:
        # What is needed of a figure that hardly moves says little: of its own ways, few reach far.
        bar = max(
            needed * math.sqrt((pairs - 1) / (pairs - needed**2)),
            students.quantile(BY_TURNING, pairs - 1),
        )
        # Student's t with a true move: its own noise, and that of the noise it is divided by.
        wide = math.sqrt(1 + bar**2 / (2 * pairs - 2))
        move = (bar + normal.inv_cdf(1 - MISSED) * wide) * noise / math.sqrt(pairs)
        # So few have to move the same way, all of them.
        together = normal.inv_cdf((1 - MISSED) ** (1 / pairs)) * noise
        return max(move, together) if pairs == TURNED_FROM else move
    if pairs < TURNED_FROM:
        arms: Sequence[Sequence[float]] = (found.a, found.b)
        if found.logs:
            arms = [[math.log(value) for value in arm] for arm in arms]
        return _FAR_APART * max(spread(arm) for arm in arms)
    return None


def _direction(lower: bool, lower_is_better: bool | None) -> EffectVerdict:
    if lower_is_better is None:
        return EffectVerdict.DIFFERS
    return EffectVerdict.BETTER if lower is lower_is_better else EffectVerdict.WORSE
