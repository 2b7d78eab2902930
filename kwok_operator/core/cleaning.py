"""What a Node that was copied from somewhere must lose before other nodes can be copied from it.

A pasted node carries the identity, the state and the history of one machine. All that is known to
belong to the machine goes; everything else stays, misspelt fields too, so that the API server's
strict dry run can name them. Nothing here fails on odd input except where a node can't be made of
it at all.
"""

import copy
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
    "conditions addresses daemonEndpoints images volumesInUse volumesAttached config phase".split()
)
_NODE_INFO_OF_A_MACHINE = frozenset("machineID systemUUID bootID swap".split())

_ROLES = frozenset(f"node-role.kubernetes.io/{r}" for r in ("control-plane", "master", "etcd"))

_TRANSIENT_TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "karpenter.sh/unregistered",
        "cloud.google.com/impending-node-termination",
    }
)
_TRANSIENT_TAINT = re.compile(
    r"/agent-not-ready$|^aws-node-termination-handler/"
    r"|^startup-taint\.cluster-autoscaler\.kubernetes\.io/"
)
"""Families of them: of CSI drivers and Cilium, of a node that AWS takes back, of a starting one."""

_PER_INSTANCE_LABEL = re.compile(
    r"(^|/)(hostname|node-?name|([a-z]+-)?(instance|node|machine|worker)[-_]id"
    r"|(internal|external|host)-(ip|dns))$"
    r"|^topology\.hostpath\.csi/node$"
)
_PER_INSTANCE_ANNOTATION = re.compile(
    r"^(kubectl\.kubernetes\.io/last-applied-configuration|csi\.volume\.kubernetes\.io/nodeid"
    r"|alpha\.kubernetes\.io/provided-node-ip|kubeadm\.alpha\.kubernetes\.io/cri-socket"
    r"|metrics\.k8s\.io/resource-metrics-path"
    r"|cluster\.x-k8s\.io/.*|projectcalico\.org/.*|flannel\.alpha\.coreos\.com/.*"
    r"|network\.cilium\.io/.*|io\.cilium\.network.*|k3s\.io/.*|rke2\.io/.*"
    r"|(.*/)?(hostname|instance[-_]id|(internal|external|host)-(ip|dns)))$"
)
_OURS = re.compile(r"^(.*\.)?kwok-operator\.io/|^cluster-autoscaler\.kwok\.nodegroup/name$")
_MAX_DEPTH = 50
"""Levels of a node; a real one has a dozen. What copies and serialises it recurses."""
_SHORTEST_IDENTITY = 7
"""Characters; shorter values of a machine ("node1") also occur in text that is not its identity."""


def clean_node(node: Mapping[str, Any], *, field: str) -> Node:
    """A copy of `node` without anything that belongs to one machine.

    `field` is where users wrote the node ("spec.template.node"), for messages. Raises TemplateError
    where the value is not a Node at all or has a part of a type that can't be worked with.
    """
    _check_depth(node, field=field)
    cleaned: Node = copy.deepcopy(dict(node))
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
    machine = _identity(metadata, spec, status, node_info)

    _drop(metadata, _METADATA_OF_AN_OBJECT)
    _drop(spec, _SPEC_OF_A_MACHINE)
    _drop(status, _STATUS_OF_A_MACHINE)
    _drop(node_info, _NODE_INFO_OF_A_MACHINE)
    for key, value in list(labels.items()):
        is_machines = isinstance(value, str) and value in machine
        if is_machines or _PER_INSTANCE_LABEL.search(key) or _OURS.match(key):
            del labels[key]
    _drop(labels, _ROLES)
    for key, value in list(annotations.items()):
        if _PER_INSTANCE_ANNOTATION.match(key) or _OURS.match(key) or _names(value, machine):
            del annotations[key]
    taints = taint_list(spec, field=field)
    spec["taints"] = merge_taints([t for t in taints if not _is_transient(str(t.get("key")))])
    return cleaned


def section(parent: dict[str, Any], key: str, *, field: str) -> dict[str, Any]:
    """The object at `key`, made where it is missing; TemplateError where it is no object."""
    value = parent.get(key)
    if value is None:
        value = parent[key] = {}
    if not isinstance(value, dict):
        raise TemplateError(
            field=f"{field}.{key}", value=value, problem="must be an object of keys and values"
        )
    return value


def _check_texts(texts: Mapping[str, Any], *, field: str) -> None:
    # YAML makes numbers and booleans of 5 and true, and the API server names neither key nor value.
    for key, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise TemplateError(
                field=f"{field}.{key}",
                value=value,
                problem="is not a string",
                remedy="put it in quotes",
            )


def taint_list(spec: Mapping[str, Any], *, field: str) -> list[dict[str, Any]]:
    """The taints of a node's spec, without the time at which they were added."""
    taints = spec.get("taints") or []
    if not isinstance(taints, list) or not all(isinstance(t, dict) for t in taints):
        raise TemplateError(
            field=f"{field}.spec.taints",
            value=taints,
            problem="must be a list of {key, value, effect}",
        )
    return [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in taints]


def merge_taints(taints: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Taints with the last of each key and effect: the API server refuses two of them."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for taint in taints:
        merged[(str(taint.get("key")), str(taint.get("effect")))] = taint
    return list(merged.values())


def _check_depth(node: Mapping[str, Any], *, field: str) -> None:
    level: list[Any] = [node]
    for _ in range(_MAX_DEPTH):
        parents = [v.values() if isinstance(v, Mapping) else v for v in level if _nests(v)]
        level = [child for parent in parents for child in parent]
    if any(map(_nests, level)):
        raise TemplateError(
            field=field, value=f"{_MAX_DEPTH} levels", problem="are too deep: no Node nests like it"
        )


def _nests(value: object) -> bool:
    return isinstance(value, Mapping | list)


def _is_transient(key: str) -> bool:
    return key in _TRANSIENT_TAINTS | _ROLES or bool(_TRANSIENT_TAINT.search(key))


def _drop(mapping: dict[str, Any], keys: frozenset[str]) -> None:
    for key in keys & mapping.keys():
        del mapping[key]


def _identity(
    metadata: Node, spec: Node, status: Node, node_info: dict[str, Any]
) -> frozenset[str]:
    """Values by which this one machine is known: addresses, cloud id, UUIDs, a host-like name."""
    values = [node_info.get(key) for key in _NODE_INFO_OF_A_MACHINE]
    values.append(spec.get("podCIDR"))
    provider_id = spec.get("providerID")
    if isinstance(provider_id, str):
        values += [provider_id, provider_id.rsplit("/", 1)[-1]]
    addresses = status.get("addresses")
    for address in addresses if isinstance(addresses, list) else []:
        if isinstance(address, dict) and address.get("type") != "Hostname":
            values.append(address.get("address"))
    # A template may be called like its group or its type, and those labels must stay: a name is
    # the machine's own only if the API server gave the object an identity as well.
    name = metadata.get("name")
    if metadata.get("uid") and metadata.get("labels", {}).get(constants.HOSTNAME_LABEL) == name:
        values.append(name)
    return frozenset(v for v in values if isinstance(v, str) and len(v) >= _SHORTEST_IDENTITY)


def _names(value: object, machine: frozenset[str]) -> bool:
    return isinstance(value, str) and any(identity in value for identity in machine)
