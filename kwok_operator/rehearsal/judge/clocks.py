"""How far the clock of a cluster is from ours: from the Date of its answers.

    (sent, Date, received), ... --offset_of--> seconds that the cluster's clock is ahead, and how
                                               far from the truth they may be
    that, a later answer   --moved_by---> seconds by which either clock was set since

A Date has whole seconds, cut off: the server's clock was between it and a second later, at a moment
between sending and receiving. Each answer so gives a range for the offset; answers spread over a
second leave a range that is hardly wider than the time that an answer takes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

_DATE_SECONDS: Final = 1.0


class DatedAnswer(NamedTuple):
    """Times in seconds since the epoch; `sent` and `received` by our clock, `date` by theirs."""

    sent: float
    date: float
    received: float


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Seconds that the cluster's clock is ahead of ours, at most `error` off."""

    ahead: float = 0.0
    error: float = 0.0

    def __str__(self) -> str:
        way = "ahead of" if self.ahead >= 0 else "behind"
        return f"{abs(self.ahead):.1f} s {way} this machine's (give or take {self.error:.1f} s)"


def offset_of(answers: Iterable[DatedAnswer]) -> ClockOffset | None:
    """None for no answers. Servers whose clocks differ from each other leave a large error."""
    ranges = [_range_of(each) for each in answers]
    if not ranges:
        return None
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if low > high:
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    return ClockOffset(round((low + high) / 2, 3), round((high - low) / 2, 3))


def moved_by(offset: ClockOffset, answer: DatedAnswer) -> float:
    """At least by so much, and ahead if positive; 0 where the answer agrees with the offset."""
    low, high = _range_of(answer)
    behind = min(high - offset.ahead + offset.error, 0.0)
    return behind or max(low - offset.ahead - offset.error, 0.0)


def _range_of(answer: DatedAnswer) -> tuple[float, float]:
    return answer.date - answer.received, answer.date + _DATE_SECONDS - answer.sent
