"""Nodes in racks, by an operator on a real cluster: where the real scheduler puts pods."""

from collections import Counter
from typing import Any

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.groups import (
    apply_group,
    nodes_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = [{"label": BLOCK, "of": 2}, {"label": RACK, "of": 3}]


def template(domain: str, levels: Any = LEVELS) -> dict[str, Any]:
    return {"shape": {"cpu": 1}, "topology": {"domain": domain, "levels": levels}}


def rack_of(kubectl: Kubectl, *groups: str) -> dict[str, str]:
    """The racks of nodes, by the nodes' names."""
    nodes = [node["metadata"] for group in groups for node in nodes_of(kubectl, group)]
    return {node["name"]: node["labels"][RACK] for node in nodes}


def test_the_scheduler_packs_and_spreads_by_racks(
    kubectl: Kubectl, operator: Harness, group_name: str
) -> None:
    domain = f"{group_name}-r"[-40:].lstrip("-.")
    apply_group(kubectl, group_name, targetSize=9, template=template(domain))
    wait_ready(kubectl, group_name)
    racks, labels = rack_of(kubectl, group_name), {"app": group_name}
    selector = {"matchLabels": {**labels, "kind": "packed"}}
    packed = {"topologyKey": RACK, "labelSelector": selector}
    spread = {
        "topologyKey": RACK,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {**labels, "kind": "spread"}},
    }
    rules: dict[str, Any] = {
        "packed": {
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [packed]}
            }
        },
        "spread": {"topologySpreadConstraints": [spread]},
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{group_name}-{kind}-{n}", "labels": {**labels, "kind": kind}},
            "spec": {
                "nodeSelector": {NODE_GROUP_LABEL: group_name},
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "fake",
                        "image": "fake",
                        "resources": {"requests": {"cpu": "300m"}},
                    }
                ],
                **rule,
            },
        }
        for kind, rule in rules.items()
        for n in range(3 if kind == "packed" else 6)
    ]

    def found() -> dict[str, Counter[str]]:
        items = kubectl.json("get", "pods", f"-lapp={group_name}")["items"]
        seen: dict[str, Counter[str]] = {kind: Counter() for kind in rules}
        for pod in items:
            if "nodeName" in pod["spec"]:
                seen[pod["metadata"]["labels"]["kind"]][racks[pod["spec"]["nodeName"]]] += 1
        return seen

    try:
        for pod in pods:
            kubectl.apply(pod)
        eventually(
            found,
            lambda seen: (
                [*seen["packed"].values()] == [3] and [*seen["spread"].values()] == [2, 2, 2]
            ),
            describe="pods are packed in one rack, and spread over three",
        )
    finally:
        kubectl(
            "delete", "pods", f"-lapp={group_name}", "--force", "--grace-period=0", "--wait=false"
        )
