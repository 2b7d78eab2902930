"""Nodes, and random pods with every kind of constraint, for what computes where pods fit."""

import random
from typing import Any, Final

from kwok_operator.constants import (
    HOSTNAME_LABEL,
    KWOK_NODE_ANNOTATION,
    KWOK_NODE_ANNOTATION_VALUE,
    ZONE_LABEL,
)

Json = dict[str, Any]
ZONES: Final = ("a", "b", "c")
APPS: Final = ("web", "db", "job")
_TAINTS: Final = (
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    {"key": "maintenance", "effect": "NoExecute"},
    {"key": "soft", "effect": "PreferNoSchedule"},
)
_DISK: Final = {"a": "ssd", "b": "hdd"}


def nodes(number: int) -> list[Json]:
    """Small nodes in three zones: some tainted, some cordoned, one without a zone."""
    return [_node(f"n{place}", place) for place in range(number)]


def _node(name: str, place: int) -> Json:
    zone = ZONES[place % 3]
    labels = {HOSTNAME_LABEL: name, ZONE_LABEL: zone, "slots": str(place)}
    if zone in _DISK:
        labels["disk"] = _DISK[zone]
    if place == 7:
        del labels[ZONE_LABEL]
    offered = {"cpu": f"{1 + place % 4}", "memory": "4Gi", "pods": "3" if place == 4 else "20"}
    if place % 4 == 1:
        offered["example.com/gpu"] = "2"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {KWOK_NODE_ANNOTATION: KWOK_NODE_ANNOTATION_VALUE},
        },
        "spec": {
            "taints": [_TAINTS[place % 3]] if place in (2, 3, 6, 10) else [],
            "unschedulable": place == 8,
        },
        "status": {"capacity": offered, "allocatable": offered},
    }


def zonal_volume(name: str, zone: str) -> list[Json]:
    """A volume of one zone, and its claim, bound to each other."""
    size = {"storage": "1Gi"}
    term = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": "/tmp"},
        "storageClassName": "",
        "claimRef": {"namespace": "default", "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": size},
    }
    return [
        _object("PersistentVolume", name, volume),
        _object("PersistentVolumeClaim", name, claim),
    ]


def random_pod(name: str, draw: random.Random, *, claims: list[str]) -> Json:
    """A pod with some constraints, of any kind."""
    requests = _requests(draw)
    limits = {resource: amount for resource, amount in requests.items() if "/" in resource}
    container: Json = {
        "name": "c",
        "image": "none",
        "resources": {"requests": requests, "limits": limits},
    }
    if draw.random() < 0.25:
        container["ports"] = [{"containerPort": 80, "hostPort": draw.choice((80, 8080))}]
    spec: Json = {"containers": [container], "affinity": {}}
    if draw.random() < 0.3:
        spec["tolerations"] = [
            draw.choice(
                (
                    {"key": "dedicated", "operator": "Equal", "value": "gpu"},
                    {"key": "dedicated", "operator": "Equal", "value": "other"},
                    {"operator": "Exists", "effect": "NoExecute"},
                    {"operator": "Exists"},
                )
            )
        ]
    if draw.random() < 0.25:
        spec["nodeSelector"] = draw.choice(({"disk": "ssd"}, {"disk": "tape"}, {ZONE_LABEL: "c"}))
    if draw.random() < 0.3:
        spec["affinity"]["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": _terms(draw)}}
    for kind, share in (("podAffinity", 0.2), ("podAntiAffinity", 0.4)):
        if draw.random() < share:
            spec["affinity"][kind] = {_REQUIRED: [_pod_term(draw)]}
    if draw.random() < 0.35:
        spec["topologySpreadConstraints"] = [_spread(draw)]
    if draw.random() < 0.2:
        claim = {"claimName": draw.choice(claims)}
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
    return _object("Pod", name, spec, labels={"app": draw.choice(APPS), "tier": "x"})


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _requests(draw: random.Random) -> dict[str, str]:
    found = {"cpu": draw.choice(("100m", "700m", "1500m", "2", "16"))}
    if draw.random() < 0.2:
        found["memory"] = draw.choice(("1Gi", "3Gi", "64Gi"))
    if draw.random() < 0.15:
        found["example.com/gpu"] = draw.choice(("1", "3"))
    return found


def _terms(draw: random.Random) -> list[Json]:
    requirements = (
        {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
        {"key": "disk", "operator": "Exists"},
        {"key": ZONE_LABEL, "operator": "DoesNotExist"},
        {"key": ZONE_LABEL, "operator": "In", "values": ["a", "b"]},
        {"key": "slots", "operator": "Gt", "values": ["5"]},
        {"key": "slots", "operator": "Lt", "values": ["3"]},
    )
    return [
        {"matchExpressions": draw.sample(requirements, draw.choice((1, 2)))}
        for _ in range(draw.choice((1, 2)))
    ]


def _pod_term(draw: random.Random) -> Json:
    found: Json = {
        "topologyKey": draw.choice((ZONE_LABEL, HOSTNAME_LABEL)),
        "labelSelector": {"matchLabels": {"app": draw.choice(APPS)}},
    }
    if draw.random() < 0.3:
        found["namespaceSelector"] = draw.choice(({}, {"matchLabels": {"team": "none"}}))
    return found


def _spread(draw: random.Random) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": draw.choice((ZONE_LABEL, HOSTNAME_LABEL)),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": draw.choice(APPS)}},
        "nodeTaintsPolicy": draw.choice(("Honor", "Ignore")),
        "nodeAffinityPolicy": draw.choice(("Honor", "Ignore")),
    }


def _object(kind: str, name: str, spec: Json, *, labels: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }
