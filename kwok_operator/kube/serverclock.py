"""Keeps the API server's time of day.

    Date of each answer ──heard──> an anchor on the monotonic clock ──now──> datetime

Ages are computed from timestamps of the API server and other replicas, so a machine's wrong clock
must not be used: with a clock 20 hours ahead, nodes with a lifetime of a day would be deleted. This
machine's clock is read once. It is used as long as the server's agrees with it; a Date has whole
seconds, and answers take time, so small differences mean nothing. Later jumps of this machine's
clock change nothing.

After the first, one Date alone changes nothing either: it may be from a proxy, or from one of
several API servers, whose clock is wrong. It takes several in a row, of different seconds, that
agree.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

logger = logging.getLogger(__name__)

TOLERANCE: Final = 30.0
"""Seconds by which the two clocks may differ: an answer may be read late."""
AGREEING: Final = 3
"""Dates in a row that must agree on the difference of the clocks before they are believed."""


class ServerClock:
    """The API server's clock. `monotonic` and `wall` are this machine's clocks, in seconds."""

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
        """How many agreeing Dates are believed: the first alone, later ones AGREEING in a row."""
        self._ahead: list[float] = []
        """The differences of the last Dates that disagree with the clock, and agree with each
        other."""
        self.said: float | None = None
        """The last Date, in seconds since the epoch."""

    def heard(self, date: str) -> None:
        """Takes the Date of an answer into account."""
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
        """Returns the time of day, with zone UTC."""
        return datetime.fromtimestamp(self._anchor + self._monotonic(), UTC)
