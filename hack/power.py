"""What comparisons can show: prints the tables of power in docs/compare.md, in Markdown.

    noise, planted change ──> pairs of runs ──> compare_figures() ──> share of changes reported

The noise is log-normal. Its coefficient of variation (CV) is that of one run among runs of the same
seed, so the ratio of the two runs of a pair varies by 1.4 times as much. All figures vary
independently, which is harder than what recordings show. The seeds are fixed: each call prints the
same numbers. All tables take some minutes of one core; `--quick` is for tests.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Final
from unittest import mock

from hack import arms, rules
from hack.simulated import Values, compared, head, lognormal, noise, percent, reported, row
from kwok_operator.comparison import permutation

PAIRS: Final = (8, 10, 12, 16, 20, 24)
VARIATIONS: Final = (0.03, 0.05, 0.15, 0.4)
CHANGES: Final[Mapping[str, float]] = {"+10 %": 1.1, "+25 %": 1.25, "2x": 2.0}
SHARES: Final = (1.0, 0.9, 0.7)
FIGURE: Final = "pendingSeconds.p95"
NODES: Final = "nodes.max"
ENOUGH: Final = 40
OTHERS: Final = 21
"""Figures beside the one that changes."""
PUBLISHED: Final[Mapping[int, int]] = {3: 45, 10: 64, 20: 95}
"""Of karpenter#2997: runs of each, and how many of 100 doublings are seen at a CV of 40 to 60 %."""


class Cell:
    """How often a change is reported. Where the first comparisons all agree, they are enough."""

    def __init__(self) -> None:
        self._found = self._of = 0

    def add(self, a: Values, b: Values, *, first: str = "") -> None:
        if self._of == ENOUGH and self._found in (0, ENOUGH):
            return
        self._of += 1
        self._found += not {FIGURE, NODES}.isdisjoint(reported(a, b, [first]))

    @property
    def share(self) -> float:
        return self._found / self._of


def waits(pairs: int, cases: Sequence[tuple[float, float]], times: int) -> list[list[Cell]]:
    """The power by case of CV and change: of the only figure, a named one, an unnamed one."""
    random, found = Random(pairs), [[Cell() for _ in range(3)] for _ in cases]
    for _ in range(times):
        beside = others(random, pairs)
        draws = noise(random, pairs), noise(random, pairs)
        for cells, (variation, change) in zip(found, cases, strict=True):
            a = {FIGURE: lognormal(draws[0], variation)}
            b = {FIGURE: lognormal(draws[1], variation, change)}
            cells[0].add(a, b)
            cells[1].add(a | beside[0], b | beside[1], first=FIGURE)
            cells[2].add(a | beside[0], b | beside[1])
    return found


def counts(pairs: int, times: int) -> list[list[Cell]]:
    """The power by share of B's runs with 11 nodes, 10 being usual: of the only figure, a named
    one, an unnamed one, and an unnamed one where another is named."""
    random, found = Random(pairs), [[Cell() for _ in range(4)] for _ in SHARES]
    for _ in range(times):
        beside = others(random, pairs)
        draws = [random.random() for _ in range(pairs)]
        for cells, share in zip(found, SHARES, strict=True):
            a = {NODES: [10.0] * pairs}
            b = {NODES: [11.0 if draw < share else 10.0 for draw in draws]}
            cells[0].add(a, b)
            for cell, first in zip(cells[1:], (NODES, "", "0"), strict=True):
                cell.add(a | beside[0], b | beside[1], first=first)
    return found


def alarms(pairs: int, times: int) -> list[float]:
    """Of A with A: in how many comparisons a difference is reported in any figure, without and
    with a --fail-if; and how many intervals contain the change, of a tenth, of a count and of a
    wait."""
    random, found = Random(pairs), [0] * 4
    for _ in range(times):
        a, b = (
            waiting | decisions
            for waiting, decisions in zip(
                others(random, pairs), _decisions(random, pairs), strict=True
            )
        )
        found[0] += bool(reported(a, b))
        found[1] += bool(reported(a, b, first=["0"]))
        count = {"f": [11.0 if random.random() < 0.9 else 10.0 for _ in range(pairs)]}
        for place, (low, high, true) in enumerate(
            (
                (*_interval({"f": [10.0] * pairs}, count), 1.1**0.9 - 1),
                (*_interval({"f": a["0"]}, {"f": [1.1 * each for each in b["0"]]}), 0.1),
            ),
            2,
        ):
            found[place] += low <= true <= high
    return [each / times for each in found]


def _interval(a: Values, b: Values) -> tuple[float, float]:
    (effect,) = compared(a, b)
    assert effect.low is not None and effect.high is not None
    return effect.low, effect.high


def others(random: Random, pairs: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Figures that do not change. How much they vary is nothing to the test."""
    a, b = (
        {str(number): lognormal(noise(random, pairs), 0.15) for number in range(OTHERS)}
        for _ in "ab"
    )
    return a, b


def _decisions(random: Random, pairs: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Counts that one in twenty, in five and in two runs have one more of, by chance."""
    chances = {"nodes.final": 0.05, "churn.created": 0.2, "evictions": 0.5}
    a, b = (
        {
            name: [10.0 + (random.random() < of) for _ in range(pairs)]
            for name, of in chances.items()
        }
        for _ in "ab"
    )
    return a, b


def tables(times: int, pairs: Sequence[int] = PAIRS) -> Iterator[str]:
    # The same figures are turned round beside each planted change.
    signed_sums = lru_cache(maxsize=4 * OTHERS)(permutation._signed_sums)
    with mock.patch.object(permutation, "_signed_sums", signed_sums):
        yield from _table_of_waits(times, pairs)
        yield from _table_of_counts(times, pairs)
    yield from _table_of_alarms(3 * times, pairs)
    yield from arms.table(3 * times)
    yield from _table_beside_published(10 * times)
    yield from rules.table(20 * times)


def _table_of_waits(times: int, pairs: Sequence[int]) -> Iterator[str]:
    cases = [(variation, change) for variation in VARIATIONS for change in CHANGES.values()]
    found = {each: waits(each, cases, times) for each in pairs}
    names = [f"{100 * cv:.0f} % | {change}" for cv in VARIATIONS for change in CHANGES]
    yield head("CV", "change", *(f"{each} pairs" for each in pairs))
    for place, name in enumerate(names):
        yield row(name, [percent(*(cell.share for cell in found[each][place])) for each in pairs])


def _table_of_counts(times: int, pairs: Sequence[int]) -> Iterator[str]:
    found = {each: counts(each, times) for each in pairs}
    yield head("11 nodes in", *(f"{each} pairs" for each in pairs))
    for place, share in enumerate(SHARES):
        name = f"{100 * share:.0f} % of B's runs"
        yield row(name, [percent(*(cell.share for cell in found[each][place])) for each in pairs])


def _table_of_alarms(times: int, pairs: Sequence[int]) -> Iterator[str]:
    found = [alarms(each, times) for each in pairs]
    yield head("", *(f"{each} pairs" for each in pairs))
    names = ("alarms, nothing named", "alarms, one figure named", "intervals, a count",
             "intervals, a wait")  # fmt: skip
    for name, shares in zip(names, zip(*found, strict=True), strict=True):
        yield row(name, [percent(share, digits=1) for share in shares])


def _table_beside_published(times: int) -> Iterator[str]:
    """A doubling of the only figure."""
    yield head("runs of each", "published", "CV 40 %", "CV 50 %", "CV 60 %")
    for pairs, published in PUBLISHED.items():
        random, found = Random(pairs), [0, 0, 0]
        for _ in range(times):
            a, b = noise(random, pairs), noise(random, pairs)
            for place, variation in enumerate((0.4, 0.5, 0.6)):
                both = {"f": lognormal(a, variation)}, {"f": lognormal(b, variation, 2)}
                found[place] += "f" in reported(*both)
        yield row(str(pairs), [str(published), *(percent(each / times) for each in found)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.power", description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="comparisons in each cell")
    parser.add_argument("--quick", action="store_true", help="few comparisons, for tests")
    options = parser.parse_args(arguments)
    for line in tables(5, PAIRS[::3]) if options.quick else tables(options.times):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
