"""How late the event loop is."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from kwok_operator.observability import looplag
from kwok_operator.observability.metrics import Metrics


async def test_who_keeps_the_loop_busy_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looplag, "INTERVAL", 0)
    delays: list[tuple[float, float]] = []
    task = asyncio.create_task(looplag.watch_lag(lambda *delay: delays.append(delay)))
    await asyncio.sleep(0)
    time.sleep(0.06)  # noqa: ASYNC251
    await asyncio.sleep(0)
    until = time.thread_time() + 0.06
    while time.thread_time() < until:
        pass
    await asyncio.sleep(0)
    task.cancel()
    (slept, unused), (worked, used) = delays
    assert slept >= 0.06 > 0.03 > unused
    assert worked >= used >= 0.06


@pytest.mark.parametrize(
    ("passed", "used", "delay"),
    [(0.0, 0.02, (0.0, 0.0)), (0.25, 0.02, (0.25, 0.02)), (0.25, 0.3, (0.25, 0.25))],
)
async def test_what_was_meant_to_pass_is_no_delay(
    passed: float, used: float, delay: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, cpu = iter((0.0, looplag.INTERVAL + passed, 0.0)), iter((0.0, used, 0.0))
    readings = SimpleNamespace(perf_counter=lambda: next(clock), thread_time=lambda: next(cpu))
    monkeypatch.setattr(looplag, "time", readings)
    seen: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(looplag.watch_lag(lambda *each: seen.set_result(each)))
    assert await seen == pytest.approx(delay)
    task.cancel()


def test_metrics_have_delays_by_length_and_the_longest() -> None:
    metrics = Metrics()
    for wall, cpu in ((0.0004, 0.0004), (0.07, 0.01), (0.02, 0.02)):
        metrics.loop_lag(wall, cpu)
    get = metrics.registry.get_sample_value
    name = "kwok_operator_event_loop_lag"
    assert get(f"{name}_longest_seconds", {"clock": "wall"}) == 0.07
    assert get(f"{name}_longest_seconds", {"clock": "cpu"}) == 0.02
    assert get(f"{name}_seconds_bucket", {"le": "0.05"}) == 2
    assert get(f"{name}_seconds_count") == 3
