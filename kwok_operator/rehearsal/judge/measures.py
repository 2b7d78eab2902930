"""What figures are summed up with while lines go by: levels, ratios, waits. No line is kept."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

HOUR: Final = 3_600.0
SHORTEST: Final = 5e-4
"""Seconds: what is less is the rounding of sums, as times of a recording are milliseconds."""


BROKEN: Final = "broken"
BACK: Final = "back"
LISTED: Final = "listed"
"""States of a watch."""


class WatchGaps:
    """What the recording lacks by now: kinds whose watch is broken, or that were listed anew."""

    def __init__(self) -> None:
        self._broken: dict[str, float] = {}
        self._listed: dict[str, float] = {}

    def apply(self, kind: str, state: str, t: float) -> None:
        if state == BROKEN:
            self._broken.setdefault(kind, t)
        elif state == BACK:
            self._broken.pop(kind, None)
        else:
            self._listed.setdefault(kind, t)

    def missing(self, kinds: Iterable[str], *, momentary: bool) -> str:
        """What makes a figure of these kinds incomplete; nothing where it is complete."""
        for kind in kinds:
            if kind in self._broken:
                return f"the watch of {kind} is broken since {self._broken[kind]:g} s"
            if kind in self._listed and not momentary:
                at = f"{self._listed[kind]:g} s"
                return f"{kind} were listed anew at {at}: what came and went before may be missing"
        return ""


class Level:
    """A number that changes in steps: what it is, was at most, and sums up to over time."""

    __slots__ = ("_area", "_since", "most", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.most = 0.0
        self._area = 0.0
        self._since = 0.0

    def move(self, t: float, by: float) -> None:
        self._area += self.value * (t - self._since)
        self._since = t
        self.value += by
        if self.value > self.most:
            self.most = self.value

    def add(self, area: float) -> None:
        """Adds what is known only now of the time before."""
        self._area += area

    def area(self, t: float) -> float:
        """In units times seconds, until `t`."""
        return self._area + self.value * (t - self._since)


class Ratio:
    """One number over another, both changing in steps: one integral over the other, so that an hour
    with much counts for more than one with little."""

    __slots__ = ("_above", "_below", "_since", "above", "below", "most")

    def __init__(self) -> None:
        self.above = 0.0
        self.below = 0.0
        self.most: float | None = None
        self._above = 0.0
        self._below = 0.0
        self._since = 0.0

    @property
    def value(self) -> float | None:
        return self.above / self.below if self.below > 0 else None

    def move(self, t: float, *, above: float = 0.0, below: float = 0.0) -> None:
        if (passed := t - self._since) > 0:
            self._since = t
            self._above += self.above * passed
            self._below += self.below * passed
            # What holds for no time at all, between two lines of one moment, is no peak.
            value = self.value
            if value is not None and (self.most is None or value > self.most):
                self.most = value
        self.above += above
        self.below += below

    def overall(self, t: float) -> float | None:
        """Over all of the time until `t`; as it is now where there was none."""
        self.move(t)
        return self._above / self._below if self._below > 0 else self.value

    def peak(self, t: float) -> float | None:
        self.move(t)
        return self.most if self.most is not None else self.value


class Waits:
    """How long things have waited: those that have ended, those that still do, with what they have
    waited by then, and how many can't end any more. Percentiles are by nearest rank."""

    __slots__ = ("_begun", "_done", "_sorted", "never")

    def __init__(self) -> None:
        self._done: list[float] = []
        self._begun: dict[str, float] = {}
        self._sorted = True
        self.never = 0
        """Waits that can't end any more."""

    @property
    def unended(self) -> int:
        return len(self._begun) + self.never

    def begin(self, key: str, at: float) -> None:
        self._begun[key] = at

    def end(self, key: str, seconds: float) -> None:
        self._begun.pop(key, None)
        self._done.append(max(seconds, 0.0))
        self._sorted = False

    def give_up(self, key: str) -> None:
        """It waits no longer, and will never have what it waited for."""
        self._begun.pop(key, None)
        self.never += 1

    def drop(self, key: str, *, ended: float | None = None, never: bool = False) -> None:
        """It is counted elsewhere from now on."""
        self._begun.pop(key, None)
        self.never -= never
        if ended is not None:
            self._sort()
            del self._done[bisect_left(self._done, ended)]

    def figure(self, which: str, t: float) -> float | None:
        """Of the waits that have ended, and of the others that still can, as long as they are."""
        waiting = [max(t - at, 0.0) for at in self._begun.values()]
        count = len(self._done) + len(waiting)
        if not count:
            return None
        if which == "mean":
            return (math.fsum(self._done) + math.fsum(waiting)) / count
        self._sort()
        if which == "max":
            return max([*self._done[-1:], *waiting])
        return _nth(self._done, sorted(waiting), _rank(which, count))

    def missing(self, which: str, value: float | None) -> str:
        """Why it isn't `value` however long the waits without an end took; nothing where it is."""
        if not self.unended:
            return ""
        count = len(self._done) + self.unended
        if which in PERCENTILES and (rank := _rank(which, count)) < len(self._done):
            self._sort()
            if self._done[rank] == value:
                return ""
        more = f", and {self.never:,} never will" if self.never and self._begun else ""
        what = "have ended so far" if self._begun else "had an end, the others never will"
        return f"{len(self._done):,} of {count:,} waits {what}{more}"

    def _sort(self) -> None:
        if not self._sorted:
            self._done.sort()
            self._sorted = True


def _rank(which: str, count: int) -> int:
    """Counted from 0."""
    return max(-(-count * PERCENTILES[which] // 100) - 1, 0)


def _nth(a: Sequence[float], b: Sequence[float], n: int) -> float:
    """Of two sorted lists, the n-th of both together: merging them would be most of the work."""
    low, high = max(0, n - len(b)), min(n, len(a))
    while low < high:
        middle = (low + high) // 2
        if a[middle] < b[n - middle - 1]:
            low = middle + 1
        else:
            high = middle
    return min(*a[low : low + 1], *b[n - low : n - low + 1], math.inf)


PERCENTILES: Final = {"p50": 50, "p95": 95, "p99": 99}
