"""To which pool of its cloud a Node belongs: what its labels, annotations and names say.

A *pool* is what somebody scales as one. Autoscalers may know it by other names, or know the scaling
group behind it: `names_of_scaling_group`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator import constants

ZONE_KEYS: Final = (constants.ZONE_LABEL, "failure-domain.beta.kubernetes.io/zone")
TYPE_KEYS: Final = (constants.INSTANCE_TYPE_LABEL, "beta.kubernetes.io/instance-type")
_CAPACITY_KEY: Final = "karpenter.sh/capacity-type"
_KARPENTER: Final = ("karpenter.sh/nodepool", "karpenter.sh/provisioner-name")
_LABELS: Final = (
    constants.NODE_GROUP_LABEL,
    *_KARPENTER,
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "kops.k8s.io/instancegroup",
    "doks.digitalocean.com/node-pool",
    "oke.oraclecloud.com/pool.name",
    "alibabacloud.com/nodepool-id",
    "node.alibabacloud.com/nodepool-id",
    "ibm-cloud.kubernetes.io/worker-pool-name",
    "worker.gardener.cloud/pool",
    "hcloud/node-group",
    "k8s.scaleway.com/pool-name",
    "lke.linode.com/pool-id",
    "vke.vultr.com/node-pool",
    "kubernetes.civo.com/civo-node-pool",
    "magnum.openstack.org/nodegroup",
    "rke.cattle.io/rke-machine-pool-name",
    "compute.coreweave.com/node-pool",
    "yandex.cloud/node-group-id",
    "tke.cloud.tencent.com/nodepool-id",
    "nodepool",
)
"""Of clouds, installers and autoscalers; the first that a Node has counts."""

_IDS: Final = (
    *_LABELS,
    "doks.digitalocean.com/node-pool-id",
    "ibm-cloud.kubernetes.io/worker-pool-id",
    "oci.oraclecloud.com/node-pool-id",
    "oci.oraclecloud.com/instancepool-id",
)
_OWNER_KIND: Final = "cluster.x-k8s.io/owner-kind"
_OWNER_NAME: Final = "cluster.x-k8s.io/owner-name"
_CAPI_NAMESPACE: Final = "cluster.x-k8s.io/cluster-namespace"
_OPENSHIFT_MACHINE: Final = "machine.openshift.io/machine"

# Cluster API draws five characters that spell no word; it was a number before.
_DRAWN = re.compile(r"(.+)-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9]{6,10})")
_LAST_PART = re.compile(r"(.+)-[a-z0-9]{4,5}")
_SCALE_SET = re.compile(r"/virtualMachineScaleSets/([^/]+)/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pool:
    """`source` is the key that names it; `parts` tell its kinds of node from each other, if it
    mixes any.
    """

    source: str
    name: str
    parts: tuple[str, ...] = ()


def pool_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Pool | None:
    """None where nothing says it."""
    fake = annotations.get(constants.CA_NODE_GROUP_ANNOTATION)
    if fake:
        # A fake node may have the labels of the pool that it was copied from.
        return Pool(constants.CA_NODE_GROUP_ANNOTATION, fake)
    key = next((key for key in _LABELS if labels.get(key)), None)
    if key is not None:
        parts = (instance_type(labels), labels.get(_CAPACITY_KEY, "")) if key in _KARPENTER else ()
        return Pool(key, labels[key], parts)
    if annotations.get(_OWNER_NAME):
        return Pool(_OWNER_NAME, _capi_name(annotations))
    machine_set = _machine_set(annotations).rpartition("/")[2]
    return Pool(_OPENSHIFT_MACHINE, machine_set) if machine_set else None


def zone(labels: Mapping[str, str]) -> str:
    return _first(labels, ZONE_KEYS)


def instance_type(labels: Mapping[str, str]) -> str:
    return _first(labels, TYPE_KEYS)


def names_of_scaling_group(
    *, name: str, labels: Mapping[str, str], annotations: Mapping[str, str], provider_id: Any
) -> set[str]:
    """As far as a Node gives them away."""
    found = {texts[key] for texts in (labels, annotations) for key in _IDS if texts.get(key)}
    provider = provider_id if isinstance(provider_id, str) else ""
    if provider.startswith("gce://") and (prefix := _LAST_PART.fullmatch(name)):
        found.add(f"{prefix[1]}-grp")
    if scale_set := _SCALE_SET.search(provider):
        found.add(scale_set[1])
    if annotations.get(_OWNER_NAME):
        kind, owner = annotations.get(_OWNER_KIND, ""), annotations[_OWNER_NAME]
        namespace = annotations.get(_CAPI_NAMESPACE, "")
        found.add(f"{kind}/{namespace}/{owner}")
        if kind == "MachineSet":
            found.add(f"MachineDeployment/{namespace}/{_capi_name(annotations)}")
    if machine := _machine_set(annotations):
        found.add(f"MachineSet/{machine}")
    return found


def _capi_name(annotations: Mapping[str, str]) -> str:
    """The MachineDeployment's, where a MachineSet that has its name from one owns the Machine."""
    owner = annotations[_OWNER_NAME]
    drawn = _DRAWN.fullmatch(owner) if annotations.get(_OWNER_KIND) == "MachineSet" else None
    return drawn[1] if drawn else owner


def _machine_set(annotations: Mapping[str, str]) -> str:
    """Namespace and name of OpenShift's, whose Machines are called after it; else empty."""
    machine = _LAST_PART.fullmatch(annotations.get(_OPENSHIFT_MACHINE, ""))
    return machine[1] if machine else ""


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")
