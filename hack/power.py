"""What comparisons can show: prints the tables of power in docs/compare.md, in Markdown.

    noise, planted change ──> pairs of runs ──> compare_figures() ──> share of changes reported

The noise is log-normal. Its coefficient of variation (CV) is that of one run among runs of the same
seed, so the ratio of the two runs of a pair varies by 1.4 times as much. All figures vary
independently, which is harder than what recordings show. The seeds are fixed: each call prints the
same numbers. All tables take some minutes of one core; `--quick` is for tests.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Final
from unittest import mock

from kwok_operator.core.comparison import statistics
from kwok_operator.core.comparison.statistics import EffectVerdict, compare_figures

PAIRS: Final = (5, 6, 8, 10, 12, 16, 20, 24)
VARIATIONS: Final = (0.03, 0.05, 0.15, 0.4)
CHANGES: Final[Mapping[str, float]] = {"+10 %": 1.1, "+25 %": 1.25, "2x": 2.0}
SHARES: Final = (1.0, 0.9, 0.7)
OTHERS: Final = 21
"""Figures beside the one that changes."""
REPORTED: Final = frozenset({EffectVerdict.BETTER, EffectVerdict.WORSE, EffectVerdict.DIFFERS})
PUBLISHED: Final[Mapping[int, int]] = {3: 45, 10: 64, 20: 95}
"""Of karpenter#2997: runs of each, and how many of 100 doublings are seen at a CV of 40 to 60 %."""

Values = Mapping[str, Sequence[float]]


def noise(random: Random, count: int) -> list[float]:
    """Standard normal."""
    return [random.gauss(0, 1) for _ in range(count)]


def lognormal(standard: Sequence[float], variation: float, times: float = 1.0) -> list[float]:
    """Values with this coefficient of variation."""
    sigma = math.sqrt(math.log(1 + variation**2))
    return [times * math.exp(sigma * each) for each in standard]


def reported(a: Values, b: Values, first: Sequence[str] = ()) -> set[str]:
    """The figures in which a difference is reported; `first` are those of a --fail-if."""
    better = dict.fromkeys(a, True)
    effects = compare_figures(a, b, lower_is_better=better, first=first)
    return {each.figure for each in effects if each.verdict in REPORTED}


def waits(pairs: int, cases: Sequence[tuple[float, float]], times: int) -> list[list[float]]:
    """The power by case of CV and change: of the only figure, a named one, an unnamed one."""
    random, counts = Random(pairs), [[0, 0, 0] for _ in cases]
    for _ in range(times):
        others = _others(random, pairs)
        draws = noise(random, pairs), noise(random, pairs)
        for count, (variation, change) in zip(counts, cases, strict=True):
            a = {"f": lognormal(draws[0], variation)}
            b = {"f": lognormal(draws[1], variation, change)}
            count[0] += "f" in reported(a, b)
            count[1] += "f" in reported(a | others[0], b | others[1], first=["f"])
            count[2] += "f" in reported(a | others[0], b | others[1])
    return [[each / times for each in count] for count in counts]


def nodes(pairs: int, times: int) -> list[list[float]]:
    """The power by share of B's runs with 11 nodes, 10 being usual: alone, named, unnamed, and
    unnamed where a --fail-if names another figure."""
    random, counts = Random(pairs), [[0] * 4 for _ in SHARES]
    for _ in range(times):
        others = _others(random, pairs)
        draws = [random.random() for _ in range(pairs)]
        for count, share in zip(counts, SHARES, strict=True):
            a = {"nodes.max": [10.0] * pairs}
            b = {"nodes.max": [11.0 if draw < share else 10.0 for draw in draws]}
            count[0] += "nodes.max" in reported(a, b)
            for place, first in enumerate((["nodes.max"], [], ["0"]), 1):
                both = a | others[0], b | others[1]
                count[place] += "nodes.max" in reported(*both, first=first)
    return [[each / times for each in count] for count in counts]


def _others(random: Random, pairs: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Figures that do not change. How much they vary is nothing to the test."""
    a, b = (
        {str(number): lognormal(noise(random, pairs), 0.15) for number in range(OTHERS)}
        for _ in "ab"
    )
    return a, b


def tables(*, quick: bool) -> Iterator[str]:
    yield from _table_of_waits(20 if quick else 400, PAIRS[::3] if quick else PAIRS)
    yield from _table_of_nodes(20 if quick else 400, PAIRS[::3] if quick else PAIRS)
    yield from _table_beside_published(100 if quick else 2_000)


def _table_of_waits(times: int, pairs: Sequence[int]) -> Iterator[str]:
    cases = [(variation, change) for variation in VARIATIONS for change in CHANGES.values()]
    found = {each: waits(each, cases, times) for each in pairs}
    names = [f"{variation:.0%} | {change}".replace("%", " %", 1)
             for variation in VARIATIONS for change in CHANGES]  # fmt: skip
    yield from _head("CV", "change", *(f"{each} pairs" for each in pairs))
    for row, name in enumerate(names):
        yield _row(name, (_shares(found[each][row]) for each in pairs))


def _table_of_nodes(times: int, pairs: Sequence[int]) -> Iterator[str]:
    found = {each: nodes(each, times) for each in pairs}
    yield from _head("11 nodes in", *(f"{each} pairs" for each in pairs))
    for row, share in enumerate(SHARES):
        name = f"{100 * share:.0f} % of B's runs"
        yield _row(name, (_shares(found[each][row]) for each in pairs))


def _table_beside_published(times: int) -> Iterator[str]:
    """A doubling of the only figure."""
    yield from _head("runs of each", "published", "CV 40 %", "CV 50 %", "CV 60 %")
    for pairs, published in PUBLISHED.items():
        random, counts = Random(pairs), [0, 0, 0]
        for _ in range(times):
            a, b = noise(random, pairs), noise(random, pairs)
            for place, variation in enumerate((0.4, 0.5, 0.6)):
                arms = [{"f": lognormal(a, variation)}, {"f": lognormal(b, variation, 2)}]
                counts[place] += "f" in reported(*arms)
        yield _row(str(pairs), [str(published), *(_shares([each / times]) for each in counts)])


def _shares(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in shares)


def _head(*columns: str) -> Iterator[str]:
    yield f"\n| {' | '.join(columns)} |"
    yield f"|---|{'---:|' * (len(columns) - 1)}"


def _row(name: str, cells: Iterator[str] | Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.power", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few comparisons, for tests")
    options = parser.parse_args(arguments)
    # The same figures are turned round beside each planted change.
    turned = lru_cache(maxsize=4 * OTHERS)(statistics._turned)
    with mock.patch.object(statistics, "_turned", turned):
        for line in tables(quick=options.quick):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
