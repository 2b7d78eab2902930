"""What differences pod by pod would bring: prints a table, the power of figures of the same runs.

    common arrivals and boots, own noise ──> two runs of a queue ──> figures ──> share reported

Part of `python -m hack.power`. Pods are matched by their order of creation. The mean of their
differences is the difference of the means, so `pendingSeconds.mean` is that figure already. The
other way to use the match leaves out the fifth of pods whose waits rose most, and that whose waits
fell most. Only the run is independent, so the test is over pairs in any case.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final

from hack.simulated import head, lognormal, noise, percent, reported, row

_PODS: Final = 60
_PER_NODE: Final = 4
_PAIRS: Final = 8
_LATE: Final = 60.0
"""Seconds that a pod waits longer, where single pods are disturbed."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    boots: float = 1.0
    """How long boots of B take, beside those of A."""
    scan: float = 10.0
    """Seconds between two looks of the autoscaler; when the first one is, differs by run."""
    disturbed: float = 0.0
    """The share of pods that wait longer by chance."""
    slow_tenth: float = 1.0
    """How long each tenth pod of B waits, beside A."""


CASES: Final = (
    Case("A with A"),
    Case("boots +10 %, a look each 10 s", boots=1.1),
    Case("boots +10 %, a look each 2 s", boots=1.1, scan=2.0),
    Case("the same, 2 % of pods disturbed", boots=1.1, scan=2.0, disturbed=0.02),
    Case("each tenth pod 2x, a look each 2 s", scan=2.0, slow_tenth=2.0),
)


def table(times: int) -> Iterator[str]:
    names = ("p95", "p50", "mean", "matched, trimmed")
    yield head("% reported, 8 pairs", *names)
    for case in CASES:
        random, found = Random(_PAIRS), [0] * len(names)
        for _ in range(times):
            pairs = [_figures(*_pair(random, case)) for _ in range(_PAIRS)]
            for place in range(len(names)):
                a, b = ({"f": [pair[place][arm] for pair in pairs]} for arm in (0, 1))
                found[place] += bool(reported(a, b))
        yield row(case.name, [percent(each / times) for each in found])


def _figures(a: Sequence[float], b: Sequence[float]) -> list[tuple[float, float]]:
    one, other = sorted(a), sorted(b)
    p95, p50 = (math.ceil(share * len(a)) - 1 for share in (0.95, 0.5))
    differences = sorted(y - x for x, y in zip(a, b, strict=True))
    least, most = differences[len(a) // 5], differences[-1 - len(a) // 5]
    kept = [(x, y) for x, y in zip(a, b, strict=True) if least <= y - x <= most]
    return [
        (one[p95], other[p95]),
        (one[p50], other[p50]),
        (fmean(a), fmean(b)),
        (fmean(x for x, _ in kept), fmean(y for _, y in kept)),
    ]


def _pair(random: Random, case: Case) -> tuple[list[float], list[float]]:
    at, arrivals = 0.0, []
    for _ in range(_PODS):
        at += random.expovariate(0.5)
        arrivals.append(at)
    boots = [20 * boot for boot in lognormal(noise(random, _PODS), 0.4)]
    a = _run(random, case, arrivals, boots)
    b = _run(random, case, arrivals, [case.boots * boot for boot in boots])
    return a, [wait * (case.slow_tenth if n % 10 == 0 else 1.0) for n, wait in enumerate(b)]


def _run(
    random: Random, case: Case, arrivals: Sequence[float], boots: Sequence[float]
) -> list[float]:
    """Each look buys nodes for the pods that have no place on one that comes. A place is taken in
    the order in which places are there and pods came, up to a second late."""
    (machine,) = lognormal(noise(random, 1), 0.03)
    waits: list[float] = []
    places: list[float] = []
    now, bought = random.uniform(0, case.scan), iter(boots)
    while len(waits) < len(arrivals):
        pending = [at for at in arrivals[len(waits) :] if at <= now]
        while len(places) < len(pending):
            places += [now + next(bought) * lognormal(noise(random, 1), 0.02)[0]] * _PER_NODE
        places.sort()
        for at in pending:
            late = _LATE if random.random() < case.disturbed else 0.0
            waits.append(max(places.pop(0), now) - at + machine * random.expovariate(2) + late)
        now += case.scan * machine
    return waits
