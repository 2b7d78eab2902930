"""Whether the runs of one arm fail more often than those of the other, beyond chance.

    failed runs of each arm ──> Fisher's exact test ──> a share of all false alarms

Of all ways to deal out as many failures over the runs of both arms, the test counts those that are
as rare as what was played. Runs of a pair have a seed in common; where that decides over failures
the arms are more alike than the test assumes, so it errs on the careful side.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

FALSE_ALARMS: Final = 0.01
"""Of comparisons of A against A, over all figures and the failed runs together."""
BY_TURNING: Final = 1 / 128
"""Of those, what figures of 8 pairs and more take: the rarest thing that 8 pairs can show."""
OF_FAILURES: Final = FALSE_ALARMS - BY_TURNING
"""The rest."""
_EQUAL: Final = 1 + 1e-9
_FEW: Final = 7


@dataclass(frozen=True, slots=True)
class FailedRuns:
    """How many runs of each arm have failed."""

    failed: tuple[int, int]
    runs: tuple[int, int]

    @property
    def loser(self) -> int | None:
        """The number of the arm that fails more often, beyond chance."""
        if fisher_p(*self.failed, *self.runs) > OF_FAILURES:
            return None
        return int(self.failed[1] * self.runs[0] > self.failed[0] * self.runs[1])

    @property
    def mostly(self) -> tuple[int, ...]:
        """The arms that fail in more than half of their runs."""
        return tuple(n for n in (0, 1) if 2 * self.failed[n] > self.runs[n])


def fisher_p(failed: int, failed_too: int, runs: int, runs_too: int) -> float:
    """The two-sided probability of failures dealt out so unevenly, or more."""
    both = failed + failed_too

    def ways(of_first: int) -> int:
        return math.comb(runs, of_first) * math.comb(runs_too, both - of_first)

    played = ways(failed) * _EQUAL
    possible = range(max(0, both - runs_too), min(runs, both) + 1)
    rare = sum(found for n in possible if (found := ways(n)) <= played)
    return rare / math.comb(runs + runs_too, both)


@lru_cache(maxsize=64)
def left_for_figures(pairs: int) -> float:
    """Of all false alarms, what the failed runs of so many pairs can't take."""
    if pairs > _FEW:
        return BY_TURNING
    every = (
        p
        for failed in range(pairs + 1)
        for other in range(pairs + 1)
        if (p := fisher_p(failed, other, pairs, pairs)) <= OF_FAILURES
    )
    return FALSE_ALARMS - max(every, default=0.0)
