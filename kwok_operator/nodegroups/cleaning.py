"""Removes from a copied Node what new nodes must not inherit.

A pasted node carries the identity, the state and the history of one machine. Everything known to
belong to the machine is removed. Everything else stays, misspelt fields too, so that the API
server's strict dry run can name them. Labels, annotations and taints are removed by their key, if a
table here lists it as that of one machine or of a passing state; or by their value, if it
identifies the machine. Odd input raises no error, unless it can't be made a node at all.
"""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from kwok_operator import constants
from kwok_operator.errors import TemplateError

Node = dict[str, Any]

_METADATA_OF_AN_OBJECT = frozenset(
    "name generateName namespace uid resourceVersion generation creationTimestamp selfLink "
    "deletionTimestamp deletionGracePeriodSeconds ownerReferences finalizers managedFields".split()
)
_SPEC_OF_A_MACHINE = frozenset(
    "podCIDR podCIDRs providerID externalID configSource unschedulable".split()
)
_STATUS_OF_A_MACHINE = frozenset(
    "conditions addresses daemonEndpoints volumesInUse volumesAttached config phase".split()
)
_SAID_BY_KWOK = ("conditions", "addresses", "daemonEndpoints", "phase")
_IMAGES = frozenset({"images"})
_LONG_LISTS = {
    "metadata": frozenset({"managedFields"}),
    "status": frozenset({"conditions", "volumesInUse", "volumesAttached"}),
}
"""Long lists that are dropped first, so that no time is spent on copying or searching them."""
_NODE_INFO_OF_A_MACHINE = frozenset("machineID systemUUID bootID swap".split())


def _keys(table: Mapping[str, str]) -> re.Pattern[str]:
    """Compiles a table to a pattern that matches whole keys. The table maps the program that sets
    the keys to these keys; `*` stands for any text."""
    keys = [re.escape(key).replace(r"\*", ".*") for line in table.values() for key in line.split()]
    return re.compile("|".join(keys), re.DOTALL)


_ROLES = _keys(
    {
        "Kubernetes": """node-role.kubernetes.io/control-plane node-role.kubernetes.io/master
            node-role.kubernetes.io/etcd""",
        "Rancher": "node-role.kubernetes.io/controlplane",
    }
)
"""Labels and taints of a control plane. Templates drop them, so that pods can be scheduled to the
new nodes."""

_NAMES_A_MACHINE = re.compile(
    r"(.*/)?(hostname|node-?name|machine-name|([a-z]+-)*(instance|node|machine|worker)[-_]?id"
    r"|(internal|external|host)-(ip|dns))"
)
"""Keys of labels and annotations that identify a machine in many clouds: vpc-instance-id,
node_id, worker-id, internal-ip."""

_LABELS_OF_A_MACHINE = _keys(
    {
        "CSI drivers whose volumes stay on a node": "topology.*/node",
        "AWS": "aws-node-termination-handler/*",
        "Google": "cloud.google.com/gce-topology-host",
        "Oracle": "displayName internal_addr",
        "Scaleway": "k8s.scaleway.com/node k8s.scaleway.com/node-public-ip",
        "vSphere": "node.cluster.x-k8s.io/esxi-host",
        "Metal3": "metal3.io/*",
        "Rancher": "rke.cattle.io/machine plan.upgrade.cattle.io/*",
        "minikube": "minikube.k8s.io/updated_at",
        "NVIDIA": "nvidia.com/gfd.timestamp nvidia.com/gpu-driver-upgrade-*",
    }
)

_ANNOTATIONS_OF_A_MACHINE = _keys(
    {
        "kubectl": "kubectl.kubernetes.io/last-applied-configuration",
        "kubelet": "alpha.kubernetes.io/provided-node-ip csi.volume.kubernetes.io/nodeid",
        "kubeadm": "kubeadm.alpha.kubernetes.io/cri-socket",
        # It changes with the number of nodes in the cluster, and each change would make a new
        # template.
        "controller manager": "node.alpha.kubernetes.io/ttl",
        "metrics server": "metrics.k8s.io/resource-metrics-path",
        "Cluster API": "cluster.x-k8s.io/*",
        "Metal3": "metal3.io/*",
        "Google": "networking.gke.io/*",
        "Alibaba": "k8s.aliyun.com/*",
        "OpenShift": """machine.openshift.io/* machineconfiguration.openshift.io/*
            cloud.network.openshift.io/*""",
        "k3s, RKE2, Rancher": "k3s.io/* rke2.io/* *.cattle.io/*",
        "Talos": "networking.talos.dev/* cluster.talos.dev/* talos.dev/owned-*",
        "Antrea": "node.antrea.io/*",
        "Calico": "projectcalico.org/*",
        "Cilium": "network.cilium.io/* io.cilium.network*",
        "Flannel": "flannel.alpha.coreos.com/*",
        "Kube-OVN": "ovn.kubernetes.io/*",
        "kube-router": "kube-router.io/*",
        "OVN-Kubernetes": "k8s.ovn.org/*",
        "Node Feature Discovery": "nfd.node.kubernetes.io/* *.nfd.node.kubernetes.io/*",
        "NVIDIA": "nvidia.com/gpu-driver-upgrade-*",
        "kured": "weave.works/kured-*",
    }
)

_TAINTS_THAT_PASS = _keys(
    {
        "Kubernetes": """node.kubernetes.io/not-ready node.kubernetes.io/unreachable
            node.kubernetes.io/unschedulable node.kubernetes.io/memory-pressure
            node.kubernetes.io/disk-pressure node.kubernetes.io/pid-pressure
            node.kubernetes.io/network-unavailable node.kubernetes.io/out-of-service
            node.cloudprovider.kubernetes.io/uninitialized
            node.cloudprovider.kubernetes.io/shutdown""",
        "cluster-autoscaler": """ToBeDeletedByClusterAutoscaler
            DeletionCandidateOfClusterAutoscaler *-taint.cluster-autoscaler.kubernetes.io/*""",
        "Karpenter": "karpenter.sh/disrupted karpenter.sh/disruption karpenter.sh/unregistered",
        "Cluster API": """node.cluster.x-k8s.io/uninitialized
            node.cluster.x-k8s.io/outdated-revision""",
        "agents and drivers that start": """*/agent-not-ready cni.istio.io/not-ready
            node.gardener.cloud/critical-components-not-ready""",
        "AWS": "aws-node-termination-handler/*",
        "Azure": "remediator.*/unschedulable",
        "Google": "cloud.google.com/impending-node-termination",
        "OpenShift": "UpdateInProgress",
        "medik8s": "medik8s.io/*",
    }
)

_OURS = _keys(
    {
        "this operator": "kwok-operator.io/* *.kwok-operator.io/*",
        # Its minimum and maximum belong to the group: a new maximum should not make a new template.
        "cluster-autoscaler": "cluster-autoscaler.kwok.nodegroup/*",
    }
)
_OF_A_GROUP = re.compile(r"group|pool")
"""Keys that name a group of nodes: they stay even if their value is also the name of the copied
node."""

_MAX_DEPTH = 50
"""The most levels of nested maps and lists in a node, because copying and serialising recurse. A
real node has a dozen."""
_MOST_ADDRESSES = 32
"""The most addresses of a node that are searched for in annotations; a real node has a handful."""
_SHORTEST_IDENTITY = 7
"""The fewest characters of a value that identifies a machine. Shorter ones, such as "node1", also
occur in other texts."""


def part_of(node: Node, *path: str) -> Mapping[str, Any]:
    """Returns the map at a path in a node, an empty one if there is none."""
    found: Any = node
    for step in path:
        found = found.get(step) or {}
    return found  # type: ignore[no-any-return]


def clean_node(node: Mapping[str, Any], *, field: str, keep_images: bool = False) -> Node:
    """Returns a copy of `node` without anything that belongs to one machine.

    `field` is where users wrote the node ("spec.template.node"), for messages. The list of images
    that the machine has pulled is long, and stays only with `keep_images`. A label or annotation
    may be null: when `node` is merged over another node, null removes that node's label or
    annotation. Raises TemplateError if the value is not a Node at all or has a part of an unusable
    type.
    """
    short = _shortened(node, keep_images=keep_images)
    _check_depth(short, field=field)
    cleaned: Node = copy.deepcopy(short)
    for key, expected in (("kind", "Node"), ("apiVersion", "v1")):
        value = cleaned.pop(key, expected)
        if value != expected:
            raise TemplateError(field=f"{field}.{key}", value=value, problem=f"must be {expected}")
    metadata = section(cleaned, "metadata", field=field)
    spec = section(cleaned, "spec", field=field)
    status = section(cleaned, "status", field=field)
    labels = section(metadata, "labels", field=f"{field}.metadata")
    annotations = section(metadata, "annotations", field=f"{field}.metadata")
    for part, texts in (("labels", labels), ("annotations", annotations)):
        _check_texts(texts, field=f"{field}.metadata.{part}")
    node_info = section(status, "nodeInfo", field=f"{field}.status")
    machine = _identity(metadata, spec, status)

    _drop(metadata, _METADATA_OF_AN_OBJECT)
    _drop(spec, _SPEC_OF_A_MACHINE)
    _drop(status, _STATUS_OF_A_MACHINE if keep_images else _STATUS_OF_A_MACHINE | _IMAGES)
    _drop(node_info, _NODE_INFO_OF_A_MACHINE)
    for key, value in list(labels.items()):
        if _is_label_of_a_machine(key) or (value in machine and not _OF_A_GROUP.search(key)):
            del labels[key]
    for key, value in list(annotations.items()):
        of_a_group = _OF_A_GROUP.search(key) and value in machine
        if _is_annotation_of_a_machine(key) or (_mentions(value, machine) and not of_a_group):
            del annotations[key]
    taints = taint_list(spec, field=field)
    spec["taints"] = merge_taints([t for t in taints if not _passes(str(t.get("key")))])
    return cleaned


def rough_size(node: Mapping[str, Any], *, field: str, keep_images: bool = False) -> int:
    """Returns roughly how many bytes of JSON `clean_node` would search. Computing this is far
    faster than that search.

    Annotations count half: a real node may have 256 KiB of them, most of which are removed. Raises
    TemplateError if the node nests too deep.
    """
    short = _shortened(node, keep_images=keep_images)
    _check_depth(short, field=field)
    metadata = short.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return _size(short) - _size(annotations) // 2


def left_to_kwok(node: object) -> tuple[str, ...]:
    """Returns the fields of a user's Node that new nodes don't get, because kwok sets them."""
    status = node.get("status") if isinstance(node, Mapping) else None
    if not isinstance(status, Mapping):
        return ()
    found = [f"status.{key}" for key in _SAID_BY_KWOK if status.get(key)]
    info = status.get("nodeInfo")
    if isinstance(info, Mapping) and info.get("kubeletVersion"):
        found.append("status.nodeInfo.kubeletVersion")
    return tuple(found)


def is_control_plane_taint(taint: Mapping[str, Any]) -> bool:
    return _ROLES.fullmatch(str(taint.get("key"))) is not None


def control_plane_shape(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the labels and taints that mark a node as part of a control plane, in the form of
    `template.shape`; empty if it has none. `node` must be one that `clean_node` accepts."""
    labels, taints = part_of(dict(node), "metadata", "labels"), part_of(dict(node), "spec")
    found = {
        "labels": {key: text for key, text in labels.items() if _ROLES.fullmatch(key)},
        "taints": [t for t in taint_list(taints, field="") if is_control_plane_taint(t)],
    }
    return {part: values for part, values in found.items() if values}


def section(parent: dict[str, Any], key: str, *, field: str) -> dict[str, Any]:
    """Returns the object at `key`, which it creates if it is missing. Raises TemplateError if the
    value is no object."""
    value = parent.get(key)
    if value is None:
        value = parent[key] = {}
    if not isinstance(value, dict):
        raise TemplateError(
            field=f"{field}.{key}", value=value, problem="must be an object of keys and values"
        )
    return value


def _check_texts(texts: Mapping[str, Any], *, field: str) -> None:
    # YAML reads unquoted 5 and true as number and boolean. The API server's message about these
    # names neither key nor value, so this one does.
    for key, value in texts.items():
        text = value if isinstance(key, str) and value is not None else key
        if not isinstance(text, str):
            raise TemplateError(
                field=f"{field}.{key}",
                value=text,
                problem="is not a string",
                remedy="put it in quotes",
            )


def taint_list(spec: Mapping[str, Any], *, field: str) -> list[dict[str, Any]]:
    """Returns the taints of a node's spec, without the time at which they were added."""
    taints = spec.get("taints") or []
    if not isinstance(taints, list) or not all(isinstance(t, dict) for t in taints):
        raise TemplateError(
            field=f"{field}.spec.taints",
            value=taints,
            problem="must be a list of {key, value, effect}",
        )
    return [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in taints]


def merge_taints(taints: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the last taint of each key and effect, as the API server refuses duplicates."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for taint in taints:
        merged[(str(taint.get("key")), str(taint.get("effect")))] = taint
    return list(merged.values())


def _shortened(node: Mapping[str, Any], *, keep_images: bool) -> Node:
    short: Node = dict(node)
    for part, keys in _LONG_LISTS.items():
        if part == "status" and not keep_images:
            keys |= _IMAGES
        if isinstance(within := short.get(part), Mapping):
            short[part] = {key: value for key, value in within.items() if key not in keys}
    return short


def _size(value: object) -> int:
    # YAML can hold values that JSON can't, such as dates; whoever reads the field reports them.
    return len(json.dumps(value, default=str, skipkeys=True))


def _check_depth(node: Mapping[str, Any], *, field: str) -> None:
    level: list[Any] = [dict(node)]
    for _ in range(_MAX_DEPTH):
        parents = [v.values() if isinstance(v, dict) else v for v in level if _nests(v)]
        level = [child for parent in parents for child in parent]
    if any(map(_nests, level)):
        raise TemplateError(
            field=field, value=f"{_MAX_DEPTH} levels", problem="are too deep: no Node nests like it"
        )


def _nests(value: object) -> bool:
    return isinstance(value, dict | list)


def _is_label_of_a_machine(key: str) -> bool:
    rules = (_NAMES_A_MACHINE, _LABELS_OF_A_MACHINE, _ROLES, _OURS)
    return any(rule.fullmatch(key) for rule in rules)


def _is_annotation_of_a_machine(key: str) -> bool:
    rules = (_NAMES_A_MACHINE, _ANNOTATIONS_OF_A_MACHINE, _OURS)
    return any(rule.fullmatch(key) for rule in rules)


def _passes(taint_key: str) -> bool:
    return any(rule.fullmatch(taint_key) for rule in (_TAINTS_THAT_PASS, _ROLES))


def _drop(mapping: dict[str, Any], keys: frozenset[str]) -> None:
    for key in keys & mapping.keys():
        del mapping[key]


def _identity(metadata: Node, spec: Node, status: Node) -> frozenset[str]:
    """Returns the values that identify the machine of a Node: its addresses, cloud id and UUIDs,
    and for a Node from a cluster its name and hostname."""
    node_info, pod_cidrs = status["nodeInfo"], spec.get("podCIDRs")
    values = [node_info.get(key) for key in _NODE_INFO_OF_A_MACHINE]
    values += [metadata.get("uid"), spec.get("podCIDR")]
    values += pod_cidrs[:_MOST_ADDRESSES] if isinstance(pod_cidrs, list) else []
    provider_id = spec.get("providerID")
    if isinstance(provider_id, str):
        # Most cloud IDs end in /ID; Alibaba's are REGION.i-ID.
        values += [provider_id, re.split(r"/|\.(?=i-)", provider_id)[-1]]
    addresses = status.get("addresses")
    for address in addresses[:_MOST_ADDRESSES] if isinstance(addresses, list) else []:
        if isinstance(address, dict) and address.get("type") != "Hostname":
            values.append(address.get("address"))
    # A pasted node may be named like its group or its instance type, and labels with these values
    # must stay. So the name identifies a machine only if the API server gave the object a uid as
    # well.
    if metadata.get("uid"):
        values.append(metadata.get("name"))
        # A Hostname identifies no machine: fake nodes may all have the host name of the node that
        # they were copied from.
        if constants.KWOK_NODE_ANNOTATION not in metadata["annotations"]:
            values.append(metadata["labels"].get(constants.HOSTNAME_LABEL))
    return frozenset(v for v in values if isinstance(v, str) and len(v) >= _SHORTEST_IDENTITY)


def _mentions(value: str | None, machine: frozenset[str]) -> bool:
    return value is not None and any(identity in value for identity in machine)
