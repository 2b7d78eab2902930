"""Runs with known truth, for the simulations of `hack.power`: noise, and what is reported of it."""

import math
from collections.abc import Mapping, Sequence
from random import Random

from kwok_operator.comparison.statistics import (
    DIFFERENCES,
    Effect,
    compare_figures,
)
from kwok_operator.rehearsal.judge.figures import FIGURES

Values = Mapping[str, Sequence[float]]
"""By figure, of each pair."""


def noise(random: Random, count: int) -> list[float]:
    """Standard normal."""
    return [random.gauss(0, 1) for _ in range(count)]


def lognormal(standard: Sequence[float], variation: float, times: float = 1.0) -> list[float]:
    """Values with this coefficient of variation."""
    sigma = math.sqrt(math.log(1 + variation**2))
    return [times * math.exp(sigma * each) for each in standard]


def compared(a: Values, b: Values, first: Sequence[str] = (), *, rivals: int = 1) -> list[Effect]:
    """What `compare` says; `first` are the figures of a --fail-if, `rivals` the arms beside A."""
    better = dict.fromkeys(a, True)
    decided = {name for name in a if name in FIGURES and FIGURES[name].decisions}
    return compare_figures(
        a, b, lower_is_better=better, first=first, decided=decided, rivals=rivals
    )


def reported(a: Values, b: Values, first: Sequence[str] = (), *, rivals: int = 1) -> set[str]:
    """The figures in which a difference is reported."""
    found = compared(a, b, first, rivals=rivals)
    return {each.figure for each in found if each.verdict in DIFFERENCES}


def head(*columns: str) -> str:
    return f"\n| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}"


def row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def percent(*shares: float, digits: int = 0) -> str:
    return " / ".join(f"{100 * share:.{digits}f}" for share in shares)
