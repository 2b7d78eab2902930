"""A standby on its way to lead: what it knows by then, and that nothing is worked on before."""

from collections.abc import AsyncIterator

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.template import owner_reference
from tests.fakes.apiserver import NODES
from tests.fakes.assembled import Assembled, assembled
from tests.fakes.waiting import until


class Standby(Assembled):
    """An operator that has its nodes, and waits."""

    def make(self, *names: str) -> None:
        for name in names:
            labels = {NODE_GROUP_LABEL: "web"}
            self.server.create(NODES, {"metadata": {"name": name, "labels": labels}})

    def known(self) -> set[str]:
        return set(self.parts.cache.group("web"))

    async def catch_up(self) -> None:
        (watch,) = self.operator._background
        await self.operator._catch_up(watch)


@pytest.fixture
async def standby() -> AsyncIterator[Standby]:
    async with assembled() as parts:
        standby = Standby(**vars(parts))
        standby.make("web-0")
        standby.operator._spawn("watch nodes", standby.parts.node_reflector.run())
        await until(lambda: standby.server.watchers)
        assert standby.known() == {"web-0"}
        yield standby


async def test_a_watch_that_is_cut_without_a_sign_is_begun_anew(standby: Standby) -> None:
    standby.server.watchers.clear()  # nothing is told any more
    standby.make("web-1", "web-2")
    standby.server.delete(NODES, "web-0")
    await standby.catch_up()
    assert standby.known() == {"web-1", "web-2"}


async def test_so_is_one_whose_history_is_gone(standby: Standby) -> None:
    standby.server.watchers.clear()
    standby.make("web-1")
    standby.server.delete(NODES, "web-0")
    standby.server.compact()
    await standby.catch_up()
    assert standby.known() == {"web-1"}


async def test_an_api_server_in_trouble_is_waited_for(standby: Standby) -> None:
    standby.server.watchers.clear()
    standby.make("web-1")
    standby.server.fail(500, verb="watch", times=2)
    await standby.catch_up()
    assert standby.known() == {"web-0", "web-1"}


async def test_where_nothing_has_happened_nothing_is_waited_for(standby: Standby) -> None:
    """What the API server counts up meanwhile are other objects."""
    standby.server.store.version += 100
    await standby.catch_up()
    assert standby.known() == {"web-0"}


async def test_what_follows_is_heard_as_before(standby: Standby) -> None:
    await standby.catch_up()
    standby.make("web-1")
    await until(lambda: standby.known() == {"web-0", "web-1"})
    assert not standby.operator.ended.done(), "a watch that is begun anew has not ended"


async def test_nothing_is_worked_on_before_it_begins(standby: Standby) -> None:
    standby.make("web-1")
    await until(lambda: len(standby.known()) == 2)
    standby.parts.queue.add("web")
    assert standby.parts.queue.depth == 0
    assert {verb for verb, _ in standby.server.calls} == {"list", "watch"}


async def test_nodes_that_go_are_looked_for_only_once_it_has_begun(standby: Standby) -> None:
    uid, gone = "0123", list[str]()
    await standby.parts.queue.close(grace=0.0)  # a pass would forget what is of no group
    for serial in (0, 1):
        gone.append(NodeNames.of("web", uid).name(serial))
        metadata = {
            "name": gone[-1],
            "labels": {NODE_GROUP_LABEL: "web"},
            "annotations": {NODE_GROUP_UID_ANNOTATION: uid},
            "ownerReferences": [owner_reference("web", uid=uid)],
        }
        standby.server.create(NODES, {"metadata": metadata})
        await until(lambda: gone[-1] in standby.known())
        standby.server.delete(NODES, gone[-1])
        await until(lambda: gone[-1] not in standby.known())
        assert list(standby.parts.cache.strays("web")) == gone[1:]
        standby.parts.begin()


async def test_no_work_before_lists(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a restored cluster groups and nodes may be of another time."""
    passes: list[bool] = []

    async def reconcile(name: str) -> None:
        passes.append(standby.parts.store.doubted.is_set())

    monkeypatch.setattr(standby.parts.reconciler, "_look_at", reconcile)
    standby.parts.begin()
    await standby.server.stop()
    await until(standby.parts.store.doubted.is_set)
    standby.parts.queue.add("web")
    await until(lambda: standby.parts.queue.depth == 1)
    await standby.server.start()
    await until(lambda: standby.known() == {"web-0"} and standby.parts.node_reflector.version > 0)
    assert passes == []
    await standby.parts.store.list_anew(standby.parts.status.groups)
    await until(lambda: passes == [False])
    await standby.parts.queue.close(grace=1.0)
