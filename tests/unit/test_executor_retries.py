"""Calls that fail for now: when they are made again, what waits for them, and what gets through."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from kwok_operator.errors import (
    ApiUnreachableError,
    InvalidError,
    ServerError,
    TooManyRequestsError,
)
from kwok_operator.kube.executor import REFUSALS, REMEMBERED, Executor
from kwok_operator.kube.pacing import Pace
from kwok_operator.observability.metrics import Metrics
from tests.fakes.waiting import until

JOBS = list(range(50))
WAIT = TooManyRequestsError("slow down", status=429, retry_after=3.0)
BROKEN = ServerError("no leader", status=500)
AWAY = ApiUnreachableError(server="https://k8s", cause="refused")
DENIED = TooManyRequestsError(
    'admission webhook "quota" denied the request', status=429, retry_after=30.0
)
INVALID = InvalidError("no", status=422)


def never() -> bool:
    return False


class Scene:
    """An executor on a clock that only sleeping moves."""

    def __init__(self, *, most: int = 4, qps: float = 0.0) -> None:
        self.now = 0.0
        self.pace = Pace(most=most, qps=qps)
        self.metrics = Metrics()
        self.executor = Executor(
            self.pace,
            metrics=self.metrics,
            clock=lambda: self.now,
            sleep=self._sleep,
            draw=lambda: 0.5,
        )

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def calls(
        self, fails: Callable[[int, int], Exception | None] = lambda job, attempt: None
    ) -> "Calls":
        return Calls(self, fails)

    async def run(self, calls: "Calls", jobs: Iterable[int] = JOBS) -> None:
        await self.executor.run(jobs, calls, group="web", stop=never)

    def sample(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"kwok_operator_node_write{name}")


class Calls:
    """Calls that take a few turns of the loop; `fails(job, attempt)` tells what they raise."""

    def __init__(self, scene: Scene, fails: Callable[[int, int], Exception | None]) -> None:
        self._scene = scene
        self._fails = fails
        self.begun: list[int] = []
        self.times: list[float] = []
        self.done: list[int] = []
        self.in_flight = self.most = 0

    async def __call__(self, job: int) -> None:
        self.begun.append(job)
        self.times.append(self._scene.now)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        for _ in range(3):
            await asyncio.sleep(0)
        self.in_flight -= 1
        error = self._fails(job, self.begun.count(job))
        if error is not None:
            raise error
        self.done.append(job)


def once(error: Exception, jobs: Iterable[int]) -> Callable[[int, int], Exception | None]:
    bad = set(jobs)
    return lambda job, attempt: error if job in bad and attempt == 1 else None


def always(error: Exception, jobs: Iterable[int] = JOBS) -> Callable[[int, int], Exception | None]:
    bad = set(jobs)
    return lambda job, attempt: error if job in bad else None


class TestAskedToSlowDown:
    async def test_all_plans_pause_for_as_long_as_asked(self) -> None:
        scene = Scene()
        bad, other = scene.calls(once(WAIT, [0])), scene.calls()
        await asyncio.gather(scene.run(bad), scene.run(other))
        assert sorted(bad.done) == sorted(other.done) == JOBS
        times = sorted(t for t in bad.times + other.times if t > 0)
        assert times[0] >= 3.0
        assert len(times) >= 90, "only what was in flight was begun before"

    async def test_half_may_be_in_flight_then(self) -> None:
        scene = Scene(most=8)
        calls, after = scene.calls(once(WAIT, range(8))), scene.calls()
        await scene.run(calls, range(8))
        assert scene.pace.limit == 4
        await scene.run(after)
        assert after.most == 4

    async def test_it_is_no_failure_however_tight_the_server_is(self) -> None:
        scene = Scene(most=32)
        seats = 2
        calls = scene.calls(lambda _, __: WAIT if calls.in_flight >= seats else None)
        await asyncio.gather(*(scene.run(calls, range(i * 100, i * 100 + 100)) for i in range(5)))
        assert sorted(calls.done) == list(range(500))

    async def test_a_failure_after_much_waiting_is_one_failure(self) -> None:
        scene = Scene(most=1)
        errors: list[Exception | None] = [*[WAIT] * 10, BROKEN, None]
        calls = scene.calls(lambda _, attempt: errors[attempt - 1])
        await scene.run(calls, [0])
        assert calls.done == [0]

    async def test_what_fails_for_ever_is_raised_in_the_end(self) -> None:
        scene = Scene()
        calls = scene.calls(always(WAIT))
        with pytest.raises(TooManyRequestsError):
            await scene.run(calls)
        assert scene.now >= 19 * 3.0
        assert calls.in_flight == 0

    async def test_retry_after_of_a_503_counts_as_well(self) -> None:
        scene = Scene()
        calls = scene.calls(once(ServerError("down", status=503, retry_after=9.0), [0]))
        await scene.run(calls)
        assert sorted(calls.done) == JOBS
        assert min(t for t in calls.times if t > 0) >= 9.0

    async def test_without_retry_after_the_pause_grows(self) -> None:
        scene = Scene(most=1)
        error = TooManyRequestsError("slow down", status=429)
        calls = scene.calls(lambda _, attempt: error if attempt <= 4 else None)
        await scene.run(calls, [0])
        pauses = [b - a for a, b in pairwise(calls.times)]
        assert pauses == pytest.approx([0.25, 0.5, 1.0, 2.0])


class TestRetries:
    async def test_come_after_fresh_work(self) -> None:
        scene = Scene(most=2)
        calls = scene.calls(once(WAIT, [0, 1]))
        await scene.run(calls, range(6))
        assert calls.begun[:6] == list(range(6))
        assert sorted(calls.begun[6:]) == [0, 1]

    async def test_are_not_starved_by_fresh_work_of_others(self) -> None:
        scene = Scene(most=1)
        short, long = scene.calls(once(WAIT, [3])), scene.calls()
        plan = asyncio.create_task(scene.run(long, range(5_000)))
        await scene.run(short, range(10))
        assert len(long.begun) < 50
        plan.cancel()
        await asyncio.gather(plan, return_exceptions=True)

    async def test_hold_no_slot_while_they_wait(self) -> None:
        scene = Scene(most=1)
        bad, good = scene.calls(once(BROKEN, [0])), scene.calls()
        await asyncio.gather(scene.run(bad, [0]), scene.run(good))
        assert bad.done == [0]
        assert good.times == [0.0] * len(JOBS), "nobody waited for the other plan"
        assert bad.times == [0.0, 0.25]


class TestFailures:
    @pytest.mark.parametrize("error", [BROKEN, AWAY], ids=["500", "away"])
    async def test_of_a_whole_plan_are_its_error_soon(self, error: Exception) -> None:
        scene = Scene(most=8)
        bad, good = scene.calls(always(error)), scene.calls()
        outcome = await asyncio.gather(scene.run(bad), scene.run(good), return_exceptions=True)
        assert list(outcome) == [error, None]
        assert 2.0 < scene.now < 5.0
        assert len(bad.begun) <= 5 * 8, "a plan is not spent on an API server that is away"
        assert sorted(good.done) == JOBS

    async def test_of_one_job_hold_up_nothing_else(self) -> None:
        scene = Scene(most=4)
        calls = scene.calls(always(BROKEN, [7]))
        with pytest.raises(ServerError):
            await scene.run(calls)
        assert sorted(calls.done) == [job for job in JOBS if job != 7]
        assert calls.begun.count(7) == 5

    async def test_lower_what_may_be_in_flight_gently(self) -> None:
        scene = Scene(most=8)
        await scene.run(scene.calls(once(AWAY, [0])))
        after = scene.calls()
        await scene.run(after)
        assert after.most == 6
        assert scene.executor.throttled("web")

    async def test_are_their_groups_affair(self) -> None:
        scene = Scene(most=64)
        bad = [
            scene.executor.run(JOBS, scene.calls(always(BROKEN)), group=f"bad-{i}", stop=never)
            for i in range(20)
        ]
        await asyncio.gather(*bad, return_exceptions=True)
        calls = scene.calls()
        await scene.executor.run(range(200), calls, group="good", stop=never)
        assert calls.most == scene.pace.limit == 64
        assert not scene.executor.throttled("good")
        assert scene.executor.throttled("bad-1")

    async def test_of_a_policy_are_their_groups_affair_whatever_it_asks_for(self) -> None:
        scene = Scene(most=8)
        bad, calls = scene.calls(once(DENIED, [0])), scene.calls()
        await asyncio.gather(
            scene.executor.run(JOBS[:8], bad, group="bad", stop=never),
            scene.executor.run(JOBS, calls, group="good", stop=never),
        )
        assert max(calls.times) < 30.0 <= max(bad.times)

    async def test_of_a_policy_are_given_up_like_errors(self) -> None:
        scene = Scene()
        calls = scene.calls(always(DENIED))
        with pytest.raises(TooManyRequestsError):
            await scene.run(calls, [0])
        assert calls.begun == [0] * 5

    async def test_are_forgotten_some_day(self) -> None:
        scene = Scene()
        with pytest.raises(ServerError):
            await scene.run(scene.calls(always(BROKEN)))
        assert scene.executor.throttled("web")
        scene.now += REMEMBERED + 1
        await scene.executor.run(JOBS, scene.calls(), group="other", stop=never)
        assert not scene.executor.throttled("web")


async def test_refused_jobs_end_their_plan_unless_others_succeed_in_between() -> None:
    scene = Scene(most=1)
    calls, some = (
        scene.calls(always(INVALID)),
        scene.calls(always(INVALID, set(JOBS) - {*JOBS[::5]})),
    )
    for each in (calls, some):
        with pytest.raises(InvalidError):
            await scene.run(each)
    assert calls.begun == JOBS[:REFUSALS]
    assert some.begun == JOBS


class TestThePlanThatWaits:
    @pytest.mark.parametrize("error", [WAIT, BROKEN], ids=["429", "500"])
    async def test_can_be_stopped(self, error: Exception) -> None:
        scene = Scene()
        calls = scene.calls(always(error))
        await scene.executor.run(JOBS, calls, group="web", stop=lambda: scene.now >= 0.2)
        assert scene.now < 1.0
        assert len(calls.begun) <= 4

    async def test_can_be_cancelled(self) -> None:
        scene = Scene()
        plan = asyncio.create_task(scene.run(scene.calls(always(WAIT))))
        await until(lambda: scene.pace.limit < 4)
        plan.cancel()
        with pytest.raises(asyncio.CancelledError):
            await plan
        calls = scene.calls()
        await scene.run(calls)
        assert sorted(calls.done) == JOBS
        assert scene.now >= 3.0, "the pause is everybody's"

    async def test_leaves_nothing_behind(self) -> None:
        scene = Scene()
        await scene.run(scene.calls(once(WAIT, JOBS)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_before_its_first_call_a_plan_gives_its_slots_back() -> None:
    scene = Scene()
    plan = asyncio.create_task(scene.run(scene.calls()))
    asyncio.get_running_loop().call_soon(plan.cancel)
    await asyncio.gather(plan, return_exceptions=True)
    calls = scene.calls()
    await scene.run(calls)
    assert (calls.most, sorted(calls.done)) == (4, JOBS)


async def test_a_worker_that_somebody_cancels_is_its_plans_error() -> None:
    scene = Scene()

    async def call(_: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await scene.executor.run(JOBS, call, group="web", stop=never)
    calls = scene.calls()
    await scene.run(calls)
    assert calls.most == 4


async def test_a_rate_is_kept_over_all_plans() -> None:
    scene = Scene(qps=10.0)
    one, other = scene.calls(), scene.calls()
    await asyncio.gather(scene.run(one), scene.run(other))
    times = sorted(one.times + other.times)
    assert scene.now == pytest.approx(10.0, abs=0.3)
    assert all(b - a >= 0.1 - 0.021 for a, b in pairwise(times))


async def test_requests_on_top_of_a_call_count_for_the_rate() -> None:
    scene = Scene(qps=10.0)

    async def call(_: int) -> None:
        scene.executor.count_request()

    await scene.executor.run(JOBS, call, group="web", stop=never)
    assert scene.now == pytest.approx(10.0, abs=0.3)


async def test_metrics_have_the_limit_and_the_throttled_writes() -> None:
    scene = Scene(most=8)
    assert scene.sample("_limit") == 8
    await scene.run(scene.calls(once(WAIT, [0, 1])))
    await scene.run(scene.calls(once(AWAY, [0])))
    assert scene.sample("s_throttled_total") == 2
    assert scene.sample("_retries_total") == 3
    assert scene.sample("_limit") == scene.pace.limit < 8


async def test_trouble_is_logged_at_begin_and_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene(most=8)
    await scene.run(scene.calls(once(WAIT, JOBS[:20])))
    for _ in range(8):
        scene.now += 1.0
        await scene.run(scene.calls())
    begun, over = (record.getMessage() for record in caplog.records)
    assert begun.startswith("the API server asks to slow down: limit=4 pause=3.2s error=")
    assert over == "node writes are back at full: limit=8"
