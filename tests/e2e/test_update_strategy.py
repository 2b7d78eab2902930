"""What nodes that exist do when their template changes: spec.updateStrategy."""

from typing import Any

import pytest

from kwok_operator.constants import TEMPLATE_TAINTS_ANNOTATION, TTL_ANNOTATION
from kwok_operator.controlplane import Cluster
from tests.e2e.availability import watched
from tests.e2e.groups import (
    apply_group,
    events_of,
    is_ready,
    names_of,
    nodes_of,
    patch_group,
    status_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.workloads import deployed, pods_of, runs
from tests.e2e.workloads import uids as uids_of_pods

IN_PLACE = {"type": "InPlace"}
SIZE = 30
UPDATED = {"ScalingUp": 1, "TemplateChanged": 1, "Updating": 1, "Ready": 2}
"""What the Events of a group tell whose nodes were brought to another template, and how often."""


def rolling(limit: object) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}}


def shape(**fields: Any) -> dict[str, Any]:
    return {"shape": fields}


def by_uid(nodes: list[dict[str, Any]]) -> dict[str, str]:
    return {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes}


def reasons(kubectl: Kubectl, name: str) -> dict[str, int]:
    """How often each reason has been told by Events, once all are Ready."""
    return eventually(
        lambda: {e["reason"]: e["count"] for e in events_of(kubectl, name)},
        until=lambda told: told.get("Ready") == 2,
        describe="that all are Ready again is told",
    )


def labelled(kubectl: Kubectl, name: str, key: str) -> list[str | None]:
    """The values of a label on the nodes of a group."""
    return [n["metadata"]["labels"].get(key) for n in nodes_of(kubectl, name)]


def change_by_hand(kubectl: Kubectl, node: str) -> None:
    kubectl("label", "node", node, "by-hand=yes", "tier=mine", "--overwrite")
    kubectl("annotate", "node", node, "example.com/by-hand=yes")
    kubectl("taint", "node", node, "by-hand=yes:NoSchedule")
    patch = as_text({"status": {"capacity": {"example.com/dongle": "3"}}})
    kubectl("patch", "node", node, "--subresource=status", "--type=merge", f"--patch={patch}")


def labels_of(node: dict[str, Any]) -> dict[str, str]:
    """Without those that Kubernetes adds a moment after a node has come."""
    labels: dict[str, str] = node["metadata"]["labels"]
    return {k: v for k, v in labels.items() if not k.startswith("beta.kubernetes.io/")}


def annotations_of(node: dict[str, Any]) -> dict[str, str]:
    """Without the one that Kubernetes changes as the cluster grows and shrinks."""
    annotations: dict[str, str] = node["metadata"]["annotations"]
    return {k: v for k, v in annotations.items() if k != TTL_ANNOTATION}


def taints_of(node: dict[str, Any]) -> dict[str, str]:
    return {t["key"]: t.get("value", "") for t in node["spec"]["taints"]}


@pytest.mark.core
def test_in_place(kubectl: Kubectl, harness: Harness, group_name: str) -> None:
    harness.start()  # so that the first of the nodes is initialised by kwok
    first = {
        "node": {"metadata": {"annotations": {"example.com/a": "1", "example.com/b": "1"}}},
        "shape": {
            "cpu": 8,
            "labels": {"pool": "one", "tier": "x", "goes": "soon"},
            "taints": [
                {"key": "goes", "effect": "NoSchedule"},
                {"key": "changes", "value": "1", "effect": "NoSchedule"},
            ],
            "resources": {"example.com/fpga": 2, "example.com/goes": 1},
        },
    }
    apply_group(kubectl, group_name, targetSize=3, template=first, updateStrategy=IN_PLACE)
    wait_ready(kubectl, group_name)
    before = nodes_of(kubectl, group_name)
    changed = before[0]["metadata"]["name"]
    change_by_hand(kubectl, changed)

    second = {
        "node": {"metadata": {"annotations": {"example.com/a": "2", "example.com/b": None}}},
        "shape": {
            "cpu": 16,
            "labels": {"pool": "two", "tier": "x", "goes": None},
            "taints": [{"key": "changes", "value": "2", "effect": "NoSchedule"}],
            "resources": {"example.com/fpga": 4, "example.com/goes": None},
            "arch": "arm64",
        },
    }
    patch_group(kubectl, group_name, template=second)
    wait_ready(kubectl, group_name)
    after = nodes_of(kubectl, group_name)
    assert by_uid(after) == by_uid(before)
    assert status_of(kubectl, group_name)["updatedReplicas"] == 3
    for old, node in zip(before, after, strict=True):
        by_hand = node["metadata"]["name"] == changed
        labels, annotations = node["metadata"]["labels"], node["metadata"]["annotations"]
        assert (labels["pool"], labels["tier"]) == ("two", "x")
        assert labels["kubernetes.io/arch"] == node["status"]["nodeInfo"]["architecture"] == "arm64"
        assert "goes" not in labels
        assert annotations["example.com/a"] == "2"
        assert "example.com/b" not in annotations
        taints = taints_of(node)
        assert taints.pop("by-hand", None) == ("yes" if by_hand else None)
        assert taints == {"changes": "2", "kwok-provider": "true"}
        resources = node["status"]["capacity"]
        assert (resources["cpu"], resources["example.com/fpga"]) == ("16", "4")
        assert node["status"]["allocatable"].items() <= resources.items()
        assert resources.get("example.com/dongle") == ("3" if by_hand else None)
        assert "example.com/goes" not in resources
        assert "example.com/goes" not in node["status"]["allocatable"]
        assert (labels.get("by-hand") == "yes") == by_hand
        assert (annotations.get("example.com/by-hand") == "yes") == by_hand
        for kept in ("requested-at", "node-group-uid"):
            key = f"kwok-operator.io/{kept}"
            assert annotations[key] == old["metadata"]["annotations"][key]
        assert node["metadata"]["ownerReferences"] == old["metadata"]["ownerReferences"]
        assert node["spec"]["providerID"] == old["spec"]["providerID"]
        assert node["status"]["addresses"] == old["status"]["addresses"]
        assert is_ready(node)
    assert reasons(kubectl, group_name) == UPDATED


def test_in_place_there_and_back_again(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    """What an update wrote, the next one takes out again; a node of long ago, too."""
    apply_group(kubectl, group_name, targetSize=2, updateStrategy=IN_PLACE)
    wait_ready(kubectl, group_name)
    plain = nodes_of(kubectl, group_name)
    # As nodes were made before there was this annotation.
    oldest = plain[0]["metadata"]["name"]
    kubectl("annotate", "node", oldest, f"{TEMPLATE_TAINTS_ANNOTATION}-")
    more = shape(
        labels={"a": "b"},
        taints=[{"key": "gpu", "effect": "NoSchedule"}],
        gpu={"type": "nvidia.com/gpu", "count": 8},
    )
    patch_group(kubectl, group_name, template=more)
    wait_ready(kubectl, group_name)
    for node in nodes_of(kubectl, group_name):
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert set(taints_of(node)) == {"gpu", "kwok-provider"}

    patch_group(kubectl, group_name, template=None)
    wait_ready(kubectl, group_name)
    for old, node in zip(plain, nodes_of(kubectl, group_name), strict=True):
        assert labels_of(node) == labels_of(old)
        assert annotations_of(node) == annotations_of(old)
        assert node["status"]["capacity"] == old["status"]["capacity"]
        assert node["status"]["allocatable"] == old["status"]["allocatable"]
        assert taints_of(node) == {"kwok-provider": "true"}

    patch_group(kubectl, group_name, guardTaint={"enabled": False})
    wait_ready(kubectl, group_name)
    assert [n["spec"].get("taints", []) for n in nodes_of(kubectl, group_name)] == [[], []]


def test_in_place_pods_stay_and_a_changed_label_is_set_right(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(
        kubectl,
        group_name,
        targetSize=3,
        template=shape(labels={"pool": "one"}),
        updateStrategy=IN_PLACE,
    )
    wait_ready(kubectl, group_name)
    with deployed(kubectl, group_name, group=group_name, replicas=6):
        pods = uids_of_pods(pods_of(kubectl, group_name))
        node = names_of(kubectl, group_name)[1]
        kubectl("label", "node", node, "pool=mine", "--overwrite")
        patch_group(kubectl, group_name, template=shape(labels={"pool": "one"}, cpu=64))
        wait_ready(kubectl, group_name)
        assert labelled(kubectl, group_name, "pool") == ["one"] * 3
        assert uids_of_pods(pods_of(kubectl, group_name)) == pods
        assert all(runs(pod) for pod in pods_of(kubectl, group_name))


@pytest.mark.core
def test_rolling_update(
    kubectl: Kubectl, cluster: Cluster, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=SIZE, updateStrategy=rolling(5))
    wait_ready(kubectl, group_name)
    before = set(names_of(kubectl, group_name))
    with watched(cluster, group_name) as seen:
        patch_group(kubectl, group_name, template=shape(labels={"v": "2"}))
        wait_ready(kubectl, group_name)
    assert seen.fewest == SIZE - 5
    assert labelled(kubectl, group_name, "v") == ["2"] * SIZE
    assert before.isdisjoint(names_of(kubectl, group_name))
    status = status_of(kubectl, group_name)
    assert (status["updatedReplicas"], status["readyReplicas"]) == (SIZE, SIZE)
    assert status["nextSerial"] == 2 * SIZE
    assert not status.get("pending")
    assert reasons(kubectl, group_name) == UPDATED


def test_rolling_update_deletes_pods_where_scale_down_does(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(
        kubectl,
        group_name,
        targetSize=3,
        updateStrategy=rolling(1),
        scaleDown={"pods": "Delete"},
    )
    wait_ready(kubectl, group_name)
    with deployed(kubectl, group_name, group=group_name, replicas=3):
        pods = uids_of_pods(pods_of(kubectl, group_name))
        patch_group(kubectl, group_name, template=shape(labels={"v": "2"}))
        wait_ready(kubectl, group_name)
        assert pods.isdisjoint(uids_of_pods(pods_of(kubectl, group_name)))
