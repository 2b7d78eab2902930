"""Computes when each object of a workload is created.

    workload, seed  --arrivals-->  Arrival: seconds since the beginning, the object's number

The same workload and seed give the same arrivals on any machine: each draw depends only on the
seed, the workload's name and the object's number. Workloads with a trace have no arrivals here, as
`replay` creates their objects.
"""

import hashlib
import math
from collections.abc import Iterator
from heapq import merge
from typing import Final, NamedTuple

from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.workload import (
    ArrivalsOfWorkload,
    ArrivalWave,
    ScenarioWorkload,
    Spacing,
)

# A part of every hash. Never change it: other draws would make other rehearsals.
_DOMAIN: Final = "kwok-operator/arrival/1"
_BITS: Final = 52
_RANGE: Final = float(2**_BITS)


class Arrival(NamedTuple):
    """The creation of an object. The objects of a workload are numbered from 0."""

    at: float
    workload: str
    number: int


def arrivals_of(scenario: Scenario) -> Iterator[Arrival]:
    """Yields the arrivals of all workloads, in the order of their times."""
    each = (arrivals(workload, seed=scenario.draws_from) for workload in scenario.workloads)
    return merge(*each)


def arrivals(workload: ScenarioWorkload, *, seed: str) -> Iterator[Arrival]:
    """Yields the arrivals of one workload, in the order of their times; none if it has a trace."""
    when = workload.arrivals
    times = _times(when, workload.objects, who=f"{_DOMAIN}\0{seed}\0{workload.name}")
    for number, at in enumerate(times):
        yield Arrival(round(when.at + at, 3), workload.name, number)


def last_arrival(workload: ScenarioWorkload, *, seed: str) -> float:
    """Returns when the last object is created; 0 if there is none."""
    return max((each.at for each in arrivals(workload, seed=seed)), default=0.0)


def _times(when: ArrivalsOfWorkload, count: int, *, who: str) -> Iterator[float]:
    if when.wave is not None:
        yield from _waves(when.wave, count, who=who)
    elif when.rate is None:
        yield from (0.0 for _ in range(count))
    elif when.spacing is Spacing.EVEN:
        yield from (number / when.rate for number in range(count))
    else:
        at = 0.0
        for number in range(count):
            # A Poisson process, as of independent users: gaps are exponential, also the first one.
            at -= math.log(_draw(who, number)) / when.rate
            yield at


def _waves(wave: ArrivalWave, count: int, *, who: str) -> Iterator[float]:
    for first in range(0, count, wave.size):
        begins = first // wave.size * wave.every
        numbers = range(first, min(first + wave.size, count))
        yield from sorted(begins + _draw(who, number) * wave.spread for number in numbers)


def _draw(who: str, number: int) -> float:
    """Draws a number greater than 0 and less than 1."""
    hashed = hashlib.sha256(f"{who}\0{number}".encode(errors="surrogatepass")).digest()
    number = int.from_bytes(hashed[:8], "big") >> (64 - _BITS)
    return (number + 0.5) / _RANGE
