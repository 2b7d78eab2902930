"""How the operator hears of groups, whatever becomes of the watch on them:

- an error told by the watch, or an answer that is no list: it is begun anew, in the same process
- groups that were deleted meanwhile are noticed, also after history was lost
- a watch that has stopped without a word is begun anew; one of an idle cluster is left alone
- a group that nests too deep is told and left out, and stops nobody
- a resync that fails ends nothing, and is done again; it is kept from the start
- signals stay ours, and a watch that has ended leaves nothing behind
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock

import pytest

from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube.session import Following
from kwok_operator.operator import handlers, login, preflight
from tests.fakes.apiserver import GROUPS
from tests.fakes.assembled import Assembled, assembled
from tests.fakes.discovery import serve_discovery
from tests.fakes.waiting import until


class World(Assembled):
    """An operator that hears of groups, and works on none."""

    def make(self, name: str, **spec: Any) -> None:
        self.server.create(GROUPS, {"metadata": {"name": name}, "spec": {"targetSize": 1} | spec})

    async def knows(self, *names: str) -> None:
        """Until the operator knows these groups, and no others; whatever ends it is raised."""

        def known() -> bool:
            if self.operator._ended.done():
                part = self.operator._ended.result()
                raise AssertionError(f"{part.get_name()} has ended: {part.exception()!r}")
            return set(self.parts.store.names()) == set(names)

        await until(known)

    async def watched(self, times: int = 1) -> None:
        """Until so many watches on groups have been begun, and one is open."""
        await until(lambda: self.server.calls["watch", "kwoknodegroups"] >= times)
        await until(lambda: any(each.path == GROUPS for each in self.server.watchers))


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(handlers, "WATCH_CHECK_INTERVAL", 0.1)
    monkeypatch.setattr(login, "backoff", lambda *_, **__: 0.0)
    async with assembled() as parts:
        serve_discovery(parts.server)
        world = World(**vars(parts))
        world.make("web")
        world.make("batch")
        world.operator._keep("resync", world.parts.resync)
        world.operator._watch_groups()
        await world.watched()
        await world.knows("web", "batch")
        yield world


@pytest.mark.parametrize(
    ("code", "reason"), [(500, "InternalError"), (403, "Forbidden"), (799, "OfNoKnownKind")]
)
async def test_an_error_told_by_the_watch_is_survived(world: World, code: int, reason: str) -> None:
    world.server.send_error(code, reason)
    await until(lambda: not world.server.watchers)
    world.server.delete(GROUPS, "batch")
    world.make("late")
    world.server.compact()
    await world.knows("web", "late")
    await world.watched(2)
    world.make("later")
    await world.knows("web", "late", "later")


async def test_an_answer_that_is_no_list_is_survived(world: World) -> None:
    world.server.answer(b"<html>Log in</html>", verb="list", resource="kwoknodegroups")
    world.server.compact()
    world.server.send_error(410, "Expired")
    world.make("late")
    await world.knows("web", "batch", "late")


async def test_groups_that_were_deleted_before_history_was_lost_are_noticed(world: World) -> None:
    world.server.end_watches()
    world.server.delete(GROUPS, "batch")
    world.server.compact()
    await world.knows("web")


async def test_a_watch_that_stopped_without_a_word_is_begun_anew(world: World) -> None:
    (watch,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for")]
    watch.cancel()
    world.make("late")
    await world.knows("web", "batch", "late")


async def test_a_watch_that_has_nothing_to_tell_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bool] = []
    under_way = Following.under_way

    def look(following: Following) -> bool:
        looked.append(under_way.__get__(following))
        return looked[-1]

    monkeypatch.setattr(Following, "under_way", property(look))
    await until(lambda: len(looked) > 3 * handlers.WATCH_CHECKS)
    assert all(looked)
    assert world.server.calls["watch", "kwoknodegroups"] == 1


def deep(name: str, levels: int) -> str:
    """A group, in the text that is all that a fake server can make of it."""
    node = '{"a":' * levels + "{}" + "}" * levels
    meta = f'{{"name":"{name}","uid":"{name}","resourceVersion":"9999999"}}'
    return f'{{"metadata":{meta},"spec":{{"targetSize":7,"template":{{"node":{node}}}}}}}'


@pytest.mark.parametrize("levels", [500, 900, 9000])
async def test_a_group_that_nests_too_deep_stops_nobody(
    world: World, caplog: pytest.LogCaptureFixture, levels: int
) -> None:
    (watch,) = [each for each in world.server.watchers if each.path == GROUPS]
    for name in ("deep", "web"):
        watch.chunks.put_nowait(f'{{"type":"ADDED","object":{deep(name, levels)}}}\n'.encode())
    world.make("beside")
    await world.knows("web", "batch", "beside")
    known = world.parts.store.get("web")
    assert known is not None and known.spec.target_size == 1, "what can't be read changes nothing"
    for name in ("deep", "web"):
        told = f"Unreadable: group={name} it nests deeper than 400 levels"
        assert any(line.startswith(told) for line in caplog.messages)
    # asyncio tells of tasks of other tests, too, whenever these are swept up.
    assert not any(record.exc_info for record in caplog.records if record.name != "asyncio")
    assert world.server.calls["watch", "kwoknodegroups"] == 1


async def test_a_group_that_nests_too_deep_is_listed_beside_others(world: World) -> None:
    server = world.server
    # No watch is told of it.
    beside = {"metadata": {"name": "beside"}, "spec": {"targetSize": 1}}
    server.store.create(server.store.collections[GROUPS], beside)
    items = ",".join([deep("deep", 9000), *map(json.dumps, server.objects(GROUPS).values())])
    listed = f'{{"metadata":{{"resourceVersion":"{server.store.version}"}},"items":[{items}]}}'
    for _ in range(20):  # kopf would only be begun anew after the first
        server.answer(listed.encode(), verb="list", resource="kwoknodegroups")
    server.send_error(500)
    await world.knows("web", "batch", "beside")
    await world.watched(2)


async def test_a_resync_that_fails_is_done_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_only = AsyncMock(side_effect=[KwokOperatorError("not now"), None])
    monkeypatch.setattr(world.parts.sources, "keep_only", keep_only)
    world.parts.resync_soon()
    await until(lambda: keep_only.await_count == 2)
    await world.knows("web", "batch")


async def test_the_start_keeps_the_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "NEEDED", ())
    async with assembled() as world:
        serve_discovery(world.server)
        await asyncio.wait_for(world.operator._start(), 60)
        assert "resync" in {task.get_name() for task in world.operator._background}


async def test_a_watch_that_has_ended_leaves_nothing_behind(world: World) -> None:
    def names() -> list[str]:
        said = (task.get_name().partition(" object at ")[0] for task in asyncio.all_tasks())
        return sorted(name for name in said if " " in name)

    # Those who work on a group end when it says nothing for a second.
    await until(lambda: not any(name.startswith("worker for") for name in names()))
    before = names()
    world.server.send_error(500)
    await world.watched(2)
    await until(lambda: names() == before)
    os.kill(os.getpid(), signal.SIGTERM)
    await until(world.operator._signalled.is_set)
    assert not world.operator._ended.done()
