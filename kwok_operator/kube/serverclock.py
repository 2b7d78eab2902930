"""Keeps the API server's time of day.

    Date of each answer ──heard──> an anchor on the monotonic clock ──now──> datetime

Ages are computed from timestamps of the API server and other replicas, so a machine's wrong clock
must not be used: with a clock 20 hours ahead, nodes with a lifetime of a day would be deleted. This
machine's clock is read once, at the start. That time is used as long as the server's agrees with
it; small differences mean nothing, as a Date has whole seconds and answers take time. Later jumps
of this machine's clock change nothing.

After the first Date, a single Date that disagrees changes nothing either: it may be from a proxy,
or from one of several API servers, whose clock is wrong. Several in a row, with different seconds,
must agree.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

logger = logging.getLogger(__name__)

TOLERANCE: Final = 30.0
"""The two clocks may differ by so many seconds, as an answer may be read late."""
AGREEING: Final = 3
"""So many Dates in a row must agree with each other before the clock is corrected by them."""


class ServerClock:
    """The API server's time of day. `monotonic` and `wall` are this machine's clocks, in
    seconds."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._anchor = wall() - monotonic()
        """Time of day (epoch seconds) at which the monotonic clock was 0."""
        self._date = ""
        self._enough = 1
        """How many agreeing Dates correct the clock: 1 for the first Date, AGREEING later."""
        self._ahead: list[float] = []
        """How far each of the last Dates was ahead of the clock, while they disagree with it and
        agree with each other."""
        self.said: float | None = None
        """The last Date of an answer, in epoch seconds."""

    def heard(self, date: str) -> None:
        """Takes the Date of an answer into account."""
        if not date or date == self._date:
            return
        self._date = date
        try:
            self.said = server_time = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError, OverflowError):
            self.said = None
            return
        ahead = self._anchor + self._monotonic() - server_time
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
            self._anchor = server_time - self._monotonic()

    def now(self) -> datetime:
        """Returns the time of day, with zone UTC."""
        return datetime.fromtimestamp(self._anchor + self._monotonic(), UTC)
