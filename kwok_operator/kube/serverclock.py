"""The time of day as the API server has it.

    Date of each answer ──heard──> an anchor on the monotonic clock ──now──> datetime

Ages are judged by stamps that the API server and other replicas wrote, so a machine whose clock is
wrong must not judge by it: with a clock 20 hours ahead, nodes with a lifetime of a day would be
gone. This machine's clock is read once. It holds as long as the server's agrees with it; a Date has
whole seconds, and answers take time, so small differences mean nothing. Later jumps of this
machine's clock change nothing.

After the first, one Date alone changes nothing either: it may be of a proxy, or of one API server
of several whose clock is wrong. It takes several in a row, of different seconds, that agree.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

logger = logging.getLogger(__name__)

TOLERANCE: Final = 30.0
"""Seconds between the two clocks that are taken for none: an answer may be read late."""
AGREEING: Final = 3
"""Dates in a row that say the same of this machine's clock before they are believed."""


class ServerClock:
    """`monotonic` and `wall` are this machine's clocks, in seconds."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._anchor = wall() - monotonic()
        """Seconds since the epoch when the monotonic clock was 0."""
        self._date = ""
        self._enough = 1
        """Dates in a row that are believed: the first is, alone."""
        self._ahead: list[float] = []
        """What Dates in a row said that disagree with the clock, and agree with each other."""
        self.said: float | None = None
        """The last Date, in seconds since the epoch: what the server's clock said."""

    def heard(self, date: str) -> None:
        """An answer with this Date has come."""
        if not date or date == self._date:
            return
        self._date = date
        try:
            self.said = said = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError, OverflowError):
            self.said = None
            return
        ahead = self._anchor + self._monotonic() - said
        if abs(ahead) <= TOLERANCE or (self._ahead and abs(ahead - self._ahead[0]) > TOLERANCE):
            self._ahead.clear()
        if abs(ahead) > TOLERANCE:
            self._ahead.append(ahead)
        believed, self._enough = len(self._ahead) >= self._enough, AGREEING
        if believed:
            self._ahead.clear()
            logger.warning(
                "this machine's clock is wrong, the API server's is taken: ahead=%.0fs", ahead
            )
            self._anchor = said - self._monotonic()

    def now(self) -> datetime:
        """Aware, in UTC."""
        return datetime.fromtimestamp(self._anchor + self._monotonic(), UTC)
