"""Decides how fast nodes may be written: how many calls at once, how many per second, and when
none.

    begin ──> the call ──> succeeded | asked_to_wait | failed ──> limit, pause ──> wait, begin, ...

The limit of calls at once falls and recovers: it is halved if the API server asks to slow down, and
reduced by a quarter if calls fail otherwise; each second of success adds one. Failures of calls
that were in flight together count as one. Retry-After pauses all calls, not only the call that got
it, as other calls would get the same answer. There is one pace for all groups, and one for each
active group; executor.py decides whether an error reduces the common pace or the group's.

Pure: the caller passes times, in seconds of any clock that only goes forward. executor.py chooses
the next call, kube/retry.py the delay after an error.
"""

GROWTH_INTERVAL = 1.0
"""Seconds of success after which the limit grows by one."""
CATCH_UP = 0.02
"""A timer wakes late. The rate makes up for delays of up to this many seconds."""


class Rate:
    """Limits calls to `per_second`, evenly spread; 0 means no limit."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._due = float("-inf")

    def wait(self, now: float) -> float:
        """Returns the seconds until the next call may begin; 0 or less means at once."""
        return self._due - now

    def count_request(self, now: float) -> None:
        """Counts a call. If it comes before it is due, later calls wait longer."""
        if self._gap:
            self._due = max(self._due, now - CATCH_UP) + self._gap


class Pace:
    """Limits calls: at most `limit` (1 to `most`) at once, and none before `wait()` is over.

    `begin` returns a ticket for a call, to be passed back with the call's result.
    """

    def __init__(self, *, most: int, qps: float = 0.0) -> None:
        self.most = most
        self.limit = most
        self.throttled = False
        """Whether the limit is lowered at present."""
        self.begun = 0
        """The number of calls begun, which is the ticket of the last one."""
        self._rate = Rate(qps)
        self._paused_until = float("-inf")
        self._lowered_at = 0
        self._grows_at = float("-inf")

    def wait(self, now: float) -> float:
        """Returns the seconds until a call may begin; 0 or less means at once."""
        return max(self._paused_until - now, self._rate.wait(now))

    def begin(self, now: float) -> int:
        """Counts a new call; returns its ticket."""
        self.begun += 1
        self._rate.count_request(now)
        return self.begun

    def count_request(self, now: float) -> None:
        """Counts a further request of a call that has begun; this delays later calls."""
        self._rate.count_request(now)

    def succeeded(self, now: float) -> bool:
        """Notes a success; returns whether the limit was raised."""
        if not self.throttled or now < self._grows_at:
            return False
        self.limit = min(self.limit + 1, self.most)
        self.throttled = self.limit < self.most
        self._grows_at = now + GROWTH_INTERVAL
        return True

    def asked_to_wait(self, now: float, *, ticket: int, delay: float) -> bool:
        """Notes that the API server wants a pause: no call begins for `delay` seconds. Returns
        whether the limit was lowered."""
        self._paused_until = max(self._paused_until, now + delay)
        return self._lower(now, ticket, self.limit // 2)

    def failed(self, now: float, *, ticket: int) -> bool:
        """Notes that a call failed, other than by an answer that wants a pause; returns whether the
        limit was lowered."""
        return self._lower(now, ticket, self.limit * 3 // 4)

    def _lower(self, now: float, ticket: int, limit: int) -> bool:
        self._grows_at = max(now, self._paused_until) + GROWTH_INTERVAL
        if ticket <= self._lowered_at:
            return False
        self._lowered_at = self.begun
        self.limit = max(1, limit)
        self.throttled = True
        return True
