"""Templates copied from the nodes of another cluster, through a kubeconfig in a Secret.

An account that may get, list and watch nodes there is enough; what changes there is followed. The
other cluster is this one, read as somebody else. Trouble with it is in test_fleet.py.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.groups import apply_group, condition, nodes_of, status_of, wait_ready
from tests.e2e.kubectl import Kubectl
from tests.e2e.rights import kubeconfig_of
from tests.e2e.secrets import READER, Secrets
from tests.e2e.sources import TYPE, RealNodes, wait_cpu


@pytest.fixture(scope="module")
def kubeconfig(kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """The reader's, as data only."""
    kubectl.apply(READER)
    yield json.loads(kubeconfig_of(kubectl, "reader", namespace="default"))
    kubectl("delete", "--filename=-", stdin=READER)


def copied_from_there(group_name: str) -> dict[str, Any]:
    selector = {"matchLabels": {TYPE: group_name}}
    nodes = {"selector": selector, "cluster": {"secretName": group_name}}
    return {"from": {"nodes": nodes}}


def test_a_node_there_is_copied_and_followed(
    real_nodes: RealNodes,
    kubeconfig: dict[str, Any],
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
) -> None:
    # Of nodes of one second, the first by name is taken.
    second, first = f"{group_name}-r2", f"{group_name}-r1"
    real_nodes.add(second, labels={TYPE: group_name}, cpu=6)
    secret.put(kubeconfig, key="value")
    apply_group(kubectl, group_name, targetSize=2, template=copied_from_there(group_name))
    wait_ready(kubectl, group_name)
    assert {n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, group_name)} == {"6"}
    assert status_of(kubectl, group_name)["templateSource"] == "Remote"
    assert group_name in condition(kubectl, group_name, "TemplateResolved")["message"]
    real_nodes.add(first, labels={TYPE: group_name}, cpu=12)
    wait_cpu(kubectl, group_name, "12")
    there = kubectl.json("get", "node", first, "--show-managed-fields")
    managers = {m["manager"] for m in there["metadata"]["managedFields"]}
    assert not [m for m in managers if m.startswith("kwok-operator")]
