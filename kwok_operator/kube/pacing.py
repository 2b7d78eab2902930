"""How fast nodes may be written: how many calls at once, when none at all, how many a second.

    begin ──> the call ──> succeeded | asked_to_wait | failed ──> limit, pause ──> wait, begin, ...

The limit gives way and comes back: it is halved where the API server asks to slow down, and falls
by a quarter where calls fail otherwise; each second of success gives one back. Calls that were
under way together fall together, and count once. Retry-After stops everybody, not only the call
that got it: the others would get the same answer. There is one pace for all groups, and one for
each of those that are at work: which of the two has to give way is for executor.py.

Pure: times are handed in, as seconds of any clock that only goes forward. Who is next is for
executor.py, too, how long to wait after which error for kube/retry.py.
"""

GROWTH_INTERVAL = 1.0
"""Seconds of success that give back one call."""
CATCH_UP = 0.02
"""Seconds. A timer wakes late; what was missed by as much may be made good."""


class Rate:
    """At most `per_second` in a second, evenly; 0 means as many as there are."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._due = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until the next one may be; 0 or less is at once."""
        return self._due - now

    def spend(self, now: float) -> None:
        """Takes one, even where it is not due yet: then the next ones wait the longer."""
        if self._gap:
            self._due = max(self._due, now - CATCH_UP) + self._gap


class Pace:
    """At most `limit` calls at once, which is between 1 and `most`; none before `wait()` is over.

    A call gets a ticket from `begin`, which is handed back with what became of it.
    """

    def __init__(self, *, most: int, qps: float = 0.0) -> None:
        self.most = most
        self.limit = most
        self.throttled = False
        """Since the limit was lowered, until it is back."""
        self.begun = 0
        """Calls so far; the ticket of the last one."""
        self._rate = Rate(qps)
        self._paused_until = float("-inf")
        self._lowered_at = 0
        self._grows_at = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until a call may begin; 0 or less is at once."""
        return max(self._paused_until - now, self._rate.wait(now))

    def begin(self, now: float) -> int:
        """Counts a call that begins; returns its ticket."""
        self.begun += 1
        self._rate.spend(now)
        return self.begun

    def spend(self, now: float) -> None:
        """Counts one more request of a call that is under way."""
        self._rate.spend(now)

    def succeeded(self, now: float) -> bool:
        """Whether the limit has grown, or is in force without a doubt again."""
        if not self.throttled or now < self._grows_at:
            return False
        self.limit = min(self.limit + 1, self.most)
        self.throttled = self.limit < self.most
        self._grows_at = now + GROWTH_INTERVAL
        return True

    def asked_to_wait(self, now: float, *, ticket: int, delay: float) -> bool:
        """Pauses everything for `delay` seconds, at least; whether the limit was lowered."""
        self._paused_until = max(self._paused_until, now + delay)
        return self._lower(now, ticket, self.limit // 2)

    def failed(self, now: float, *, ticket: int) -> bool:
        """An accident rather than an answer; whether the limit was lowered."""
        return self._lower(now, ticket, self.limit * 3 // 4)

    def _lower(self, now: float, ticket: int, limit: int) -> bool:
        self._grows_at = max(now, self._paused_until) + GROWTH_INTERVAL
        if ticket <= self._lowered_at:
            return False
        self._lowered_at = self.begun
        self.limit = max(1, limit)
        self.throttled = True
        return True
