"""How sure a comparison is, by simulation: prints the tables of docs/decisions/024, in Markdown.

    distribution, or noise of recorded runs ──> pairs of runs ──> compare_figures() ──> shares

With 10,000 comparisons in each cell it takes half an hour of two cores. The recorded runs are in
tests/unit/noise.json, and what they were is said there.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final

from hack.simulated import head, percent, row
from kwok_operator.comparison.statistics import (
    DIFFERENCES,
    Effect,
    EffectVerdict,
    compare_figures,
)

RECORDED: Final = Path(__file__).parents[1] / "tests/unit/noise.json"
SLOWER: Final = 1.1
"""What is planted."""
_SEEDS: Final = 0.3
"""What the seed of a pair does to both runs, as the sigma of a lognormal factor."""
_PAIRS: Final = (3, 5, 8, 12)

Run = Mapping[str, float]


def _lognormal(sigma: float) -> Callable[[Random], float]:
    return lambda random: 10 * math.exp(random.gauss(0, sigma))


def _outliers(random: Random) -> float:
    return random.gauss(10, 0.3) * (3 if random.random() < 0.1 else 1)


DISTRIBUTIONS: Final[Mapping[str, Callable[[Random], float]]] = {
    "lognormal, sigma 3 %": _lognormal(0.03),
    "lognormal, sigma 50 %": _lognormal(0.5),
    "uniform, 5 to 15": lambda random: random.uniform(5, 15),
    "exponential": lambda random: random.expovariate(0.1),
    "Pareto, alpha 1.5": lambda random: random.paretovariate(1.5),
    "one run in ten takes three times as long": _outliers,
    "two narrow humps, at 10 and 20": lambda random: random.gauss(random.choice((10, 20)), 0.1),
    "1 or 2": lambda random: float(random.choice((1, 2))),
    "1, 2, 3 or 4": lambda random: float(random.randint(1, 4)),
    "-1, 0 or 1": lambda random: float(random.randint(-1, 1)),
    "0, in one run of five 1 or 5": lambda random: float(random.choice((0,) * 8 + (1, 5))),
    "all equal": lambda _: 7.0,
}


@dataclass(frozen=True, slots=True)
class Independent:
    """Figures that have nothing to do with each other, all of one distribution."""

    distribution: str
    figures: int

    def pair(self, random: Random) -> tuple[Run, Run]:
        draw = DISTRIBUTIONS[self.distribution]
        # Whole numbers stay such: what the seed does would break the ties.
        whole = draw(Random(0)).is_integer()
        a, b = {}, {}
        for figure in map(str, range(self.figures)):
            seed = 1 if whole else math.exp(random.gauss(0, _SEEDS))
            a[figure], b[figure] = seed * draw(random), seed * draw(random)
        return a, b


class Recorded:
    """Runs with the noise of recorded ones: what parts two of one seed, all figures at once."""

    def __init__(self, name: str, *only: str) -> None:
        figures = {each: v for each, v in recorded()[name].items() if not only or each in only}
        self.figures = list(figures)
        starts = [each["a"] for each in figures.values()]
        self.starts = [dict(zip(figures, run, strict=True)) for run in zip(*starts, strict=True)]
        moves = [
            [_move(a, b) for a, b in zip(each["a"], each["b"], strict=True)]
            for each in figures.values()
        ]
        self.moves = [dict(zip(figures, pair, strict=True)) for pair in zip(*moves, strict=True)]

    def pair(self, random: Random) -> tuple[Run, Run]:
        start = random.choice(self.starts)
        return self._run(random, start), self._run(random, start)

    def _run(self, random: Random, start: Run) -> Run:
        # The noise of a pair is that of two runs: one has the root of a half of it.
        factor = random.choice((-1, 1)) / math.sqrt(2)
        moves = random.choice(self.moves)
        return {name: start[name] * math.exp(factor * moves[name]) for name in start}


def _move(a: float, b: float) -> float:
    return math.log(b / a) if a > 0 and b > 0 else 0.0


def recorded() -> dict[str, dict[str, dict[str, list[float]]]]:
    """By scenario and figure: the values of both arms, by pair."""
    read = json.loads(RECORDED.read_text())
    return {name: scenario["figures"] for name, scenario in read["scenarios"].items()}


def compared(
    source: Independent | Recorded,
    random: Random,
    pairs: int,
    planted: Run,
    first: Sequence[str] = (),
) -> dict[str, Effect]:
    """One comparison; `planted`: by how much B is multiplied, by figure; `first`: of --fail-if."""
    drawn = [source.pair(random) for _ in range(pairs)]
    names = list(drawn[0][0])
    found = compare_figures(
        {name: [a[name] for a, _ in drawn] for name in names},
        {name: [b[name] * planted.get(name, 1) for _, b in drawn] for name in names},
        lower_is_better=dict.fromkeys(names, True),
        first=first,
    )
    return {effect.figure: effect for effect in found}


def false_alarms(source: Independent | Recorded, *, pairs: int, times: int) -> float:
    """The share of comparisons of A against A that tell of a difference in any figure."""
    random = Random(pairs)
    told = (
        any(
            effect.verdict in DIFFERENCES for effect in compared(source, random, pairs, {}).values()
        )
        for _ in range(times)
    )
    return sum(told) / times


def coverage(source: Independent | Recorded, figure: str, *, pairs: int, times: int) -> float:
    """The share of intervals that have the planted change, or difference, in them."""
    random, held, mean = Random(pairs), 0, 0.0
    for _ in range(times):
        effect = compared(source, random, pairs, {figure: SLOWER})[figure]
        assert effect.low is not None and effect.high is not None
        if effect.change is None and not mean:
            mean = fmean(source.pair(random)[0][figure] for _ in range(50_000))
        true = (SLOWER - 1) * (mean if effect.change is None else 1)
        held += effect.low - 1e-9 <= true <= effect.high + 1e-9
    return held / times


def power(
    source: Recorded, figure: str, *, pairs: int, times: int, first: Sequence[str] = ()
) -> float:
    """The share of comparisons that find what is planted into a figure, among all figures."""
    random, found = Random(pairs), 0
    for _ in range(times):
        effect = compared(source, random, pairs, {figure: SLOWER}, first)[figure]
        found += effect.verdict is EffectVerdict.WORSE
    return found / times


def _row_of_distribution(name: str, times: int) -> str:
    one, ten = Independent(name, 1), Independent(name, 10)
    return _row(
        name,
        [false_alarms(one, pairs=pairs, times=times) for pairs in _PAIRS]
        + [false_alarms(ten, pairs=pairs, times=times) for pairs in _PAIRS]
        + [coverage(one, "0", pairs=pairs, times=times) for pairs in _PAIRS],
    )


def _row_of_recorded(scenario: str, times: int) -> str:
    source = Recorded(scenario)
    return _row(
        f"{scenario}: all {len(source.figures)} figures",
        [false_alarms(source, pairs=pairs, times=times) for pairs in _PAIRS],
    )


def _row_of_power(of: tuple[str, str], times: int) -> str:
    scenario, figure = of
    source = Recorded(scenario)
    spread = math.sqrt(sum(each[figure] ** 2 for each in source.moves) / len(source.moves))
    random = Random(0)
    smallest = [compared(source, random, 12, {})[figure].smallest or 0 for _ in range(99)]
    return _row(
        f"{scenario}: {figure}",
        [spread]
        + [power(source, figure, pairs=pairs, times=times) for pairs in (8, 12)]
        + [power(source, figure, pairs=12, times=times, first=[figure])]
        + [power(Recorded(scenario, figure), figure, pairs=12, times=times)]
        + [coverage(source, figure, pairs=pairs, times=times) for pairs in (8, 12)]
        + [sorted(smallest)[49]],
    )


def _row(name: str, shares: Sequence[float]) -> str:
    return row(name, [percent(share, digits=2) for share in shares])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.sureness", description=__doc__)
    parser.add_argument("--times", type=int, default=10_000, help="comparisons in each cell")
    parser.add_argument("--only", choices=("distributions", "recorded"))
    options = parser.parse_args(arguments)
    times = options.times
    with Pool(2) as pool:
        if options.only != "recorded":
            print(head("%", *(f"{what}, {pairs} pairs" for what in
                        ("alarms of 1 figure", "of 10", "intervals that hold")
                        for pairs in _PAIRS)))  # fmt: skip
            of_one = partial(_row_of_distribution, times=times)
            _printed(pool.imap(of_one, DISTRIBUTIONS))
        if options.only != "distributions":
            print(head("%", *(f"alarms, {pairs} pairs" for pairs in _PAIRS)))
            _printed(pool.imap(partial(_row_of_recorded, times=times), recorded()))
            print(head("%", "noise of a pair", "found of 8 pairs", "of 12",
                        "of 12, in --fail-if", "of 12, alone",
                        "intervals of 8", "of 12", "smallest at 12"))  # fmt: skip
            each = [(name, figure) for name, all_ in recorded().items()
                    for figure in all_ if figure in MEASURED]  # fmt: skip
            _printed(pool.imap(partial(_row_of_power, times=times // 10), each))
    return 0


MEASURED: Final = (
    "pendingSeconds.p50",
    "pendingSeconds.p95",
    "startSeconds.p95",
    "gangs.completionSeconds.p95",
    "nodeHours",
    "cost",
)


def _printed(rows: Iterable[str]) -> None:
    for line in rows:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
