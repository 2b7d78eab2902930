"""An operator as it is put together: who hears of what, and what trouble of a part costs others."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kwok_operator.errors import TooManyRequestsError
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.operator.assembly import Assembly
from kwok_operator.sources.configmaps import ConfigMap
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.assembled import Assembled, assembled
from tests.fakes.sources import body_of
from tests.fakes.waiting import until


@pytest.fixture
async def begun() -> AsyncIterator[Assembled]:
    """It knows its nodes, and works."""
    async with assembled() as operator:
        operator.operator._spawn("watch nodes", operator.parts.node_reflector.run())
        await operator.parts.node_reflector.synced.wait()
        operator.parts.begin()
        yield operator
        await operator.parts.queue.close(grace=1.0)


async def test_a_group_that_goes_before_its_first_pass_gives_its_room_back(
    begun: Assembled,
) -> None:
    parts = begun.parts
    begun.server.create(GROUPS, {"metadata": {"name": "web"}, "spec": {"targetSize": 7}})
    body = begun.server.patch(GROUPS, "web", {"status": {"targetSize": 7}}, subresource="status")
    await parts.take_over()
    assert parts.budget.granted == 7
    parts.store.seen(body, True)
    parts.queue.add("web")
    await until(lambda: not parts.budget.granted)


def mend_configmap(parts: Assembly) -> None:
    configmap = ConfigMap("ops", "templates", "uid", 2, {"node": "mended"})
    parts.configmaps.objects.seen(body_of(configmap), gone=False)


def mend_pool(parts: Assembly) -> None:
    pool = {"metadata": {"name": "stock", "uid": "uid"}, "spec": {"instances": 5}}
    parts.pools.objects.seen(pool, gone=False)


def free_room(parts: Assembly) -> None:
    parts.budget.grant("web", 1, wants_more=True)
    parts.budget.grant("other", 5, wants_more=False)
    parts.budget.grant("other", 1, wants_more=False)


@pytest.mark.parametrize("mend", [mend_configmap, mend_pool, free_room])
async def test_a_mended_cause_is_tried_at_once(
    begun: Assembled, mend: Callable[[Assembly], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, passes = begun.parts, list[str]()

    async def reconcile(name: str) -> None:
        passes.append(name)
        raise TooManyRequestsError("not now", status=429, retry_after=60.0)

    monkeypatch.setattr(parts.reconciler, "_look_at", reconcile)
    spec: dict[str, Any] = {
        "template": {"from": {"configMap": {"name": "templates"}}},
        "cloud": {"capacityPools": ["stock"]},
    }
    begun.server.create(GROUPS, {"metadata": {"name": "web"}, "spec": spec})
    await parts.take_over()
    group = parts.store.get("web")
    assert group is not None
    await parts.sources.find(group)
    parts.queue.add("web")
    await until(lambda: passes)
    parts.queue.add("web")
    mend(parts)
    await until(lambda: len(passes) == 2)


async def test_a_foreign_node_that_can_not_be_read_stops_no_resync(
    begun: Assembled, caplog: pytest.LogCaptureFixture
) -> None:
    server, parts = begun.server, begun.parts
    body = server.create(GROUPS, {"metadata": {"name": "web"}, "spec": {"targetSize": 1}})
    name = NodeNames.of("web", body["metadata"]["uid"]).name(0)
    server.create(NODES, {"metadata": {"name": name}})
    parts.store.seen(body, False)
    parts.queue.add("web")
    await until(lambda: name in str(server.objects(GROUPS)["web"].get("status")))
    begun.operator._spawn("recheck", parts.recheck())
    server.answer(b"[]", verb="get", resource="nodes", name=name)
    await parts._look_at_all()
    await until(lambda: f"NodeUnreadable: group=web node {name}" in caplog.text)
    released = server.hold(verb="get", resource="nodes", name=name)
    await parts._look_at_all()
    await until(lambda: not server._faults)
    # One that takes long to be read keeps no doubt waiting, in which no group is worked on.
    begun.operator._spawn("resync", parts.resync())
    parts.store.doubted.set()
    await until(lambda: parts.store.sure)
    released.set()
    server.delete(NODES, name)
    await parts._look_at_all()
    await until(lambda: name not in str(server.objects(GROUPS)["web"].get("status")))
