"""What a node of a group is like: everything that other programs rely on.

What becomes of a node that was pasted is in test_pasted_nodes.py.
"""

import re
from typing import Any

import pytest

from kwok_operator.constants import ALIKE_LABEL, NODE_GROUP_LABEL
from tests.e2e.groups import (
    apply_group,
    group_of,
    names_of,
    nodes_of,
    patch_group,
    scale,
    status_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

GUARD = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


def taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node["spec"].get("taints", [])
    return found


def settled_nodes(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    wait_ready(kubectl, name)
    return nodes_of(kubectl, name)


def run_pod(
    kubectl: Kubectl,
    name: str,
    *,
    group: str,
    resources: dict[str, str] | None = None,
    selector: dict[str, str] | None = None,
    tolerations: list[dict[str, str]] | None = None,
) -> None:
    """A pod for the nodes of a group; it is deleted with the nodes."""
    container = {"name": "main", "image": "none", "resources": {"limits": resources or {}}}
    spec = {
        "containers": [container],
        "nodeSelector": {NODE_GROUP_LABEL: group, **(selector or {})},
        "tolerations": tolerations or [],
    }
    metadata = {"name": name, "labels": {"group": group}}
    kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.mark.core
def test_names_and_marks(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    apply_group(kubectl, group_name, targetSize=2)
    group, nodes = group_of(kubectl, group_name), settled_nodes(kubectl, group_name)
    uid = group["metadata"]["uid"]
    names = [node["metadata"]["name"] for node in nodes]
    hashes = {name.removeprefix(f"{group_name}-").partition("-")[0] for name in names}
    assert len(hashes) == 1
    assert names == [f"{group_name}-{hashes.copy().pop()}-{serial:06}" for serial in range(2)]
    assert re.fullmatch("[a-z0-9]{4}", hashes.pop())

    for name, node in zip(names, nodes, strict=True):
        metadata = node["metadata"]
        assert metadata["labels"] == {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            NODE_GROUP_LABEL: group_name,
            ALIKE_LABEL: metadata["labels"][ALIKE_LABEL],
            EXCLUDED: "true",
        }
        annotations = metadata["annotations"]
        assert TIME.fullmatch(annotations.pop("kwok-operator.io/requested-at"))
        assert annotations.pop("node.alpha.kubernetes.io/ttl").isdecimal()
        assert annotations == {
            "kwok.x-k8s.io/node": "fake",
            "cluster-autoscaler.kwok.nodegroup/name": group_name,
            "metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource",
            "kwok-operator.io/node-group-uid": uid,
            "kwok-operator.io/template-hash": status_of(kubectl, group_name)["templateHash"],
            "kwok-operator.io/template-taints": "kwok-provider:NoSchedule",
        }
        owner = {key: group[key] for key in ("apiVersion", "kind")}
        owner |= {"name": group_name, "uid": uid, "controller": True}
        assert metadata["ownerReferences"] == [owner], "and blockOwnerDeletion is not set"
        assert "finalizers" not in metadata
        assert node["spec"] == {"providerID": f"kwok:{name}", "taints": [GUARD]}
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "fake"
        assert node["status"]["capacity"] == {"cpu": "32", "memory": "256Gi", "pods": "110"}
        assert node["status"]["allocatable"] == node["status"]["capacity"]


@pytest.mark.core
def test_the_guard_taint_keeps_pods_off(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=1)
    settled_nodes(kubectl, group_name)
    run_pod(kubectl, group_name, group=group_name)
    refusal = "untolerated taint(s)"
    eventually(
        lambda: kubectl.json("get", "pod", group_name)["status"]["conditions"][0]["message"],
        lambda message: refusal in message,
        describe="the pod is kept off",
    )
    patch_group(kubectl, group_name, guardTaint={"enabled": False}, targetSize=2)
    settled_nodes(kubectl, group_name)
    assert placed(kubectl, group_name) == names_of(kubectl, group_name)[1]
    kubectl("delete", "pod", group_name, "--force", "--grace-period=0")


def placed(kubectl: Kubectl, pod: str) -> str:
    """The node that a pod runs on, once it does."""
    kubectl("wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=240s", timeout=270)
    node: str = kubectl.json("get", "pod", pod)["spec"]["nodeName"]
    return node


@pytest.mark.core
def test_pods_get_what_they_ask_for(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    shape = {"cpu": 8, "gpu": {"count": 4}, "resources": {"example.com/fpga": 1}, "zone": "z1"}
    apply_group(kubectl, group_name, targetSize=2, template={"shape": shape})
    settled_nodes(kubectl, group_name)
    asked = {"nvidia.com/gpu": "3", "example.com/fpga": "1", "cpu": "7"}
    pods = [f"{group_name}-{letter}" for letter in "abc"]
    for pod in pods:
        run_pod(
            kubectl,
            pod,
            group=group_name,
            resources=asked,
            selector={"topology.kubernetes.io/zone": "z1"},
            tolerations=[{"key": "kwok-provider", "operator": "Exists"}],
        )
    waiting = eventually(
        lambda: [p for p in pods if not kubectl.json("get", "pod", p)["spec"].get("nodeName")],
        lambda left: len(left) == 1,
        describe="two of three pods are placed, as there are GPUs for two",
    )
    running = [pod for pod in pods if pod not in waiting]
    assert sorted(placed(kubectl, pod) for pod in running) == names_of(kubectl, group_name)
    scale(kubectl, group_name, 3)
    assert placed(kubectl, waiting[0]) == names_of(kubectl, group_name)[2]
    kubectl("delete", "pod", f"-lgroup={group_name}", "--force", "--grace-period=0")


def test_the_resolved_template_is_what_nodes_have(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    pasted = {
        "metadata": {"labels": {"tier": "batch"}, "annotations": {"example.com/note": "kept"}},
        "status": {
            "capacity": {"cpu": "4", "memory": "7939932Ki", "attachable-volumes-aws-ebs": "39"},
            "allocatable": {"cpu": "3920m", "memory": "7249756Ki"},
            "nodeInfo": {"kernelVersion": "6.1.0", "osImage": "Fake Linux"},
        },
    }
    template = {"node": pasted, "shape": {"memory": "16Gi", "zone": "z1"}}
    apply_group(kubectl, group_name, targetSize=2, template=template)
    nodes = settled_nodes(kubectl, group_name)
    status = status_of(kubectl, group_name)
    resolved = status["resolvedTemplate"]
    assert resolved["status"]["allocatable"]["cpu"] == "3920m", "template.node's stays"
    assert resolved["status"]["allocatable"]["memory"] == "16Gi", "shape wins over template.node"
    assert resolved["spec"]["taints"] == [GUARD]
    for node in nodes:
        for part in ("labels", "annotations"):
            assert resolved["metadata"][part].items() <= node["metadata"][part].items()
        assert node["status"]["capacity"] == resolved["status"]["capacity"]
        assert node["status"]["allocatable"] == resolved["status"]["allocatable"]
        assert resolved["status"]["nodeInfo"].items() <= node["status"]["nodeInfo"].items()
        assert taints(node) == resolved["spec"]["taints"]
        hashes = node["metadata"]["annotations"]["kwok-operator.io/template-hash"]
        assert hashes == status["templateHash"]
    first, second = (node["status"]["nodeInfo"] for node in nodes)
    assert first == second, "a node that kwok initialised is like one that was born Ready"
