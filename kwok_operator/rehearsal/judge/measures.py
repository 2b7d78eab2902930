"""The levels, ratios and waits from which figures are computed. They are updated with each line of
a recording, and keep no lines.
"""

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from kwok_operator.formats.words import FEW

HOUR: Final = 3_600.0
SHORTEST: Final = 5e-4
"""Seconds. Anything shorter is a rounding error, as times of a recording have milliseconds."""


BROKEN: Final = "broken"
BACK: Final = "back"
LISTED: Final = "listed"
"""A state of a watch, like BROKEN and BACK: the kind was listed again after a gap."""


class WatchGaps:
    """The kinds of objects of which the recording lacks changes: their watch is broken, or was for
    a while.
    """

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
        """Returns why a figure computed from objects of these kinds is incomplete; empty if it
        isn't. A `momentary` figure needs only present objects: once listed again, it is complete.
        """
        for kind in kinds:
            if kind in self._broken:
                return f"the watch of {kind} is broken since {self._broken[kind]:g} s"
            if kind in self._listed and not momentary:
                at = f"{self._listed[kind]:g} s"
                return f"{kind} were listed anew at {at}: what came and went before may be missing"
        return ""


class Level:
    """A number that changes in steps: its value, its maximum, and its integral over time."""

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
        """Adds to the integral an amount about earlier times that became known only now."""
        self._area += area

    def area(self, t: float) -> float:
        """Returns the integral until `t`, in units times seconds."""
        return self._area + self.value * (t - self._since)


class Ratio:
    """The ratio of two numbers that change in steps. Over time it is the ratio of their integrals,
    so hours with large numbers weigh more than hours with small ones.
    """

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
            # A value between two lines of the same moment doesn't count as a peak.
            value = self.value
            if value is not None and (self.most is None or value > self.most):
                self.most = value
        self.above += above
        self.below += below

    def overall(self, t: float) -> float | None:
        """Returns the ratio over all the time until `t`; if no time has passed, the present one."""
        self.move(t)
        return self._above / self._below if self._below > 0 else self.value

    def peak(self, t: float) -> float | None:
        self.move(t)
        return self.most if self.most is not None else self.value


class Waits:
    """How long things have waited: ended waits, waits that go on, and waits that can't end any
    more. Percentiles use the nearest rank.
    """

    __slots__ = ("_begun", "_done", "_dropped", "_longest", "_sorted", "given_up", "never")

    def __init__(self) -> None:
        self._done: list[float] = []
        self._dropped: list[float] = []
        """Lengths in `_done` that don't count any more. They are removed only when `_done` is
        sorted, as removing each at once would take most of the time.
        """
        self._begun: dict[str, float] = {}
        self._longest: list[tuple[float, str]] = []
        self._sorted = True
        self.never = 0
        """The number of waits that can't end any more."""
        self.given_up: list[str] = []
        """The keys of the last few waits that can't end any more."""

    @property
    def unended(self) -> int:
        return len(self._begun) + self.never

    @property
    def open(self) -> Collection[str]:
        """The keys of waits that haven't ended and still can."""
        return self._begun.keys()

    @property
    def longest(self) -> list[tuple[float, str]]:
        """A few of the longest ended waits, longest first: seconds and key."""
        return sorted(self._longest, reverse=True)

    def begin(self, key: str, at: float) -> None:
        """Records that a wait began at `at`, in seconds; infinity if that isn't known."""
        self._begun[key] = at

    def end(self, key: str, seconds: float) -> None:
        self._begun.pop(key, None)
        seconds = max(seconds, 0.0)
        self._done.append(seconds)
        self._sorted = False
        if len(self._longest) < FEW:
            heapq.heappush(self._longest, (seconds, key))
        elif seconds > self._longest[0][0]:
            heapq.heapreplace(self._longest, (seconds, key))

    def give_up(self, key: str) -> None:
        """Records that a wait can't end any more."""
        self._begun.pop(key, None)
        self.never += 1
        self.given_up = [*self.given_up, key][-FEW:]

    def drop(self, key: str, *, ended: float | None = None, never: bool = False) -> None:
        """Removes a wait, as another tally counts it from now on. `ended` is its length in seconds
        if it has ended; `never` means that it can't end any more.
        """
        self._begun.pop(key, None)
        self.never -= never
        if never and key in self.given_up:
            self.given_up.remove(key)
        if ended is not None:
            self._dropped.append(ended)
            self._sorted = False
            if (ended, key) in self._longest:
                self._longest.remove((ended, key))
                heapq.heapify(self._longest)

    def figure(self, which: str, t: float) -> float | None:
        """Returns a percentile, the maximum or the mean of ended waits and of waits that go on,
        with their length at `t`. Waits that can't end are left out.
        """
        self._sort()
        waiting = [max(t - at, 0.0) for at in self._begun.values()]
        count = len(self._done) + len(waiting)
        if not count:
            return None
        if which == "mean":
            return (math.fsum(self._done) + math.fsum(waiting)) / count
        if which == "max":
            return max([*self._done[-1:], *waiting])
        return _nth(self._done, sorted(waiting), _rank(which, count))

    def missing(self, which: str, value: float | None) -> str:
        """Returns a clause on how many of the waits have ended; empty if all have, or if the
        percentile `which` stays at `value` however long the waits last that haven't ended.
        """
        if not self.unended:
            return ""
        self._sort()
        count = len(self._done) + self.unended
        if which in PERCENTILES and (rank := _rank(which, count)) < len(self._done):
            if self._done[rank] == value:
                return ""
        more = f", and {self.never:,} never will" if self.never and self._begun else ""
        what = "have ended so far" if self._begun else "had an end, the others never will"
        return f"{len(self._done):,} of {count:,} waits {what}{more}"

    def _sort(self) -> None:
        if self._dropped:
            self._done = [*(Counter(self._done) - Counter(self._dropped)).elements()]
            self._dropped = []
        if not self._sorted:
            self._done.sort()
            self._sorted = True


def _rank(which: str, count: int) -> int:
    """Returns the index of the percentile `which` in a sorted list of `count` values."""
    return max(-(-count * PERCENTILES[which] // 100) - 1, 0)


def _nth(a: Sequence[float], b: Sequence[float], n: int) -> float:
    """Returns the n-th item of two sorted lists together, without merging them, as that would take
    most of the time.
    """
    low, high = max(0, n - len(b)), min(n, len(a))
    while low < high:
        middle = (low + high) // 2
        if a[middle] < b[n - middle - 1]:
            low = middle + 1
        else:
            high = middle
    return min(*a[low : low + 1], *b[n - low : n - low + 1], math.inf)


PERCENTILES: Final = {"p50": 50, "p95": 95, "p99": 99}
