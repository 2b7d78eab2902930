"""List and watch, when all goes as it normally does.

What goes wrong is in test_kube_reflector_faults.py.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.reflecting import Names, Naps, Script, Start
from tests.fakes.waiting import until


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_list_in_pages(server: FakeApiServer, start: Start, sink: Names) -> None:
    names = {f"n-{i}" for i in range(7)}
    for name in names:
        server.create(NODES, node(name, ours="yes"))
    server.create(NODES, node("other"))
    reflector = start(params={"labelSelector": "ours=yes"}, page_size=3)
    assert not reflector.synced.is_set()
    await until(reflector.synced.is_set)
    assert (sink.names, sink.replaced, sink.log) == (names, 1, [])
    assert sink.version == server.store.version
    await until(lambda: server.watchers)
    lists = [seen for seen in server.seen if seen.verb == "list"]
    assert [seen.query["limit"] for seen in lists] == ["3", "3", "3"]
    assert all(seen.query["labelSelector"] == "ours=yes" for seen in server.seen)
    watch = server.seen[-1].query
    assert watch["resourceVersion"] == str(sink.version)
    assert (watch["allowWatchBookmarks"], watch["timeoutSeconds"]) == ("true", "270")


async def test_pages_come_first(server: FakeApiServer, start: Start, sink: Names) -> None:
    for i in range(5):
        server.create(NODES, node(f"n-{i}"))
    pages: list[tuple[list[str], int]] = []
    start(page_size=2, on_page=lambda page: pages.append((list(page), sink.replaced)))
    await until(lambda: sink.replaced)
    assert pages == [(["n-0", "n-1"], 0), (["n-2", "n-3"], 0), (["n-4"], 0)]
    assert sink.names == {f"n-{i}" for i in range(5)}


async def test_events(server: FakeApiServer, start: Start, sink: Names) -> None:
    server.create(NODES, node("a", ours="yes"))
    start(params={"labelSelector": "ours"})
    await until(lambda: server.watchers)
    server.create(NODES, node("b", ours="yes"))
    server.patch(NODES, "b", {"metadata": {"annotations": {"x": "y"}}})
    server.patch(NODES, "a", {"metadata": {"labels": {"ours": None}}})
    server.delete(NODES, "b")
    await until(lambda: len(sink.log) == 4)
    assert sink.log == ["+b", "+b", "-a", "-b"]


async def test_no_loss_before_the_watch(server: FakeApiServer, start: Start, sink: Names) -> None:
    server.create(NODES, node("a"))
    released = server.hold(verb="watch")
    await until(start().synced.is_set)
    server.create(NODES, node("b"))
    server.delete(NODES, "a")
    released.set()
    await until(lambda: len(sink.log) == 2)
    assert sink.log == ["+b", "-a"]


async def test_no_loss_while_paging(server: FakeApiServer, start: Start, sink: Names) -> None:
    for i in range(4):
        server.create(NODES, node(f"n-{i}"))
    first = server.hold(verb="list")
    reflector = start(page_size=2)
    second = server.hold(verb="list")
    first.set()
    await until(lambda: server.calls["list", "nodes"] == 2)
    server.create(NODES, node("new"))
    server.delete(NODES, "n-3")
    second.set()
    await until(reflector.synced.is_set)
    await until(lambda: len(sink.log) == 2)
    assert sink.names == {"n-0", "n-1", "n-2", "new"}


@pytest.mark.parametrize("leaving", [b"", b'{"type":"DELETED","object":{"metada'])
async def test_cut_watch_resumes(
    server: FakeApiServer,
    start: Start,
    sink: Names,
    caplog: pytest.LogCaptureFixture,
    leaving: bytes,
) -> None:
    caplog.set_level(logging.INFO, "kwok_operator")
    start()
    await until(lambda: server.watchers)
    server.create(NODES, node("a"))
    await until(lambda: sink.log)
    released = server.hold(verb="watch")
    server.cut_watches(leaving=leaving)
    await until(lambda: server.calls["watch", "nodes"] == 2)
    server.create(NODES, node("b"))
    released.set()
    await until(lambda: len(sink.log) == 2)
    assert (sink.log, sink.replaced) == (["+a", "+b"], 1)
    assert [text.partition(":")[0] for text in messages(caplog)] == [
        "synced",
        "watching failed, retrying",
        "resumed",
    ]


async def test_watch_that_ends_is_no_trouble(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps
) -> None:
    start()
    await until(lambda: server.watchers)
    server.create(NODES, node("a"))
    server.bookmark()
    server.end_watches()
    await until(lambda: server.calls["watch", "nodes"] == 2 and server.watchers)
    server.create(NODES, node("b"))
    await until(lambda: len(sink.log) == 2)
    assert (sink.log, sink.replaced, naps.slept) == (["+a", "+b"], 1, [])


async def test_bookmarks_move_the_version(server: FakeApiServer, start: Start) -> None:
    reflector = start(params={"labelSelector": "ours"})
    await until(lambda: server.watchers)
    for name in "abc":
        server.create(NODES, node(name))
    server.bookmark()
    server.end_watches()
    await until(lambda: server.calls["watch", "nodes"] == 2)
    assert server.seen[-1].query["resourceVersion"] == str(server.store.version)
    assert reflector.synced.is_set()


@pytest.mark.parametrize("as_event", [False, True], ids=["status", "event"])
async def test_gone_lists_anew(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps, as_event: bool
) -> None:
    server.gone_as_event = as_event
    for name in "ab":
        server.create(NODES, node(name))
    start()
    await until(lambda: server.watchers)
    released = server.hold(verb="watch")
    server.bookmark()
    server.end_watches()
    await until(lambda: server.calls["watch", "nodes"] == 2)
    server.delete(NODES, "a")
    server.create(NODES, node("c"))
    server.compact()
    released.set()
    await until(lambda: sink.replaced == 2)
    assert (sink.names, sink.log) == ({"b", "c"}, [])
    assert naps.slept == []  # the first time is normal, and must not wait


async def test_gone_again_and_again_backs_off(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps
) -> None:
    server.fail(410, times=3, verb="watch")
    start()
    await until(lambda: sink.replaced == 4)
    assert naps.slept == [0.25, 0.5]


async def test_gone_after_an_outage_does_not_wait_for_it(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps
) -> None:
    server.fail(500, times=2, verb="watch")
    server.fail(410, verb="watch")
    start()
    await until(lambda: sink.replaced == 2)
    assert len(naps.slept) == 2  # for the two failures, and not for the history that is gone


async def test_gone_while_paging_restarts_the_list(
    server: FakeApiServer, start: Start, sink: Names, naps: Naps
) -> None:
    for i in range(4):
        server.create(NODES, node(f"n-{i}"))
    first = server.hold(verb="list")
    start(page_size=2)
    second = server.hold(verb="list")
    first.set()
    await until(lambda: server.calls["list", "nodes"] == 2)
    server.compact()
    second.set()
    await until(lambda: sink.replaced)
    assert (len(sink.names), sink.replaced, naps.slept) == (4, 1, [])
    assert "continue" not in server.seen[2].query


async def test_last_contact_follows_the_server(server: FakeApiServer, start: Start) -> None:
    now = [100.0]
    released = server.hold(verb="watch")
    reflector = start(clock=lambda: now[0])
    await until(lambda: server.calls["watch", "nodes"])
    assert reflector.last_contact == 100.0
    now[0] = 200.0
    released.set()
    await until(lambda: reflector.last_contact == 200.0)
    now[0] = 300.0
    server.bookmark()
    await until(lambda: reflector.last_contact == 300.0)


async def test_trouble_is_reported_when_it_begins_changes_and_ends(
    server: FakeApiServer, start: Start, sink: Names
) -> None:
    troubles: list[str | None] = []
    server.fail(500, times=2, verb="list", message="etcd is away")
    server.fail(403, times=2, verb="list", message="nodes is forbidden")
    start(on_trouble=troubles.append)
    await until(lambda: server.watchers)
    first, second, *rest = troubles
    assert first is not None and first.endswith("500: etcd is away")
    assert second is not None and "nodes is forbidden; grant the verbs list and watch" in second
    assert rest == [None]
    server.cut_watches()
    await until(lambda: len(troubles) == 5 and server.watchers)
    assert troubles[3] is not None and troubles[4] is None


async def test_normal_ends_are_no_trouble(server: FakeApiServer, start: Start, sink: Names) -> None:
    troubles: list[str | None] = []
    start(on_trouble=troubles.append)
    await until(lambda: server.watchers)
    server.bookmark()
    server.end_watches()
    await until(lambda: server.calls["watch", "nodes"] == 2 and server.watchers)
    server.fail(410, verb="watch")
    server.bookmark()
    server.end_watches()
    await until(lambda: sink.replaced == 2 and server.watchers)
    assert troubles == []


async def count_turns(turns: list[int]) -> None:
    while True:
        turns.append(1)
        await asyncio.sleep(0)


async def test_bursts_let_the_loop_breathe(start: Start, sink: Names) -> None:
    turns: list[int] = []
    during: list[int] = []
    line = b'{"type":"ADDED","object":{"metadata":{"name":"n","resourceVersion":"9"}}}'

    async def burst(script: Script) -> AsyncGenerator[bytes, None]:
        before = len(turns)
        for _number in range(1_000):
            yield line
        during.append(len(turns) - before)

    script = Script(burst)
    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(count_turns(turns))
        await until(lambda: turns)
        start(client=script)
        await until(script.done.is_set)
        ticking.cancel()
    assert len(sink.log) == 1_000
    assert during[0] >= 4


async def test_news_is_gathered_for_as_long_as_is_said_at_the_time(
    server: FakeApiServer, start: Start, sink: Names
) -> None:
    pauses = [0.0, 3600.0]
    start(gather_for=lambda: pauses.pop(0))
    await until(lambda: server.watchers)
    for name in ("at-once", "after-none"):
        server.create(NODES, node(name))
        await until(lambda name=name: name in sink.names)  # type: ignore[misc]
    server.create(NODES, node("in-an-hour"))
    await asyncio.sleep(0.2)
    assert "in-an-hour" not in sink.names
