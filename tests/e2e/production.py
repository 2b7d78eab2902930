"""A cluster as companies have them, to import from: nodes of three clouds, 60 workloads.

Nodes are plain Nodes, made by POST from those of tests/corpus, which kwok keeps Ready. The
workloads are of every kind that import reads, and have every constraint that it keeps.
"""

import copy
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from kwok_operator.constants import (
    HOSTNAME_LABEL,
    KWOK_NODE_ANNOTATION,
    KWOK_NODE_ANNOTATION_VALUE,
    ZONE_LABEL,
)

Json = dict[str, Any]
CORPUS: Final = Path(__file__).parents[1] / "corpus"
POOLS: Final = {
    "eks-managed": ("us-east-2a", "us-east-2b", "us-east-2c"),
    "gke-standard": ("europe-west4-a", "europe-west4-b"),
    "aks-system-pool": ("northeurope-1", "northeurope-3"),
}
POOL_LABELS: Final = (
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
IN_EACH_ZONE: Final = 3
NAMESPACES: Final = ("shop", "bank", "lab")
_RESOURCES: Final = {"cpu": "100m", "memory": "64Mi"}
_ADDONS: Final = {"key": "CriticalAddonsOnly", "operator": "Exists"}


def nodes() -> Iterator[Json]:
    """As many in each zone."""
    for pool, zones in POOLS.items():
        for zone, number in itertools.product(zones, range(IN_EACH_ZONE)):
            yield node(pool, zone=zone, name=f"{pool}-{zone}-{number}")


def node(pool: str, *, name: str, zone: str = "") -> Json:
    """A Node like one of the corpus, elsewhere and under another name."""
    found = copy.deepcopy(_corpus(pool))
    labels = found["metadata"]["labels"]
    old = labels[ZONE_LABEL]
    moved = {key: value.replace(old, zone or old) for key, value in labels.items()}
    annotations = {KWOK_NODE_ANNOTATION: KWOK_NODE_ANNOTATION_VALUE}
    status = {key: found["status"][key] for key in ("capacity", "allocatable", "nodeInfo")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**moved, HOSTNAME_LABEL: name},
            "annotations": annotations,
        },
        "spec": {"taints": found["spec"].get("taints", []), "providerID": f"made-up://{name}"},
        "status": status,
    }


@functools.cache
def _corpus(pool: str) -> Json:
    read: Json = yaml.safe_load((CORPUS / f"{pool}.yaml").read_text())
    return read


def cluster_objects() -> Iterator[Json]:
    """What workloads refer to."""
    for name in NAMESPACES:
        labels = {"team": name, "pod-security.kubernetes.io/enforce": "privileged"}
        yield _object("v1", "Namespace", name, labels=labels)
        quota = {"hard": {"pods": "500", "requests.cpu": "100"}}
        yield _object("v1", "ResourceQuota", "quota", name, spec=quota)
        limits = {"limits": [{"type": "Container", "defaultRequest": _RESOURCES}]}
        yield _object("v1", "LimitRange", "limits", name, spec=limits)
    yield _object("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000)
    yield _object(
        "node.k8s.io/v1",
        "RuntimeClass",
        "sandbox",
        handler="gvisor",
        overhead={"podFixed": {"cpu": "50m", "memory": "32Mi"}},
    )
    for number, zone in enumerate(POOLS["eks-managed"][:2]):
        term = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
        yield _object(
            "v1",
            "PersistentVolume",
            f"disk-{number}",
            spec={
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "manual",
                "hostPath": {"path": "/nowhere"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        )


def workloads() -> Iterator[Json]:
    """Sixty, but for pods whose owners have to be there first: `owned_pods`."""
    number = itertools.count()
    kinds = {
        "Deployment": 26,
        "StatefulSet": 8,
        "DaemonSet": 4,
        "ReplicaSet": 4,
        "ReplicationController": 2,
        "Job": 2,
        "CronJob": 2,
        "Pod": 8,
    }
    for kind, count in kinds.items():
        for _ in range(count):
            yield _workload(kind, next(number))


def budgets() -> Iterator[Json]:
    """On the Deployments: some, one, or none of the pods may be evicted."""
    limits: list[Json] = [{"minAvailable": "50%"}, {"maxUnavailable": 1}, {"maxUnavailable": 0}]
    for number, limit in enumerate(limits):
        for of in (number, number + 3):
            selector = {"matchLabels": {"app": _name("Deployment", of)}}
            yield _object(
                "policy/v1",
                "PodDisruptionBudget",
                _name("Deployment", of),
                _namespace(of),
                spec={**limit, "selector": selector},
            )


def owned_pods(owner: Json) -> Iterator[Json]:
    """Three pods of a controller that nobody knows; `owner` is any object that exists."""
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    for number in range(3):
        name, labels = f"{metadata['name']}-{number}", {"app": metadata["name"]}
        spec = _pod_spec(0, metadata["name"])
        pod = _object("v1", "Pod", name, metadata["namespace"], labels=labels, spec=spec)
        pod["metadata"]["ownerReferences"] = [reference]
        yield pod


def _workload(kind: str, number: int) -> Json:
    name, namespace = _name(kind, number), _namespace(number)
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": _pod_spec(number, name)}
    selector = {"matchLabels": labels}
    replicas = {"replicas": 2 + number % 4}
    match kind:
        case "Pod":
            return _object("v1", "Pod", name, namespace, labels=labels, spec=pod["spec"])
        case "Job" | "CronJob":
            pod["spec"] = {**_pod_spec(0, name), "restartPolicy": "Never"}
            job = {"template": pod}
            cron = {"schedule": "* * * * *", "jobTemplate": {"spec": job}}
            return _object("batch/v1", kind, name, namespace, spec=job if kind == "Job" else cron)
        case "ReplicationController":
            spec = {**replicas, "selector": labels, "template": pod}
            return _object("v1", kind, name, namespace, spec=spec)
        case "DaemonSet":
            pod["spec"]["tolerations"] = [_ADDONS]
            spec = {"selector": selector, "template": pod}
        case "StatefulSet":
            spec = {**replicas, "selector": selector, "template": pod, "serviceName": name}
            if number % 8 == 0:  # one volume in each of two zones
                pod["spec"] = _pod_spec(0, name)
                claim = {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "manual",
                    "resources": {"requests": {"storage": "1Gi"}},
                }
                spec["replicas"] = 2
                spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        case _:
            spec = {**replicas, "selector": selector, "template": pod}
    return _object("apps/v1", kind, name, namespace, spec=spec)


def _pod_spec(number: int, name: str) -> Json:
    """Each with another constraint, in turn."""
    container: Json = {
        "name": "main",
        "image": "registry.example/secret-product:1",
        "command": ["/bin/secret"],
        "env": [{"name": "PASSWORD", "value": "canary"}],
        "resources": {"requests": dict(_RESOURCES)},
    }
    spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 5}
    selector = {"labelSelector": {"matchLabels": {"app": name}}}
    zones = {"key": ZONE_LABEL, "operator": "In", "values": list(POOLS["eks-managed"][:2])}
    match number % 10:
        case 1:
            spec["nodeSelector"] = {POOL_LABELS[1]: "default-pool"}
        case 2:
            terms = {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}
            spec["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            }
        case 3:
            apart = [{**selector, "topologyKey": HOSTNAME_LABEL}]
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}
            }
        case 4:
            spread = {"maxSkew": 1, "topologyKey": ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**spread, **selector}]
            spec["tolerations"] = [_ADDONS]
        case 5:
            spec["tolerations"] = [_ADDONS]
            spec["nodeSelector"] = {"kubernetes.azure.com/mode": "system"}
        case 6:
            spec["priorityClassName"] = "high"
        case 7:
            container["ports"] = [{"containerPort": 9000 + number, "hostPort": 9000 + number}]
        case 8:
            spec["runtimeClassName"] = "sandbox"
        case 9:
            container["resources"]["limits"] = {"cpu": "200m", "memory": "128Mi"}
            sidecar = {**container, "name": "sidecar", "restartPolicy": "Always"}
            spec["initContainers"] = [sidecar]
    return spec


def _name(kind: str, number: int) -> str:
    return f"{kind.lower()}-{number}"


def _namespace(number: int) -> str:
    return NAMESPACES[number % len(NAMESPACES)]


def _object(version: str, kind: str, name: str, namespace: str = "", *,
            labels: Json | None = None, **parts: Any) -> Json:  # fmt: skip
    metadata: Json = {"name": name, "labels": labels or {"app": name}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
