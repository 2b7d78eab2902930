"""A node pasted into template.node as `kubectl get node -o yaml` prints it.

What cleaning makes of the nodes of every cloud is for the core's tests.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.groups import apply_group, group_of, nodes_of, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

CORPUS = Path(__file__).parents[1] / "corpus"
GUARD = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
PASTED = ("eks-karpenter-disrupted", "kubeadm-control-plane")


def load(name: str) -> dict[str, Any]:
    node: dict[str, Any] = yaml.safe_load((CORPUS / f"{name}.yaml").read_text())
    return node


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def settled_nodes(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    wait_ready(kubectl, name)
    return nodes_of(kubectl, name)


def run_pods(kubectl: Kubectl, group: str, taints: list[dict[str, str]]) -> None:
    """A DaemonSet runs a pod on each node of a group, with no tolerations but for these."""
    labels = {"app": group}
    spec = {
        "nodeSelector": {NODE_GROUP_LABEL: group},
        "tolerations": [{"key": taint["key"], "operator": "Exists"} for taint in taints],
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"cpu": "1"}}}],
    }
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": group},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    kubectl.apply(manifest)
    try:
        eventually(
            lambda: kubectl.json("get", "daemonset", group)["status"]["numberReady"],
            lambda ready: ready == 2,
            describe="a pod runs on each node",
        )
    finally:
        kubectl("delete", "daemonset", group)


def test_nodes_are_of_its_kind_and_not_of_the_machine(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    groups = {f"{group_name}-{name.partition('-')[0]}": name for name in PASTED}
    for group, name in groups.items():
        apply_group(kubectl, group, targetSize=2, template={"node": load(name)})
    for group, name in groups.items():
        pasted, clean = load(name), load(f"{name}.clean")
        clean["metadata"]["labels"].pop(EXCLUDED, None)  # ours has a value
        nodes = settled_nodes(kubectl, group)
        resolved = status_of(kubectl, group)["resolvedTemplate"]
        identities = [pasted["metadata"][key] for key in ("name", "uid", "resourceVersion")]
        identities += [address["address"] for address in pasted["status"]["addresses"]]
        identities += ["unreachable", pasted["status"]["nodeInfo"]["machineID"]]
        for identity in identities:
            assert identity not in compact(resolved)
            assert identity not in compact(nodes)
        taints = [*clean["spec"].get("taints", []), GUARD]
        for node in nodes:
            metadata, status = node["metadata"], node["status"]
            for part in ("labels", "annotations"):
                assert clean["metadata"].get(part, {}).items() <= metadata[part].items()
            assert metadata["labels"]["kubernetes.io/hostname"] == metadata["name"]
            providers = {"providerID": f"kwok:{metadata['name']}", "taints": taints}
            assert node["spec"] == providers
            for part in ("capacity", "allocatable"):
                assert status[part] == pasted["status"][part]
            assert status["nodeInfo"]["osImage"] == pasted["status"]["nodeInfo"]["osImage"]
            assert status["nodeInfo"]["kubeletVersion"] == "fake"
            owners = [owner["uid"] for owner in metadata["ownerReferences"]]
            assert owners == [group_of(kubectl, group)["metadata"]["uid"]]
        run_pods(kubectl, group, taints)


def test_one_of_our_own_nodes(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    first, second = f"{group_name}-a", f"{group_name}-b"
    shape = {"cpu": 4, "zone": "z1", "labels": {"tier": "batch"}}
    apply_group(kubectl, first, targetSize=1, template={"shape": shape})
    (pasted,) = settled_nodes(kubectl, first)
    apply_group(kubectl, second, targetSize=2, template={"node": pasted})
    nodes = settled_nodes(kubectl, second)
    for mark in (first, group_of(kubectl, first)["metadata"]["uid"]):
        assert mark not in compact(nodes)
        assert mark not in compact(status_of(kubectl, second)["resolvedTemplate"])
    for node in nodes:
        assert node["spec"]["taints"] == [GUARD]
        assert node["metadata"]["labels"]["tier"] == "batch"
        assert node["status"]["capacity"] == pasted["status"]["capacity"]
    assert [n["metadata"]["labels"][NODE_GROUP_LABEL] for n in nodes] == [second] * 2
    assert len(nodes_of(kubectl, first)) == 1
    run_pods(kubectl, second, [GUARD])
