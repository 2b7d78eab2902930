"""List and watch, where the server's history is not as it was, or there is none to tell."""

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.reflecting import Names, Naps, Script, Start
from tests.fakes.waiting import until


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


async def silent(script: Script) -> AsyncGenerator[bytes, None]:
    script.now += 70.0
    return
    yield


async def open_to_its_end(script: Script) -> AsyncGenerator[bytes, None]:
    script.now += 300.0
    return
    yield


async def put_back(script: Script) -> AsyncGenerator[bytes, None]:
    script.version = 3
    script.now += 70.0
    return
    yield


async def test_a_quiet_hour_is_no_trouble(
    start: Start, naps: Naps, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kwok_operator.kube.reflector")
    script, restarts = Script(*[silent] * 51), list[str]()
    reflector = start(
        client=script, clock=lambda: script.now, on_restart=lambda _, cause: restarts.append(cause)
    )
    await until(script.done.is_set)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["synced"]
    assert (script.lists, script.looks, naps.slept) == (1, 51, [])
    assert set(restarts) == {"closed"}
    assert script.now - reflector.last_contact <= 70.0, "the program is well"


async def test_a_dead_connection_is_reported_and_tried_again(
    server: FakeApiServer, start: Start, naps: Naps, caplog: pytest.LogCaptureFixture
) -> None:
    reflector = start(inactivity=0.05)
    await until(lambda: server.watchers)
    server.fail(503, verb="list", times=2)
    await until(lambda: len(naps.slept) >= 3 and server.watchers)
    assert naps.slept[:3] == [0.25, 0.5, 1.0]
    assert "watching failed" in caplog.text
    assert reflector.synced.is_set()


async def test_silence_of_a_server_whose_history_ends_before_ours(start: Start) -> None:
    script, told = Script(put_back), list[str]()
    start(client=script, clock=lambda: script.now, on_restored=lambda: told.append("restored"))
    await until(script.done.is_set)
    assert (script.lists, script.looks, told) == (2, 1, ["restored"])


@pytest.mark.parametrize(("streams", "lists"), [((), 1), ((None,), 2)], ids=["there", "away"])
async def test_a_watch_ended_as_planned_and_the_server(
    start: Start, streams: tuple[None, ...], lists: int
) -> None:
    script = Script(open_to_its_end, *streams)
    start(client=script, clock=lambda: script.now)
    await until(script.done.is_set)
    assert (script.lists, script.looks) == (lists, 0), "its store may have been restored meanwhile"


async def test_refused_after_a_cut(server: FakeApiServer, start: Start, sink: Names) -> None:
    start()
    await until(lambda: server.watchers)
    server.fail(503, verb="list", times=1)
    server.cut_watches()
    await until(lambda: not server.watchers)
    await until(lambda: server.watchers)
    assert sink.replaced == 2


@pytest.mark.parametrize(
    ("seconds", "given", "lists"),
    [(0.9, {}, 1), (1.1, {}, 2), (1.1, {"away_after": 2.0}, 1), (2.1, {"away_after": 2.0}, 2)],
)
async def test_a_late_answer_lists_anew(
    start: Start, seconds: float, given: dict[str, float], lists: int
) -> None:
    script = Script(silent)
    script.look_seconds = seconds
    start(client=script, clock=lambda: script.now, **given)
    await until(script.done.is_set)
    assert (script.looks, script.lists) == (1, lists)


@pytest.mark.parametrize("others", [0, 50], ids=["older", "overtaken"])
async def test_what_was_stored_some_time_ago(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps, others: int
) -> None:
    told: list[set[str]] = []
    server.create(NODES, node("a"))
    start(on_restored=lambda: told.append(set(sink.names)))
    await until(lambda: server.watchers)
    saved = server.snapshot()
    server.create(NODES, node("b"))
    server.delete(NODES, "a")
    await until(lambda: sink.names == {"b"})
    await server.restore(saved, missed=lambda: bool(naps.slept), others=others)
    await until(lambda: sink.names == {"a"})
    assert told == ([] if others else [{"b"}]), "before the sink hears what there is"
    await until(lambda: server.watchers)
    server.create(NODES, node("c"))
    await until(lambda: sink.names == {"a", "c"})
