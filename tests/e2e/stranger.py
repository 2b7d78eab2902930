"""A cluster in which nothing is ours: its nodes are made by cluster-autoscaler's own kwok provider.

It has two groups, in one zone each: `stranger-small`, of one node at most, on which `occupant` is,
and `stranger-large`. Without a cluster-autoscaler, a node of each is there, and nobody adds any.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.ports import free_address

POOL: Final = "example.com/pool"
NAMESPACE: Final = "kube-system"
_PREFIX: Final = "cluster-autoscaler.kwok.nodegroup/"
_CPUS: Final = {"stranger-small": 4, "stranger-large": 16}
_MOST: Final = {"stranger-small": 1, "stranger-large": 3}
_CONFIG: Final = {
    "apiVersion": "v1alpha1",
    "readNodesFrom": "configmap",
    "nodegroups": {"fromNodeLabelKey": POOL},
    "nodes": {"skipTaint": True},
    "configmap": {"name": "kwok-provider-templates"},
}


@contextmanager
def strange_cluster(directory: Path, *, autoscaler: str) -> Iterator[Kubectl]:
    """One whose `occupant` runs; `autoscaler` is the program, if there is one."""
    with bare_cluster("stranger", directory=directory) as (cluster, kubectl):
        templates = {"apiVersion": "v1", "kind": "List", "items": [_node(name) for name in _CPUS]}
        for name, data in (
            ("kwok-provider-config", {"config": json.dumps(_CONFIG)}),
            ("kwok-provider-templates", {"templates": json.dumps(templates)}),
        ):
            metadata = {"name": name, "namespace": NAMESPACE}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            kubectl.apply(body)
        if not autoscaler:
            for name in _CPUS:
                kubectl.apply(_node(name))
            yield _occupied(kubectl)
            return
        command = [
            autoscaler,
            "--cloud-provider=kwok",
            f"--kubeconfig={cluster.kubeconfig}",
            f"--namespace={NAMESPACE}",
            "--leader-elect=false",
            f"--address={free_address()}",
            "--scan-interval=2s",
        ]
        own = {
            "KWOK_PROVIDER_MODE": "local",
            "KUBECONFIG": str(cluster.kubeconfig),
            "POD_NAMESPACE": NAMESPACE,
        }
        with (
            (directory / "cluster-autoscaler.log").open("wb") as log,
            subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log) as process,
        ):
            try:
                yield _occupied(kubectl)
            finally:
                process.kill()


def waiting(name: str, *, cpu: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "containers": [
                {"name": "work", "image": "none", "resources": {"requests": {"cpu": cpu}}}
            ],
            **spec,
        },
    }


def _occupied(kubectl: Kubectl) -> Kubectl:
    eventually(
        lambda: kubectl.json("get", "serviceaccount", "default"), describe="pods may be created"
    )
    kubectl.apply(waiting("occupant", cpu="3", nodeSelector={POOL: "stranger-small"}))
    eventually(
        lambda: kubectl.json("get", "pod", "occupant")["status"]["phase"] == "Running",
        describe="occupant runs",
    )
    return kubectl


def _node(name: str) -> dict[str, Any]:
    """A node of a group, and its template."""
    amounts = {"cpu": str(_CPUS[name]), "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                POOL: name,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": f"zone-of-{name}",
            },
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                f"{_PREFIX}min-count": "0",
                f"{_PREFIX}max-count": str(_MOST[name]),
            },
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }
