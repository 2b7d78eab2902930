"""Nodes in racks, by an operator on a real cluster: labels, holes, restarts, edits."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.constants import NODE_GROUP_LABEL, PLACE_ANNOTATION
from kwok_operator.topology.api import SHORT_NAMES, TopologyStatus
from kwok_operator.topology.record import read
from tests.e2e.api import NODES
from tests.e2e.crashes import kill, wait_under_way
from tests.e2e.groups import (
    apply_group,
    delete_group,
    group_of,
    nodes_of,
    patch_group,
    scale,
    serial_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness
from tests.e2e.sources import Provider, RealNodes
from tests.e2e.sources import template as template_of

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = [{"label": BLOCK, "of": 2}, {"label": RACK, "of": 3}]


def template(domain: str, levels: Any = LEVELS) -> dict[str, Any]:
    return {"shape": {"cpu": 1}, "topology": {"domain": domain, "levels": levels}}


def standing(kubectl: Kubectl, *groups: str) -> dict[int, str]:
    """The racks of nodes, by their places; no two nodes have one place, and labels agree."""
    nodes = [node["metadata"] for group in groups for node in nodes_of(kubectl, group)]
    found = dict[int, str]()
    for node in nodes:
        domain, _, text = node["annotations"][PLACE_ANNOTATION].partition("/")
        place = int(text)
        assert place not in found
        block, rack = f"{domain}-{place // 6}", f"{domain}-{place // 6}-{place % 6 // 3}"
        assert (node["labels"][BLOCK], node["labels"][RACK]) == (block, rack)
        found[place] = rack
    return found


def place_of(node: dict[str, Any]) -> int:
    return int(node["metadata"]["annotations"][PLACE_ANNOTATION].rpartition("/")[2])


def promises(kubectl: Kubectl, name: str) -> dict[int, int]:
    """The places of instances that have no node yet, by serial."""
    status = group_of(kubectl, name).get("status", {}).get("topology")
    topology = TopologyStatus.model_validate(status) if status else None
    return read(topology, domain=topology.domain, most=1_000) if topology else {}


@pytest.mark.core
def test_racks_are_filled_together_and_holes_first(
    kubectl: Kubectl, harness: Harness, group_name: str, chance: random.Random
) -> None:
    a, b, domain = f"{group_name}-a", f"{group_name}-b", f"{group_name}-racks"[-40:].lstrip("-.")
    apply_group(kubectl, a, targetSize=60, template=template(domain))
    apply_group(kubectl, b, targetSize=30, template=template(domain))
    # Killed in the middle, which lasts for a while: what was recorded holds.
    process = harness.start("--max-qps=5", ready=False)
    wait_under_way(process, a, least=chance.randrange(1, 10))
    kill(process)
    promised = {name: promises(kubectl, name) for name in (a, b)}
    harness.start()
    for name in (a, b):
        wait_ready(kubectl, name)
        kept = {
            serial_of(node["metadata"]["name"]): place_of(node) for node in nodes_of(kubectl, name)
        }
        assert promised[name].items() <= kept.items()
    assert promised[a]
    assert sorted(standing(kubectl, a, b)) == list(range(90))

    # A lost rack: what comes next stands there.
    racks = rack_of(kubectl, a)
    ((lost, size),) = Counter(racks.values()).most_common(1)
    gone = [name for name, rack in racks.items() if rack == lost]
    assert size == 3
    for name in gone:
        kubectl.api.delete(f"{NODES}/{name}")
    eventually(
        lambda: standing(kubectl, a, b),
        lambda found: sorted(found) == list(range(90)),
        describe="the rack is full again",
    )
    for name in (a, b):
        wait_ready(kubectl, name)


def test_derived_groups_share_racks(
    kubectl: Kubectl, operator: Harness, provider: Provider, group_name: str
) -> None:
    """Of a provider config. What people set beside it stays when the templates are edited, and a
    rack's label of a template is no label of all nodes."""
    a, b, key = f"{group_name}-a", f"{group_name}-b", "example.com/pool"
    domain = f"{group_name}-r"[-40:].lstrip("-.")

    def templates(cpu: int) -> None:
        labels = {BLOCK: "real", RACK: "real-7"}
        provider.templates(*(template_of(v, labels={key: v, **labels}, cpu=cpu) for v in (a, b)))

    templates(4)
    provider.configure_for(key)
    for name in (a, b):
        eventually(lambda name=name: group_of(kubectl, name), describe=f"{name} is derived")  # type: ignore[misc]
        topology = {"domain": domain, "levels": LEVELS}
        update = {"type": "InPlace"}
        patch_group(kubectl, name, template={"topology": topology}, updateStrategy=update)
        scale(kubectl, name, 5)
    for name in (a, b):
        wait_ready(kubectl, name)
    assert sorted(standing(kubectl, a, b)) == list(range(10))
    before = rack_of(kubectl, a, b)
    templates(8)

    def cpus() -> set[str]:
        nodes = [*nodes_of(kubectl, a), *nodes_of(kubectl, b)]
        return {node["status"]["capacity"]["cpu"] for node in nodes}

    eventually(cpus, lambda found: found == {"8"}, describe="the nodes follow the templates")
    standing(kubectl, a, b)
    assert rack_of(kubectl, a, b) == before


def test_imported_nodes_keep_their_racks_in_a_group_each(
    kubectl: Kubectl,
    operator: Harness,
    real_nodes: RealNodes,
    group_name: str,
    tmp_path: Path,
) -> None:
    """Three racks of four nodes in one pool."""
    pool, rack = "eks.amazonaws.com/nodegroup", SHORT_NAMES["kueue/rack"]
    for n in range(12):
        labels = {pool: group_name, rack: f"r{n // 4}"}
        real_nodes.add(f"{group_name}-{n}", labels=labels)
    racks = {f"{group_name}-r{n}" for n in range(3)}
    imported = imported_groups(kubectl, tmp_path, pool, rack)
    try:
        for group in imported:
            if group["metadata"]["name"] in racks:
                kubectl.apply(group)
        for name in sorted(racks):
            wait_ready(kubectl, name)
            there = [node["metadata"]["labels"][rack] for node in nodes_of(kubectl, name)]
            assert there == [name.removeprefix(f"{group_name}-")] * 4
    finally:
        for name in racks:
            delete_group(kubectl, name)


def imported_groups(kubectl: Kubectl, directory: Path, *keys: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "kwok_operator", "import", f"--output={directory / 'copy'}"]
    flags = [f"--kubeconfig={kubectl.kubeconfig}", *(f"--group-by={key}" for key in keys)]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return [*yaml.safe_load_all((directory / "copy" / "nodegroups.yaml").read_text())]


def rack_of(kubectl: Kubectl, *groups: str) -> dict[str, str]:
    """The racks of nodes, by the nodes' names."""
    nodes = [node["metadata"] for group in groups for node in nodes_of(kubectl, group)]
    return {node["name"]: node["labels"][RACK] for node in nodes}


def test_a_rack_is_lost_with_and_without_stock(
    kubectl: Kubectl, operator: Harness, group_name: str
) -> None:
    domain = f"{group_name}-r"[-40:].lstrip("-.")

    def apply(stock: int, *, paused: bool = False) -> None:
        cloud = {"unit": RACK, "stock": stock, "retryAfter": "1s"}
        spec = {"targetSize": 9, "template": template(domain), "cloud": cloud, "paused": paused}
        apply_group(kubectl, group_name, **spec)

    def failed(size: int) -> bool:
        status = group_of(kubectl, group_name)["status"]
        counts = [status.get(key, 0) for key in ("readyReplicas", "failedReplicas")]
        return counts == [9 - size, size]

    apply(9)
    wait_ready(kubectl, group_name)
    before = rack_of(kubectl, group_name)
    assert sorted(Counter(before.values()).values()) == [3, 3, 3]
    apply(8)
    wait_ready(kubectl, group_name)
    lost = [name for name, rack in before.items() if rack == f"{domain}-0-1"]
    # Paused, so that the new ones are requested at once, however slowly the old ones go.
    apply(8, paused=True)
    for name in lost:
        kubectl.api.delete(f"{NODES}/{name}")
    eventually(
        lambda: group_of(kubectl, group_name)["status"],
        lambda status: status["replicas"] == 6,
        describe="the rack is lost",
    )
    apply(8)
    eventually(lambda: failed(3), describe="two nodes are in stock, and the rack needs three")
    apply(9)
    wait_ready(kubectl, group_name)
    after = rack_of(kubectl, group_name)
    assert Counter(after.values()) == Counter(before.values())
    assert not {*lost} & {*after}


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
