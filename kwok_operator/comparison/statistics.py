"""Computes whether the figures of two arms differ, by how much, and how certain that is.

    values by pair ──> log-ratios ──> mean, 95 % interval (Student's t)
                                └──> better | worse | no difference seen | undecided

The two runs of a pair have the same seed, so what the seed changes in both is not noise. If a value
is not positive, differences replace ratios. A difference is reported only if comparing A with A
would hardly ever show it (`permutation`), and if its interval doesn't contain 0.

So at most 1 in 100 comparisons of A with A reports a difference in any figure, whatever the
distribution, if the two runs of a pair are exchangeable: both orders of the two are equally likely.
The simulations are in docs/decisions/024.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist, fmean
from typing import Final

from kwok_operator.comparison import permutation, studentt
from kwok_operator.comparison.permutation import (
    BY_CHANCE,
    OUTSIDE,
    Bound,
    BoundTest,
    Paired,
    Reach,
    fewest_pairs,
    spread,
)

MISSED: Final = 0.05
"""The share of differences of size `smallest` that stay unseen."""
_HUNDREDFOLD: Final = 100.0
"""If only changes above this factor could be seen, the verdict is `undecided`."""
_NEAR: Final = 0.8
"""If `smallest` is above this share of the measured change, the reason warns that the true change
is probably smaller.
"""


class EffectVerdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    DIFFERS = "differs"
    """A difference in a figure for which neither more nor less is better."""
    NONE_SEEN = "no difference seen"
    UNDECIDED = "undecided"
    """No difference was seen, but these pairs could not have shown one of any size."""
    INCOMPLETE = "incomplete"
    """The figure covers only a part of some runs."""
    EXPLORED = "explored"
    """The figure was added after runs had been seen, so it gets no verdict."""
    NOT_COMPARABLE = "not comparable"


DIFFERENCES: Final = (EffectVerdict.WORSE, EffectVerdict.BETTER, EffectVerdict.DIFFERS)


@dataclass(frozen=True, slots=True)
class Effect:
    """How a figure of arm B differs from that of arm A."""

    figure: str
    a: float | None = None
    """The mean of arm A."""
    b: float | None = None
    change: float | None = None
    """The relative change: the geometric mean of b / a over the pairs, minus 1; if there are zeros,
    the difference divided by the mean of A. None if a value is below 0, or if the mean of A may be
    0.
    """
    difference: float | None = None
    """The mean of b - a over the pairs."""
    low: float | None = None
    """The lower end of the 95 % interval of `change`, or of `difference` if `change` is None."""
    high: float | None = None
    pairs: int = 0
    lacking: int = 0
    """The number of pairs in which only one run has the figure; `pairs` doesn't count them."""
    verdict: EffectVerdict = EffectVerdict.NOT_COMPARABLE
    smallest: float | None = None
    """The smallest increase that about 95 of 100 such comparisons would show, with as many runs and
    as much noise. None if no increase could be seen.
    """
    smallest_less: float | None = None
    """The smallest visible decrease, below 0, in the same sense. None if not even a decrease to 0
    would have been seen.
    """
    reason: str = ""
    """Why the verdict isn't another one, or what to keep in mind about it."""


def compare_figures(
    a: Mapping[str, Sequence[float | None]],
    b: Mapping[str, Sequence[float | None]],
    *,
    lower_is_better: Mapping[str, bool | None],
    first: Collection[str] = (),
    decided: Collection[str] = (),
    rivals: int = 1,
) -> list[Effect]:
    """Returns the effect on each figure, in the order of `a`, then figures that only `b` has.

    Value i of `a` and value i of `b` are a pair; None where a run lacks the figure. The test is
    most sensitive for the figures in `first`, a little less for those in `decided`, which count
    decisions, and less again for all others. `rivals` is the number of arms that share the rate of
    false alarms.
    """
    pairs = {name: permutation.paired(a.get(name, ()), b.get(name, ())) for name in {**a, **b}}
    there = {name: paired for name, paired in pairs.items() if isinstance(paired, Paired)}
    reach = permutation.reaches(there, first=first, decided=decided, rivals=rivals)
    family = _Family(
        # Figures that always move alike count as one; figures that are equal in every pair can't
        # raise a false alarm.
        figures=len({paired.moves for paired in there.values() if any(paired.moves)}),
        played=max((len(values) for values in (*a.values(), *b.values())), default=0),
        rivals=rivals,
    )
    return [
        _effect(name, paired, reach.get(name), family, lower_is_better=lower_is_better.get(name))
        if isinstance(paired, Paired)
        else Effect(name, reason=paired)
        for name, paired in pairs.items()
    ]


def against_bounds(
    a: Mapping[str, Sequence[float | None]],
    b: Mapping[str, Sequence[float | None]],
    bounds: Collection[Bound],
    *,
    rivals: int = 1,
) -> dict[Bound, BoundTest]:
    """Returns how each change compares with its bounds. Leaves out figures that can't be
    compared.
    """
    names = {bound.figure for bound in bounds} & a.keys() & b.keys()
    return permutation.compare_with_bounds(
        {name: permutation.paired(a[name], b[name]) for name in names}, bounds, rivals=rivals
    )


@dataclass(frozen=True, slots=True)
class _Family:
    """All figures that are tested together, and so share one rate of false alarms."""

    figures: int
    """How many figures differ in any pair. Figures that always move alike count as one."""
    played: int
    """The number of pairs that were played, with or without values."""
    rivals: int
    """The number of arms that are compared with the first, and share the rate of false alarms."""


def _effect(
    name: str,
    paired: Paired,
    reach: Reach | None,
    family: _Family,
    *,
    lower_is_better: bool | None,
) -> Effect:
    a, b, pairs = fmean(paired.a), fmean(paired.b), len(paired.moves)
    mean, error = fmean(paired.moves), permutation.error(paired.moves)
    bar = studentt.quantile(OUTSIDE, pairs - 1)
    ratio = None if paired.logs else _ratio(paired.a, paired.b, bar)
    relative = paired.logs or ratio is not None
    scale = a if relative else 1.0

    def as_change(move: float) -> float:
        return math.expm1(min(move, 700.0)) if paired.logs else move / scale

    low, high = ratio or (as_change(mean - bar * error), as_change(mean + bar * error))
    outside = abs(mean) > bar * error
    move, verdict = None, EffectVerdict.UNDECIDED
    if reach is not None:
        move = _visible(paired, reach.needed, family.rivals)
        hidden = reach.more_pairs or (relative and as_change(move) > _HUNDREDFOLD)
        if reach.enough and outside:
            verdict = _direction(mean < 0, lower_is_better)
        elif hidden:
            move = None
        else:
            verdict = EffectVerdict.NONE_SEEN
    less = None if move is None else as_change(-move)
    weak = move is not None and move > _NEAR * abs(mean)
    return Effect(
        figure=name,
        a=a,
        b=b,
        change=as_change(mean) if relative else None,
        difference=b - a,
        low=low,
        high=high,
        pairs=pairs,
        lacking=paired.lacking,
        verdict=verdict,
        smallest=None if move is None else as_change(move),
        smallest_less=None if less is None or (relative and less <= -1) else less,
        reason="; ".join(_reasons(verdict, paired, reach, family, outside=outside, weak=weak)),
    )


def _reasons(
    verdict: EffectVerdict,
    paired: Paired,
    reach: Reach | None,
    family: _Family,
    *,
    outside: bool,
    weak: bool,
) -> Iterator[str]:
    pairs = len(paired.moves)
    if verdict is EffectVerdict.UNDECIDED:
        more = reach.more_pairs if reach else fewest_pairs(family.rivals) - pairs
        needed = f"{more or ''} more {'pair is' if more == 1 else 'pairs are'} needed".lstrip()
        of = f" that have it, as {pairs} of {family.played} do" if pairs < family.played else ""
        why = ""
        if reach and more:
            why = ", as other figures or failed runs move as far by chance"
        elif reach:
            why = ", as changes below a hundredfold are lost in the noise"
        yield f"{needed}{of}{why}"
        return
    if paired.lacking:
        yield f"in {paired.lacking} of {paired.lacking + pairs} pairs only one run has it"
    if verdict is EffectVerdict.NONE_SEEN and outside:
        if family.figures > 1:
            yield f"of {family.figures} figures compared, chance moves one so far"
        else:
            yield "its interval leaves 0 out, but 1 of 20 intervals does that by chance"
    if verdict in DIFFERENCES and weak:
        yield "the true change is probably smaller, as these pairs would often miss one like it"


def _ratio(a: Sequence[float], b: Sequence[float], bar: float) -> tuple[float, float] | None:
    """Returns the 95 % interval of mean b / mean a, minus 1: all ratios that Student's t doesn't
    rule out (Fieller, 1954). None if the mean of a may be 0, so that any ratio is possible.
    """
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


def _visible(paired: Paired, needed: float, rivals: int) -> float:
    """Returns how large the true mean move of the pairs must be so that a comparison reports it
    with the probability 1 - MISSED.
    """
    pairs, normal = len(paired.moves), NormalDist()
    # So few values underestimate the spread by this factor.
    noise = spread(paired.moves) * (1 + 0.25 / (pairs - 1))
    # For a figure that hardly moves, `needed` says little, as few of its combinations reach far.
    needed = min(needed, permutation.ALIKE * math.sqrt(pairs))
    bar = max(
        needed * math.sqrt((pairs - 1) / (pairs - needed**2)),
        studentt.quantile(BY_CHANCE / rivals, pairs - 1),
    )
    # With a true move, Student's t varies by its own noise and by that of its denominator.
    wide = math.sqrt(1 + bar**2 / (2 * pairs - 2))
    move = (bar + normal.inv_cdf(1 - MISSED) * wide) * noise / math.sqrt(pairs)
    # So few pairs must all move the same way.
    together = normal.inv_cdf((1 - MISSED) ** (1 / pairs)) * noise
    return max(move, together) if pairs == fewest_pairs(rivals) else move


def _direction(lower: bool, lower_is_better: bool | None) -> EffectVerdict:
    if lower_is_better is None:
        return EffectVerdict.DIFFERS
    return EffectVerdict.BETTER if lower is lower_is_better else EffectVerdict.WORSE
