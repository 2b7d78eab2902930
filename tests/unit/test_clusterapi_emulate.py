"""Machines that are played, by an operator on an API server that can be made to fail."""

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import AsyncMock

import pytest

from kwok_operator.clusterapi import emulate
from kwok_operator.clusterapi.keys import KARPENTER_MEMBER, LABELS, Keys
from kwok_operator.clusterapi.machines import FailureStyle
from kwok_operator.clusterapi.settings import ClusterApiSettings, Mode, Replicas
from kwok_operator.constants import (
    CAPI_ANNOTATION,
    MACHINES_ANNOTATION,
    NODE_GROUP_LABEL,
    NODE_GROUP_UID_ANNOTATION,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.naming import NodeNames, group_name
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.operator import WATCHES, World
from tests.fakes.store import Collection, Json
from tests.fakes.waiting import until

KEYS = Keys()
SETTINGS = ClusterApiSettings(
    mode=Mode.EMULATE,
    keys=KEYS,
    version="v1beta2",
    default_arch="amd64",
    discoveries=(),
    cloud_config=None,
    authoritative=False,
    replicas=Replicas.FOLLOW,
    failures=FailureStyle.V1BETA2,
)
GROUP = group_name("default.web")
ROOT = f"/apis/{KEYS.group}/v1beta2"
DEPLOYMENTS, SETS, MACHINES = (
    f"{ROOT}/{kind}" for kind in ("machinedeployments", "machinesets", "machines")
)
ANNOTATED = {"metadata": {"annotations": {KEYS.delete_machine: "yes"}}}
FINALIZER = "karpenter.sh/termination"
INTERRUPTED = {"interruptions": {"lifetime": {"fixed": "1s"}, "notice": "0s"}}
SLOW = {"failures": {"slowDeletion": {"serials": "0-9", "delay": {"fixed": "1s"}}}}


class _Server(FakeApiServer):
    """All that has a namespace is in one."""

    def _find(self, path: str) -> tuple[Collection | None, str, str]:
        return super()._find(path.replace("/namespaces/default/", "/"))


class Fleet(World):
    """With a MachineDeployment, and the group that a mirror would make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.server = _Server()
        self.server.serve(DEPLOYMENTS, kind="MachineDeployment")
        self.server.serve(SETS, kind="MachineSet")
        self.server.serve(MACHINES, kind="Machine")

    def _assemble(self, client: KubeClient) -> None:
        super()._assemble(client)
        self.parts.set_up_clusterapi(SETTINGS, client)
        self.parts.mirror = None  # a test makes the group
        assert self.parts.playing is not None
        self.emulation = self.parts.playing
        self.emulation.consent = AsyncMock()
        self.emulation.consent.keep = asyncio.Event().wait

    def missed(self) -> bool:
        return super().missed() and not any(each.version for each in self.emulation.reflectors)

    def deploy(self, replicas: int) -> None:
        metadata = {"name": "web", "namespace": "default"}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"clusterName": "test"}}
        spec = {"clusterName": "test", "replicas": replicas, "template": template}
        self.server.create(
            DEPLOYMENTS,
            {"metadata": metadata, "spec": {**spec, "selector": {"matchLabels": {"app": "web"}}}},
        )
        marks = {
            CAPI_ANNOTATION: "MachineDeployment/default/web",
            MACHINES_ANNOTATION: f"{KEYS.group}/default",
        }
        self.server.create(
            GROUPS,
            {"metadata": {"name": GROUP, "annotations": marks}, "spec": {"targetSize": 0}},
        )

    def resize(self, replicas: int) -> None:
        self.server.patch(DEPLOYMENTS, "web", {"spec": {"replicas": replicas}})

    @property
    def nodes(self) -> dict[str, Json]:
        return self.server.objects(NODES)

    @property
    def machines(self) -> dict[str, Json]:
        return self.server.objects(MACHINES)

    @property
    def counted(self) -> int:
        """Machines with a Node that is Ready, as the MachineDeployment has it."""
        status = self.server.objects(DEPLOYMENTS)["web"].get("status", {})
        return int(status.get("readyReplicas", -1))

    async def played(self, size: int) -> set[str]:
        """Until so many Machines run, each on a Node of its name, and are counted; their names."""

        def told() -> bool:
            phases = [each.get("status", {}).get("phase") for each in self.machines.values()]
            counts = [
                each.get("status", {}).get("readyReplicas")
                for path in (DEPLOYMENTS, SETS)
                for each in self.server.objects(path).values()
            ]
            return (
                phases == ["Running"] * size
                and self.machines.keys() == self.nodes.keys()
                and counts == [size, size]
            )

        await until(told)
        return set(self.machines)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setattr(emulate, "STATUS_INTERVAL", 0.02)
    async with Fleet().running() as world:
        yield world


async def test_each_instance_has_a_machine_of_its_nodes_name(world: Fleet) -> None:
    world.deploy(5)
    await world.played(5)
    (machine_set,) = world.server.objects(SETS).values()
    for name, machine in world.machines.items():
        assert machine["spec"]["providerID"] == world.nodes[name]["spec"]["providerID"]
        assert machine["status"]["nodeRef"]["name"] == name
        (owner,) = machine["metadata"]["ownerReferences"]
        assert owner["uid"] == machine_set["metadata"]["uid"]
    created = world.server.calls["create", "machines"]
    world.resize(8)
    await world.played(8)
    assert (created, world.server.calls["create", "machines"]) == (5, 8)


async def test_victims_are_read_afresh(world: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deploy(6)
    before = await world.played(6)
    victims = set(sorted(before)[2:4])
    # The watch is late: it tells of the annotations when all is over.
    monkeypatch.setattr(world.emulation.machines, "upsert", lambda item: None)
    for name in victims:
        world.server.patch(MACHINES, name, ANNOTATED)
    world.resize(4)
    await until(lambda: len(world.nodes) == 4)
    assert before - world.nodes.keys() == victims


async def test_a_deleted_machine_takes_its_node_and_another_comes(world: Fleet) -> None:
    world.deploy(3)
    before = await world.played(3)
    victim = min(before)
    world.server.delete(MACHINES, victim)
    await until(lambda: victim not in world.nodes and len(world.machines) == 3)
    after = await world.played(3)
    assert (len(before & after), victim in after) == (2, False)


async def test_a_machine_that_goes_slowly_is_not_made_again(world: Fleet) -> None:
    world.deploy(2)
    victim = min(await world.played(2))
    world.server.patch(MACHINES, victim, {"metadata": {"finalizers": ["example.com/slow"]}})
    world.server.delete(MACHINES, victim)
    await until(lambda: victim not in world.nodes and len(world.nodes) == 2)
    assert world.machines[victim]["metadata"]["deletionTimestamp"]
    world.server.patch(MACHINES, victim, {"metadata": {"finalizers": None}})
    assert victim not in await world.played(2)


class Karpenter:
    """Ends a Node as Karpenter does with its provider for Cluster API."""

    def __init__(self, world: Fleet, node: str) -> None:
        self._world, self.node = world, node
        self.lowered = 0

    def keep_node(self) -> None:
        finalizer = {"metadata": {"finalizers": [FINALIZER]}}
        self._world.server.patch(NODES, self.node, finalizer)

    def disrupt(self) -> None:
        """Deletes the Node, which is kept while it is drained."""
        self.keep_node()
        self._world.server.delete(NODES, self.node)

    async def terminate(self) -> None:
        """Has the Machine deleted, and lets go of the Node once the Machine is gone."""
        while (machine := self._world.machines.get(self.node)) is not None:
            if "deletionTimestamp" not in machine["metadata"]:
                self._world.server.patch(MACHINES, self.node, ANNOTATED)
                spec = self._world.server.objects(DEPLOYMENTS)["web"]["spec"]
                self._world.resize(spec["replicas"] - 1)
                self.lowered += 1
            # It looks again after seconds; here, once the operator has done something.
            await until(lambda machine=machine: self._has_news(machine))  # type: ignore[misc]
        if self.node in self._world.nodes:
            self._world.server.patch(NODES, self.node, {"metadata": {"finalizers": None}})

    def _has_news(self, before: Json) -> bool:
        now = self._world.machines.get(self.node, {"metadata": {}})["metadata"]
        return now.get("deletionTimestamp") != before["metadata"].get("deletionTimestamp") or (
            not now
        )


@pytest.mark.parametrize("cloud", [{}, SLOW], ids=["at once", "slowly"])
async def test_karpenters_nodes_go_with_their_machines(world: Fleet, cloud: Json) -> None:
    world.deploy(4)
    before = await world.played(4)
    created = world.server.calls["create", "nodes"]
    world.server.patch(GROUPS, GROUP, {"spec": {"cloud": cloud or None}})
    gone = [Karpenter(world, name) for name in sorted(before)[1:3]]
    for each in gone:
        each.disrupt()
    await until(lambda: all(world.cache.group(GROUP)[each.node].deleting for each in gone))
    # While they are drained, nothing comes in their place.
    await until(lambda: not (world.parts.queue.depth or world.emulation._queue.depth))
    assert (set(world.nodes), set(world.machines)) == (before, before)
    for each in gone:
        await each.terminate()
    assert await world.played(2) == before - {each.node for each in gone}
    assert [each.lowered for each in gone] == [1, 1]
    assert world.server.calls["create", "nodes"] == created


@pytest.mark.parametrize("waits", [True, False])
async def test_what_karpenter_lowers_twice_is_put_back(
    world: Fleet, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="kwok_operator")
    world.deploy(5)
    before = await world.played(5)
    world.server.patch(DEPLOYMENTS, "web", {"metadata": {"labels": {KARPENTER_MEMBER: ""}}})
    karpenter = Karpenter(world, min(before))
    karpenter.disrupt()
    world.server.patch(MACHINES, karpenter.node, ANNOTATED)
    if waits:
        world.resize(4)
        await until(lambda: world.server.objects(GROUPS)[GROUP]["spec"]["targetSize"] == 4)
    world.resize(3)
    await karpenter.terminate()
    assert await world.played(4) == before - {karpenter.node}
    assert world.server.objects(DEPLOYMENTS)["web"]["spec"]["replicas"] == 4
    assert f"replicas put back, as Karpenter chose fewer Machines: group={GROUP}" in caplog.text


async def test_an_interrupted_machine_is_replaced_by_karpenter_if_it_keeps_the_node(
    world: Fleet,
) -> None:
    world.deploy(0)
    world.server.patch(GROUPS, GROUP, {"spec": {"cloud": INTERRUPTED}})
    world.resize(1)
    (name,) = await world.played(1)
    karpenter = Karpenter(world, name)
    karpenter.keep_node()
    world.server.patch(GROUPS, GROUP, {"spec": {"cloud": None}})
    await until(lambda: "deletionTimestamp" in world.nodes[name]["metadata"])
    await until(lambda: not (world.parts.queue.depth or world.emulation._queue.depth))
    assert world.machines.keys() == world.nodes.keys() == {name}
    deletions = world.server.calls["delete", "nodes"]
    await karpenter.terminate()
    assert (await world.played(0), karpenter.lowered) == (set(), 1)
    assert world.server.calls["delete", "nodes"] == deletions


async def test_machines_go_with_their_group(world: Fleet) -> None:
    world.deploy(4)
    await world.played(4)
    labels = {NODE_GROUP_LABEL: GROUP}
    stranger = {"name": "not-ours", "namespace": "default", "labels": labels}
    world.server.create(MACHINES, {"metadata": stranger})
    world.resize(1)
    await until(lambda: len(world.nodes) == 1 and len(world.machines) == 2)
    world.server.delete(GROUPS, GROUP)
    await until(lambda: list(world.machines) == ["not-ours"])


async def test_machines_of_a_group_that_went_before_the_start_go_then() -> None:
    fleet = Fleet()
    metadata = {
        "name": NodeNames.of(GROUP, "uid-of-old").name(0),
        "namespace": "default",
        "labels": {NODE_GROUP_LABEL: GROUP},
        "annotations": {NODE_GROUP_UID_ANNOTATION: "uid-of-old"},
    }
    fleet.server.create(MACHINES, {"metadata": metadata})
    async with fleet.running():
        await until(lambda: not fleet.machines)


@pytest.mark.parametrize("late", ["nodes", "machines"])
@pytest.mark.parametrize("others", [0, 300])
async def test_after_a_restore_all_are_as_they_were(world: Fleet, others: int, late: str) -> None:
    world.deploy(6)
    before = await world.played(6)
    saved = world.server.snapshot()
    world.resize(2)
    left = await world.played(2)
    scaled = world.server.hold(verb="patch", resource="kwoknodegroups")
    world.server.delete(MACHINES, min(left))
    await until(lambda: world.emulation._deleted[GROUP])
    gone = world.server.calls["delete", "nodes"], world.server.calls["delete", "machines"]
    known = world.server.hold(verb="list", resource=late)
    await world.server.restore(saved, missed=world.missed, others=others)
    await until(lambda: world.watched == WATCHES + 3 - 1)
    scaled.set()
    known.set()
    assert await world.played(6) == before
    assert (
        world.server.calls["delete", "nodes"],
        world.server.calls["delete", "machines"],
    ) == gone, "nothing is concluded from watches of different times"
    world.resize(8)
    assert await world.played(8) > before, "who went before the restore is nobody who goes now"


async def test_a_templates_label_takes_no_machine_to_another_group(world: Fleet) -> None:
    world.deploy(0)
    labels = {"metadata": {"labels": {NODE_GROUP_LABEL: "other"}}}
    world.server.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2, "template": labels}})
    await world.played(2)
    assert not world.server.calls["patch", "machines"]
    assert {m["metadata"]["labels"][NODE_GROUP_LABEL] for m in world.machines.values()} == {GROUP}


async def test_the_labels_annotation_has_the_label_of_the_nodes(world: Fleet) -> None:
    def told() -> str:
        annotations = world.server.objects(DEPLOYMENTS)["web"]["metadata"].get("annotations", {})
        return str(annotations.get(LABELS))

    world.deploy(2)
    await world.played(2)
    (label,) = {node["metadata"]["labels"][NODE_GROUP_LABEL] for node in world.nodes.values()}
    ours = f"{NODE_GROUP_LABEL}={label}"
    assert told() == ours
    for text, expected in (
        ("zone=a", f"zone=a,{ours}"),
        (f"{ours},zone=a,{NODE_GROUP_LABEL}=b", f"{ours},zone=a,{NODE_GROUP_LABEL}=b,{ours}"),
    ):
        annotations = {"metadata": {"annotations": {LABELS: text}}}
        world.server.patch(DEPLOYMENTS, "web", annotations)
        await until(lambda expected=expected: told() == expected)  # type: ignore[misc]


async def test_machines_come_where_the_annotation_cannot_be_written(world: Fleet) -> None:
    """A policy that takes the annotation out again is no error to whoever wrote it."""
    for _ in range(20):
        world.server.answer(b"{}", verb="patch", resource="machinedeployments")
    world.deploy(2)
    await until(lambda: len(world.machines) == 2)
    assert LABELS not in str(world.server.objects(DEPLOYMENTS)["web"])


async def test_a_node_without_the_label_is_the_groups_again(world: Fleet) -> None:
    world.deploy(2)
    await world.played(2)
    before = {name: each["metadata"]["labels"] for name, each in world.nodes.items()}
    world.server.patch(NODES, min(before), {"metadata": {"labels": {NODE_GROUP_LABEL: None}}})
    await until(lambda: world.nodes[min(before)]["metadata"]["labels"] == before[min(before)])
    assert await world.played(2) == set(before)


async def test_somebody_elses_machine_is_left_alone(world: Fleet) -> None:
    world.deploy(0)
    names = NodeNames.of(GROUP, world.server.objects(GROUPS)[GROUP]["metadata"]["uid"])
    taken = {"name": names.name(1), "namespace": "default"}
    world.server.create(MACHINES, {"metadata": taken, "spec": {"mine": True}})
    world.resize(3)
    await until(lambda: world.counted == 2)
    world.resize(4)
    await until(lambda: world.counted == 3)
    assert (len(world.nodes), len(world.machines)) == (4, 4)
    theirs = world.machines[names.name(1)]
    assert (theirs["spec"], "status" in theirs) == ({"mine": True}, False)
    assert world.server.calls["create", "machines"] == 4


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 429}, {"cut": True}])
async def test_failed_writes_are_made_good(world: Fleet, fault: Json) -> None:
    for verb, resource in (("create", "machines"), ("patch", "machines/status")):
        if "cut" in fault:
            world.server.cut(times=2, verb=verb, resource=resource, carried_out=True)
        else:
            world.server.fail(fault["status"], times=2, verb=verb, resource=resource)
    world.deploy(4)
    await world.played(4)
    world.resize(1)
    await world.played(1)
