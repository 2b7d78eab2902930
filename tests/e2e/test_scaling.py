"""A group comes to its target, whatever happens on the way."""

import json
from typing import Any

import pytest

from kwok_operator.constants import (
    GUARD_TAINT_EFFECT,
    GUARD_TAINT_KEY,
    GUARD_TAINT_VALUE,
    NODE_GROUP_LABEL,
)
from tests.e2e.groups import (
    apply_group,
    condition,
    group_manifest,
    group_of,
    is_ready,
    names_of,
    nodes_of,
    scale,
    serial_of,
    status_of,
    stopped,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.workloads import deployed, pods_of, runs

GUARD_TAINT = {
    "key": GUARD_TAINT_KEY,
    "value": GUARD_TAINT_VALUE,
    "effect": GUARD_TAINT_EFFECT,
}
READY = "--for=condition=Ready"
FINALIZER = "example.com/hold"


def taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node["spec"].get("taints", [])
    return found


def finalizers(kubectl: Kubectl, node: str, *names: str) -> None:
    patch = json.dumps({"metadata": {"finalizers": list(names) or None}})
    kubectl("patch", "node", node, "--type=merge", f"--patch={patch}")


@pytest.mark.core
def test_from_nothing_and_back(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    apply_group(kubectl, group_name, targetSize=0)
    wait_ready(kubectl, group_name)
    assert nodes_of(kubectl, group_name) == []

    scale(kubectl, group_name, 10)
    wait_ready(kubectl, group_name)
    nodes = nodes_of(kubectl, group_name)
    assert [taints(node) for node in nodes] == [[GUARD_TAINT]] * 10
    assert all(is_ready(node) and not node["spec"].get("unschedulable") for node in nodes)
    with deployed(kubectl, group_name, group=group_name, replicas=20):
        pods = pods_of(kubectl, group_name)
        assert len(pods) == 20 and all(map(runs, pods))
        assert {pod["spec"]["nodeName"] for pod in pods} == {n["metadata"]["name"] for n in nodes}

    before = names_of(kubectl, group_name)
    for size in (60, 7, 0):
        scale(kubectl, group_name, size)
        wait_ready(kubectl, group_name)
        nodes = nodes_of(kubectl, group_name)
        assert len(nodes) == size and all(map(is_ready, nodes))
        assert all(taints(node) == [GUARD_TAINT] for node in nodes), "all of them take pods"
        kept = {node["metadata"]["name"] for node in nodes} & set(before)
        assert len(kept) == min(size, 10), "nodes that may stay are never replaced"


def test_status_counts_and_columns(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    apply_group(kubectl, group_name, targetSize=4, autoscaling={"minSize": 1, "maxSize": 9})
    wait_ready(kubectl, group_name)
    scale(kubectl, group_name, 6)
    wait_ready(kubectl, group_name)

    group = group_of(kubectl, group_name)
    status = group["status"]
    counts = ("targetSize", "replicas", "readyReplicas", "updatedReplicas")
    assert {status[count] for count in counts} == {6}
    assert (status["pendingReplicas"], status["failedReplicas"]) == (0, 0)
    assert status["pending"] == [], "what has arrived isn't pending"
    assert status["nextSerial"] == 6
    generations = [c["observedGeneration"] for c in status["conditions"]]
    assert {*generations, status["observedGeneration"]} == {group["metadata"]["generation"]}

    selected = kubectl("get", "nodes", f"-l{status['selector']}", "--output=name").split()
    assert len(selected) == 6
    path = f"/apis/kwok-operator.io/v1alpha1/kwoknodegroups/{group_name}/scale"
    seen = json.loads(kubectl("get", "--raw", path))["status"]
    assert seen == {"replicas": 6, "selector": status["selector"]}

    header, row = kubectl("get", "kng", group_name).splitlines()
    assert header.split() == ["NAME", "TARGET", "CURRENT", "READY", "STATUS", "AGE"]
    assert row.split()[:-1] == [group_name, "6", "6", "6", "Ready"]
    header, row = kubectl("get", "kng", group_name, "--output=wide").splitlines()
    wide = dict(zip(header.split(), row.split(), strict=False))
    assert (wide["MIN"], wide["MAX"], wide["CPU"], wide["MEMORY"]) == ("1", "9", "32", "256Gi")


def test_waiting_for_ready_is_not_fooled_by_the_size_before(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    with stopped(operator.pid):
        scale(kubectl, group_name, 4)
        refusal = kubectl.fails("wait", f"kng/{group_name}", READY, "--timeout=1s")
        assert "timed out" in refusal, "the condition is there, but it is of the size before"
    for size in (40, 5, 0, 1):
        scale(kubectl, group_name, size)
        wait_ready(kubectl, group_name)
        assert [is_ready(n) for n in nodes_of(kubectl, group_name)] == [True] * size


@pytest.mark.core
def test_a_node_deleted_by_hand_comes_back_under_a_new_name(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=4)
    wait_ready(kubectl, group_name)
    before = names_of(kubectl, group_name)
    kubectl("delete", "node", before[0], before[2])
    nodes = eventually(
        lambda: nodes_of(kubectl, group_name),
        lambda nodes: len(nodes) == 4 and all(map(is_ready, nodes)),
        describe="there are four Ready nodes again",
    )
    names = [node["metadata"]["name"] for node in nodes]
    assert names[:2] == [before[1], before[3]]
    assert [serial_of(name) for name in names[2:]] == [4, 5]


def test_a_node_held_by_a_foreign_finalizer_blocks_nothing(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=5)
    wait_ready(kubectl, group_name)
    held = names_of(kubectl, group_name)[-1]
    finalizers(kubectl, held, FINALIZER)
    try:
        scale(kubectl, group_name, 2)
        wait_ready(kubectl, group_name)
        assert len(names_of(kubectl, group_name)) == 3, "the other two went"
        told = eventually(
            lambda: condition(kubectl, group_name, "Reconciling"),
            lambda told: told["reason"] == "NodesTerminating",
            describe="status tells of the node that can't go",
        )
        assert held in told["message"]
        assert status_of(kubectl, group_name)["replicas"] == 2, "it is not counted"

        scale(kubectl, group_name, 4)
        wait_ready(kubectl, group_name)
        names = names_of(kubectl, group_name)
        assert len(names) == 5 and held in names
        assert status_of(kubectl, group_name)["readyReplicas"] == 4
    finally:
        finalizers(kubectl, held)
    eventually(
        lambda: condition(kubectl, group_name, "Reconciling"),
        lambda told: told["reason"] == "Settled",
        describe="status no longer tells of it",
    )
    assert set(names_of(kubectl, group_name)) == {*names} - {held}


def test_what_others_put_on_nodes_survives(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    node = names_of(kubectl, group_name)[0]
    kubectl("label", "node", node, "example.com/mine=label", "node.kubernetes.io/instance-type=x")
    kubectl("annotate", "node", node, "example.com/mine=annotation")
    kubectl("taint", "node", node, "example.com/mine=taint:NoSchedule")
    kubectl("cordon", node)

    scale(kubectl, group_name, 6)
    wait_ready(kubectl, group_name)
    harness.start()
    scale(kubectl, group_name, 2)
    wait_ready(kubectl, group_name)

    (found,) = [n for n in nodes_of(kubectl, group_name) if n["metadata"]["name"] == node]
    labels = found["metadata"]["labels"]
    assert labels["example.com/mine"] == "label"
    assert labels["node.kubernetes.io/instance-type"] == "x"
    assert found["metadata"]["annotations"]["example.com/mine"] == "annotation"
    mine = {"key": "example.com/mine", "value": "taint", "effect": "NoSchedule"}
    assert GUARD_TAINT in taints(found) and mine in taints(found)
    assert found["spec"]["unschedulable"]
    assert len(names_of(kubectl, group_name)) == 2


def test_many_groups_at_once(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    groups = [f"{group_name}-{number}" for number in range(20)]
    items = [group_manifest(group, targetSize=10) for group in groups]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl(
        "wait",
        READY,
        "--timeout=120s",
        *(f"kng/{group}" for group in groups),
    )
    labels = [
        node["metadata"]["labels"][NODE_GROUP_LABEL]
        for node in kubectl.json("get", "nodes", f"-l{NODE_GROUP_LABEL}")["items"]
        if is_ready(node)
    ]
    assert {group: labels.count(group) for group in groups} == dict.fromkeys(groups, 10)
