"""How the operator hears of what kopf follows, whatever becomes of the watches."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from kwok_operator.constants import POOLS_PATH, PROFILES_PATH
from kwok_operator.errors import KwokOperatorError, PreflightError
from kwok_operator.kube.client import KubeClient
from kwok_operator.operator import handlers, preflight
from tests.fakes.apiserver import GROUPS, FakeApiServer
from tests.fakes.discovery import CONFIGMAPS, FOLLOWED, serve_followed
from tests.fakes.operator import WATCHES, World
from tests.fakes.reflecting import Naps
from tests.fakes.waiting import until


def make(world: World, name: str, path: str = GROUPS, **spec: Any) -> None:
    metadata = {"name": name, "namespace": "ops"} if path == CONFIGMAPS else {"name": name}
    spec = {"targetSize": 0} | spec if path == GROUPS else spec
    world.server.create(path, {"metadata": metadata, "spec": spec})


KNOWN: dict[str, Callable[[World], set[str]]] = {
    GROUPS: lambda world: set(world.store.names()),
    POOLS_PATH: lambda world: set(world.parts.pools.objects.all()),
    PROFILES_PATH: lambda world: set(world.parts.profiles.objects.all()),
    CONFIGMAPS: lambda world: set(world.parts.configmaps.objects.all()),
}


async def knows(world: World, *names: str, path: str = GROUPS) -> None:
    """Until the operator knows these objects, and no others."""
    await until(lambda: KNOWN[path](world) == set(names))


async def watched_again(world: World) -> None:
    """Until an operator that was started again watches everything."""
    await until(lambda: world.ends and world.watched == WATCHES)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World().running() as world:
        make(world, "web")
        make(world, "batch")
        await knows(world, "web", "batch")
        yield world


@pytest.mark.parametrize("path", FOLLOWED)
async def test_what_happens_is_heard(world: World, path: str) -> None:
    make(world, "late", path)
    await until(lambda: "late" in KNOWN[path](world))
    world.server.delete(path, "late")
    await until(lambda: "late" not in KNOWN[path](world))
    assert not world.ends


@pytest.mark.parametrize("path", FOLLOWED)
async def test_what_was_deleted_before_history_was_lost_is_noticed(world: World, path: str) -> None:
    make(world, "late", path)
    await until(lambda: "late" in KNOWN[path](world))
    world.server.end_watches()
    world.server.delete(path, "late")
    world.server.compact()
    await until(lambda: "late" not in KNOWN[path](world))
    assert not world.ends


@pytest.mark.parametrize(
    ("code", "reason"), [(500, "InternalError"), (403, "Forbidden"), (799, "OfNoKnownKind")]
)
async def test_an_error_event_ends_the_program(world: World, code: int, reason: str) -> None:
    world.server.send_error(code, reason)
    await until(lambda: world.ends)
    assert "kopf has ended" in str(world.ends[0])
    world.server.delete(GROUPS, "batch")
    make(world, "late")
    await watched_again(world)
    await knows(world, "web", "late")
    assert len(world.ends) == 1


async def test_an_answer_that_is_no_list_ends_the_program(world: World) -> None:
    world.server.answer(b"<html>Log in</html>", verb="list", resource="kwoknodegroups")
    world.server.compact()
    world.server.send_error(410, "Expired")
    make(world, "late")
    await knows(world, "web", "batch", "late")


@pytest.mark.parametrize("path", [GROUPS, POOLS_PATH])
async def test_a_crd_that_goes_and_comes_back_is_followed_again(world: World, path: str) -> None:
    collection = world.server.store.collections.pop(path)
    for name in list(collection.objects):
        world.server.store.delete(collection, name)
    world.server.end_watches()
    await until(lambda: world.ends)
    if path != GROUPS:  # without it the operator works
        await until(lambda: world.parts.queue.is_open)
    world.server.serve(path, kind=FOLLOWED[path])
    make(world, "late", path)
    await watched_again(world)
    await knows(world, "late", path=path)


async def test_a_missing_crd_is_no_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "_CRD_POLL", 0.0)
    server = FakeApiServer()
    serve_followed(server)
    async with server, KubeClient(connection=server.connection(), sleep=Naps()) as client:
        listed, server.documents["/apis"] = server.documents["/apis"], json.dumps({"groups": []})
        waiting = asyncio.create_task(preflight.end_once_served(client, [POOLS_PATH]))
        server.fail(503, times=30, resource="kwokcapacitypools")
        await until(lambda: not server._faults)
        assert not waiting.done()
        server.documents["/apis"] = listed
        with pytest.raises(PreflightError, match="kwokcapacitypools are served by now"):
            await waiting


async def test_an_unlisted_kind_blocks_none(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.server.fail(403, times=1000, verb="list", resource="configmaps")
    world.parts.store.doubted.set()
    await until(lambda: "listing failed" in caplog.text)
    world.server.patch(GROUPS, "web", {"spec": {"targetSize": 3}})
    await world.settled(3)


async def test_what_went_before_kopf_watched_is_noticed(world: World) -> None:
    """It was listed at the start, and no event says that it is gone."""
    metadata = {"name": "gone", "uid": "u", "resourceVersion": "1"}
    world.parts.pools.objects.seen({"metadata": metadata, "spec": {}}, gone=False)
    await knows(world, "gone", path=POOLS_PATH)
    world.operator.sessions._report_list(False)
    await knows(world, path=POOLS_PATH)


async def test_a_replica_that_waits_writes_nothing_and_hears_of_no_group() -> None:
    """It knows of nodes; kopf begins when it leads."""
    led = asyncio.Event()

    class Follower:
        lease, leading, holder = None, False, "another"

        async def acquire(self) -> None:
            await led.wait()

        async def keep(self) -> None:
            await asyncio.Event().wait()

        async def release(self) -> None:
            pass

    world = World()
    async with world.assembled():
        world.operator._elector = Follower()  # type: ignore[assignment]
        make(world, "web", targetSize=2)
        make(world, "slow", PROFILES_PATH)
        run = asyncio.create_task(handlers.run_until_ended(world.operator))
        await until(lambda: world.operator._ready and world.server.watchers)
        assert [watcher.path for watcher in world.server.watchers] == ["/api/v1/nodes"]
        assert {verb for verb, _ in world.server.calls} <= {"list", "watch", "get"}
        # By an old list it would take the Stages of a newer profile for leftovers.
        assert not any(known(world) for known in KNOWN.values())
        led.set()
        await until(lambda: world.watched == WATCHES)
        world.operator.end()
        await run


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
    make(world, "beside")
    await knows(world, "web", "batch", "beside")
    known = world.store.get("web")
    assert known is not None and known.spec.target_size == 0, "what can't be read changes nothing"
    for name in ("deep", "web"):
        told = f"Unreadable: group={name} it nests deeper than 400 levels"
        assert any(line.startswith(told) for line in caplog.messages)
    # asyncio tells of tasks of other tests, too, whenever these are swept up.
    assert not any(record.exc_info for record in caplog.records if record.name != "asyncio")
    assert not world.ends


async def test_a_group_that_nests_too_deep_is_listed_beside_others(world: World) -> None:
    server = world.server
    # No watch is told of it.
    beside = {"metadata": {"name": "beside"}, "spec": {"targetSize": 0}}
    server.store.create(server.store.collections[GROUPS], beside)
    items = ",".join([deep("deep", 9000), *map(json.dumps, server.objects(GROUPS).values())])
    listed = f'{{"metadata":{{"resourceVersion":"{server.store.version}"}},"items":[{items}]}}'
    for _ in range(5):
        server.answer(listed.encode(), verb="list", resource="kwoknodegroups")
    server.send_error(410, "Expired")
    await knows(world, "web", "batch", "beside")
    assert not world.ends


async def test_a_failed_resync_is_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_only = AsyncMock(side_effect=[KwokOperatorError("not now"), None])
    monkeypatch.setattr(world.parts.sources, "keep_only", keep_only)
    world.parts.store.doubted.set()
    await until(lambda: keep_only.await_count == 2)
    await knows(world, "web", "batch")


async def test_a_part_that_ends_ends_the_program(world: World) -> None:
    (watch,) = [task for task in world.operator._background if task.get_name() == "watch nodes"]
    watch.cancel()
    await until(lambda: world.ends)
    assert str(world.ends[0]) == "watch nodes has ended: None"
    await watched_again(world)


async def test_a_signal_ends_the_program_and_so_does_a_second_one() -> None:
    world = World()
    async with world.assembled():
        run = asyncio.create_task(handlers.run_until_ended(world.operator))
        await until(lambda: world.watched == WATCHES)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        await run
