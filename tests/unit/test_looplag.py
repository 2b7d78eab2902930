"""How long the event loop is busy at a time.

- a stall shows at full length, however it is made up
- time that passed is told apart from what the CPU was used for
- a loop that has nothing to do is not woken
- many sockets that have something at once are served in several turns, and all of them are, also
  where they have something again at once
- a loop that shows nothing is told of
- the metrics: turns by length, and the longest ones
"""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from kwok_operator.observability.looplag import SOCKETS_AT_ONCE, watch_turns
from kwok_operator.observability.metrics import Metrics


async def observed() -> list[float]:
    """What is observed from now on."""
    turns: list[float] = []
    watch_turns(asyncio.get_running_loop(), lambda wall, cpu: turns.append(wall))
    await asyncio.sleep(0)
    turns.clear()
    return turns


async def test_sleep_is_no_work_and_work_is() -> None:
    turns: list[tuple[float, float]] = []
    watch_turns(asyncio.get_running_loop(), lambda wall, cpu: turns.append((wall, cpu)))
    time.sleep(0.06)  # noqa: ASYNC251
    await asyncio.sleep(0)
    wall, cpu = max(turns)
    assert wall >= 0.06 > 0.03 > cpu
    turns.clear()
    until = time.thread_time() + 0.06
    while time.thread_time() < until:
        pass
    await asyncio.sleep(0)
    wall, cpu = max(turns)
    assert cpu >= 0.06 and wall >= 0.06


async def test_many_short_pieces_in_one_turn_are_one_stall() -> None:
    turns = await observed()
    for _ in range(6):
        asyncio.get_running_loop().call_soon(time.sleep, 0.01)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert max(turns) >= 0.06


async def test_waiting_is_no_stall_and_nothing_wakes_an_idle_loop() -> None:
    turns = await observed()
    await asyncio.sleep(0.2)
    assert len(turns) <= 3
    assert max(turns, default=0) < 0.19


@asynccontextmanager
async def sockets_with_news(count: int) -> AsyncIterator[list[socket.socket]]:
    """So many sockets that have something to read; nobody listens to them afterwards."""
    pairs = [socket.socketpair() for _ in range(count)]
    for _, far in pairs:
        far.send(b"x")
    yield [near for near, _ in pairs]
    for near, far in pairs:
        asyncio.get_running_loop().remove_reader(near)
        near.close()
        far.close()


async def test_many_sockets_are_served_in_several_turns() -> None:
    loop = asyncio.get_running_loop()
    turns = await observed()
    heard: list[tuple[int, int]] = []
    async with sockets_with_news(2 * SOCKETS_AT_ONCE + 1) as sockets:

        def hear(number: int, near: socket.socket) -> None:
            near.recv(1)
            heard.append((len(turns), number))

        for number, near in enumerate(sockets):
            loop.add_reader(near, hear, number, near)
        for _ in range(20):
            await asyncio.sleep(0)
    assert sorted(number for _, number in heard) == [*range(len(sockets))]
    in_a_turn = Counter(turn for turn, _ in heard)
    assert max(in_a_turn.values()) <= SOCKETS_AT_ONCE


async def test_sockets_that_always_have_something_keep_nobody_waiting() -> None:
    loop = asyncio.get_running_loop()
    await observed()
    heard: Counter[int] = Counter()
    async with sockets_with_news(3 * SOCKETS_AT_ONCE) as sockets:
        for number, near in enumerate(sockets):  # and nobody reads them
            loop.add_reader(near, heard.update, (number,))
        for _ in range(60):
            await asyncio.sleep(0)
    assert sorted(heard) == [*range(len(sockets))]
    assert max(heard.values()) <= 2 * min(heard.values())


def test_a_loop_that_shows_nothing_is_told_of() -> None:
    loop = uvloop.new_event_loop()
    try:
        with pytest.raises(TypeError, match="Loop shows no selector"):
            watch_turns(loop, print)
    finally:
        loop.close()


def test_metrics_tell_turns_by_length_and_the_longest() -> None:
    metrics = Metrics()
    for wall, cpu in ((0.0004, 0.0004), (0.07, 0.01), (0.02, 0.02)):
        metrics.loop_turn(wall, cpu)
    get = metrics.registry.get_sample_value
    name = "kwok_operator_event_loop_lag"
    assert get(f"{name}_longest_seconds", {"clock": "wall"}) == 0.07
    assert get(f"{name}_longest_seconds", {"clock": "cpu"}) == 0.02
    assert get(f"{name}_seconds_bucket", {"le": "0.05"}) == 2
    assert get(f"{name}_seconds_count") == 3
