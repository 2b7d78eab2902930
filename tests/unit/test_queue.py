"""The work queue: which keys are handled, when, and never twice at once.

Time is virtual: the loop's clock jumps to the next timer instead of waiting for it.
"""

import asyncio
import functools
import itertools
import logging
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kwok_operator.errors import KwokOperatorError, TooManyRequestsError
from kwok_operator.nodegroups.queue import LAST_RETRY, WorkQueue

Handler = Callable[[str], Coroutine[Any, Any, None]]
FOREVER = 1e6


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never waits: where nothing is ready, its clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(JumpingSelector(self))

    def time(self) -> float:
        return self.now


class JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen again"
            self._loop.now += max(0.0, timeout)
        return ready


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test on a loop of virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class Work:
    """A handler that notes when it began and ended, and does what it is told."""

    def __init__(self, *, lasts: float = 0.0, fails: Callable[[], bool] = lambda: False) -> None:
        self.lasts = lasts
        self.fails = fails
        self.error: Exception = KwokOperatorError("no")
        self.begun: list[tuple[str, float]] = []
        self.ended: list[tuple[str, float]] = []

    async def __call__(self, key: str) -> None:
        self.begun.append((key, now()))
        await asyncio.sleep(self.lasts)
        self.ended.append((key, now()))
        if self.fails():
            raise self.error


def now() -> float:
    return asyncio.get_running_loop().time()


def queue_of(work: Handler, *, drawn: float = 1.0) -> WorkQueue:
    queue = WorkQueue(work, draw=lambda: drawn)
    queue.open()
    return queue


async def begun(*, lasts: float = 0.0, adds: list[tuple[float, float]]) -> list[float]:
    """When a key is handled that is added at these times with these delays."""
    work, start = Work(lasts=lasts), now()
    queue = queue_of(work)
    for at, delay in adds:
        await asyncio.sleep(start + at - now())
        queue.add("a", delay=delay)
    await asyncio.sleep(FOREVER)
    return [at - start for _, at in work.begun]


@virtual
async def test_a_key_is_handled_when_it_is_due_once_and_never_twice_at_once() -> None:
    assert await begun(adds=[(0, 0)]) == [0.0]
    assert await begun(adds=[(0, 3)]) == [3.0]
    for delays in ((1, 5), (5, 1), (1, 1, 5, 2), (1,) * 1_000):
        assert await begun(adds=[(0, delay) for delay in delays]) == [1.0], "the soonest"
    assert await begun(lasts=10.0, adds=[(0, 0), (4, 0)]) == [0.0, 10.0], "again, afterwards"
    assert await begun(lasts=10.0, adds=[(n, 0) for n in range(6)]) == [0.0, 10.0], "once more"
    assert await begun(lasts=10.0, adds=[(0, 0), (4, 26)]) == [0.0, 30.0], "when it is due"


@virtual
async def test_keys_do_not_wait_for_each_other() -> None:
    work = Work(lasts=30.0)
    queue = queue_of(work)
    queue.add("large")
    queue.add("small", delay=1.0)
    await asyncio.sleep(FOREVER)
    assert work.begun == [("large", 0.0), ("small", 1.0)]


@virtual
async def test_a_key_can_add_itself() -> None:
    queue: WorkQueue
    times: list[float] = []

    async def work(key: str) -> None:
        times.append(now())
        if len(times) < 4:
            queue.add(key, delay=2.0)

    queue = queue_of(work)
    queue.add("a")
    await asyncio.sleep(FOREVER)
    assert times == [0.0, 2.0, 4.0, 6.0]


@virtual
async def test_never_twice_at_once_whatever_is_added() -> None:
    at_once, most = 0, 0

    async def work(_: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.7)
        at_once -= 1

    queue = queue_of(work)
    for n in range(200):
        queue.add("a", delay=0.1 * (n % 7))
        await asyncio.sleep(0.03)
    await asyncio.sleep(FOREVER)
    assert most == 1


class TestErrors:
    @pytest.mark.parametrize(("drawn", "share"), [(1.0, 1.0), (0.0, 0.5), (0.5, 0.75)])
    @virtual
    async def test_the_delay_doubles_with_jitter(self, drawn: float, share: float) -> None:
        work = Work(fails=lambda: True)
        queue_of(work, drawn=drawn).add("a")
        await asyncio.sleep(600.0)
        times = [at for _, at in work.begun]
        waits = [b - a for a, b in itertools.pairwise(times)]
        full = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
        assert waits[:10] == pytest.approx([share * wait for wait in full])
        assert max(waits) <= LAST_RETRY

    @virtual
    async def test_an_api_server_that_asks_to_wait_is_obeyed(self) -> None:
        work = Work(fails=lambda: len(work.begun) == 1)
        work.error = TooManyRequestsError("later", status=429, retry_after=20.0)
        queue_of(work).add("a")
        await asyncio.sleep(FOREVER)
        assert work.begun == [("a", 0.0), ("a", 20.0)]

    @virtual
    async def test_one_that_asks_for_a_second_again_and_again_is_asked_less_and_less(self) -> None:
        work = Work(fails=lambda: True)
        work.error = TooManyRequestsError("later", status=429, retry_after=1.0)
        queue_of(work).add("a")
        await asyncio.sleep(600.0)
        assert len(work.begun) <= 20

    @virtual
    async def test_a_success_forgets_the_failures(self) -> None:
        outcomes = iter([True, True, True, False, True, False])
        work = Work(fails=lambda: next(outcomes))
        queue = queue_of(work)
        queue.add("a")
        await asyncio.sleep(10.0)
        assert [at for _, at in work.begun] == [0.0, 0.5, 1.5, 3.5]
        queue.add("a")
        await asyncio.sleep(FOREVER)
        assert [at for _, at in work.begun][4:] == [10.0, 10.5]

    @virtual
    async def test_one_keys_errors_are_no_other_keys_affair(self) -> None:
        work = Work(fails=lambda: work.ended[-1][0] == "bad")
        queue = queue_of(work)
        queue.add("bad")
        queue.add("good")
        await asyncio.sleep(3.0)
        assert [key for key, _ in work.begun] == ["bad", "good", "bad", "bad"]

    @virtual
    async def test_what_happens_meanwhile_does_not_shorten_the_back_off(self) -> None:
        # As where each pass writes some nodes, and each of those is an event.
        work, times = Work(lasts=1.0, fails=lambda: True), list[float]()
        queue = queue_of(work)
        for _ in range(6_000):
            queue.add("a", delay=0.05)
            await asyncio.sleep(0.1)
        times = [at for _, at in work.begun]
        assert len(times) <= 16, "ten minutes"
        assert max(b - a for a, b in itertools.pairwise(times)) <= LAST_RETRY + 1.0

    @pytest.mark.parametrize("anew", [False, True], ids=["wish", "anew"])
    @pytest.mark.parametrize("mended_at", [0.5, 8.5], ids=["while it runs", "while it waits"])
    @virtual
    async def test_another_wish_or_cause_is_tried_at_once_and_once(
        self, mended_at: float, anew: bool
    ) -> None:
        wish = 1
        work = Work(lasts=1.0, fails=lambda: True)
        queue = WorkQueue(work, draw=lambda: 1.0, wish=lambda _: wish)
        queue.open()
        queue.add("a")
        await asyncio.sleep(mended_at)
        wish = 1 if anew else 2
        queue.add("a", anew=anew)
        before = len(work.begun)
        await asyncio.sleep(1.1)
        assert len(work.begun) == before + 1
        queue.add("a")
        await asyncio.sleep(1.9)
        assert len(work.begun) <= before + 2, "the back-off goes on"

    @virtual
    async def test_causes_that_are_over_without_end_are_tried_less_and_less(self) -> None:
        # As where a real node comes and goes that a failing group could copy.
        work = Work(fails=lambda: True)
        queue = queue_of(work)
        for _ in range(6_000):
            queue.add("a", anew=True)
            await asyncio.sleep(0.1)
        assert len(work.begun) <= 35, "ten minutes"
        tries = len(work.begun)
        await asyncio.sleep(300.0)
        assert 4 <= len(work.begun) - tries <= 6, "the back-off goes on"
        tries = len(work.begun)
        queue.add("a", anew=True)
        await asyncio.sleep(0.1)
        assert len(work.begun) == tries + 1, "at once, after a calm"

    @pytest.mark.parametrize(
        ("error", "traceback"),
        [(KwokOperatorError("quota exceeded"), False), (KeyError("quota exceeded"), True)],
        ids=["expected", "unexpected"],
    )
    @virtual
    async def test_an_error_is_logged_with_key_attempt_and_delay(
        self, error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        work = Work(fails=lambda: True)
        work.error = error
        with caplog.at_level(logging.WARNING):
            queue_of(work).add("web")
            await asyncio.sleep(0.6)
        first, second = caplog.records
        message = first.getMessage()
        assert "group=web attempt=1 retry_in=0.5s" in message
        assert "quota exceeded" in message
        assert "\n" not in message
        assert bool(first.exc_info) is traceback
        assert "attempt=2 retry_in=1.0s" in second.getMessage()


class TestClose:
    @virtual
    async def test_nothing_is_started_any_more(self) -> None:
        work = Work()
        queue = queue_of(work)
        queue.add("due")
        queue.add("later", delay=5.0)
        await queue.close(grace=1.0)
        queue.add("new")
        await asyncio.sleep(FOREVER)
        assert work.begun == []
        assert queue.depth == 0

    @virtual
    async def test_what_runs_is_waited_for_and_not_run_again(self) -> None:
        work = Work(lasts=3.0)
        queue = queue_of(work)
        queue.add("a")
        await asyncio.sleep(1.0)
        queue.add("a")
        await queue.close(grace=5.0)
        assert now() == 3.0
        assert work.ended == [("a", 3.0)]
        await asyncio.sleep(FOREVER)
        assert len(work.begun) == 1

    @virtual
    async def test_what_takes_longer_than_the_grace_is_cancelled(self) -> None:
        work = Work(lasts=60.0)
        queue = queue_of(work)
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1.0)
        await queue.close(grace=5.0)
        assert now() == 6.0
        assert work.ended == []
        assert queue.depth == 0

    @virtual
    async def test_what_fails_while_closing_is_not_tried_again(self) -> None:
        work = Work(lasts=2.0, fails=lambda: True)
        queue = queue_of(work)
        queue.add("a")
        await asyncio.sleep(1.0)
        await queue.close(grace=5.0)
        await asyncio.sleep(FOREVER)
        assert len(work.begun) == 1


@virtual
async def test_depth_counts_keys_that_wait_or_run() -> None:
    work = Work(lasts=5.0)
    queue = queue_of(work)
    assert queue.depth == 0
    queue.add("a")
    queue.add("b", delay=60.0)
    assert queue.depth == 2
    await asyncio.sleep(1.0)
    queue.add("a", delay=1.0)
    assert queue.depth == 2
    await asyncio.sleep(FOREVER)
    assert queue.depth == 0


@virtual
async def test_a_key_that_is_due_much_later_makes_nobody_busy() -> None:
    async def handle(key: str) -> None:
        await asyncio.sleep(1)

    queue = WorkQueue(handle, draw=lambda: 0.5)
    queue.open()
    assert not queue.busy(within=5)
    queue.add("a", delay=60)
    assert not queue.busy(within=5)
    await asyncio.sleep(56)
    assert queue.busy(within=5)
    await asyncio.sleep(4.5)
    assert queue.busy(within=0), "it runs"
    await asyncio.sleep(1)
    assert not queue.busy(within=5)
