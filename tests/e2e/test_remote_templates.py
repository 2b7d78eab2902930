"""Templates copied from the nodes of another cluster, through a kubeconfig in a Secret.

- an account that may get, list and watch nodes there is enough; what changes there is followed
- a Secret that is missing, runs a program, or holds a token that is refused or has no rights is a
  condition; corrected, it heals by itself
- a cluster that is gone leaves the last template, and the group goes on with it; when the cluster
  is back, so is the template

The other cluster is this one: what is read there is read as somebody else, who can be turned away.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.groups import apply_group, condition, nodes_of, scale, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE, Process
from tests.e2e.rights import kubeconfig_of
from tests.e2e.secrets import READER, Secrets, with_user
from tests.e2e.sources import TYPE, RealNodes, wait_cpu, wait_reason


@pytest.fixture
def secret(kubectl: Kubectl, group_name: str, operator: Process) -> Iterator[Secrets]:
    secret = Secrets(kubectl, group_name)
    yield secret
    secret.delete()


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


def test_what_is_wrong_with_the_secret_is_told_and_heals(
    real_nodes: RealNodes,
    kubeconfig: dict[str, Any],
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
    tmp_path: Path,
) -> None:
    real_nodes.add(f"{group_name}-r1", labels={TYPE: group_name}, cpu=6)
    apply_group(kubectl, group_name, targetSize=1, template=copied_from_there(group_name))

    def told(*parts: str) -> None:
        wait_reason(kubectl, group_name, "SourceUnreachable", status="False", parts=parts)

    told(f"{NAMESPACE}/{group_name}")
    marker = tmp_path / "was-here"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}
    plugin |= {"args": [str(marker)], "interactiveMode": "Never"}  # type: ignore[dict-item]
    secret.put(with_user(kubeconfig, {"exec": plugin}))
    told("exec")
    assert not marker.exists()
    secret.put(with_user(kubeconfig, {"token": "not-a-token"}))
    told("401")
    nobody = kubectl("create", "token", "default", "--namespace=default").strip()
    secret.put(with_user(kubeconfig, {"token": nobody}))
    told("403")
    secret.put(kubeconfig)
    wait_ready(kubectl, group_name)


def test_a_cluster_that_is_gone_leaves_the_last_template(
    real_nodes: RealNodes,
    kubeconfig: dict[str, Any],
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
) -> None:
    real_nodes.add(f"{group_name}-r1", labels={TYPE: group_name}, cpu=6)
    secret.put(kubeconfig)
    apply_group(kubectl, group_name, targetSize=0, template=copied_from_there(group_name))
    wait_ready(kubectl, group_name)
    elsewhere = copy.deepcopy(kubeconfig)
    elsewhere["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    secret.put(elsewhere)
    wait_reason(kubectl, group_name, "SourceUnreachable", status="Unknown", parts=("refused",))
    scale(kubectl, group_name, 2)
    wait_ready(kubectl, group_name)
    assert {n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, group_name)} == {"6"}
    secret.put(kubeconfig)
    eventually(
        lambda: condition(kubectl, group_name, "TemplateResolved")["status"],
        lambda status: status == "True",
        describe="it is reached again",
    )
