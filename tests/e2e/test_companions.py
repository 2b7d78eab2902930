"""Companions of nodes, kept by an operator on a real cluster."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kwok_operator.companions.desired import CompanionKind
from kwok_operator.constants import GUARD_TAINT_KEY, NODE_GROUP_LABEL
from tests.e2e.crashes import SLOWLY, kill, wait_under_way
from tests.e2e.deploying import ROOT
from tests.e2e.grants import COMPANIONS, DEPLOY
from tests.e2e.groups import (
    apply_group,
    condition,
    delete_group,
    nodes_of,
    patch_group,
    scale,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import OwnCluster, own_cluster
from tests.e2e.sources import RealNodes

SAMPLES = ROOT / "deploy" / "samples" / "companions"
DRIVER = "dev.example.com"
EVERYTHING = {
    "csiNode": {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 3}}]},
    "resourceSlices": [{"driver": DRIVER, "devices": [{"name": "dev", "count": 4}]}],
}
SIZE = 120


@pytest.fixture(scope="module")
def companioned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """With an operator that has no right to companions yet."""
    with own_cluster("companions", directory=tmp_path_factory.mktemp("companions")) as own:
        yield own


@pytest.fixture
def kubectl(companioned: OwnCluster) -> Kubectl:
    companioned.harness.ensure()
    return companioned.kubectl


@pytest.fixture
def allowed(kubectl: Kubectl) -> None:
    kubectl("apply", f"--filename={DEPLOY / COMPANIONS}")


def present(kubectl: Kubectl, name: str) -> None:
    wait_ready(kubectl, name)
    wait_condition(kubectl, name, "CompanionsPresent", status="True")


def owners(kubectl: Kubectl, kind: CompanionKind, group: str) -> dict[str, str]:
    """The uid of the owner of each object of a group."""
    listed = kubectl.json("get", kind.value[2], f"--selector={NODE_GROUP_LABEL}={group}")
    metadata = [item["metadata"] for item in listed["items"]]
    return {each["name"]: each["ownerReferences"][0]["uid"] for each in metadata}


def owned(kubectl: Kubectl, kind: CompanionKind, group: str, wanted: dict[str, str]) -> None:
    eventually(
        lambda: owners(kubectl, kind, group),
        lambda found: found == wanted,
        describe=f"each node has its {kind.kind}, and none is without a node",
    )


def placed(kubectl: Kubectl, selector: str) -> list[bool]:
    """Of each pod, whether the scheduler has found a node."""
    pods = kubectl.json("get", "pods", f"--selector={selector}")["items"]
    return sorted("nodeName" in pod["spec"] for pod in pods)


def waits(kubectl: Kubectl, selector: str, *, placed_: int, unplaced: int) -> None:
    wanted = [False] * unplaced + [True] * placed_
    eventually(
        lambda: placed(kubectl, selector),
        lambda found: found == wanted,
        describe=f"{placed_} pods are placed and {unplaced} wait",
    )
    eventually(
        lambda: [
            c["reason"]
            for pod in kubectl.json("get", "pods", f"--selector={selector}")["items"]
            for c in pod["status"].get("conditions", ())
            if c["type"] == "PodScheduled" and c["status"] == "False"
        ],
        lambda found: found == ["Unschedulable"] * unplaced,
        describe="the scheduler has said no to the others",
    )


def claimed(kubectl: Kubectl, name: str, replicas: int, *, driver: str = DRIVER) -> None:
    """Pods that ask for one device of the driver each."""
    request = {"name": "dev", "exactly": {"deviceClassName": name}}
    template = {"spec": {"devices": {"requests": [request]}}}
    api = {"apiVersion": CompanionKind.RESOURCE_SLICE.api_version}
    cel = {"cel": {"expression": f'device.driver == "{driver}"'}}
    kubectl.apply(
        {**api, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": [cel]}}
    )
    meta = {"name": name, "namespace": "default"}
    kubectl.apply({**api, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": template})
    labels = {"app": name}
    pod = {
        "nodeSelector": {NODE_GROUP_LABEL: name},
        "tolerations": [{"key": GUARD_TAINT_KEY, "operator": "Exists"}],
        "resourceClaims": [{"name": "dev", "resourceClaimTemplateName": name}],
        "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "dev"}]}}],
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    kubectl.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})


def keeps_all(kubectl: Kubectl) -> bool:
    """Whether the API server keeps counters and taints."""
    return int(kubectl.json("version")["serverVersion"]["minor"]) >= 36


def dropped(kubectl: Kubectl, name: str) -> None:
    wait_condition(kubectl, name, "CompanionsPresent", status="False")
    assert condition(kubectl, name, "CompanionsPresent")["reason"] == "FieldsDropped"


def test_without_the_right_the_condition_says_so(kubectl: Kubectl) -> None:
    apply_group(kubectl, "early", targetSize=2, template={"companions": EVERYTHING})
    wait_condition(kubectl, "early", "CompanionsPresent", status="False")
    assert condition(kubectl, "early", "CompanionsPresent")["reason"] == "NotAllowed"
    eventually(
        lambda: condition(kubectl, "early", "Ready"),
        lambda found: found["reason"] == "CompanionsMissing",
        describe="its nodes are there, and not all that belongs to them",
    )
    kubectl("apply", f"--filename={DEPLOY / COMPANIONS}")
    present(kubectl, "early")
    delete_group(kubectl, "early")


@pytest.mark.core
@pytest.mark.usefixtures("allowed")
def test_claims_are_allocated_on_devices_of_our_nodes(kubectl: Kubectl) -> None:
    kubectl("apply", f"--filename={SAMPLES / 'dra-gpus.yaml'}")
    waits(kubectl, "app=sample-dra-gpus", placed_=4, unplaced=1)
    scale(kubectl, "sample-dra-gpus", 3)
    waits(kubectl, "app=sample-dra-gpus", placed_=5, unplaced=0)
    kubectl("delete", f"--filename={SAMPLES / 'dra-gpus.yaml'}")


@pytest.mark.usefixtures("allowed")
def test_partitions_are_allocated_as_counters_go(kubectl: Kubectl) -> None:
    kubectl("apply", f"--filename={SAMPLES / 'dra-partitions.yaml'}")
    if keeps_all(kubectl):
        # Which is scheduled first is chance: eight partitions need both GPUs, and leave none whole.
        eventually(
            lambda: (sum(placed(kubectl, "asks=gpu")), sum(placed(kubectl, "asks=mig"))),
            lambda found: found in ((1, 7), (0, 8)),
            describe="one whole GPU and seven partitions, or eight partitions are allocated",
        )
    else:
        dropped(kubectl, "sample-dra-partitions")
    kubectl("delete", f"--filename={SAMPLES / 'dra-partitions.yaml'}")


@pytest.mark.usefixtures("allowed")
def test_gpus_in_short_are_given_away_whole_and_in_partitions(kubectl: Kubectl) -> None:
    kubectl("apply", f"--filename={SAMPLES / 'nvidia-mig.yaml'}")
    if keeps_all(kubectl):
        waits(kubectl, "app=sample-nvidia-mig", placed_=3, unplaced=0)
        kubectl("scale", "deployment", "sample-nvidia-half", "--replicas=3")
        waits(kubectl, "asks=half", placed_=2, unplaced=1)
    else:
        dropped(kubectl, "sample-nvidia-mig")
    kubectl("delete", f"--filename={SAMPLES / 'nvidia-mig.yaml'}", "--wait=false")
    group = "whole"
    gpu = {"count": 4, "dra": True}
    apply_group(kubectl, group, targetSize=2, template={"shape": {"gpu": gpu}})
    present(kubectl, group)
    assert all("nvidia.com/gpu" not in n["status"]["capacity"] for n in nodes_of(kubectl, group))
    claimed(kubectl, group, 9, driver="gpu.nvidia.com")
    waits(kubectl, f"app={group}", placed_=8, unplaced=1)
    kubectl("delete", "deployment", group)
    delete_group(kubectl, group)


@pytest.mark.usefixtures("allowed")
def test_a_shared_pool_is_one_for_all_nodes_and_a_taint_keeps_claims_off(kubectl: Kubectl) -> None:
    taint = {"key": "example.com/sick", "effect": "NoSchedule"}
    devices: list[dict[str, Any]] = [
        {"name": "well", "count": 2},
        {"name": "sick", "count": 2, "taints": [taint]},
    ]
    pool = {"driver": DRIVER, "pool": "Shared", "devices": devices}
    apply_group(kubectl, "pool", targetSize=3, template={"companions": {"resourceSlices": [pool]}})
    kept = keeps_all(kubectl)
    present(kubectl, "pool") if kept else dropped(kubectl, "pool")
    assert len(owners(kubectl, CompanionKind.RESOURCE_SLICE, "pool")) == 1
    claimed(kubectl, "pool", 4)
    waits(kubectl, "app=pool", placed_=2 if kept else 4, unplaced=2 if kept else 0)
    pool["devices"] = [devices[0], {"name": "sick", "count": 2}]
    patch_group(kubectl, "pool", template={"companions": {"resourceSlices": [pool]}})
    waits(kubectl, "app=pool", placed_=4, unplaced=0)
    kubectl("delete", "deployment", "pool")
    delete_group(kubectl, "pool")
    eventually(
        lambda: not owners(kubectl, CompanionKind.RESOURCE_SLICE, "pool"),
        describe="the pool goes with the group",
    )


@pytest.mark.usefixtures("allowed")
def test_volumes_fit_as_attach_limits_go(kubectl: Kubectl) -> None:
    kubectl("apply", f"--filename={SAMPLES / 'attach-limits.yaml'}")
    present(kubectl, "sample-attach-limits")
    waits(kubectl, "app=sample-attach-limits", placed_=2, unplaced=1)
    scale(kubectl, "sample-attach-limits", 2)
    waits(kubectl, "app=sample-attach-limits", placed_=3, unplaced=0)
    kubectl("delete", f"--filename={SAMPLES / 'attach-limits.yaml'}", "--timeout=240s")


@pytest.mark.usefixtures("allowed")
def test_devices_that_come_late_or_fail_are_allocated_as_far_as_they_are_there(
    kubectl: Kubectl,
) -> None:
    taint = {"key": "example.com/sick", "effect": "NoSchedule"}
    cloud = {
        "devices": {"after": {"fixed": "15s"}, "failures": {"serials": "0", "taint": taint}},
    }
    slices = {"driver": DRIVER, "devices": [{"name": "dev", "count": 2}]}
    apply_group(
        kubectl,
        "late",
        targetSize=2,
        template={"companions": {"resourceSlices": [slices]}},
        cloud=cloud,
    )
    wait_condition(kubectl, "late", "CompanionsPresent", status="Unknown")
    claimed(kubectl, "late", 4)
    if keeps_all(kubectl):
        waits(kubectl, "app=late", placed_=2, unplaced=2)
        present(kubectl, "late")
    else:
        waits(kubectl, "app=late", placed_=4, unplaced=0)
    kubectl("delete", "deployment", "late")
    delete_group(kubectl, "late")


@pytest.mark.usefixtures("allowed")
def test_a_device_that_fails_loses_its_pod(kubectl: Kubectl) -> None:
    slices = {"driver": DRIVER, "devices": [{"name": "dev"}]}
    apply_group(
        kubectl, "ills", targetSize=1, template={"companions": {"resourceSlices": [slices]}}
    )
    claimed(kubectl, "ills", 1)
    waits(kubectl, "app=ills", placed_=1, unplaced=0)
    patch_group(kubectl, "ills", cloud={"devices": {"failures": {"serials": "0"}}})
    if keeps_all(kubectl):
        waits(kubectl, "app=ills", placed_=0, unplaced=1)
        patch_group(kubectl, "ills", cloud=None)
        waits(kubectl, "app=ills", placed_=1, unplaced=0)
    else:
        wait_condition(kubectl, "ills", "CompanionsPresent", status="False")
    kubectl("delete", "deployment", "ills")
    delete_group(kubectl, "ills")


@pytest.mark.usefixtures("allowed")
def test_a_real_nodes_devices_and_limits_are_copied(
    kubectl: Kubectl, real_nodes: RealNodes
) -> None:
    real, group = "real-with-devices-1", "copied"
    real_nodes.add(real, labels={"pool": group})
    head = {"metadata": {"name": real}}
    limits = {"name": "csi.example.com", "nodeID": f"i-{real}", "allocatable": {"count": 3}}
    csi_node = {"apiVersion": CompanionKind.CSI_NODE.api_version, "kind": "CSINode", **head}
    kubectl.apply({**csi_node, "spec": {"drivers": [limits]}})
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    devices = [
        {"name": f"dev-{n}", "attributes": {"uuid": {"string": f"DEV-{n}{uuid[1:]}"}}}
        for n in range(2)
    ]
    pool = {"name": real, "generation": 5, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": real, "pool": pool, "devices": devices}
    slices = {"apiVersion": CompanionKind.RESOURCE_SLICE.api_version, "kind": "ResourceSlice"}
    kubectl.apply({**slices, **head, "spec": spec})
    source = {"selector": {"matchLabels": {"pool": group}}, "companions": True}
    apply_group(kubectl, group, targetSize=2, template={"from": {"nodes": source}})
    present(kubectl, group)
    uids = {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes_of(kubectl, group)}
    owned(kubectl, CompanionKind.CSI_NODE, group, uids)
    made = kubectl.json("get", "csinodes", f"--selector={NODE_GROUP_LABEL}={group}")["items"]
    found = [driver for each in made for driver in each["spec"]["drivers"]]
    assert [each["allocatable"]["count"] for each in found] == [3, 3]
    assert {each["nodeID"] for each in found} == {f"i-{name}" for name in uids}
    claimed(kubectl, group, 5)
    waits(kubectl, f"app={group}", placed_=4, unplaced=1)
    kubectl("delete", "deployment", group)
    delete_group(kubectl, group)
    kubectl("delete", "csinode,resourceslice", real)


@pytest.mark.usefixtures("allowed")
def test_killed_in_the_middle_it_leaves_no_node_without_and_nothing_without_a_node(
    companioned: OwnCluster, kubectl: Kubectl, chance: random.Random
) -> None:
    harness, name = companioned.harness, "killed"
    harness.stop()
    # Each operator has some to make, even where those before it were killed late.
    for size in (SIZE // 3, SIZE // 3 * 2, SIZE):
        apply_group(kubectl, name, targetSize=size, template={"companions": EVERYTHING})
        process = harness.start(SLOWLY, ready=False)
        wait_under_way(process, name, least=chance.randrange(1, SIZE // 12))
        kill(process)
    harness.start()
    present(kubectl, name)
    uids = {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes_of(kubectl, name)}
    assert len(uids) == SIZE
    slices = {f"{node}-{DRIVER}-0": uid for node, uid in uids.items()}
    owned(kubectl, CompanionKind.CSI_NODE, name, uids)
    owned(kubectl, CompanionKind.RESOURCE_SLICE, name, slices)

    scale(kubectl, name, SIZE // 2)
    eventually(lambda: len(nodes_of(kubectl, name)) < SIZE, describe="nodes go")
    kill(harness.ensure())
    harness.start()
    present(kubectl, name)
    uids = {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes_of(kubectl, name)}
    slices = {f"{node}-{DRIVER}-0": uid for node, uid in uids.items()}
    owned(kubectl, CompanionKind.CSI_NODE, name, uids)
    owned(kubectl, CompanionKind.RESOURCE_SLICE, name, slices)
    delete_group(kubectl, name)
