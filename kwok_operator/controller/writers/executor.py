"""Runs many small API calls at once, no more and no faster than the API server likes.

    run(jobs, call) ──> plans ──> whose turn is it? ──> at most `limit` workers ──> call(job)
                          ^                                                            │
                          └──── retries, each when it is due <──── 429, 5xx, no answer ┘

All groups share the workers. Plans take turns, one call each, so a group of ten nodes is done after
about ten calls of a group of ten thousand. What failed is put back and holds no worker while it
waits. Retries rank below fresh work, of whatever plan; one turn in eight is theirs, or a few nodes
would wait for as long as there is something new elsewhere.

An API server that asks to slow down is obeyed by all (pacing.py). What fails in another way may be
the fault of one group: it holds up its own plan only, until something of it succeeds.

A plan can be stopped between two calls: then nothing new is started and what is in flight is
awaited, so that afterwards nobody has to guess what is still under way.
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
from typing import Any, TypeVar

from kwok_operator.controller.writers.pacing import Pace
from kwok_operator.errors import REFUSED, ApiError, ApiUnreachableError, TooManyRequestsError
from kwok_operator.kube.retry import ACCIDENTS, retry_delay
from kwok_operator.observability.metrics import Metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 20
"""What may go wrong with a job, or in a row with a plan, before the error is the plan's."""
WEIGHT_OF_WAITING = 1
WEIGHT_OF_ACCIDENT = 4
"""Five failures are enough, but to be asked to wait is none."""
REFUSALS = 20
"""Jobs in a row that the API server refuses, before it is taken to refuse the others, too."""
RETRY_TURN = 8
"""Each such turn goes to a retry that is due."""
BEGUN_AT_ONCE = 16
"""Calls; others run before the next ones begin, as each takes half a millisecond to be sent."""
TICK = 0.25
"""Seconds after which plans that wait are asked whether they still have to."""

_NONE_LEFT: Any = object()


@dataclass(eq=False, slots=True)
class _Run:
    jobs: Iterator[Any]
    call: Callable[[Any], Awaitable[None]]
    stop: Callable[[], bool]
    done: asyncio.Future[None]
    workers: set[asyncio.Task[None]] = field(default_factory=set)
    """Those with a call of this plan in flight."""
    upcoming: Any = None
    """The next fresh job, so that a plan is over as soon as its last call is."""
    waiting: int = 0
    """Retries."""
    over: bool = False
    error: BaseException | None = None
    held_until: float = float("-inf")
    failures: int = 0
    """Their weight since the last success; calls that were in flight together count once."""
    refusals: int = 0
    """Since the last success."""
    counted: int = 0
    """The last ticket when a failure was counted."""

    def advance(self) -> Any:
        """The fresh job whose turn it is; looks at the one after it."""
        job, self.upcoming = self.upcoming, next(self.jobs, _NONE_LEFT)
        return job

    def end(self, error: BaseException | None = None) -> None:
        """Begins nothing new; the first error counts."""
        self.over = True
        if self.error is None:
            self.error = error

    def refuse(self, error: ApiError) -> None:
        """Holds up one job; the plan goes on, and raises the first error once it is through."""
        self.refusals += 1
        self.error = self.error or error
        self.over = self.over or self.refusals >= REFUSALS

    def settle(self) -> None:
        over = self.over or (self.upcoming is _NONE_LEFT and not self.waiting)
        if over and not self.workers and not self.done.done():
            self.done.set_result(None)


@dataclass(eq=False, slots=True)
class _Job:
    plan: _Run
    job: Any
    failures: int = 0
    ticket: int = 0


class Executor:
    """Calls in flight, over all plans, as `pace` allows. Belongs to one event loop."""

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
        self._plans: set[_Run] = set()
        self._turns: deque[_Run] = deque()
        """Plans with fresh jobs."""
        self._retries: list[tuple[float, int, _Job]] = []
        self._turn = 0
        self._queued = 0
        self._working = 0
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = float("inf")
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.watch_write_limit(lambda: pace.limit)

    @property
    def throttled(self) -> bool:
        """Whether fewer calls are made at once than might be, because of the API server."""
        return self._pace.throttled

    def spend(self) -> None:
        """Counts one more request of a call that is under way against the rate."""
        self._pace.spend(self._clock())

    async def run(
        self,
        jobs: Iterable[T],
        call: Callable[[T], Awaitable[None]],
        *,
        stop: Callable[[], bool],
    ) -> None:
        """Awaits `call(job)` for each job until there are none left or `stop()` is true.

        A call that raises one of ACCIDENTS is made again later, a few times: it has to be one that
        can be repeated. One that raises one of REFUSED is not, and the others go on, unless many in
        a row are refused. The first other error, or the last of the accidents, stops the plan. What
        was raised first is raised once nothing is in flight any more. Iterating over `jobs`, and
        `stop`, must not raise.
        """
        loop = asyncio.get_running_loop()
        plan = _Run(iter(jobs), call, stop, loop.create_future())
        plan.advance()
        if plan.upcoming is _NONE_LEFT:
            return
        self._plans.add(plan)
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
            if not self._plans:
                self._drop_alarm()
        if plan.error is not None:
            raise plan.error

    def _pump(self) -> None:
        """Has as many workers as there is work for, now and when the wait is over."""
        now = self._clock()
        for _ in range(BEGUN_AT_ONCE):
            if self._working >= self._pace.limit:
                return
            job = self._take(now)
            if job is None:
                self._set_alarm(now)
                return
            self._working += 1
            worker = asyncio.create_task(self._work(job))
            job.plan.workers.add(worker)
            self._tasks.add(worker)
            worker.add_done_callback(partial(self._worker_ended, job.plan))
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
                plan.workers.discard(worker)
                plan.settle()
            # A limit that was lowered is kept to as calls end.
            job = self._take(self._clock()) if self._working <= self._pace.limit else None

    def _worker_ended(self, first: _Run, worker: asyncio.Task[None]) -> None:
        # Not at the end of _work, of which a worker that is cancelled at once sees nothing.
        first.workers.discard(worker)
        first.settle()
        self._tasks.discard(worker)
        self._working -= 1
        self._pump()

    async def _make(self, job: _Job) -> None:
        plan = job.plan
        try:
            await plan.call(job.job)
        except ACCIDENTS as error:
            self._put_back(job, error)
        except REFUSED as error:
            plan.refuse(error)
        except (Exception, asyncio.CancelledError) as error:
            plan.end(error)
            if not isinstance(error, Exception):
                raise
        else:
            plan.refusals = 0
            if plan.failures:
                plan.failures, plan.held_until = 0, float("-inf")
            if self._pace.throttled and self._pace.succeeded(self._clock()):
                if not self._pace.throttled:
                    logger.info("node writes are back at full: limit=%d", self._pace.limit)
                self._pump()

    def _put_back(self, job: _Job, error: ApiError | ApiUnreachableError) -> None:
        """Has a job done again when it is due, unless that was tried often enough."""
        plan, pace, now = job.plan, self._pace, self._clock()
        retry_after = None if isinstance(error, ApiUnreachableError) else error.retry_after
        asked = isinstance(error, TooManyRequestsError) or retry_after is not None
        weight = WEIGHT_OF_WAITING if asked else WEIGHT_OF_ACCIDENT
        job.failures += weight
        if job.ticket > plan.counted:
            plan.counted = pace.begun
            plan.failures += weight
        failures = max(job.failures, plan.failures)
        delay = retry_delay(failures // weight - 1, error, draw=self._draw)
        level = logging.DEBUG if pace.throttled else logging.INFO
        if asked:
            self._metrics.node_writes_throttled.inc()
            lowered = pace.asked_to_wait(now, ticket=job.ticket, delay=delay)
            what = "the API server asks to slow down"
        else:
            plan.held_until = max(plan.held_until, now + delay)
            lowered = pace.failed(now, ticket=job.ticket)
            what = "node writes fail, and are tried again"
        if lowered:
            logger.log(level, "%s: limit=%d pause=%.1fs error=%s", what, pace.limit, delay, error)
        if failures >= PATIENCE:
            plan.end(error)
        elif not plan.over:
            self._metrics.node_write_retries.inc()
            self._queued += 1
            plan.waiting += 1
            heapq.heappush(self._retries, (now + delay, self._queued, job))

    def _take(self, now: float) -> _Job | None:
        """The job whose turn it is; None where there is none to be begun now."""
        if self._pace.wait(now) > 0:
            return None
        self._turn += 1
        first, second = self._fresh, self._retry
        if self._retries and self._turn % RETRY_TURN == 0:
            first, second = second, first
        job = first(now) or second(now)
        if job is not None:
            job.ticket = self._pace.begin(now)
        return job

    def _fresh(self, now: float) -> _Job | None:
        for _ in range(len(self._turns)):
            plan = self._turns.popleft()
            if plan.held_until > now:
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

    def _retry(self, now: float) -> _Job | None:
        while self._retries and self._retries[0][0] <= now:
            _, order, job = heapq.heappop(self._retries)
            plan = job.plan
            if plan.held_until > now and not plan.over:
                heapq.heappush(self._retries, (plan.held_until, order, job))
                continue
            plan.waiting -= 1
            if not plan.over and not plan.stop():
                return job
            plan.end()
            plan.settle()
        return None

    def _set_alarm(self, now: float) -> None:
        """There is a worker to be had, and perhaps something that waits: for a while at most."""
        if not self._plans or not (self._turns or self._retries):
            return
        held = min((plan.held_until for plan in self._turns), default=float("inf"))
        due = self._retries[0][0] if self._retries else float("inf")
        wait = min(max(self._pace.wait(now), min(held, due) - now, 0.0), TICK)
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
