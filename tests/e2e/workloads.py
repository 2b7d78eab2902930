"""Pods that ask for fake nodes: a Deployment on one group, its pods, a PodDisruptionBudget.

What `deployed` makes lives in the namespace default and is removed without mercy: pods on nodes
that are gone would otherwise wait for the garbage collector of pods.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kwok_operator.constants import GUARD_TAINT_KEY, NODE_GROUP_LABEL
from tests.e2e.kubectl import Kubectl, as_text

NAMESPACE = "default"


@contextmanager
def deployed(kubectl: Kubectl, name: str, *, group: str, replicas: int) -> Iterator[None]:
    """A Deployment whose pods run, spread evenly over the nodes of a group."""
    kubectl.apply(_deployment(name, group=group, replicas=replicas))
    try:
        kubectl("rollout", "status", f"deployment/{name}", "--timeout=240s", timeout=270)
        yield
    finally:
        kubectl("delete", "deployment,pdb", f"-lapp={name}", "--cascade=background")
        kubectl("delete", "pods", f"-lapp={name}", "--force", "--grace-period=0", "--wait=false")


def forbid_disruption(kubectl: Kubectl, name: str) -> None:
    """A PodDisruptionBudget under which no pod of the Deployment may be evicted."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}},
    }
    kubectl.apply(budget)


def evict(kubectl: Kubectl, pod: str) -> str:
    """Asks for an eviction, as `kubectl drain` does; returns what the refusal says."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    return kubectl.fails("create", "--filename=-", f"--raw={path}", stdin=as_text(eviction))


def pods_of(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    """The pods of a Deployment."""
    items: list[dict[str, Any]] = kubectl.json("get", "pods", f"-lapp={name}")["items"]
    return items


def uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def runs(pod: dict[str, Any]) -> bool:
    """Whether it runs and is Ready."""
    conditions = pod["status"].get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return bool(ready and pod["status"].get("phase") == "Running")


def _deployment(name: str, *, group: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    pod = {
        "nodeSelector": {NODE_GROUP_LABEL: group},
        "tolerations": [{"key": GUARD_TAINT_KEY, "operator": "Exists"}],
        "topologySpreadConstraints": [spread],
        "containers": [{"name": "main", "image": "pause:3.10"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
