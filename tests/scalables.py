"""Cluster API's objects, as little of them as a test needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from kwok_operator.clusterapi.capacity import Capacity, read_capacity
from kwok_operator.clusterapi.derive import CapiFleet, CapiGroup, CapiTemplates, derive
from kwok_operator.clusterapi.discovery import Discovery
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import InfrastructureRef, Scalable, read_scalable
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.autoscaler import Fleet
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.serials import Batch

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


NAMES = NodeNames.of("pool", "uid")
ASKED = "2026-01-02T03:04:05Z"


def instances(
    *,
    present: set[int],
    waiting: int = 0,
    target: int | None = None,
    named: set[int] | None = None,
    least: int = 0,
) -> Fleet:
    """`waiting` serials follow those that are present; `least` is a minimum of the group itself."""
    first = max(present, default=-1) + 1
    batches = (Batch(first, first + waiting - 1, ASKED),) if waiting else ()
    size = len(present) + waiting if target is None else target
    names = [NAMES.name(serial) for serial in named or ()]
    spec = {"targetSize": size, "scaleDown": {"nodesToDelete": names}}
    spec["autoscaling"] = {"minSize": least}
    return Fleet(
        group="pool",
        names=NAMES,
        spec=KwokNodeGroupSpec.model_validate(spec),
        status=KwokNodeGroupStatus(),
        present={serial: NAMES.name(serial) for serial in present},
        leaving=frozenset(),
        batches=batches,
        next_serial=first + waiting,
    )


def named(*serials: int) -> frozenset[str]:
    return frozenset(NAMES.name(serial) for serial in serials)
