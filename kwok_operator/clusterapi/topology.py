"""Makes the MachineDeployments and MachinePools of a Cluster with a topology and a ClusterClass.

Only these two objects are read: Cluster API's patches and variables are not applied, and the random
parts of names are not known. References may be of v1beta1 or v1beta2.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import Kind, Path
from kwok_operator.formats.untyped import as_list, as_map

_PARTS: Final = {"machineDeployments": Kind.MACHINE_DEPLOYMENT, "machinePools": Kind.MACHINE_POOL}


@dataclass(frozen=True, slots=True)
class Planned:
    """An object that an entry in a Cluster's topology demands; `path` leads to this entry.

    `known` is False if the ClusterClass doesn't define the class that the entry names.
    """

    body: Mapping[str, Any]
    path: Path
    known: bool


def class_name(cluster: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns namespace and name of a Cluster's class; None if it has no topology."""
    topology = as_map(as_map(cluster.get("spec")).get("topology"))
    if not topology:
        return None
    reference = as_map(topology.get("classRef"))
    own = str(as_map(cluster.get("metadata")).get("namespace") or "default")
    namespace = reference.get("namespace") or topology.get("classNamespace") or own
    return str(namespace), str(reference.get("name") or topology.get("class") or "")


def is_patched(cluster: Mapping[str, Any], its_class: Mapping[str, Any]) -> bool:
    """Whether patches or variables may change the objects that `planned` yields."""
    topology = as_map(as_map(cluster.get("spec")).get("topology"))
    return bool(as_map(its_class.get("spec")).get("patches") or topology.get("variables"))


def planned(
    cluster: Mapping[str, Any], its_class: Mapping[str, Any], keys: Keys
) -> Iterator[Planned]:
    """Yields the MachineDeployments, then the MachinePools that a topology demands, in the order of
    its lists.
    """
    topology = as_map(as_map(cluster.get("spec")).get("topology"))
    workers = as_map(topology.get("workers"))
    classes = as_map(as_map(its_class.get("spec")).get("workers"))
    for part, kind in _PARTS.items():
        known = {str(each.get("class")): each for each in map(as_map, as_list(classes.get(part)))}
        for index, entry in enumerate(map(as_map, as_list(workers.get(part)))):
            its = known.get(str(entry.get("class")))
            body = _object(kind, cluster, entry, its or {}, keys)
            yield Planned(body, ("spec", "topology", "workers", part, index), its is not None)


def _object(
    kind: Kind,
    cluster: Mapping[str, Any],
    entry: Mapping[str, Any],
    its_class: Mapping[str, Any],
    keys: Keys,
) -> dict[str, Any]:
    metadata = as_map(cluster.get("metadata"))
    name, topology = str(metadata.get("name") or ""), str(entry.get("name") or "")
    # v1beta1 has the same fields as v1beta2 has in `template`, but other names of references.
    template = as_map(its_class.get("template")) or its_class
    infrastructure = as_map(template.get("infrastructure"))
    word = "deployment" if kind is Kind.MACHINE_DEPLOYMENT else "pool"
    both = (as_map(template.get("metadata")), as_map(entry.get("metadata")))
    labels = {
        **as_map(both[0].get("labels")),
        **as_map(both[1].get("labels")),
        keys.cluster_name: name,
        "topology.cluster.x-k8s.io/owned": "",
        f"topology.cluster.x-k8s.io/{word}-name": topology,
    }
    annotations = {**as_map(both[0].get("annotations")), **as_map(both[1].get("annotations"))}
    reference = infrastructure.get("templateRef") or infrastructure.get("ref")
    machine = {"clusterName": name, "infrastructureRef": as_map(reference)}
    return {
        "kind": str(kind),
        "metadata": {
            "name": f"{name}-{topology}",
            "namespace": metadata.get("namespace") or "default",
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "clusterName": name,
            "replicas": entry.get("replicas"),
            "template": {"metadata": {"labels": labels}, "spec": machine},
        },
    }
