"""Nodes of a simulated cloud as they are written: births, changes, deletions that are put off.

Which patches there are is in test_cloud_shaping.py.
"""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kwok_operator import constants
from kwok_operator.cloud.annotations import Mark, mark_on
from kwok_operator.cloud.life import ComingResource, DesiredNode, Life
from kwok_operator.cloud.shaping import (
    DesiredShape,
    Hold,
    born,
    carried_over,
    changes,
    needs_shaping,
)
from kwok_operator.cloud.step import read_mark
from kwok_operator.errors import ConflictError, InvalidError, ServerError
from kwok_operator.formats.times import parse_time
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import NODES as NODE_DECODER
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.creation import NodePoster
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.template import KubeletEndpoint, render, resolve
from tests.fakes.apiserver import NODES, FakeApiServer

Json = dict[str, Any]
GROUP, UID = "web", "group-uid"
NAME = NodeNames.of(GROUP, UID).name(0)
NOW = "2026-01-02T03:04:05Z"
BORN = parse_time(NOW)
SECOND = 1_000
GPU = "nvidia.com/gpu"
ENDPOINT = KubeletEndpoint((("Hostname", "localhost"),), 10247)
LIFE = Life(BORN, ready_after=20 * SECOND, resources=(ComingResource(GPU, "4", after=90 * SECOND),))


def body(*, ready: bool, **shape: Any) -> bytes:
    template = Template.model_validate({"shape": {"gpu": {"type": GPU, "count": 4}, **shape}})
    rendered = render(
        resolve(template, guard=GuardTaint()),
        group=GROUP,
        uid=UID,
        provider_id_prefix="kwok:",
        endpoint=ENDPOINT,
    )
    return rendered.body(NAME, requested_at=NOW, now=NOW, ready=ready)


def view(at: int) -> DesiredNode:
    return LIFE.desired(BORN + at * SECOND)


def shape(at: int, *, hold: Hold = Hold.STAGE) -> DesiredShape:
    return DesiredShape(view(at), LIFE, hold, None, NOW)


class World:
    """An API server, and what the operator knows of its nodes."""

    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.cache = NodeCache(
            changed=lambda _: None, initialised=lambda *_, **__: None, read_mark=read_mark
        )
        self.spent = 0
        self.writer = NodeWriter(client=client, cache=self.cache, count_request=self._spend)
        self.poster = NodePoster(
            client=client, cache=self.cache, writer=self.writer, count_request=self._spend
        )

    def _spend(self) -> None:
        self.spent += 1

    async def birth(self, *, at: int = 0) -> NodeRecord:
        made = born(
            body(ready=True),
            life=LIFE,
            desired=view(at),
            hold=Hold.STAGE,
            interruption_taint=None,
            now=NOW,
        )
        template_hash = json.loads(made)["metadata"]["annotations"][
            constants.TEMPLATE_HASH_ANNOTATION
        ]
        stored = await self.poster.create(
            NAME, made, group=GROUP, uid=UID, template_hash=template_hash
        )
        assert await self.writer.let_pods_on(NAME, uid=UID, stored=stored) is None
        return self.record

    @property
    def record(self) -> NodeRecord:
        return self.cache.group(GROUP)[NAME]

    @property
    def node(self) -> Json:
        return self.server.objects(NODES)[NAME]

    def patch(self, **metadata: Any) -> None:
        self.server.patch(NODES, NAME, {"metadata": metadata})

    def misshapen(self, at: int) -> bool:
        record = self.record
        return needs_shaping(mark_on(record.mark), view(at), ready=record.ready, hold=Hold.STAGE)

    @property
    def mark(self) -> Mark:
        mark = mark_on(self.record.mark)
        assert mark is not None
        return mark

    async def reshape(self, record: NodeRecord, at: int) -> bool:
        patched = await self.writer.patch_current(
            record, lambda live: changes(live, shape(at)), uid=UID
        )
        return patched is not None

    def told(self) -> NodeRecord:
        """What the watch tells of the node as it is now."""
        return self.cache.record_of(NODE_DECODER.one(json.dumps(self.node).encode()))


@pytest.fixture
def world(server: FakeApiServer, client: KubeClient) -> World:
    return World(server, client)


async def test_a_node_that_is_born_held_is_entered_so(world: World) -> None:
    record = await world.birth()
    assert record.ready is False
    assert (world.mark.life, world.mark.hold) == (LIFE, True)
    assert world.mark.shown == f"NotReady/Booting;lacks={GPU}"
    assert not world.misshapen(0)


async def test_one_that_is_born_ready_as_well(world: World) -> None:
    record = await world.birth(at=30)
    assert record.ready is True
    assert (world.mark.hold, world.mark.shown) == (False, f"Ready;lacks={GPU}")
    assert not world.misshapen(30)


async def test_a_change_is_written_and_known_at_once(world: World) -> None:
    record = await world.birth()
    assert world.misshapen(20)
    assert await world.reshape(record, 20)
    assert world.record.ready is True
    assert not world.misshapen(20)
    assert world.told() == replace(world.record, endpoint=ENDPOINT)
    assert constants.HOLD_LABEL not in world.node["metadata"]["labels"]
    assert (world.server.calls["patch", "nodes/status"], world.spent) == (1, 2)
    assert world.server.calls["patch", "nodes"] == 1


async def test_a_change_that_is_there_already_costs_a_look(world: World) -> None:
    record = await world.birth()
    assert await world.reshape(record, 1)
    assert world.server.calls["patch", "nodes"] == world.server.calls["patch", "nodes/status"] == 0
    assert world.spent == 0


async def test_a_readiness_that_was_seen_by_the_way_is_entered_too(world: World) -> None:
    record = await world.birth()
    await world.reshape(record, 20)
    conditions = [{"type": "Ready", "status": "Unknown"}]
    world.server.patch(NODES, NAME, {"status": {"conditions": conditions}}, subresource="status")
    await world.reshape(world.record, 90)
    assert world.record.ready is False
    assert world.node["status"]["capacity"][GPU] == "4"


@pytest.mark.parametrize("resource", ["nodes", "nodes/status"])
async def test_a_conflict_is_tried_again(world: World, resource: str) -> None:
    record = await world.birth()
    world.server.fail(409, verb="patch", resource=resource, times=2)
    assert await world.reshape(record, 20)
    assert not world.misshapen(20)
    assert world.record.ready is True


async def test_but_not_for_ever(world: World) -> None:
    record = await world.birth()
    world.server.fail(409, verb="patch", times=5)
    with pytest.raises(ConflictError):
        await world.reshape(record, 20)


async def test_a_node_that_is_another_groups_by_now_is_left_alone(world: World) -> None:
    record = await world.birth()
    world.patch(ownerReferences=[])
    before = world.node
    assert not await world.reshape(record, 20)
    assert world.node == before
    assert world.record.owner == ""


async def test_a_node_that_is_gone_is_forgotten(world: World) -> None:
    record = await world.birth()
    world.server.delete(NODES, NAME)
    assert not await world.reshape(record, 20)
    assert world.cache.group(GROUP) == {}


async def test_its_namesake_is_neither_changed_nor_deleted(world: World) -> None:
    record = await world.birth()
    world.server.delete(NODES, NAME)
    world.server.create(NODES, json.loads(body(ready=True)))
    before = world.node
    assert not await world.reshape(record, 20)
    await world.writer.delete(record, pods=False)
    await world.writer.delete_owned(record, owner=UID, pods=False)
    assert world.node == before


async def test_a_node_that_its_deleted_group_let_go_of_stays(world: World) -> None:
    record = await world.birth()
    world.patch(ownerReferences=[])
    await world.writer.delete_owned(record, owner=UID, pods=False)
    assert NAME in world.server.objects(NODES)


async def test_a_404_is_an_error_while_a_list_has_the_node(world: World) -> None:
    record = await world.birth()
    for verb in ("delete", "get"):
        world.server.fail(404, times=1, verb=verb, resource="nodes")
        with pytest.raises(ServerError):
            await (
                world.writer.delete(record, pods=False)
                if verb == "delete"
                else world.reshape(record, 20)
            )
        assert NAME in world.cache


async def test_marks_are_not_put_back_once_the_group_is_gone(world: World) -> None:
    record = await world.birth()
    world.patch(ownerReferences=[])
    lost = await world.writer.regain(record, group=GROUP, uid=UID, label=GROUP)
    assert "ownerReference" in lost
    assert not world.node["metadata"]["ownerReferences"]


async def test_a_deletion_is_put_off(world: World) -> None:
    record = await world.birth()
    await world.writer.postpone(record, BORN + 600_500)
    annotation = world.node["metadata"]["annotations"][constants.DELETE_AT_ANNOTATION]
    assert annotation == "2026-01-02T03:14:05.500Z"
    assert world.mark.delete_at == BORN + 600_500
    assert world.record.ready is False
    assert world.told() == replace(world.record, endpoint=ENDPOINT)


async def test_of_a_node_that_is_gone_there_is_nothing_to_put_off(world: World) -> None:
    record = await world.birth()
    world.server.delete(NODES, NAME)
    await world.writer.postpone(record, BORN)
    assert world.cache.group(GROUP) == {}


@pytest.mark.parametrize("refusal", [None, (422, "Invalid")])
async def test_nor_of_its_namesake(world: World, refusal: tuple[int, str] | None) -> None:
    record = await world.birth()
    world.server.delete(NODES, NAME)
    another = json.loads(body(ready=True))
    world.server.create(NODES, another)
    if refusal:  # what a real API server says of a uid that isn't the Node's
        world.server.fail(refusal[0], reason=refusal[1], verb="patch")
    await world.writer.postpone(record, BORN)
    assert constants.DELETE_AT_ANNOTATION not in world.node["metadata"]["annotations"]
    assert world.record.uid == world.node["metadata"]["uid"] != record.uid


async def test_a_refusal_that_means_the_node_itself_is_told(world: World) -> None:
    record = await world.birth()
    world.server.fail(422, reason="Invalid", verb="patch")
    with pytest.raises(InvalidError):
        await world.writer.postpone(record, BORN)


async def test_an_edited_template_leaves_what_the_cloud_has_written(world: World) -> None:
    record = await world.birth()
    edited = json.loads(body(ready=False, cpu=4, gpu={"type": GPU, "count": 8}))
    assert await world.writer.update(
        record, edited, uid=UID, carry_over=partial(carried_over, missing=(GPU,))
    )
    assert world.node["status"]["capacity"]["cpu"] == "4"
    assert GPU not in world.node["status"]["capacity"]
    mark = world.mark
    assert (mark.hold, mark.shown) == (True, f"NotReady/Booting;lacks={GPU}")
    assert mark.life is not None
    assert mark.life.resources == (ComingResource(GPU, "8", after=90 * SECOND),)
