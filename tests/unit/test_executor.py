"""Many small calls at once: how many, in whose turn, and how they end."""

import asyncio
from collections.abc import Iterable
from itertools import pairwise

import pytest

from kwok_operator.kube.executor import BEGUN_AT_ONCE, Executor
from kwok_operator.kube.pacing import Pace
from kwok_operator.observability.metrics import Metrics
from tests.fakes.waiting import until

JOBS = list(range(50))


def never() -> bool:
    return False


def executor_of(most: int) -> Executor:
    return Executor(Pace(most=most), metrics=Metrics())


class Calls:
    """Calls that take a few turns of the loop, and count themselves."""

    def __init__(self, *, fails: Iterable[int] = (), turns: int = 3) -> None:
        self.fails = set(fails)
        self.turns = turns
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most = 0

    @property
    def in_flight(self) -> int:
        return len(self.begun) - len(self.ended)

    async def __call__(self, job: int) -> None:
        self.begun.append(job)
        self.most = max(self.most, self.in_flight)
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.ended.append(job)
        if job in self.fails:
            raise ValueError(job)


@pytest.mark.parametrize("concurrency", [1, 4, 32])
async def test_each_job_is_done_once_in_order_in_all_slots(
    concurrency: int,
) -> None:
    calls = Calls(turns=20)
    await executor_of(concurrency).run(JOBS, calls, group="web", stop=never)
    assert calls.begun == JOBS
    assert sorted(calls.ended) == JOBS
    assert calls.most == concurrency


async def test_only_a_few_are_begun_before_others_run() -> None:
    calls, begun = Calls(turns=100), [0]
    plan = asyncio.create_task(executor_of(32).run(JOBS, calls, group="web", stop=never))
    while len(calls.begun) < 32 and len(begun) < 100:
        await asyncio.sleep(0)
        begun.append(len(calls.begun))
    assert begun[-1] == 32
    assert max(after - before for before, after in pairwise(begun)) <= BEGUN_AT_ONCE
    await plan


async def test_all_plans_share_the_slots() -> None:
    executor, calls = executor_of(4), Calls()
    await asyncio.gather(*(executor.run(JOBS, calls, group="web", stop=never) for _ in range(5)))
    assert calls.most == 4
    assert sorted(calls.ended) == sorted(JOBS * 5)


async def test_no_jobs_are_no_work_and_no_wait() -> None:
    executor, busy, calls = executor_of(1), Calls(), Calls()
    plan = asyncio.create_task(executor.run(JOBS, busy, group="web", stop=never))
    await asyncio.sleep(0)
    await executor.run([], calls, group="web", stop=never)
    assert (calls.begun, len(busy.begun)) == ([], 0)
    await plan


async def test_a_plan_ends_with_its_last_call() -> None:
    executor, long, short = executor_of(1), Calls(), Calls()
    plan = asyncio.create_task(executor.run(JOBS, long, group="web", stop=never))
    await executor.run([0], short, group="web", stop=never)
    assert len(long.begun) <= 2
    await plan


async def test_jobs_are_taken_one_by_one() -> None:
    # A plan of a million nodes is not laid out in advance.
    calls, taken = Calls(), []

    def jobs() -> Iterable[int]:
        for job in JOBS:
            taken.append(job)
            yield job

    await executor_of(2).run(jobs(), calls, group="web", stop=lambda: len(calls.begun) >= 4)
    assert len(taken) < 10


async def test_a_short_plan_gets_its_turn_between_the_calls_of_a_long_one() -> None:
    executor, long, short = executor_of(4), Calls(), Calls()
    plan = asyncio.create_task(executor.run(range(10_000), long, group="web", stop=never))
    for _ in range(40):
        await asyncio.sleep(0)
    assert long.ended
    before = len(long.begun)
    await executor.run(range(10), short, group="web", stop=never)
    # Turn by turn: for each call of the short plan one of the long one, and those in flight.
    assert len(long.begun) - before <= 10 + 2 * 4
    await plan
    assert len(long.ended) == 10_000


async def test_stopped_a_plan_begins_nothing_new_and_what_is_in_flight_ends() -> None:
    executor, stopped, other = executor_of(4), Calls(), Calls()
    await asyncio.gather(
        executor.run(JOBS, stopped, group="web", stop=lambda: len(stopped.begun) >= 10),
        executor.run(JOBS, other, group="web", stop=never),
    )
    assert 10 <= len(stopped.begun) < 14
    assert sorted(stopped.ended) == stopped.begun
    assert sorted(other.ended) == JOBS, "another one goes on"
    never_begun = Calls()
    await executor.run(JOBS, never_begun, group="web", stop=lambda: True)
    assert never_begun.begun == []


async def test_the_first_error_is_raised_once_nothing_of_its_plan_is_in_flight() -> None:
    executor, bad, good = executor_of(4), Calls(fails=[5, 6, 7]), Calls()
    error, _ = await asyncio.gather(
        executor.run(JOBS, bad, group="web", stop=never),
        executor.run(JOBS, good, group="web", stop=never),
        return_exceptions=True,
    )
    assert isinstance(error, ValueError) and error.args == (5,)
    assert bad.in_flight == 0
    assert len(bad.begun) <= 5 + 4
    assert sorted(good.ended) == JOBS, "another plan goes on"
    after = Calls()
    await executor.run(JOBS, after, group="web", stop=never)
    assert after.most == 4, "slots come back"


async def test_a_cancelled_plan_gives_its_slots_back() -> None:
    executor, calls = executor_of(2), Calls()

    async def hang(_: int) -> None:
        await asyncio.Event().wait()

    plan = asyncio.create_task(executor.run(JOBS, hang, group="web", stop=never))
    await asyncio.sleep(0)
    plan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await plan
    await executor.run(JOBS, calls, group="web", stop=never)
    assert calls.most == 2


async def test_calls_that_hang_keep_no_other_group_waiting() -> None:
    executor, end, hanging = executor_of(64), asyncio.Event(), Calls()

    async def hang(job: int) -> None:
        hanging.begun.append(job)
        await end.wait()

    def run(group: str) -> asyncio.Task[None]:
        return asyncio.create_task(executor.run(range(200), hang, group=group, stop=end.is_set))

    plans = [run("slow")]
    await until(lambda: len(hanging.begun) == 64)
    plans += [run(f"slow-{i}") for i in range(20)]
    good = Calls()
    async with asyncio.timeout(60):  # they would hang for ever
        await executor.run(range(100), good, group="good", stop=never)
    assert good.most >= 2
    assert len(hanging.begun) <= 128
    end.set()
    await asyncio.gather(*plans)


async def test_no_more_calls_hang_than_twice_the_limit() -> None:
    now, end, begun, plans = [0.0], asyncio.Event(), list[int](), list[asyncio.Task[None]]()
    executor = Executor(Pace(most=2), metrics=Metrics(), clock=lambda: now[0])

    async def hang(job: int) -> None:
        begun.append(job)
        await end.wait()

    for job in range(6):
        each = executor.run([job], hang, group=f"slow-{job}", stop=end.is_set)
        plans.append(asyncio.create_task(each))
        for _ in range(5):
            await asyncio.sleep(0)
        now[0] += 1.0
    assert begun == [0, 1, 2, 3]
    end.set()
    await asyncio.gather(*plans)
