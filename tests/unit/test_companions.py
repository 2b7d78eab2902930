"""Companions of nodes, kept by an operator."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest

from kwok_operator.companions import state
from kwok_operator.companions.desired import CompanionKind, not_copied
from kwok_operator.companions.livecompanions import CopiedCompanions, CopiedPool
from kwok_operator.companions.step import with_empty_csi_node
from kwok_operator.constants import NOT_READY_TAINT_EFFECT, NOT_READY_TAINT_KEY
from kwok_operator.kube.access import AccessRight
from kwok_operator.kube.taints import is_not_ready_taint
from kwok_operator.nodegroups.api.status import Verdict
from kwok_operator.operator import preflight
from tests.fakes import store
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.operator import NAME, World
from tests.fakes.store import Json
from tests.fakes.waiting import until

CSI_NODES = CompanionKind.CSI_NODE.path
SLICES = CompanionKind.RESOURCE_SLICE.path
EBS = "ebs.csi.aws.com"
DRIVER = "gpu.example.com"


def csi(count: int = 25, name: str = EBS) -> Json:
    return {"csiNode": {"drivers": [{"name": name, "allocatable": {"count": count}}]}}


def slices(count: int = 8, **more: object) -> Json:
    return {
        "resourceSlices": [{"driver": DRIVER, "devices": [{"name": "gpu", "count": count}], **more}]
    }


def is_kept_free(node: Json) -> bool:
    return any(map(is_not_ready_taint, node["spec"].get("taints", ())))


def version(body: Json) -> int:
    return int(body["metadata"]["resourceVersion"])


class Companioned(World):
    """With an API server that serves CSINodes."""

    def ask(self, companions: Json | None) -> None:
        self.server.patch(GROUPS, NAME, {"spec": {"template": {"companions": companions}}})

    def make(self, size: int, companions: Json | None) -> None:
        template = {} if companions is None else {"template": {"companions": companions}}
        self.server.create(
            GROUPS, {"metadata": {"name": NAME}, "spec": {"targetSize": size, **template}}
        )

    async def away(self) -> None:
        """Who keeps companions has ended, and forgotten all."""
        self.parts.companions.close()
        await self.parts.companions.stop()
        self.parts.companions._states.clear()

    def back(self) -> None:
        self.parts.companions._closing = False
        self.parts.companions.group_changed(NAME)

    @property
    def said(self) -> Verdict:
        """What is about to be told in the status."""
        found = self.parts.companions._states[NAME].verdict
        assert found is not None
        return found

    @property
    def nodes(self) -> dict[str, Json]:
        return self.server.objects(NODES)

    @property
    def csi_nodes(self) -> dict[str, Json]:
        return self.server.objects(CSI_NODES)

    @property
    def slices(self) -> dict[str, Json]:
        return self.server.objects(SLICES)

    @property
    def counts(self) -> list[int]:
        drivers = [each["spec"]["drivers"] for each in self.csi_nodes.values()]
        return [one["allocatable"]["count"] for all_ in drivers for one in all_]

    @property
    def condition(self) -> tuple[str, str]:
        for each in self.status.get("conditions", ()):
            if each["type"] == "CompanionsPresent":
                return each["status"], each["reason"]
        return "", ""

    async def present(self, size: int) -> None:
        def told() -> bool:
            return self.condition == ("True", "Present") and len(self.csi_nodes) == size

        await until(lambda: len(self.nodes) == size and told())


@pytest.fixture
async def world() -> AsyncIterator[Companioned]:
    async with Companioned().running() as world:
        world.server.serve(CSI_NODES, kind="CSINode")
        world.server.serve(SLICES, kind="ResourceSlice")
        yield world


async def test_each_node_has_its_own_and_owns_it(world: Companioned) -> None:
    world.make(5, csi())
    await world.present(5)
    for name, node in world.nodes.items():
        companion = world.csi_nodes[name]
        assert companion["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        ]
        assert companion["spec"]["drivers"] == [
            {"name": EBS, "nodeID": name, "topologyKeys": [], "allocatable": {"count": 25}}
        ]
    world.scale(8)
    await world.present(8)
    assert world.server.calls["create", "csinodes"] == 8


async def test_new_nodes_get_theirs_without_waiting_for_a_pass(world: Companioned) -> None:
    world.make(1, {**csi(), **slices()})
    await world.present(1)
    await world.parts.companion_queue.close(grace=1.0)
    world.scale(4)
    await until(lambda: len(world.csi_nodes) == 4 and len(world.slices) == 4)
    assert world.csi_nodes.keys() == world.nodes.keys()


async def test_pods_are_never_ahead_of_what_belongs_to_the_first_nodes(world: Companioned) -> None:
    world.make(1, None)
    await world.settled(1)  # kwok has answered: nodes are made usable at once from now on
    known = world.server.hold(verb="list", resource="csinodes")
    template = {"spec": {"targetSize": 3, "template": {"companions": csi()}}}
    world.server.create(GROUPS, {"metadata": {"name": "late"}, **template})
    await until(lambda: "late" in world.parts.companions._states)
    world.server.fail(429, times=2, verb="create", resource="csinodes")
    known.set()
    await until(lambda: len(world.csi_nodes) == 3)
    await until(lambda: not any(map(is_kept_free, world.nodes.values())))
    for name, companion in world.csi_nodes.items():
        assert version(companion) < version(world.nodes[name])


async def test_pods_are_not_ahead_either_where_an_operator_ended_in_between(
    world: Companioned,
) -> None:
    world.make(3, csi())
    await world.present(3)
    world.later = 10.0  # the first one was opened a moment ago
    await world.away()
    # The one before was killed with nodes that had nothing yet.
    known = world.server.hold(verb="list", resource="csinodes")
    for name in list(world.csi_nodes):
        world.server.delete(CSI_NODES, name)
    world.back()
    await until(lambda: NAME in world.parts.companions._states)
    for name, node in list(world.nodes.items()):
        shut = {"key": NOT_READY_TAINT_KEY, "effect": NOT_READY_TAINT_EFFECT}
        taints = [*node["spec"]["taints"], shut]
        world.server.patch(NODES, name, {"spec": {"taints": taints}})
    await until(lambda: world.status["readyReplicas"] == 0)
    with pytest.raises(TimeoutError):
        await until(lambda: not all(map(is_kept_free, world.nodes.values())), seconds=0.3)
    known.set()
    await until(lambda: not any(map(is_kept_free, world.nodes.values())))
    for name, companion in world.csi_nodes.items():
        assert version(companion) < version(world.nodes[name])
    assert len(world.csi_nodes) == 3


async def test_nobody_waits_for_what_a_group_that_is_gone_would_have(world: Companioned) -> None:
    world.make(0, csi())
    await world.settled(0)
    group = world.store.get(NAME)
    assert group is not None
    world.server.delete(GROUPS, NAME)
    await until(lambda: not world.parts.companions._states)
    async with asyncio.timeout(1.0):
        await world.parts.companions.first_look(group)
    assert not world.parts.companions._states, "nobody would clear it up"


async def test_what_was_deleted_or_edited_is_made_anew(world: Companioned) -> None:
    world.make(3, csi())
    await world.present(3)
    first, second, _ = sorted(world.csi_nodes)
    world.server.delete(CSI_NODES, first)
    world.server.patch(CSI_NODES, second, {"spec": {"drivers": []}})
    await until(lambda: world.counts == [25] * 3)


async def test_who_edits_it_each_time_is_not_fought_without_end(world: Companioned) -> None:
    world.make(1, csi())
    await world.present(1)
    (name,) = world.csi_nodes
    for times in (1, 2):
        world.server.patch(CSI_NODES, name, {"spec": {"drivers": []}})
        await until(lambda: world.said.reason == "Writing")
        if times == 1:
            await until(lambda: world.said.reason == "Present")
    await world.parts.companions.look_at(NAME)
    assert world.csi_nodes[name]["spec"]["drivers"] == []
    assert world.server.calls["delete", "csinodes"] == 1
    world.later += 10
    world.parts.companions.nodes_changed(NAME)
    await world.present(1)


async def test_a_change_holds_for_the_nodes_that_are_there(world: Companioned) -> None:
    world.make(4, csi(25))
    await world.present(4)
    nodes = {n["metadata"]["uid"] for n in world.nodes.values()}
    world.ask(csi(39))
    await until(lambda: world.counts == [39] * 4)
    assert {n["metadata"]["uid"] for n in world.nodes.values()} == nodes


async def test_what_the_template_has_no_more_goes(world: Companioned) -> None:
    world.make(3, csi())
    await world.present(3)
    world.ask(None)
    await until(lambda: not world.csi_nodes and world.condition == ("", ""))
    assert len(world.nodes) == 3


async def test_it_goes_too_where_nobody_was_there_to_see_it(world: Companioned) -> None:
    world.make(3, csi())
    await world.present(3)
    await world.away()
    world.ask(None)
    await world.heard()
    assert len(world.csi_nodes) == 3
    world.back()
    await until(lambda: not world.csi_nodes and world.condition == ("", ""))


async def test_nodes_that_were_made_meanwhile_get_theirs(world: Companioned) -> None:
    world.make(2, csi())
    await world.present(2)
    await world.away()
    world.scale(5)
    await until(lambda: len(world.nodes) == 5)
    world.server.delete(CSI_NODES, min(world.csi_nodes))
    world.back()
    await world.present(5)


async def test_a_real_nodes_are_copied_and_followed(world: Companioned) -> None:
    source = {"from": {"nodes": {"name": "real-1", "companions": True}}}
    drivers = ({"name": EBS, "nodeID": "{node}", "topologyKeys": [], "allocatable": {"count": 7}},)
    pool = CopiedPool(DRIVER, "{node}", [{"name": "gpu-0"}], [])
    world.sources.copied = not_copied("NodeNotFound", "there is none")
    spec = {"targetSize": 3, "template": source}
    world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})
    await until(lambda: world.condition == ("False", "NodeNotFound"))
    await until(lambda: len(world.nodes) == 3)
    assert not world.csi_nodes
    world.sources.copied = CopiedCompanions(drivers, (pool,))
    world.later += 10.0
    world.back()
    await world.present(3)
    await until(lambda: world.counts == [7] * 3 and len(world.slices) == 3)

    world.sources.copied = not_copied("NodeNotFound", "it has gone")
    world.later += 60.0
    world.scale(4)
    await world.present(4)
    await until(lambda: world.counts == [7] * 4 and len(world.slices) == 4)

    world.sources.copied = CopiedCompanions(({**drivers[0], "allocatable": {"count": 8}},))
    world.later += 60.0
    world.back()
    await until(lambda: world.counts == [8] * 4 and not world.slices)
    await world.away()
    world.sources.copied = not_copied("SourceUnreachable", "nobody answers")
    world.back()
    await until(lambda: world.condition == ("False", "SourceUnreachable"))
    assert world.counts == [8] * 4


async def test_somebody_elses_is_left_alone_and_told(world: Companioned) -> None:
    world.make(1, None)
    await world.settled(1)
    (name,) = world.nodes
    world.server.create(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": []}})
    world.ask(csi())
    await until(lambda: world.condition == ("False", "NameTaken"))
    assert world.csi_nodes[name]["spec"]["drivers"] == []
    tried = world.server.calls["create", "csinodes"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await until(lambda: world.server.calls["create", "csinodes"] > tried + 3)
    await world.parts.companion_queue.close(grace=1.0)
    world.scale(4)
    await until(lambda: len(world.csi_nodes) == 4)


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (403, 'User "u" cannot create resource "csinodes"', "NotAllowed"),
        (403, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "Refused"),
        (422, "injected", "Refused"),
    ],
)
async def test_a_refusal_is_told_until_a_write_succeeds(
    world: Companioned, monkeypatch: pytest.MonkeyPatch, status: int, message: str, reason: str
) -> None:
    world.server.fail(status, times=1_000, verb="create", resource="csinodes", message=message)
    world.make(12, csi())
    await until(lambda: len(world.nodes) == 12 and world.condition == ("False", reason))
    await world.parts.companion_queue.close(grace=1.0)
    said = list[str]()
    monkeypatch.setattr(
        world.parts.companions, "_changed", lambda _: said.append(world.said.reason)
    )
    await world.parts.companions.look_at(NAME)
    assert said == []
    world.server.heal()
    make, while_writing = world.parts.companions._writer.make, list[str]()

    async def watched(*args: Any, **options: Any) -> bool:
        while_writing.append(world.said.reason)
        return await make(*args, **options)

    monkeypatch.setattr(world.parts.companions._writer, "make", watched)
    await world.parts.companions.look_at(NAME)
    assert (while_writing[0], while_writing[-1]) == (reason, "Writing")
    await world.parts.companions.look_at(NAME)
    assert list(dict.fromkeys(said)) == ["Writing", "Present"]


async def test_without_the_api_or_the_right_to_read_it_is_told() -> None:
    async with Companioned().running() as world:
        world.make(2, csi())
        await until(lambda: world.condition == ("False", "NotServed"))
        await until(lambda: world.status["replicas"] == 2)


async def test_a_right_that_is_taken_away_is_told_and_so_is_its_return(world: Companioned) -> None:
    world.make(2, csi())
    await world.present(2)
    world.server.fail(403, times=1_000, resource="csinodes")
    world.server.end_watches()
    await until(lambda: world.condition == ("False", "NotAllowed"))
    world.server.heal()
    await world.present(2)


async def test_devices_are_in_slices_of_their_node(world: Companioned) -> None:
    world.make(3, {**csi(), **slices(200)})
    await until(lambda: len(world.slices) == 6)
    await world.present(3)
    assert set(world.slices) == {f"{node}-{DRIVER}-{i}" for node in world.nodes for i in range(2)}
    for each in world.slices.values():
        node = each["spec"]["nodeName"]
        assert [o["uid"] for o in each["metadata"]["ownerReferences"]] == [
            world.nodes[node]["metadata"]["uid"]
        ]
    name = min(world.slices)
    world.server.patch(SLICES, name, {"spec": {"devices": []}})
    await until(lambda: name in world.slices and world.slices[name]["spec"]["devices"])
    world.ask({**slices(8), "csiNode": None})
    await until(lambda: len(world.slices) == 3 and not world.csi_nodes)


async def test_a_shared_pool_is_the_groups_and_goes_with_it(world: Companioned) -> None:
    world.make(2, slices(pool="Shared"))
    await until(lambda: world.condition == ("True", "Present"))
    (pool,) = world.slices.values()
    assert pool["metadata"]["ownerReferences"][0]["uid"] == world.group["metadata"]["uid"]
    assert "nodeSelector" in pool["spec"]
    await world.settled(2)
    world.server.delete(GROUPS, NAME)
    await until(lambda: not world.slices)


async def test_nodes_and_a_shared_pool_stay_when_a_group_orphans_them(world: Companioned) -> None:
    """`--cascade=orphan`: the garbage collector takes the owner off, then the finalizer."""
    world.make(2, slices(pool="Shared"))
    await until(lambda: len(world.slices) == 1)
    await world.settled(2)
    world.server.patch(GROUPS, NAME, {"metadata": {"finalizers": ["orphan"]}})
    await until(lambda: getattr(world.store.get(NAME), "orphaning", False))
    world.server.delete(GROUPS, NAME)
    await until(lambda: getattr(world.store.get(NAME), "deleting", False))
    for there in (True, False):
        await until(lambda there=there: (world.store.get(NAME) is not None) is there)  # type: ignore[misc]
        await world.parts.reconciler.reconcile(NAME)
        await world.parts.companions.look_at(NAME)
        assert (len(world.nodes), len(world.slices)) == (2, 1)
        if there:
            world.server.patch(GROUPS, NAME, {"metadata": {"finalizers": None}})


async def test_what_the_api_server_drops_is_told(world: Companioned) -> None:
    tainted = [{"name": "gpu", "taints": [{"key": "sick", "effect": "NoExecute"}]}]
    create = world.server.store.create

    def without(collection: Any, body: Json, **more: Any) -> Json:
        if collection.kind == "ResourceSlice":
            body["spec"]["devices"] = [{"name": "gpu"}]
        return create(collection, body, **more)

    world.server.store.create = without  # type: ignore[method-assign]
    world.make(1, slices(devices=tainted))
    await until(lambda: world.condition == ("False", "FieldsDropped"))


async def test_what_can_be_no_device_is_the_templates_fault(world: Companioned) -> None:
    world.make(1, slices(devices=[{"name": "gpu", "attributes": {"a-b": {"string": "x"}}}]))
    await until(lambda: world.condition == ("False", "TemplateInvalid"))
    assert not world.nodes


async def test_a_group_without_companions_asks_for_nothing(world: Companioned) -> None:
    world.make(3, None)
    await world.settled(3)
    world.ask({})
    await world.settled(3)
    assert not [
        seen for seen in world.server.seen if seen.resource in ("csinodes", "resourceslices")
    ]


async def test_where_each_node_has_a_csi_node_it_is_empty_by_default(world: Companioned) -> None:
    world.store.complete = with_empty_csi_node
    world.make(2, slices())
    await world.present(2)
    assert [each["spec"]["drivers"] for each in world.csi_nodes.values()] == [[], []]
    world.ask(csi())
    await until(lambda: world.counts == [25, 25])
    world.ask(None)
    await until(lambda: world.counts == [] and not world.slices)
    await world.present(2)


async def test_a_node_is_ready_once_it_has_its_own(world: Companioned) -> None:
    world.make(3, csi())
    await world.settled(3)
    first = min(world.nodes)
    world.server.fail(403, times=1_000, verb="create", resource="csinodes")
    world.server.delete(CSI_NODES, first)

    def ready() -> Json:
        found: Json = next(c for c in world.status["conditions"] if c["type"] == "Ready")
        return found

    await until(lambda: "may not read and write csinodes" in ready()["message"])
    assert (ready()["status"], ready()["reason"]) == ("False", "CompanionsMissing")
    assert world.status["readyReplicas"] == 2
    await world.away()
    world.scale(4)
    await until(lambda: world.status["replicas"] == 4)
    assert world.status["readyReplicas"] == 0, "nobody knows"
    world.server.heal()
    world.back()
    await world.settled(4)
    await world.away()
    world.server.patch(GROUPS, NAME, {"metadata": {"labels": {"a": "b"}}})
    await world.heard()
    assert world.status["readyReplicas"] == 4, "a new operator believes what was told"


def ill(body: Json) -> list[str]:
    return [each["name"] for each in body["spec"]["devices"] if each.get("taints")]


async def test_devices_late_and_failed(world: Companioned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CREATED_AT", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    failures = {"serials": "0", "after": {"fixed": "60s"}}
    devices = {
        "after": {"fixed": "60s"},
        "neverPublished": {"serials": "2"},
        "failures": failures,
    }
    spec = {"targetSize": 3, "template": {"companions": {**csi(), **slices(2)}}}
    cloud = {"devices": devices}
    world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": {**spec, "cloud": cloud}})
    await until(lambda: len(world.csi_nodes) == 3 == world.status["replicas"])
    await until(lambda: world.condition == ("Unknown", "HeldBack"))
    assert not world.slices and world.status["readyReplicas"] == 0
    world.later += 61
    world.parts.companions.nodes_changed(NAME)
    await until(lambda: len(world.slices) == 2 and world.status["readyReplicas"] == 2)
    assert world.condition == ("Unknown", "HeldBack")
    assert not any(map(ill, world.slices.values()))
    world.later += 60
    world.parts.companions.nodes_changed(NAME)
    await until(lambda: any(map(ill, world.slices.values())))
    sick, well = (ill(world.slices[name]) for name in sorted(world.slices))
    assert (sick, well) == (["gpu-0", "gpu-1"], [])
    await until(lambda: world.status["readyReplicas"] == 2)


async def test_late_devices_gather(world: Companioned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CREATED_AT", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    spec = {"targetSize": 1, "template": {"companions": slices(2)}}
    cloud = {"devices": {"after": {"fixed": "60s"}}}
    world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": {**spec, "cloud": cloud}})
    await until(lambda: world.condition == ("Unknown", "HeldBack"))
    delays = list[float]()
    monkeypatch.setattr(state, "GATHER_FOR", 30.0)
    monkeypatch.setattr(world.parts.companions, "_wake", lambda _, delay: delays.append(delay))
    world.later += 50
    await world.parts.companions.look_at(NAME)
    assert min(delay for delay in delays if delay) == 30.0


async def test_a_node_that_was_made_anew_gets_nothing_that_was_meant_for_the_old_one(
    world: Companioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.make(1, csi())
    await world.present(1)
    await world.parts.queue.close(grace=1.0)
    await world.parts.companion_queue.close(grace=1.0)
    keeper, ((name, old),) = world.parts.companions, world.nodes.items()
    run = keeper._executor.run

    async def late(*args: Any, **options: Any) -> None:
        world.server.delete(NODES, name)
        anew = world.server.create(NODES, old)
        await until(lambda: world.cache.group(NAME)[name].uid == anew["metadata"]["uid"])
        await run(*args, **options)

    world.server.delete(CSI_NODES, name)
    await until(lambda: not keeper._kind_caches[CompanionKind.CSI_NODE].group(NAME))
    monkeypatch.setattr(keeper._executor, "run", late)
    await keeper.look_at(NAME)
    assert not world.csi_nodes


async def test_a_pass_over_a_group_that_was_made_anew_leaves_its_state_alone(
    world: Companioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = list[asyncio.Event](), world.parts.companions._read

    async def slow(source: Any) -> Any:
        reads.append(asyncio.Event())
        await reads[-1].wait()
        return await read(source)

    monkeypatch.setattr(world.parts.companions, "_read", slow)
    source = {"from": {"nodes": {"name": "real-1", "companions": True}}}
    body: Json = {"metadata": {"name": NAME}, "spec": {"targetSize": 0, "template": source}}
    states = world.parts.companions._states
    world.server.create(GROUPS, body)
    await until(lambda: bool(reads))
    before = states[NAME]
    world.server.delete(GROUPS, NAME)
    world.server.create(GROUPS, {**body, "spec": {**body["spec"], "targetSize": 1}})
    await until(lambda: states[NAME] is not before)  # new nodes wait for the new group's first pass
    anew = states[NAME]
    reads[0].set()
    await until(lambda: len(reads) == 2)
    assert states[NAME] is anew and not anew.looked.is_set()
    reads[1].set()


async def test_a_lost_answer_costs_nothing(world: Companioned) -> None:
    world.server.fail(503, times=3, verb="create", resource="csinodes")
    world.server.cut(times=2, verb="create", resource="csinodes")
    world.make(6, csi())
    await world.present(6)
    assert world.csi_nodes.keys() == world.nodes.keys()


@pytest.mark.parametrize("missing", [[], [AccessRight("storage.k8s.io", "csinodes", "create")]])
async def test_csi_nodes_that_may_not_be_made_are_told(
    missing: list[AccessRight], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster-autoscaler that wants them does nothing without, and doesn't say so."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(preflight, "missing_rights", AsyncMock(return_value=missing))
    client: Any = None
    assert await preflight.may_keep_csi_nodes(client) is not bool(missing)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(missing)
    assert all("may not: create csinodes" in each for each in told)


async def test_companions_that_no_node_can_have_make_the_template_invalid(
    world: Companioned,
) -> None:
    world.make(1, slices(devices=[{"name": "gpu"}, {"name": "gpu"}]))
    await until(lambda: "is the name of two" in str(world.status.get("conditions")))
    (resolved,) = [c for c in world.status["conditions"] if c["type"] == "TemplateResolved"]
    assert (resolved["status"], resolved["reason"]) == ("False", "TemplateInvalid")
    assert world.nodes == {}
