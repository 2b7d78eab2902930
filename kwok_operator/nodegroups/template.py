"""Makes the bytes of a Node from a group's template.

    sources, template.node, template.shape, guardTaint  --resolve-->  resolved node
    resolved node, identity of the group                --render-->   NodeTemplate

The *resolved* node is what new nodes copy: cleaned, merged, complete with capacity, taints and the
labels that all nodes of the group share; it is kept in status. A *NodeTemplate* belongs to one
group and is serialised once, so that the JSON of each node is made by joining byte strings, not by
a JSON dump. Nothing here sends requests; templates.py lets the API server check the node.
"""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kwok_operator import constants
from kwok_operator.api.base import is_api_group
from kwok_operator.errors import TemplateError
from kwok_operator.formats.quantity import format_quantity, parse_quantity
from kwok_operator.formats.yamltext import is_text_without_quotes
from kwok_operator.nodegroups.alike import likeness
from kwok_operator.nodegroups.api.template import GuardTaint, Shape, Template
from kwok_operator.nodegroups.cleaning import (
    Node,
    clean_node,
    merge_taints,
    rough_size,
    section,
    taint_list,
)
from kwok_operator.nodegroups.merge import merge_nodes
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.nodegroups.network import NodeNetwork
from kwok_operator.nodegroups.usable import (
    TAINTS_OF_STATES,
    annotations_of_every_node,
    labels_of_every_node,
)

NODE_FIELD = "spec.template.node"
SHAPE_FIELD = "spec.template.shape"
_FIELD_OF_RESOURCE = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}
"""Resource -> the field of `shape` and of `shape.reserved`; any other resource is in the field
`resources`."""
MAX_RESOLVED_BYTES = 128 * 1024
"""The most bytes of a resolved node. It is kept in status beside the spec; etcd accepts 1.5 MB for
the whole object."""
MAX_ROUGH_BYTES = 2 * MAX_RESOLVED_BYTES
"""The most bytes (`rough_size`) of a part of the template before it is cleaned."""

DEFAULT_CAPACITY: Mapping[str, str] = {"cpu": "32", "memory": "256Gi", "pods": "110"}
"""The capacity that `kwokctl scale node` gives without parameters."""
DEFAULT_ARCH = "amd64"
DEFAULT_OS = "linux"
_SAME_LABEL: Mapping[str, tuple[str, ...]] = {
    constants.ARCH_LABEL: (constants.BETA_ARCH_LABEL,),
    constants.OS_LABEL: (constants.BETA_OS_LABEL,),
    constants.INSTANCE_TYPE_LABEL: ("beta.kubernetes.io/instance-type",),
    constants.ZONE_LABEL: (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
    ),
}
"""Labels that mean the same as another: if a copied node has them, they get the value of that
one."""
_FILLED_IN_BY_KWOK = ("containerRuntimeVersion", "kernelVersion", "kubeProxyVersion")
"""Versions in nodeInfo that kwok fills in if they are empty, but not on a node created Ready."""


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A Node that a template copies. `field` says where users wrote the Node, for messages."""

    field: str
    node: Mapping[str, Any]


def resolve(template: Template, *, guard: GuardTaint, sources: Sequence[SourceNode] = ()) -> Node:
    """Returns the node that new nodes of a group copy, without name, owner or conditions.

    `sources` are the nodes that `template.from` names, each merged over the one before. Raises
    TemplateError, which names the field, the value and the remedy.
    """
    NodeNetwork.of(template.network, group="")
    node: Node = {"metadata": {}, "spec": {}, "status": {}}
    for part in (*sources, SourceNode(NODE_FIELD, template.node)):
        rough = rough_size(part.node, field=part.field, keep_images=template.keep_images)
        _check_size(rough, field=part.field, most=MAX_ROUGH_BYTES)
        cleaned = clean_node(part.node, field=part.field, keep_images=template.keep_images)
        for kind in ("capacity", "allocatable"):
            field = f"{part.field}.status"
            given = section(cleaned["status"], kind, field=field)
            known = node["status"].get(kind, {})
            _check_quantities(_without_removals(given, known), f"{field}.{kind}")
        spec = part.node.get("spec")
        if isinstance(spec, Mapping) and "taints" in spec and spec["taints"] is None:
            cleaned["spec"]["taints"] = None
        node = merge_nodes(node, cleaned)
    shape = template.shape
    _set_resources(node, shape)
    _set_labels(node, shape)
    _set_taints(node, shape, guard)
    _check_size(len(json.dumps(node)), field="spec.template", most=MAX_RESOLVED_BYTES)
    return node


def _check_size(size: int, *, field: str, most: int) -> None:
    if size > most:
        raise TemplateError(
            field=field,
            value=f"{size} bytes",
            problem=f"are too many: status keeps a copy, which may have {MAX_RESOLVED_BYTES}",
            remedy="take out what the nodes don't need",
        )


def template_hash(node: Node) -> str:
    """Returns ten characters (a hash) that change when the resolved node changes."""
    canonical = json.dumps(node, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def source(template: Template) -> str:
    """Returns a word that says where the node comes from, for the column SOURCE of kubectl."""
    nodes = template.source.nodes if template.source else None
    given = {
        "Live": nodes is not None and nodes.cluster is None,
        "Remote": nodes is not None and nodes.cluster is not None,
        "ConfigMap": template.source is not None and template.source.config_map is not None,
        "Node": bool(template.node),
        "Shape": template.shape != Shape(),
    }
    return "+".join(part for part in given if given[part]) or "Default"


def _set_resources(node: Node, shape: Shape) -> None:
    capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
    for name, value in {**DEFAULT_CAPACITY, **allocatable}.items():
        capacity.setdefault(name, value)
    wanted = _shape_capacity(shape)
    _check_quantities({_shape_field(name): v for name, v in wanted.items()}, SHAPE_FIELD)
    capacity.update(wanted)
    for name, value in capacity.items():
        if name in wanted or name not in allocatable:
            allocatable[name] = value
    _reserve(shape, capacity=capacity, allocatable=allocatable)


def _reserve(shape: Shape, *, capacity: Mapping[str, Any], allocatable: dict[str, Any]) -> None:
    field, reserved = f"{SHAPE_FIELD}.reserved", _reserved(shape)
    _check_quantities({_shape_field(name): v for name, v in reserved.items()}, field)
    for name, value in reserved.items():
        whole = capacity.get(name, 0)
        left = parse_quantity(whole) - parse_quantity(value)
        if left < 0:
            raise TemplateError(
                field=f"{field}.{_shape_field(name)}",
                value=value,
                problem=f"is more than the capacity, which is {whole}",
                remedy="reserve less",
            )
        if name in capacity:
            allocatable[name] = format_quantity(left, like=whole)


def _shape_capacity(shape: Shape) -> dict[str, Any]:
    given = {
        "cpu": shape.cpu,
        "memory": shape.memory,
        "ephemeral-storage": shape.ephemeral_storage,
        "pods": shape.max_pods,
    }
    capacity: dict[str, Any] = {
        name: str(value) for name, value in given.items() if value is not None
    }
    capacity.update({name: str(value) for name, value in shape.resources.items()})
    if shape.gpu is not None and not shape.gpu.dra:
        capacity[shape.gpu.type] = str(shape.gpu.count)
    return capacity


def _reserved(shape: Shape) -> dict[str, Any]:
    given = {
        "cpu": shape.reserved.cpu,
        "memory": shape.reserved.memory,
        "ephemeral-storage": shape.reserved.ephemeral_storage,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _shape_field(resource: str) -> str:
    return _FIELD_OF_RESOURCE.get(resource, f"resources.{resource}")


def _without_removals(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the amounts in `given` without the nulls that remove a resource which `known` has.
    Other nulls stay, and are reported as mistakes later."""
    return {name: value for name, value in given.items() if value is not None or name not in known}


def _check_quantities(resources: Mapping[str, Any], field: str) -> None:
    # The API server's own message for a bad quantity names neither the field nor the value.
    for name, value in resources.items():
        try:
            amount = parse_quantity(value)
        except ValueError as err:
            raise TemplateError(field=f"{field}.{name}", value=value, problem=str(err)) from err
        if amount < 0:
            raise TemplateError(
                field=f"{field}.{name}", value=value, problem="must not be negative"
            )


def _set_labels(node: Node, shape: Shape) -> None:
    labels, info = node["metadata"]["labels"], node["status"]["nodeInfo"]
    labels.update(shape.labels)
    arch = shape.arch or labels.get(constants.ARCH_LABEL) or info.get("architecture")
    os = shape.os or labels.get(constants.OS_LABEL) or info.get("operatingSystem")
    labels[constants.ARCH_LABEL] = info["architecture"] = arch or DEFAULT_ARCH
    labels[constants.OS_LABEL] = info["operatingSystem"] = os or DEFAULT_OS
    if shape.zone is not None:
        labels[constants.ZONE_LABEL] = shape.zone
    if shape.instance_type is not None:
        labels[constants.INSTANCE_TYPE_LABEL] = shape.instance_type
    for key, others in _SAME_LABEL.items():
        labels.update({other: labels[key] for other in others if other in labels and key in labels})
    labels[constants.EXCLUDE_FROM_LOAD_BALANCERS_LABEL] = "true"
    info["kubeletVersion"] = constants.FAKE_KUBELET_VERSION
    for key in _FILLED_IN_BY_KWOK:
        info[key] = info.get(key) or constants.FAKE_KUBELET_VERSION
    _check_node_info(info)


def _check_node_info(info: Mapping[str, Any]) -> None:
    # kwok's Stage node-initialize writes these into YAML without quotes. With "6.1", which is a
    # number in YAML, it would fail to initialise the node again and again.
    for key, value in info.items():
        if not isinstance(value, str) or (value and not is_text_without_quotes(value)):
            raise TemplateError(
                field=f"{NODE_FIELD}.status.nodeInfo.{key}",
                value=value,
                problem="can't be kept by kwok, which reads it as YAML without quotes",
                remedy="write it so that it is text without quotes too, such as 6.1.0 for 6.1",
            )


def _set_taints(node: Node, shape: Shape, guard: GuardTaint) -> None:
    taints = taint_list(node["spec"], field=NODE_FIELD)
    taints += [
        {"key": t.key, "effect": t.effect} | ({"value": t.value} if t.value else {})
        for t in shape.taints
    ]
    if guard.enabled:
        taints.append({"key": guard.key, "value": guard.value, "effect": guard.effect})
    asked = [(f"{SHAPE_FIELD}.taints", taint.key) for taint in shape.taints]
    for field, key in (*asked, *([("spec.guardTaint.key", guard.key)] if guard.enabled else ())):
        if key in TAINTS_OF_STATES:
            raise TemplateError(
                field=field,
                value=key,
                problem="is Kubernetes' own: it goes as soon as a node is Ready",
                remedy="take another key",
            )
    node["spec"]["taints"] = merge_taints(taints)


@dataclass(frozen=True, slots=True)
class KubeletEndpoint:
    """The kubelet API of kwok's nodes, as kwok writes it into nodes that it initialises."""

    addresses: tuple[tuple[str, str], ...]
    port: int


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A group's Node as byte strings, between which names and times are inserted."""

    hash: str
    _parts: tuple[bytes, ...]
    _ready_parts: tuple[bytes, ...]
    network: NodeNetwork | None = None

    def body(
        self, name: str, *, requested_at: str, now: str, ready: bool, serial: int = 0
    ) -> bytes:
        """Returns the JSON of one Node; `requested_at` and `now` are RFC 3339 times."""
        parts = self._ready_parts if ready else self._parts
        values = {b"name": name.encode(), b"asked": requested_at.encode(), b"now": now.encode()}
        if self.network is not None:
            values[b"cidr"] = str(self.network.block(serial)).encode()
            values[b"address"] = self.network.address(serial).encode()
        return b"".join(values[p] if i % 2 else p for i, p in enumerate(parts))


def render(
    resolved: Node,
    *,
    group: str,
    uid: str,
    provider_id_prefix: str,
    endpoint: KubeletEndpoint | None,
    nodes: int | None = None,
    machines: str = "",
    network: NodeNetwork | None = None,
) -> NodeTemplate:
    """Serialises a group's Node once; `nodes` is the number of nodes in the cluster.

    `machines` is the group's annotation that says where the nodes' Machines are, if they have any.
    With `endpoint`, nodes can be created Ready: they get the addresses, the port and the conditions
    that kwok would have filled in, as kwok doesn't change a node that is Ready already.
    """
    marker = _unused_marker([resolved, provider_id_prefix, endpoint and endpoint.addresses])
    node = _with_identity(resolved, marker=marker, group=group, uid=uid, prefix=provider_id_prefix)
    if nodes is not None:
        node["metadata"]["annotations"].update(annotations_of_every_node(nodes))
    of_machines = _machine_annotations(machines, marker)
    node["metadata"]["annotations"].update(of_machines)
    labels = node["metadata"]["labels"]
    labels[constants.NODE_GROUP_LABEL] = group_label(group, machines)
    if not of_machines:
        labels.setdefault(constants.ALIKE_LABEL, likeness(resolved))
    if network is not None:
        _set_network(node, network, marker)
    parts = _split(node, marker)
    ready_parts = parts
    if endpoint is not None:
        node["status"].update(_born_ready(endpoint, now=f"{marker}now{marker}"))
        ready_parts = _split(node, marker)
    return NodeTemplate(template_hash(resolved), parts, ready_parts, network)


def group_label(group: str, machines: str) -> str:
    """Returns the value of the group label on a group's nodes: the group's name, or
    EMULATED_NODE_GROUP if its annotation `machines` says that the nodes have Machines."""
    return constants.EMULATED_NODE_GROUP if _machine_annotations(machines, "") else group


def _set_network(node: Node, network: NodeNetwork, marker: str) -> None:
    cidr, address = f"{marker}cidr{marker}", f"{marker}address{marker}"
    node["spec"].update(podCIDR=cidr, podCIDRs=[cidr])
    if network.nodes is not None:
        # kwok adds the missing address, the Hostname.
        node["status"]["addresses"] = [{"type": "InternalIP", "address": address}]


def _machine_annotations(machines: str, marker: str) -> dict[str, str]:
    """Returns the annotations by which cluster-autoscaler finds a Node's Machine; {} if it has
    none. Node and Machine have the same name, which is inserted later between two `marker`s."""
    api_group, slash, namespace = machines.partition("/")
    if not (is_api_group(api_group) and slash and is_object_name(namespace)):
        return {}
    return {
        f"{api_group}/{constants.CAPI_MACHINE}": f"{marker}name{marker}",
        f"{api_group}/{constants.CAPI_CLUSTER_NAMESPACE}": namespace,
    }


def _unused_marker(texts: object) -> str:
    text, attempt = json.dumps(texts), 0
    while (marker := f"<<{attempt}>>") in text:
        attempt += 1
    return marker


def _split(node: Node, marker: str) -> tuple[bytes, ...]:
    # A value stands between two markers, so every second part is the name of a value.
    return tuple(json.dumps(node, separators=(",", ":")).encode().split(marker.encode()))


def _with_identity(resolved: Node, *, marker: str, group: str, uid: str, prefix: str) -> Node:
    name, asked = f"{marker}name{marker}", f"{marker}asked{marker}"
    node: Node = {"apiVersion": "v1", "kind": "Node", **copy.deepcopy(resolved)}
    metadata = node["metadata"]
    metadata["name"] = name
    labels = metadata["labels"]
    labels[constants.HOSTNAME_LABEL] = name
    labels.update(labels_of_every_node(labels))
    metadata["annotations"].update(
        {
            constants.KWOK_NODE_ANNOTATION: constants.KWOK_NODE_ANNOTATION_VALUE,
            constants.CA_NODE_GROUP_ANNOTATION: group,
            constants.METRICS_PATH_ANNOTATION: f"/metrics/nodes/{name}/metrics/resource",
            constants.NODE_GROUP_UID_ANNOTATION: uid,
            constants.REQUESTED_AT_ANNOTATION: asked,
            constants.TEMPLATE_HASH_ANNOTATION: template_hash(resolved),
        }
    )
    taints = ",".join(f"{t.get('key')}:{t.get('effect')}" for t in node["spec"]["taints"])
    if taints:
        metadata["annotations"][constants.TEMPLATE_TAINTS_ANNOTATION] = taints
    metadata["ownerReferences"] = [owner_reference(group, uid=uid)]
    node["spec"]["providerID"] = f"{prefix}{name}"
    return node


def owner_reference(group: str, *, uid: str) -> dict[str, object]:
    """Returns the ownerReference by which Kubernetes deletes a group's nodes when the group is
    deleted."""
    return {
        "apiVersion": f"{constants.API_GROUP}/{constants.API_VERSION}",
        "kind": constants.KIND,
        "name": group,
        "uid": uid,
        "controller": True,
    }


def _born_ready(endpoint: KubeletEndpoint, *, now: str) -> dict[str, Any]:
    healthy = {
        "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        "NetworkUnavailable": ("RouteCreated", "RouteController created a route"),
    }
    conditions = [("Ready", "True", "KubeletReady", "kubelet is posting ready status")]
    conditions += [(kind, "False", *why) for kind, why in healthy.items()]
    return {
        "phase": "Running",
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status, reason, message in conditions
        ],
        "addresses": [{"type": kind, "address": value} for kind, value in endpoint.addresses],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": endpoint.port}},
    }
