"""Templates copied from the nodes of another cluster, through a kubeconfig in a Secret.

- an account that may get, list and watch nodes there is enough; what changes there is followed
- a Secret that is missing, runs a program, names files or holds a token that is refused is a
  condition with the remedy; corrected, it heals by itself
- a cluster that is gone leaves the last template, and the group goes on with it; when the cluster
  is back, so is the template
"""

import base64
import copy
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.groups import apply_group, condition, nodes_of, scale, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE, Process
from tests.e2e.own_cluster import OwnCluster, own_cluster
from tests.e2e.sources import RealNodes
from tests.e2e.test_template_sources import TYPE, wait_cpu, wait_reason

READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-reader}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
"""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with own_cluster("remote", directory=tmp_path_factory.mktemp("remote")) as own:
        own.kubectl.apply(READER)
        yield own


@pytest.fixture(scope="module")
def kubeconfig(remote: OwnCluster) -> dict[str, Any]:
    """The reader's, as data only."""
    token = remote.kubectl("create", "token", "reader", "--duration=2h").strip()
    config: dict[str, Any] = remote.kubectl.json("config", "view", "--raw", "--minify", "--flatten")
    config["users"] = [{"name": "reader", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "reader"
    return config


@pytest.fixture
def remote_nodes(remote: OwnCluster) -> Iterator[RealNodes]:
    nodes = RealNodes(remote.kubectl)
    yield nodes
    nodes.clean()


class Secrets:
    """The Secret that is called like the group."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self._kubectl = kubectl
        self.name = name

    def put(self, config: dict[str, Any], *, key: str = "kubeconfig") -> None:
        data = {key: base64.b64encode(json.dumps(config).encode()).decode()}
        metadata = {"name": self.name, "namespace": NAMESPACE}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        self._kubectl.apply(secret)

    def delete(self) -> None:
        self._kubectl(
            "delete", "secret", self.name, f"--namespace={NAMESPACE}", "--ignore-not-found"
        )


@pytest.fixture
def secret(kubectl: Kubectl, group_name: str, operator: Process) -> Iterator[Secrets]:
    secret = Secrets(kubectl, group_name)
    yield secret
    secret.delete()


def copied_from_there(group_name: str) -> dict[str, Any]:
    selector = {"matchLabels": {TYPE: group_name}}
    nodes = {"selector": selector, "cluster": {"secretName": group_name}}
    return {"from": {"nodes": nodes}}


def test_a_node_there_is_copied_and_followed(
    remote_nodes: RealNodes,
    remote: OwnCluster,
    kubeconfig: dict[str, Any],
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
) -> None:
    remote_nodes.add(f"{group_name}-r1", labels={TYPE: group_name}, cpu=6)
    secret.put(kubeconfig, key="value")
    apply_group(kubectl, group_name, targetSize=2, template=copied_from_there(group_name))
    wait_ready(kubectl, group_name)
    assert {n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, group_name)} == {"6"}
    assert status_of(kubectl, group_name)["templateSource"] == "Remote"
    assert group_name in condition(kubectl, group_name, "TemplateResolved")["message"]
    time.sleep(1.1)  # the age of nodes is told in seconds
    remote_nodes.add(f"{group_name}-r2", labels={TYPE: group_name}, cpu=12)
    wait_cpu(kubectl, group_name, "12")
    here = kubectl("get", "nodes", "--output=name")
    assert f"node/{group_name}-r1" not in here.split()
    there = remote.kubectl.json("get", "node", f"{group_name}-r1", "--show-managed-fields")
    managers = {m["manager"] for m in there["metadata"]["managedFields"]}
    assert not [m for m in managers if m.startswith("kwok-operator")]


def test_what_is_wrong_with_the_secret_is_told_and_heals(
    remote_nodes: RealNodes,
    kubeconfig: dict[str, Any],
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
    tmp_path: Path,
) -> None:
    remote_nodes.add(f"{group_name}-r1", labels={TYPE: group_name}, cpu=6)
    apply_group(kubectl, group_name, targetSize=1, template=copied_from_there(group_name))
    where = f"{NAMESPACE}/{group_name}"

    def told(*parts: str) -> None:
        wait_reason(kubectl, group_name, "SourceUnreachable", status="False", parts=parts)

    told(f"Secret {where} does not exist")
    secret.put(kubeconfig, key="config")
    told(f"Secret {where} has no key", "kubeconfig", "config")
    secret.put({"clusters": "none"}, key="kubeconfig")
    told("clusters", group_name)
    marker = tmp_path / "was-here"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}
    plugin |= {"args": [str(marker)], "interactiveMode": "Never"}  # type: ignore[dict-item]
    secret.put(with_user(kubeconfig, {"exec": plugin}))
    told("exec", "runs a program", "put a token")
    assert not marker.exists()
    secret.put(with_user(kubeconfig, {"tokenFile": "/etc/hostname"}))
    told("tokenFile", "is a file")
    secret.put(with_user(kubeconfig, {"token": "not-a-token"}))
    told("401")
    secret.put(kubeconfig)
    wait_ready(kubectl, group_name)


def with_user(config: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    changed["users"][0]["user"] = user
    return changed


def test_an_account_without_rights_is_told(
    remote: OwnCluster,
    kubeconfig: dict[str, Any],
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
) -> None:
    token = remote.kubectl("create", "token", "default").strip()
    secret.put(with_user(kubeconfig, {"token": token}))
    apply_group(kubectl, group_name, targetSize=1, template=copied_from_there(group_name))
    parts = ("403", "grant the verbs list and watch on nodes")
    wait_reason(kubectl, group_name, "SourceUnreachable", status="False", parts=parts)


def test_a_cluster_that_is_gone_leaves_the_last_template(
    remote_nodes: RealNodes,
    remote: OwnCluster,
    kubeconfig: dict[str, Any],
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
) -> None:
    """The API server there stands still behind a connection that is cut."""
    remote_nodes.add(f"{group_name}-r1", labels={TYPE: group_name}, cpu=6)
    secret.put(kubeconfig)
    apply_group(kubectl, group_name, targetSize=0, template=copied_from_there(group_name))
    wait_ready(kubectl, group_name)
    elsewhere = copy.deepcopy(kubeconfig)
    elsewhere["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    secret.put(elsewhere)
    gone = wait_reason(kubectl, group_name, "SourceUnreachable", status="Unknown")
    assert "connection refused" in gone["message"]
    scale(kubectl, group_name, 2)
    wait_ready(kubectl, group_name)
    assert {n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, group_name)} == {"6"}
    secret.put(kubeconfig)
    eventually(
        lambda: condition(kubectl, group_name, "TemplateResolved")["status"],
        lambda status: status == "True",
        describe="it is reached again",
    )
    apiserver = remote.cluster.pid("kube-apiserver")
    os.kill(apiserver, signal.SIGKILL)
    wait_reason(kubectl, group_name, "SourceUnreachable", status="Unknown")
    scale(kubectl, group_name, 3)
    wait_ready(kubectl, group_name)
    remote_nodes.names.clear()
