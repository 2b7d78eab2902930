"""Cluster API's objects, as little of them as a test needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from kwok_operator.clusterapi.capacity import Capacity, read_capacity
from kwok_operator.clusterapi.derive import CapiFleet, CapiGroup, CapiTemplates, derive
from kwok_operator.clusterapi.discovery import Discovery
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import InfrastructureRef, Scalable, read_scalable

KEYS = Keys()
SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
OPTION = "cluster.x-k8s.io/autoscaling-options-"
BOUNDS = {f"{SIZE}min-size": "0", f"{SIZE}max-size": "9"}
MACHINE = {f"{CAPACITY}cpu": "4", f"{CAPACITY}memory": "16Gi"}
REFERENCE = {"apiGroup": "infra.example", "kind": "XTemplate", "name": "large"}
REF = InfrastructureRef("infra.example", "", "XTemplate", "large")


def body(
    name: str = "web",
    *,
    kind: str = "MachineDeployment",
    annotations: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    handed_on: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    replicas: Any = 1,
    selector: Any = None,
    **metadata: Any,
) -> dict[str, Any]:
    """With bounds and capacity, where no annotations are given."""
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "prod",
            "labels": labels or {},
            "annotations": BOUNDS | MACHINE if annotations is None else annotations,
            **metadata,
        },
        "spec": {
            "clusterName": "east",
            "replicas": replicas,
            "selector": selector or {},
            "template": {
                "metadata": {"labels": handed_on or {}},
                "spec": {"clusterName": "east", **(machine or {})},
            },
        },
    }


def scalable(name: str = "web", **parts: Any) -> Scalable:
    return read_scalable(body(name, **parts), KEYS)


def fleet(
    *bodies: Mapping[str, Any],
    template: Mapping[str, Any] | None = None,
    discoveries: Sequence[Discovery] = (),
) -> CapiFleet:
    found = {("prod", REF): template} if template is not None else {}
    scalables = [read_scalable(each, KEYS) for each in bodies]
    return derive(scalables, CapiTemplates(found), keys=KEYS, discoveries=discoveries)


def group(template: Mapping[str, Any] | None = None, **parts: Any) -> CapiGroup:
    (found,) = fleet(body(**parts), template=template).groups
    return found


def capacity(
    annotations: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    **parts: Any,
) -> Capacity:
    return read_capacity(scalable(annotations=annotations or {}, **parts), template)


def reasons(of: CapiFleet | Capacity, *, notes: bool = False) -> list[str]:
    """Of what has to be mended, or of the notes."""
    return [finding.reason for finding in of.findings if finding.note is notes]
