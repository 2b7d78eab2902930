"""Random numbers that are computed from hashes, and the spans of time that they give.

    seed, group, serial, purpose  --draw-->  (0, 1)  --span(Delay)-->  milliseconds

A draw depends on these four and on nothing else: neither an order of calls, nor state, nor a clock.
A greater draw never gives a shorter span. Spans are from 0 to 720 h, whatever a stored object says:
bounds in the wrong order are swapped, and a delay without a distribution is 0.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.api.delay import MAX_HOURS, Delay
from kwok_operator.formats.times import parse_duration

# Part of every hash, and never changed: a release that draws otherwise breaks everybody's runs.
_DOMAIN = b"kwok-operator/draw/1"
_BITS = 52
"""Bits of a draw: (number + 0.5) is still exact as a float, so no draw is 0 or 1."""
_RANGE: Final = float(2**_BITS)
SECOND: Final = 1_000
HOUR: Final = 3_600 * SECOND
LONGEST: Final = MAX_HOURS * HOUR

_STANDARD = NormalDist()
_Z99 = _STANDARD.inv_cdf(0.99)
_SHORTEST_MEDIAN = 0.001


@dataclass(frozen=True, slots=True)
class InstanceSeed:
    """The instance that draws: all its draws depend on these fields."""

    seed: str
    group: str
    serial: int

    def draw(self, what: str) -> float:
        """Returns a number between 0 and 1 (both excluded), always the same for `what`."""
        return _number(self._known + _field(what))

    def draws(self, what: str, *, most: int) -> Callable[[int], float]:
        """Returns a function of n (below `most`) that returns `draw(what/n)`, at a third of the
        cost."""
        known, fields = self._known, _numbered(what, most)
        return lambda n: _number(known + fields[n])

    @property
    def _known(self) -> bytes:
        return _known_part(self.seed, self.group) + _field(str(self.serial))


def group_seed(seed_of_all: str, *, group: str) -> str:
    """Derives the seed of a group whose spec has none; at most as long as a seed in a spec."""
    return hashlib.sha256(_known_part(seed_of_all, group)).hexdigest()[:32]


def instance_seed(
    cloud: Cloud, *, group: str, serial: int, unit: int | None = None
) -> InstanceSeed:
    """Returns the seed of an instance; without `cloud.seed`, the group's name is the seed. With
    the number of its `unit`, all instances of that unit draw alike."""
    if unit is not None:
        return InstanceSeed(cloud.seed or group, f"{group}/{cloud.unit}", unit)
    return InstanceSeed(cloud.seed or group, group, serial)


def _number(question: bytes) -> float:
    number = int.from_bytes(hashlib.sha256(question).digest()[:8], "big") >> (64 - _BITS)
    return (number + 0.5) / _RANGE


def _field(text: str) -> bytes:
    # With its length before it, no text can run into the next.
    data = text.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


@lru_cache(maxsize=1_024)
def _known_part(seed: str, group: str) -> bytes:
    return _DOMAIN + _field(seed) + _field(group)


@lru_cache(maxsize=4)
def _numbered(what: str, most: int) -> tuple[bytes, ...]:
    return tuple(_field(f"{what}/{n}") for n in range(most))


def milliseconds(text: str) -> int:
    """Parses a duration of a spec, such as 90s; at most 720 h."""
    return min(parse_duration(text) * SECOND, LONGEST)


def span(delay: Delay, draw: float) -> int:
    """Returns the span, in milliseconds, that `draw` (0 to 1) gives."""
    return spans(delay)(draw)


def spans(delay: Delay) -> Callable[[float], int]:
    """Returns a function that does what `span` does for one delay. For many draws it is faster, as
    the delay is looked up once."""
    inverse = _inverse(delay)
    return lambda draw: _within(inverse(draw))


def drawn(delay: Delay | None, who: InstanceSeed, *, what: str) -> int:
    """Returns the span that an instance draws for `what`; 0 without a delay."""
    return 0 if delay is None else span(delay, who.draw(what))


def span_by_rate(hourly: float, draw: float) -> int:
    """Returns the milliseconds until an event hits an instance. In each hour it hits the share
    `hourly` (0 to 1) of all instances."""
    if hourly <= 0:
        return LONGEST
    if hourly >= 1:
        return 0
    return _within(3_600 * math.log1p(-draw) / math.log1p(-hourly))


def _within(seconds: float) -> int:
    return max(0, min(round(min(seconds, LONGEST) * SECOND), LONGEST))


# A spec has few delays, and thousands of instances draw from each.
@lru_cache(maxsize=256)
def _inverse(delay: Delay) -> Callable[[float], float]:
    """Returns the function from a draw to seconds, not yet limited to 0..720 h."""
    if delay.fixed:
        seconds = _seconds(delay.fixed)
        return lambda draw: seconds
    if delay.uniform:
        low, high = sorted((_seconds(delay.uniform.min), _seconds(delay.uniform.max)))
        return lambda draw: low + draw * (high - low)
    if delay.normal:
        mean, deviation = _seconds(delay.normal.mean), _seconds(delay.normal.stddev)
        return lambda draw: mean + deviation * _STANDARD.inv_cdf(draw)
    if delay.lognormal:
        ends = sorted((_seconds(delay.lognormal.p50), _seconds(delay.lognormal.p99)))
        median, high = (max(end, _SHORTEST_MEDIAN) for end in ends)
        sigma, middle = math.log(high / median) / _Z99, math.log(median)
        # Beyond what is ever within bounds, exp() would overflow.
        most = math.log(LONGEST)
        return lambda draw: math.exp(min(middle + sigma * _STANDARD.inv_cdf(draw), most))
    if delay.exponential:
        scale = _seconds(delay.exponential.mean)
        return lambda draw: -scale * math.log1p(-draw)
    if delay.samples:
        measured = sorted(_seconds(text) for text in delay.samples)
        return lambda draw: measured[math.ceil(draw * len(measured)) - 1]
    return lambda draw: 0.0


def _seconds(text: str | None) -> float:
    return milliseconds(text) / SECOND if text else 0.0
