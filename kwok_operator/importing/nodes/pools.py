"""Decides to which pool each Node belongs, and names the groups of each pool.

A *pool* is a set of nodes that is scaled as one. Labels, annotations and names show it. Nodes
without such a sign form pools by shape: the same resources, taints and labels.
"""

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.importing.nodes.template import Kept
from kwok_operator.nodegroups.naming import group_name
from kwok_operator.topology.api import SHORT_NAMES

ZONE_KEYS: Final = (constants.ZONE_LABEL, "failure-domain.beta.kubernetes.io/zone")
TYPE_KEYS: Final = (constants.INSTANCE_TYPE_LABEL, "beta.kubernetes.io/instance-type")
_SPOT: Final = frozenset(
    {
        (constants.CAPACITY_TYPE_LABEL, "spot"),
        ("eks.amazonaws.com/capacityType", "SPOT"),
        ("cloud.google.com/gke-spot", "true"),
        ("cloud.google.com/gke-preemptible", "true"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("node-lifecycle", "spot"),
    }
)
"""Labels by which clouds mark spot nodes."""
_KARPENTER: Final = (constants.NODE_POOL_LABEL, "karpenter.sh/provisioner-name")
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
"""Labels of clouds, installers and autoscalers that name a pool. A Node's first one counts."""

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

# Cluster API's suffix of a MachineSet: five random characters, no vowels; a number in old versions.
_DRAWN = re.compile(r"(.+)-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9]{6,10})")
_LAST_PART = re.compile(r"(.+)-[a-z0-9]{4,5}")
_SCALE_SET = re.compile(r"/virtualMachineScaleSets/([^/]+)/", re.IGNORECASE)
_BY_SHAPE: Final = "shape"
_MEMORY_TOLERANCE: Final = Fraction(15, 1000)
"""The relative difference of memory within a pool, as in cluster-autoscaler."""
_FEW_VALUES: Final = 3
_OF_A_PLACE = re.compile(r"(.*[/-])?(zone|region|zone-id)")
_RACKS: Final = frozenset(SHORT_NAMES.values())
_OF_RACKS = re.compile(r"(.*[./_-])?(rack|block|row|leaf|spine)")
_NOT_COMPARED = re.compile(r"memory|ephemeral-storage|attachable-volumes-.*")
_HASH_LENGTH: Final = 5

Identity = tuple[str, str, tuple[str, ...]]
"""Identifies a group: source and name of its pool, then the parts and the zone in which the groups
of one pool differ.
"""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of nodes, or the part of a pool that has one kind of node. `source` is the key of the
    label or annotation that names the pool; `parts` say which kind it is: instance type, capacity
    type.
    """

    source: str
    name: str
    parts: tuple[str, ...] = ()


def pool_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Pool | None:
    """Returns the pool that labels or annotations name, if any."""
    fake = annotations.get(constants.CA_NODE_GROUP_ANNOTATION)
    if fake:
        # A fake node may have the labels of the pool that it was copied from.
        return Pool(constants.CA_NODE_GROUP_ANNOTATION, fake)
    key = next((key for key in _LABELS if labels.get(key)), None)
    if key is not None:
        parts = (
            (instance_type(labels), labels.get(constants.CAPACITY_TYPE_LABEL, ""))
            if key in _KARPENTER
            else ()
        )
        return Pool(key, labels[key], parts)
    if annotations.get(_OWNER_NAME):
        return Pool(_OWNER_NAME, _capi_name(annotations))
    machine_set = _machine_set(annotations).rpartition("/")[2]
    return Pool(_OPENSHIFT_MACHINE, machine_set) if machine_set else None


def zone(labels: Mapping[str, str]) -> str:
    return _first(labels, ZONE_KEYS)


def is_of_racks(label: str) -> bool:
    """Whether a label says in which rack, block or the like a node is."""
    known = label in _RACKS or _OF_RACKS.fullmatch(label)
    return bool(known) and not _OF_A_PLACE.fullmatch(label)


def capacity_type(labels: Mapping[str, str]) -> str:
    """Returns Karpenter's capacity type of a node: spot or on-demand."""
    return "on-demand" if _SPOT.isdisjoint(labels.items()) else "spot"


def instance_type(labels: Mapping[str, str]) -> str:
    return _first(labels, TYPE_KEYS)


def names_of_scaling_group(
    *, name: str, labels: Mapping[str, str], annotations: Mapping[str, str], provider_id: Any
) -> set[str]:
    """Returns the names that an autoscaler may use for the pool of a node."""
    names = {texts[key] for texts in (labels, annotations) for key in _IDS if texts.get(key)}
    provider = provider_id if isinstance(provider_id, str) else ""
    if provider.startswith("gce://") and (prefix := _LAST_PART.fullmatch(name)):
        names.add(f"{prefix[1]}-grp")
    if scale_set := _SCALE_SET.search(provider):
        names.add(scale_set[1])
    if annotations.get(_OWNER_NAME):
        kind, owner = annotations.get(_OWNER_KIND, ""), annotations[_OWNER_NAME]
        namespace = annotations.get(_CAPI_NAMESPACE, "")
        names.add(f"{kind}/{namespace}/{owner}")
        if kind == "MachineSet":
            names.add(f"MachineDeployment/{namespace}/{_capi_name(annotations)}")
    if machine := _machine_set(annotations):
        names.add(f"MachineSet/{machine}")
    return names


def _capi_name(annotations: Mapping[str, str]) -> str:
    """Returns the name of the MachineDeployment to which a Node's Machine belongs, derived from the
    name of the MachineSet that owns the Machine. Any other owner's name is returned unchanged.
    """
    owner = annotations[_OWNER_NAME]
    drawn = _DRAWN.fullmatch(owner) if annotations.get(_OWNER_KIND) == "MachineSet" else None
    return drawn[1] if drawn else owner


def _machine_set(annotations: Mapping[str, str]) -> str:
    """Returns NAMESPACE/NAME of OpenShift's MachineSet, cut from its Machine's name; or ""."""
    machine = _LAST_PART.fullmatch(annotations.get(_OPENSHIFT_MACHINE, ""))
    return machine[1] if machine else ""


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")


def pools_by_shape(nodes: Mapping[str, Kept]) -> dict[str, Pool]:
    """Puts nodes that are alike into one pool, whatever their zones.

    Machines of one type differ a little in memory, and in labels such as the host name. Neither
    makes a separate pool.
    """
    pools: dict[str, Pool] = {}
    by_resources: dict[str, list[str]] = defaultdict(list)
    for name in sorted(nodes):
        by_resources[_resources(nodes[name])].append(name)
    for alike in by_resources.values():
        for names in _by_memory(alike, nodes):
            noise = _labels_of_single_nodes([nodes[name]["labels"] for name in names])
            first = nodes[names[0]]
            for name in names:
                labels = {
                    k: v
                    for k, v in nodes[name]["labels"].items()
                    if k not in noise and not _OF_A_PLACE.fullmatch(k)
                }
                rest = [labels, nodes[name]["taints"], _resources(nodes[name]), _memory(first)]
                pools[name] = Pool(
                    _BY_SHAPE, _title(first), (_hash(json.dumps(rest, sort_keys=True)),)
                )
    return pools


def _resources(kept: Kept) -> str:
    amounts = {
        name: str(parse_quantity(text))
        for name, text in kept["capacity"].items()
        if not _NOT_COMPARED.fullmatch(name)
    }
    labels = kept["labels"]
    kind = [labels.get(key) for key in (constants.ARCH_LABEL, constants.OS_LABEL)]
    return json.dumps([amounts, kind, instance_type(labels)], sort_keys=True)


def _memory(kept: Kept) -> str:
    return str(kept["capacity"]["memory"])


def _by_memory(names: Sequence[str], nodes: Mapping[str, Kept]) -> list[list[str]]:
    """Groups nodes whose memory is nearly the same, smallest memory first."""
    amounts = sorted((parse_quantity(_memory(nodes[name])), name) for name in names)
    groups: list[list[str]] = []
    last = Fraction(0)
    for amount, name in amounts:
        if not groups or amount - last > amount * _MEMORY_TOLERANCE:
            groups.append([])
        groups[-1].append(name)
        last = amount
    return groups


def _labels_of_single_nodes(labels: Sequence[Mapping[str, str]]) -> set[str]:
    """Returns the keys of labels that have too many different values to show a pool, such as the
    host name.
    """
    values: dict[str, set[str]] = defaultdict(set)
    for each in labels:
        for key, value in each.items():
            values[key].add(value)
    most = max(_FEW_VALUES, len(labels) // 2)
    return {key for key, of_key in values.items() if len(of_key) > most}


def _title(kept: Kept) -> str:
    """Returns a pool's name for a shape: `m5.large`, or `8cpu-31gi`."""
    if named := instance_type(kept["labels"]):
        return named
    cpu, memory = (parse_quantity(kept["capacity"][name]) for name in ("cpu", "memory"))
    return f"{float(cpu):g}cpu-{round(memory / 2**30)}gi"


def names_of(identities: Iterable[Identity]) -> dict[Identity, str]:
    """Returns a valid group name for each identity (pool, parts and zone of a group). All names
    differ. A name is that of the pool, then the parts in which the pool's groups differ, then a
    hash if two groups would get the same name. Names don't depend on the order of the identities.
    """
    pools: dict[tuple[str, str], list[Identity]] = defaultdict(list)
    for identity in identities:
        pools[identity[:2]].append(identity)
    titles = {
        identity: "-".join([identity[1], *_distinguishing(identity, members)])
        for members in pools.values()
        for identity in members
    }
    taken: dict[str, list[Identity]] = defaultdict(list)
    for identity, title in titles.items():
        taken[group_name(title)].append(identity)
    return {
        each: name if len(members) == 1 else group_name(f"{titles[each]}-{_hash(repr(each))}")
        for name, members in taken.items()
        for each in members
    }


def _distinguishing(identity: Identity, members: Iterable[Identity]) -> list[str]:
    """Returns the parts in which the groups of a pool differ, without empty ones."""
    columns = zip(*(parts for _, _, parts in members), strict=True)
    differ = [len(set(column)) > 1 for column in columns]
    return [part for part, differs in zip(identity[2], differ, strict=True) if differs and part]


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:_HASH_LENGTH]
