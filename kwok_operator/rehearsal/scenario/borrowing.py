"""Marks a rehearsal's objects in a cluster that isn't its own; decides their order of deletion.

    manifest  --marked-->      labelled, and its pods kept on nodes of groups
    object    --turn_of-->     the turn in which it is deleted
    two CRDs  --is_same_crd--> whether the one in the cluster is like ours

Pods are kept on nodes of groups, as tolerating the guard taint doesn't keep them off real nodes,
which would try to run them.
"""

import copy
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from kwok_operator.constants import (
    API_GROUP,
    NODE_GROUP_LABEL,
    NODE_POOL_LABEL,
    REHEARSAL_LABEL,
)
from kwok_operator.formats.manifests import CRD
from kwok_operator.formats.untyped import as_list, as_map, as_texts
from kwok_operator.podprofiles.api import LabelSelector
from kwok_operator.podprofiles.selectors import labels_match
from kwok_operator.rehearsal.scenario.manifests import Manifest
from kwok_operator.rehearsal.scenario.manifests import manifest as manifest_of
from kwok_operator.rehearsal.scenario.model import Scenario

REHEARSAL_NAMESPACE: Final = "kwok-rehearsal"
"""The namespace for the objects that programs keep in the cluster. If it exists, a rehearsal runs
in the cluster, or has left objects.
"""
SCOUT: Final = "kwok-rehearsal-scout"
"""The name of a node that shows whether kwok is alive."""
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
PART_OF: Final = "kwok-operator"

_KARPENTER_GROUP: Final = "karpenter.sh"
_NODE_POOL: Final = "NodePool"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ON_GROUPS: Final = {"key": NODE_GROUP_LABEL, "operator": "Exists"}


class Turn(IntEnum):
    """A turn of clearing up: the objects of a turn are deleted at the same time."""

    OBJECTS = 0
    NODE_POOLS = 1
    """Karpenter's objects: NodePools, NodeClaims, their Nodes."""
    GROUPS = 2
    CLUSTER_WIDE = 3
    INSTALLED = 4
    CLAIM = 5
    """The namespace that marks the cluster as in use by a rehearsal."""


BEFORE_KARPENTER: Final = (Turn.OBJECTS, Turn.NODE_POOLS)
"""The turns to delete while Karpenter still runs, as its finalizers keep NodeClaims and Nodes. The
objects come first, as a node can't be drained of pods that are created again.
"""
BEFORE_THE_OPERATOR: Final = (Turn.OBJECTS, Turn.NODE_POOLS, Turn.GROUPS)
"""The turns to delete while the operator still runs, as it deletes nodes fastest."""


def turn_of(group: str, kind: str, *, namespaced: bool, metadata: Mapping[str, Any]) -> Turn:
    """Returns the turn in which an object of a rehearsal is deleted. `group` is the object's API
    group.
    """
    if kind == "Namespace" and metadata.get("name") == REHEARSAL_NAMESPACE:
        return Turn.CLAIM
    labels = as_map(metadata.get("labels"))
    if group == _KARPENTER_GROUP or {NODE_POOL_LABEL, REHEARSAL_LABEL} <= labels.keys():
        return Turn.NODE_POOLS
    if group == API_GROUP or NODE_GROUP_LABEL in labels:
        return Turn.GROUPS
    if labels.get(PART_OF_LABEL) == PART_OF or kind in (CRD, "Namespace"):
        return Turn.INSTALLED
    return Turn.OBJECTS if namespaced else Turn.CLUSTER_WIDE


def marked(manifest: Mapping[str, Any], rehearsal: str) -> Manifest:
    """Returns the object with the rehearsal's label, also on the objects that it creates: pods,
    Jobs, volume claims. Its pods are kept on nodes of groups.
    """
    labelled = copy.deepcopy(dict(manifest))
    _label(labelled, rehearsal)
    # Parts of a CRD only look like objects.
    rest: list[Any] = [labelled] if labelled.get("kind") != CRD else []
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if isinstance(as_map(value.get("spec")).get("containers"), list):
                _label(value, rehearsal)
                _keep_on_groups(value["spec"])
                continue
            template = as_map(value.get("spec")).get("template")
            if value.get("kind") == _NODE_POOL and isinstance(template, dict):
                _label(template, rehearsal)  # so its NodeClaims and their Nodes have the label
            if isinstance(value.get("jobTemplate"), dict):
                _label(value["jobTemplate"], rehearsal)
            for claim in as_list(value.get("volumeClaimTemplates")):
                if isinstance(claim, dict):
                    _label(claim, rehearsal)
            rest += value.values()
        elif isinstance(value, list):
            rest += value
    return labelled


def labels_of_pods(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """Yields the labels of the pods that an object is, or creates."""
    rest: list[Any] = [manifest] if manifest.get("kind") != CRD else []
    while rest:
        value = rest.pop()
        if isinstance(value, dict) and isinstance(
            as_map(value.get("spec")).get("containers"), list
        ):
            yield as_texts(as_map(value.get("metadata")).get("labels"))
        elif isinstance(value, dict | list):
            rest += value.values() if isinstance(value, dict) else value


def selects(body: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether an object with a selector, such as a Service, selects pods with these labels."""
    selector = as_map(body.get("spec")).get("selector")
    if not isinstance(selector, dict):
        return False
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        return bool(selector) and all(labels.get(key) == text for key, text in selector.items())
    return labels_match(LabelSelector.model_validate(selector), labels)


def is_marked(body: Mapping[str, Any]) -> bool:
    """Whether an object has the rehearsal's label, or is a node of a group."""
    labels = as_map(as_map(body.get("metadata")).get("labels"))
    return REHEARSAL_LABEL in labels or NODE_GROUP_LABEL in labels


def _label(manifest: dict[str, Any], rehearsal: str) -> None:
    metadata = dict(as_map(manifest.get("metadata")))
    metadata["labels"] = {**as_map(metadata.get("labels")), REHEARSAL_LABEL: rehearsal}
    manifest["metadata"] = metadata


def _keep_on_groups(spec: dict[str, Any]) -> None:
    """Restricts a pod to nodes of groups, in each term of its required node affinity: a node need
    match only one term.
    """
    affinity = dict(as_map(spec.get("affinity")))
    nodes = dict(as_map(affinity.get("nodeAffinity")))
    required = dict(as_map(nodes.get(_REQUIRED)))
    terms = [as_map(each) for each in as_list(required.get("nodeSelectorTerms"))] or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*as_list(term.get("matchExpressions")), _ON_GROUPS]}
        for term in terms
    ]
    nodes[_REQUIRED] = required
    spec["affinity"] = {**affinity, "nodeAffinity": nodes}


def nodes_of_pod(pod: Mapping[str, Any]) -> set[str]:
    """Returns the node that a pod is on, or for which its DaemonSet has created it."""
    spec = as_map(pod.get("spec"))
    required = as_map(as_map(as_map(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED))
    return {
        value
        for term in as_list(required.get("nodeSelectorTerms"))
        for each in as_list(as_map(term).get("matchFields"))
        for value in as_list(as_map(each).get("values"))
    } | ({spec["nodeName"]} if spec.get("nodeName") else set())


def workload_objects(scenario: Scenario) -> list[Manifest]:
    """Returns the objects of the scenario's workloads."""
    return [
        manifest_of(workload, number)
        for workload in scenario.workloads
        for number in range(workload.objects)
    ]


def is_same_crd(there: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether the CRD in the cluster has all fields that ours has, with the same values, and
    exactly the same schemas.
    """
    return _holds(as_map(there.get("spec")), as_map(ours.get("spec")))


def _holds(there: Any, ours: Any, *, exactly: bool = False) -> bool:
    if isinstance(ours, Mapping) and isinstance(there, Mapping):
        # The API server adds names and a conversion; it adds nothing to a schema.
        if exactly and there.keys() != ours.keys():
            return False
        return all(
            key in there and _holds(there[key], value, exactly=exactly or key == "schema")
            for key, value in ours.items()
        )
    if isinstance(ours, list) and isinstance(there, list):
        return len(there) == len(ours) and all(
            _holds(a, b, exactly=exactly) for a, b in zip(there, ours, strict=True)
        )
    return bool(there == ours)
