"""Computes how far a cluster's clock is ahead of ours, from the Date headers of its answers.

    (sent, Date, received), ... --offset_of--> how many seconds the clock is ahead, and the
                                               largest possible error
    offset, a later answer --moved_by---> by how many seconds either clock was set since

A Date has whole seconds, rounded down: at some moment between sending and receiving, the server's
clock was between the Date and a second later. So each answer gives a range for the offset;
together, answers spread over a second give a range hardly wider than the time that an answer takes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

_DATE_SECONDS: Final = 1.0


class DatedAnswer(NamedTuple):
    """An answer of the API server. `sent` and `received` are by our clock, `date` is by the
    server's clock; all in seconds since the epoch.
    """

    sent: float
    date: float
    received: float


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how many seconds the cluster's clock is ahead of ours, and the largest possible error of
    this value.
    """

    ahead: float = 0.0
    error: float = 0.0

    def __str__(self) -> str:
        way = "ahead of" if self.ahead >= 0 else "behind"
        return f"{abs(self.ahead):.1f} s {way} this machine's (give or take {self.error:.1f} s)"


def offset_of(answers: Iterable[DatedAnswer]) -> ClockOffset | None:
    """Computes the offset of the cluster's clock; None without answers. If several servers have
    different clocks, the error is large.
    """
    ranges = [_range_of(each) for each in answers]
    if not ranges:
        return None
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if low > high:
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    return ClockOffset(round((low + high) / 2, 3), round((high - low) / 2, 3))


def moved_by(offset: ClockOffset, answer: DatedAnswer) -> float:
    """Returns by how many seconds, at least, a clock was set after `offset` was measured; positive
    if the cluster's was set ahead. 0 if the answer agrees with the offset.
    """
    low, high = _range_of(answer)
    behind = min(high - offset.ahead + offset.error, 0.0)
    return behind or max(low - offset.ahead - offset.error, 0.0)


def _range_of(answer: DatedAnswer) -> tuple[float, float]:
    return answer.date - answer.received, answer.date + _DATE_SECONDS - answer.sent
