"""Runs many small API calls at once, as many and as fast as the API server accepts.

    run(jobs, call) ──> plans ──> whose turn is it? ──> as many workers as may be ──> call(job)
                          ^                                                            │
                          └──── retries, each when it is due <──── 429, 5xx, no answer ┘

One call of `run` is a *plan*; each of its jobs needs one call. All groups share one limit of calls
at once. Plans take turns, one call each, so a group of ten nodes is done after about ten calls of a
group of ten thousand. A failed job is put back and occupies no worker while it waits. New jobs of
any plan go before retries; but one turn in eight is for a retry, so that retries don't wait as long
as any plan has new jobs.

If the API server asks to slow down, all groups do (pacing.py). Other failures and hanging calls,
such as those of a webhook, may concern only one group: failures lower that group's own pace, and
pause its plan until one of its calls succeeds. Calls that hang don't block others: beyond the
limit, and up to twice the limit, each group may have its even share of the limit in flight.

A plan can be stopped between two calls: then no new call is started and those in flight are
awaited, so that it is known what was done.
"""

import asyncio
import heapq
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from kwok_operator.errors import (
    FAILED_REQUEST,
    ApiError,
    ApiUnreachableError,
    KwokOperatorError,
    TooManyRequestsError,
)
from kwok_operator.kube.pacing import Pace
from kwok_operator.kube.retry import ACCIDENTS, retry_delay
from kwok_operator.observability.metrics import Metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 20
"""The weight of failures after which a job is given up. If the failures of a plan reach it without
a success between them, the plan is given up."""
WEIGHT_OF_WAITING = 1
WEIGHT_OF_ACCIDENT = 4
"""The weight of one failure: five use up PATIENCE. An answer that asks to wait weighs less, unless
a webhook or policy sent it."""
SOON = 5
"""The PATIENCE of plans that their caller repeats soon anyway: two failures use it up."""
REFUSALS = 20
"""Refused jobs in a row after which the plan ends, as the API server would refuse the others,
too."""
RETRY_TURN = 8
"""Every so many turns, a retry that is due goes before new jobs."""
SLOW = 0.25
"""Seconds after which a call counts as hanging, so that other calls may begin before it ends."""
REMEMBERED = 120.0
"""Seconds for which the lowered pace of an idle group is kept. Its failed passes are tried again
within a minute, so they find it."""
BEGUN_AT_ONCE = 16
"""Calls that are started at once. Then other tasks run, as sending each call takes half a
millisecond."""
TICK = 0.25
"""Seconds between checks whether waiting plans may go on."""

_NONE_LEFT: Any = object()


@dataclass(eq=False, slots=True)
class _Group:
    """A group. All its plans share its pace, which can be lower than the pace of all groups."""

    name: str
    pace: Pace
    plans: int = 0
    in_flight: int = 0
    idle_since: float = 0.0


@dataclass(eq=False, slots=True)
class _Plan:
    group: _Group
    jobs: Iterator[Any]
    call: Callable[[Any], Awaitable[None]]
    stop: Callable[[], bool]
    done: asyncio.Future[None]
    patience: int
    workers: set[asyncio.Task[None]] = field(default_factory=set)
    """The workers that have a call of this plan in flight."""
    upcoming: Any = None
    """The next new job, read ahead so that the plan ends together with its last call."""
    retries: list[tuple[float, int, "_Job"]] = field(default_factory=list)
    """The jobs to retry: when each is due, a number that orders equal times, and the job."""
    over: bool = False
    error: BaseException | None = None
    held_until: float = float("-inf")
    failures: int = 0
    """The weight of failures since the last success; calls that were in flight together count
    once."""
    refusals: int = 0
    """Jobs that the API server refused in a row since the last success."""
    counted: int = 0
    """The ticket of the last call begun when a failure was counted. Failures of calls up to it
    don't count: they were in flight together."""

    def advance(self) -> Any:
        """Returns the next new job, and reads the one after it from `jobs` into `upcoming`."""
        job, self.upcoming = self.upcoming, next(self.jobs, _NONE_LEFT)
        return job

    def end(self, error: BaseException | None = None) -> None:
        """Ends the plan: none of its further calls is started. Keeps `error`, unless the plan has
        an earlier error."""
        self.over = True
        if self.error is None:
            self.error = error

    def refuse(self, error: KwokOperatorError) -> None:
        """Notes that a job was refused; it isn't repeated. REFUSALS such jobs in a row end the
        plan. `run` raises the plan's first error."""
        self.refusals += 1
        self.error = self.error or error
        self.over = self.over or self.refusals >= REFUSALS

    def settle(self) -> None:
        over = self.over or (self.upcoming is _NONE_LEFT and not self.retries)
        if over and not self.workers and not self.done.done():
            self.done.set_result(None)


@dataclass(eq=False, slots=True)
class _Job:
    plan: _Plan
    job: Any
    failures: int = 0
    ticket: int = 0
    """The number of this call; calls of all groups are numbered in the order in which they
    begin."""
    group_ticket: int = 0


class Executor:
    """Runs the calls of all plans, as fast as `pace` allows. Belongs to one event loop."""

    def __init__(
        self,
        pace: Pace,
        *,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._pace = pace
        self._metrics = metrics
        self._clock = clock
        self._sleep = sleep
        self._draw = draw
        self._groups: dict[str, _Group] = {}
        self._plans: set[_Plan] = set()
        self._turns: deque[_Plan] = deque()
        """The plans with new jobs, in the order of their turns."""
        self._retrying: set[_Plan] = set()
        """The plans with jobs to retry."""
        self._turn = 0
        self._queued = 0
        self._calls: dict[_Job, float] = {}
        """The jobs in flight -> when each began; the oldest comes first."""
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = float("inf")
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.watch_write_limit(lambda: pace.limit)

    def throttled(self, group: str) -> bool:
        """Whether the group may have fewer calls at once than normal, because some of its calls
        failed, or the API server wants fewer calls."""
        known = self._groups.get(group)
        return self._pace.throttled or (known is not None and known.pace.throttled)

    def count_request(self) -> None:
        """Counts one more request of a running call against the limit of requests per second."""
        self._pace.count_request(self._clock())

    async def run(
        self,
        jobs: Iterable[T],
        call: Callable[[T], Awaitable[None]],
        *,
        group: str,
        stop: Callable[[], bool],
        patience: int = PATIENCE,
    ) -> None:
        """Awaits `call(job)` for each job until there are none left or `stop()` is true.

        All plans of a `group` share its pace.

        A call that raises one of ACCIDENTS (429, 5xx, no answer) is repeated later, until the
        weights of its failures add up to `patience`, so it must be repeatable. One that raises
        another of FAILED_REQUEST is not repeated; the plan goes on, unless many calls in a row are
        refused or have accidents. Any other error stops the plan. The first error is raised once no
        call is in flight any more. Iterating over `jobs`, and `stop`, must not raise.
        """
        loop = asyncio.get_running_loop()
        plan = _Plan(self._group(group), iter(jobs), call, stop, loop.create_future(), patience)
        plan.advance()
        if plan.upcoming is _NONE_LEFT:
            return
        self._plans.add(plan)
        plan.group.plans += 1
        self._turns.append(plan)
        self._pump()
        try:
            await plan.done
        except asyncio.CancelledError:
            plan.end()
            plan.done = loop.create_future()
            for worker in plan.workers:
                worker.cancel()
            plan.settle()
            await plan.done
            raise
        finally:
            self._plans.discard(plan)
            self._retrying.discard(plan)
            plan.group.plans -= 1
            plan.group.idle_since = self._clock()
            if not self._plans:
                self._drop_alarm()
        if plan.error is not None:
            raise plan.error

    def _group(self, name: str) -> _Group:
        """Returns the group of this name; drops idle groups whose pace is normal again."""
        oldest = self._clock() - REMEMBERED
        self._groups = {
            each.name: each
            for each in self._groups.values()
            if each.plans or (each.pace.throttled and each.idle_since > oldest)
        }
        return self._groups.setdefault(name, _Group(name, Pace(most=self._pace.most)))

    def _pump(self) -> None:
        """Starts workers for all jobs that may begin now; sets an alarm for later ones."""
        now = self._clock()
        for _ in range(BEGUN_AT_ONCE):
            job = self._take(now)
            if job is None:
                self._set_alarm(now)
                return
            worker = asyncio.create_task(self._work(job))
            job.plan.workers.add(worker)
            self._tasks.add(worker)
            worker.add_done_callback(partial(self._worker_ended, job))
        asyncio.get_running_loop().call_soon(self._pump)

    async def _work(self, job: _Job | None) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        while job is not None:
            plan = job.plan
            plan.workers.add(worker)
            try:
                await self._make(job)
            finally:
                self._ended(job)
                plan.workers.discard(worker)
                plan.settle()
            job = self._take(self._clock())

    def _ended(self, job: _Job) -> None:
        if self._calls.pop(job, None) is not None:
            job.plan.group.in_flight -= 1

    def _worker_ended(self, first: _Job, worker: asyncio.Task[None]) -> None:
        # A callback, not code at the end of _work: a worker that is cancelled at once runs nothing.
        self._ended(first)
        first.plan.workers.discard(worker)
        first.plan.settle()
        self._tasks.discard(worker)
        self._pump()

    async def _make(self, job: _Job) -> None:
        plan = job.plan
        try:
            await plan.call(job.job)
        except ACCIDENTS as error:
            self._put_back(job, error)
        except FAILED_REQUEST as error:
            plan.refuse(error)
        except (Exception, asyncio.CancelledError) as error:
            plan.end(error)
            if not isinstance(error, Exception):
                raise
        else:
            plan.refusals = 0
            if plan.failures:
                plan.failures, plan.held_until = 0, float("-inf")
            for pace, whose in ((self._pace, ""), (plan.group.pace, f" group={plan.group.name}")):
                if pace.throttled and pace.succeeded(self._clock()):
                    if not pace.throttled:
                        logger.info("node writes are back at full:%s limit=%d", whose, pace.limit)
                    self._pump()

    def _put_back(self, job: _Job, error: ApiError | ApiUnreachableError) -> None:
        """Schedules a retry of a job, unless it was tried often enough."""
        plan, now = job.plan, self._clock()
        retry_after = None if isinstance(error, ApiUnreachableError) else error.retry_after
        throttled = isinstance(error, TooManyRequestsError) or retry_after is not None
        by_policy = isinstance(error, ApiError) and error.by_policy
        weight = WEIGHT_OF_WAITING if throttled and not by_policy else WEIGHT_OF_ACCIDENT
        job.failures += weight
        if job.ticket > plan.counted:
            plan.counted = self._pace.begun
            plan.failures += weight
        failures = max(job.failures, plan.failures)
        delay = retry_delay(failures // weight - 1, error, draw=self._draw)
        if throttled:
            self._metrics.node_writes_throttled.inc()
        else:
            plan.held_until = max(plan.held_until, now + delay)
        self._slow_down(job, error, delay=delay, throttled=throttled, by_policy=by_policy)
        if plan.failures >= plan.patience:
            plan.end(error)
        elif job.failures >= plan.patience:
            plan.refuse(error)
        elif not plan.over:
            self._metrics.node_write_retries.inc()
            self._queued += 1
            heapq.heappush(plan.retries, (now + delay, self._queued, job))
            self._retrying.add(plan)

    def _slow_down(
        self,
        job: _Job,
        error: ApiError | ApiUnreachableError,
        *,
        delay: float,
        throttled: bool,
        by_policy: bool,
    ) -> None:
        """Lowers the pace of all groups if the API server itself wants fewer calls. After any other
        failure, or if an admission webhook or policy wants fewer, lowers only the pace of the job's
        group."""
        now, group = self._clock(), job.plan.group
        pace, ticket, whose = self._pace, job.ticket, ""
        if by_policy or not throttled:
            pace, ticket, whose = group.pace, job.group_ticket, f" group={group.name}"
        level = logging.DEBUG if pace.throttled else logging.INFO
        if throttled:
            lowered = pace.asked_to_wait(now, ticket=ticket, delay=delay)
            what = "the API server asks to slow down"
        else:
            lowered = pace.failed(now, ticket=ticket)
            what = "node writes fail, and are tried again"
        if lowered:
            text = "%s:%s limit=%d pause=%.1fs error=%s"
            logger.log(level, text, what, whose, pace.limit, delay, error)

    def _take(self, now: float) -> _Job | None:
        """Takes the job whose turn it is; None if none may begin now."""
        if self._pace.wait(now) > 0:
            return None
        most = self._most_of_a_group(now)
        if not most:
            return None
        self._turn += 1
        first, second = self._fresh, self._retry
        if self._retrying and self._turn % RETRY_TURN == 0:
            first, second = second, first
        job = first(now, most) or second(now, most)
        if job is not None:
            group = job.plan.group
            group.in_flight += 1
            job.ticket, job.group_ticket = self._pace.begin(now), group.pace.begin(now)
            self._calls[job] = now
        return job

    def _most_of_a_group(self, now: float) -> int:
        """Returns how many calls each group may have in flight now; 0 if no group may begin another
        one."""
        ceiling, in_flight = self._pace.limit, len(self._calls)
        if in_flight < ceiling:
            return ceiling
        hanging = sum(1 for _ in takewhile(lambda began: began <= now - SLOW, self._calls.values()))
        room = in_flight < 2 * ceiling and in_flight - hanging < ceiling
        return self._even_share() if room else 0

    def _even_share(self) -> int:
        """Returns the limit divided by the number of groups that have plans; at least 1."""
        return max(1, self._pace.limit // sum(1 for group in self._groups.values() if group.plans))

    def _may_begin(self, plan: _Plan, now: float, most: int) -> bool:
        group = plan.group
        return (
            plan.held_until <= now
            and group.in_flight < min(most, group.pace.limit)
            and group.pace.wait(now) <= 0
        )

    def _fresh(self, now: float, most: int) -> _Job | None:
        for _ in range(len(self._turns)):
            plan = self._turns.popleft()
            if not plan.over and not self._may_begin(plan, now, most):
                self._turns.append(plan)
                continue
            if plan.over or plan.stop():
                plan.end()
            else:
                job = _Job(plan, plan.advance())
                if plan.upcoming is not _NONE_LEFT:
                    self._turns.append(plan)
                return job
            plan.settle()
        return None

    def _retry(self, now: float, most: int) -> _Job | None:
        """Returns the job whose retry has been due for the longest time and may begin now; None if
        there is none."""
        due = [plan for plan in self._retrying if plan.retries[0][0] <= now]
        for plan in sorted(due, key=lambda plan: plan.retries[0]):
            if not plan.over and not self._may_begin(plan, now, most):
                continue
            if plan.over or plan.stop():
                plan.end()
                self._retrying.discard(plan)
                plan.settle()
            else:
                _, _, job = heapq.heappop(plan.retries)
                if not plan.retries:
                    self._retrying.discard(plan)
                return job
        return None

    def _set_alarm(self, now: float) -> None:
        """Sets an alarm for the time at which a waiting job may begin, but at most TICK seconds
        from now."""
        earliest, most = now + self._pace.wait(now), self._pace.limit
        if len(self._calls) >= self._pace.limit:
            earliest = max(earliest, next(iter(self._calls.values())) + SLOW)
            most = self._even_share()
        waiting = [(plan, now) for plan in self._turns]
        waiting += [(plan, plan.retries[0][0]) for plan in self._retrying]
        dues = [
            max(due, plan.held_until, now + plan.group.pace.wait(now))
            for plan, due in waiting
            if plan.group.in_flight < min(most, plan.group.pace.limit)
        ]
        if not dues:
            return
        wait = min(max(earliest - now, min(dues) - now, 0.0), TICK)
        if now + wait < self._alarm_at:
            self._drop_alarm()
            self._alarm_at = now + wait
            self._alarm = asyncio.create_task(self._ring(wait))

    def _drop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm, self._alarm_at = None, float("inf")

    async def _ring(self, wait: float) -> None:
        await self._sleep(wait)
        self._alarm, self._alarm_at = None, float("inf")
        for plan in self._plans:
            if not plan.over and plan.stop():
                plan.end()
            plan.settle()
        self._pump()
