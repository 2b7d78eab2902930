"""Chooses the real node that a template is copied from: the newest usable one (Ready, not
cordoned, with capacity) that a source describes.

The `digest` of a node changes with the parts that get into a template, and not with heartbeats.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kwok_operator import constants
from kwok_operator.api.selectors import SelectorOperator, SelectorRequirement
from kwok_operator.errors import TemplateError
from kwok_operator.formats.untyped import as_list, as_map, as_texts
from kwok_operator.nodegroups.cleaning import clean_node, rough_size
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.nodegroups.template import MAX_ROUGH_BYTES, template_hash
from kwok_operator.sources.api.source import (
    NodesSource,
)


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A Node of a cluster, with the fields by which a template's real node is chosen. `fake`: kwok
    simulates the node, so no template copies it. `created` is in epoch seconds.

    `name` becomes part of a path, so it is empty if it isn't a valid name.
    """

    name: str
    uid: str
    resource_version: int
    created: float
    ready: bool
    schedulable: bool
    has_capacity: bool
    fake: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    digest: str

    @property
    def usable(self) -> bool:
        """Whether the node may be copied: real, Ready, not cordoned, and with CPU and memory in its
        capacity."""
        return not self.fake and self.ready and self.schedulable and self.has_capacity


def choose(nodes: Iterable[LiveNode], source: NodesSource) -> LiveNode | None:
    """Returns the newest usable node that a source describes; of two equally new ones the first by
    name.
    """
    fitting = [node for node in nodes if node.usable and matches(node, source)]
    return min(fitting, key=lambda node: (-node.created, node.name), default=None)


def matches(node: LiveNode, source: NodesSource) -> bool:
    """Whether a source (name, selector or annotation) describes the node, even one that isn't
    usable.
    """
    if source.name is not None:
        return node.name == source.name
    if source.annotation is not None:
        return node.annotations.get(source.annotation.key) == source.annotation.value
    selector = source.selector
    if selector is None:
        return False
    return all(node.labels.get(k) == v for k, v in selector.match_labels.items()) and all(
        _meets(node.labels, requirement) for requirement in selector.match_expressions
    )


def _meets(labels: Mapping[str, str], requirement: SelectorRequirement) -> bool:
    # As in Kubernetes, NotIn holds for a node without the label.
    value = labels.get(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN:
            return value in requirement.values
        case SelectorOperator.NOT_IN:
            return value not in requirement.values
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None


def in_words(source: NodesSource) -> str:
    """Describes a source in words: `labelled pool=batch`, `called web-1`."""
    if source.name is not None:
        return f"called {source.name}"
    if source.annotation is not None:
        return f"annotated {source.annotation.key}={source.annotation.value}"
    selector = source.selector
    labels = [f"{k}={v}" for k, v in selector.match_labels.items()] if selector else []
    for r in selector.match_expressions if selector else ():
        values = f" ({', '.join(r.values)})" if r.values else ""
        labels.append(f"{r.key} {r.operator}{values}")
    return f"labelled {', '.join(labels)}" if labels else "at all"


_VERSION = re.compile(r"[0-9]{1,20}")
_FAKE_PROVIDER = "kwok"
_NOT_YET_OR_NO_MORE = frozenset(
    {"node.cloudprovider.kubernetes.io/uninitialized", "ToBeDeletedByClusterAutoscaler"}
)


def live_node(raw: Mapping[str, Any]) -> LiveNode:
    """Reads a v1 Node, as an API server gives it; invalid values count as missing."""
    metadata, spec, status = (as_map(raw.get(part)) for part in ("metadata", "spec", "status"))
    capacity, version = as_map(status.get("capacity")), str(metadata.get("resourceVersion"))
    name, fake = metadata.get("name"), is_fake(raw)
    conditions, taints = (
        map(as_map, as_list(each)) for each in (status.get("conditions"), spec.get("taints"))
    )
    return LiveNode(
        name=name if isinstance(name, str) and is_object_name(name) else "",
        uid=str(metadata.get("uid") or ""),
        resource_version=int(version) if _VERSION.fullmatch(version) else 0,
        created=_epoch(metadata.get("creationTimestamp")),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        schedulable=not spec.get("unschedulable")
        and not metadata.get("deletionTimestamp")
        and not any(str(t.get("key")) in _NOT_YET_OR_NO_MORE for t in taints),
        has_capacity="cpu" in capacity and "memory" in capacity,
        fake=fake,
        labels=as_texts(metadata.get("labels")),
        annotations=as_texts(metadata.get("annotations")),
        digest="" if fake else _digest(raw),
    )


def is_fake(raw: Mapping[str, Any]) -> bool:
    """Whether a node is fake, made by this operator or for another kwok. A fake node is never
    copied."""
    metadata, spec, status = (as_map(raw.get(part)) for part in ("metadata", "spec", "status"))
    labels, annotations = (as_map(metadata.get(part)) for part in ("labels", "annotations"))
    version = as_map(status.get("nodeInfo")).get("kubeletVersion")
    return (
        constants.KWOK_NODE_ANNOTATION in annotations
        or constants.NODE_GROUP_LABEL in labels
        or labels.get("type") == _FAKE_PROVIDER
        or str(spec.get("providerID") or "").startswith(_FAKE_PROVIDER)
        or version == constants.FAKE_KUBELET_VERSION
    )


def is_leftover(node: LiveNode) -> bool:
    """Whether cluster-autoscaler's kwok provider made this fake node."""
    return (
        node.fake
        and constants.CA_NODE_GROUP_ANNOTATION in node.annotations
        and constants.NODE_GROUP_LABEL not in node.labels
    )


def _digest(raw: Mapping[str, Any]) -> str:
    unusable = f"unusable-{as_map(raw.get('metadata')).get('resourceVersion')}"
    try:
        if rough_size(raw, field="Node") > MAX_ROUGH_BYTES:
            return unusable  # too large for a template, and slow to clean
        return template_hash(clean_node(raw, field="Node"))
    except TemplateError:
        return unusable


def _epoch(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0
