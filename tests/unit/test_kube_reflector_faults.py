"""List and watch, when things go wrong."""

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from kwok_operator.errors import ApiUnreachableError
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.reflecting import Names, Naps, Script, Start
from tests.fakes.waiting import until


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_error_event_resumes_from_where_it_was(
    server: FakeApiServer,
    start: Start,
    sink: Names,
    naps: Naps,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start()
    await until(lambda: server.watchers)
    server.create(NODES, node("a"))
    server.send_error(500)
    await until(lambda: server.calls["watch", "nodes"] == 2 and server.watchers)
    server.create(NODES, node("b"))
    await until(lambda: len(sink.log) == 2)
    assert (sink.log, sink.replaced, naps.slept) == (["+a", "+b"], 1, [0.25])
    assert "500 InternalError: injected" in caplog.text


async def test_useless_streams_end_in_a_new_list(
    server: FakeApiServer,
    start: Start,
    sink: Names,
    naps: Naps,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kwok_operator")
    server.answer(b"<html>", verb="list")
    server.answer(b'{"type":"NONSENSE"}\n', verb="watch")
    server.answer(b'{"type":"ERROR","object":{"code":500}}\n', verb="watch")
    server.answer(b"", verb="watch")
    start()
    await until(lambda: sink.replaced == 2 and server.watchers)
    assert naps.slept == [0.25, 0.5, 1.0, 2.0]
    failed = [text.partition(" failed")[0] for text in messages(caplog) if "retrying" in text]
    assert failed == ["listing", "watching", "watching"]


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "renew the credentials"),
        (403, "grant the verbs list and watch on nodes"),
        (404, "does not serve nodes: install its CRD"),
    ],
)
async def test_refusals_are_logged_once_and_pass(
    server: FakeApiServer,
    start: Start,
    sink: Names,
    naps: Naps,
    caplog: pytest.LogCaptureFixture,
    status: int,
    remedy: str,
) -> None:
    caplog.set_level(logging.INFO, "kwok_operator.kube.reflector")
    # A 401 costs two answers: there is a new login in between.
    server.fail(status, times=6 if status == 401 else 3, verb="list")
    start()
    await until(lambda: sink.replaced)
    assert naps.slept == [0.25, 0.5, 1.0]
    first, *rest = messages(caplog)
    assert first.startswith("listing failed")
    assert remedy in first
    assert [text.partition(":")[0] for text in rest] == ["resumed", "synced"]


async def test_of_what_is_optional_there_is_nothing_where_it_is_not_served(
    server: FakeApiServer, start: Start, sink: Names
) -> None:
    restarts, troubles = list[str](), list[str | None]()
    server.create(NODES, {"metadata": {"name": "n-0"}})
    server.fail(404, times=3, verb="list")
    reflector = start(
        optional=True,
        on_restart=lambda _, cause: restarts.append(cause),
        on_trouble=troubles.append,
    )
    await until(reflector.synced.is_set)
    assert sink.names == set()
    await until(lambda: server.watchers)
    assert (sink.names, restarts, troubles) == ({"n-0"}, [], [])

    server.fail(404, verb="list")
    held = server.hold(verb="list")
    server.cut_watches()
    await until(lambda: sink.names == set())
    held.set()
    await until(lambda: sink.names == {"n-0"})
    assert restarts == ["failed"], "of the connection that was cut"


async def test_what_is_optional_is_waited_for_where_the_server_is_in_trouble(
    server: FakeApiServer, start: Start, sink: Names
) -> None:
    server.fail(503, verb="list")
    held = server.hold(verb="list")
    reflector = start(optional=True)
    await until(lambda: server.calls["list", "nodes"] == 2)
    assert (sink.replaced, reflector.synced.is_set()) == (0, False)
    held.set()
    await until(reflector.synced.is_set)


async def test_refused_watch_does_not_list_anew(
    server: FakeApiServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail(403, times=5, verb="watch")
    start()
    await until(lambda: server.watchers)
    assert server.calls["list", "nodes"] == 1
    assert caplog.text.count("watching failed") == 1


async def test_rights_are_noticed_within_five_seconds(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps
) -> None:
    server.fail(403, times=9, verb="list")
    start()
    await until(lambda: sink.replaced)
    assert naps.slept[:4] == [0.25, 0.5, 1.0, 2.0]
    assert max(naps.slept) == 5


async def test_another_trouble_is_another_line(
    server: FakeApiServer, start: Start, sink: Names, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail(403, times=2, verb="list")
    server.fail(500, times=2, verb="list")
    start()
    await until(lambda: sink.replaced)
    assert len([text for text in messages(caplog) if text.startswith("listing")]) == 2


async def test_retry_after_is_honoured(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps
) -> None:
    server.fail(429, retry_after=9, verb="list")
    server.fail(429, retry_after=4, verb="watch")
    start()
    await until(lambda: server.watchers)
    assert naps.slept == [9.25, 4.25]


async def test_good_news_end_the_count_of_failures(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps
) -> None:
    server.fail(500, times=3, verb="watch")
    start()
    await until(lambda: server.watchers)
    server.create(NODES, node("a"))
    await until(lambda: sink.log)
    server.cut_watches()
    await until(lambda: len(naps.slept) == 4)
    assert naps.slept == [0.25, 0.5, 1.0, 0.25]


async def test_outage(server: FakeApiServer, start: Start, sink: Names, naps: Naps) -> None:
    start()
    await until(lambda: server.watchers)
    server.bookmark()
    await server.stop()
    server.create(NODES, node("a"))
    await until(lambda: len(naps.slept) > 3)
    await server.start()
    await until(lambda: sink.names == {"a"})
    assert sink.replaced == 2


async def cut_when_quiet(script: Script) -> AsyncGenerator[bytes, None]:
    script.now += 30.0
    raise ApiUnreachableError(server="s", cause="cut")
    yield


async def test_quiet_cuts_do_not_slow_down(start: Start, naps: Naps) -> None:
    script = Script(*[cut_when_quiet] * 4)
    start(client=script, clock=lambda: script.now)
    await until(script.done.is_set)
    assert naps.slept == [0.25] * 4
    assert script.lists == 1
