"""What more than two arms cost: false alarms over all of them, and the power that is left.

    rounds of runs with known truth ──> each arm beside the first ──> share of comparisons

Part of `python -m hack.power`. Of alike arms the first run of each round takes longer, whichever
arm has it.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

from hack.simulated import head, lognormal, noise, percent, reported, row

FIGURES: Final = 5
"""Waits, beside a count of decisions."""
COUNT: Final = "nodes.max"
_FIRST: Final = 1.2
_VARIES: Final = 0.05
_ARMS: Final = (2, 3, 5, 8)
_ROUNDS: Final = (11, 12)


def alike(
    random: Random, arms: int, rounds: int, *, first: float = _FIRST, skewed: bool = False
) -> list[dict[str, list[float]]]:
    """The figures of arms that don't differ. The first run of a round takes `first` times as long.
    With `skewed`, noise is a rare, long delay.
    """
    firsts = [random.randrange(arms) for _ in range(rounds)]
    found: list[dict[str, list[float]]] = []
    for arm in range(arms):
        slower = [first if arm == each else 1.0 for each in firsts]
        waits: dict[str, list[float]] = {}
        for number in range(FIGURES):
            drawn = lognormal(noise(random, rounds), _VARIES)
            if skewed:
                drawn = [random.paretovariate(1.5) for _ in range(rounds)]
            waits[str(number)] = [a * b for a, b in zip(drawn, slower, strict=True)]
        count = [10.0 + (random.random() < 0.2) + (each > 1) for each in slower]
        found.append(waits | {COUNT: count})
    return found


def alarms(arms: int, rounds: int, times: int, *, skewed: bool = False) -> float:
    """The share of comparisons of alike arms that report any difference of any arm."""
    random, found = Random(arms * 100 + rounds), 0
    for _ in range(times):
        first, *others = alike(random, arms, rounds, skewed=skewed)
        found += any(reported(first, each, rivals=arms - 1) for each in others)
    return found / times


def power(arms: int, rounds: int, times: int, change: float = 1.1) -> float:
    """The share of comparisons that report the change of one wait in one arm. That the other arms
    are there only shows in the level."""
    random, found = Random(arms * 100 + rounds), 0
    for _ in range(times):
        first, other = alike(random, 2, rounds, first=1.0)
        changed = other | {"0": [change * each for each in other["0"]]}
        found += "0" in reported(first, changed, rivals=arms - 1)
    return found / times


def table(times: int, rounds: Sequence[int] = _ROUNDS) -> Iterator[str]:
    yield head("", *(f"{each} rounds" for each in rounds))
    for arms in _ARMS:
        shares: Mapping[str, list[float]] = {
            f"{arms} arms alike: alarms": [alarms(arms, each, times) for each in rounds],
            f"{arms} arms alike, long delays: alarms": [
                alarms(arms, each, times, skewed=True) for each in rounds
            ],
            f"{arms} arms, one wait +10 %: found": [power(arms, each, times) for each in rounds],
        }
        for name, found in shares.items():
            yield row(name, [percent(share, digits=1) for share in found])
