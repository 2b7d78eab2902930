"""What a rehearsal makes in a cluster that isn't its own: how it is marked, and when it goes.

    manifest  --marked-->      labelled, and its pods kept on nodes of groups
    object    --turn_of-->     the turn in which it is taken away again
    two CRDs  --is_same_crd--> whether the one that is there is ours

Pods of ours tolerate the guard taint, which doesn't keep them off other nodes: a cluster with real
ones would try to run them.
"""

import copy
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from kwok_operator.constants import API_GROUP, NODE_GROUP_LABEL, REHEARSAL_LABEL
from kwok_operator.formats.untyped import as_list, as_map, as_texts
from kwok_operator.podprofiles.api import LabelSelector
from kwok_operator.podprofiles.selectors import labels_match
from kwok_operator.rehearsal.scenario.manifests import Manifest
from kwok_operator.rehearsal.scenario.manifests import manifest as manifest_of
from kwok_operator.rehearsal.scenario.model import Scenario

REHEARSAL_NAMESPACE: Final = "kwok-rehearsal"
"""Of what programs keep in the cluster; where it is, a rehearsal is, or was and was killed."""
SCOUT: Final = "kwok-rehearsal-scout"
"""A node by which it is seen whether kwok is alive."""
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
PART_OF: Final = "kwok-operator"

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ON_GROUPS: Final = {"key": NODE_GROUP_LABEL, "operator": "Exists"}


class Turn(IntEnum):
    """What goes together."""

    OBJECTS = 0
    GROUPS = 1
    CLUSTER_WIDE = 2
    INSTALLED = 3
    CLAIM = 4
    """The namespace that says that a rehearsal is here."""


BEFORE_THE_OPERATOR: Final = (Turn.OBJECTS, Turn.GROUPS)
"""Nobody deletes nodes as fast as it does."""


def turn_of(group: str, kind: str, *, namespaced: bool, metadata: Mapping[str, Any]) -> Turn:
    """When an object goes that a rehearsal has made; `group` is its API group."""
    if kind == "Namespace" and metadata.get("name") == REHEARSAL_NAMESPACE:
        return Turn.CLAIM
    labels = as_map(metadata.get("labels"))
    if group == API_GROUP or NODE_GROUP_LABEL in labels:
        return Turn.GROUPS
    if labels.get(PART_OF_LABEL) == PART_OF or kind in ("CustomResourceDefinition", "Namespace"):
        return Turn.INSTALLED
    return Turn.OBJECTS if namespaced else Turn.CLUSTER_WIDE


def marked(manifest: Mapping[str, Any], rehearsal: str) -> Manifest:
    """With the label on it, and on all that comes of it: pods, Jobs, claims of volumes."""
    found = copy.deepcopy(dict(manifest))
    _label(found, rehearsal)
    # What stands in a CRD only looks like an object.
    rest: list[Any] = [found] if found.get("kind") != "CustomResourceDefinition" else []
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if isinstance(as_map(value.get("spec")).get("containers"), list):
                _label(value, rehearsal)
                _keep_on_groups(value["spec"])
                continue
            if isinstance(value.get("jobTemplate"), dict):
                _label(value["jobTemplate"], rehearsal)
            for claim in as_list(value.get("volumeClaimTemplates")):
                if isinstance(claim, dict):
                    _label(claim, rehearsal)
            rest += value.values()
        elif isinstance(value, list):
            rest += value
    return found


def labels_of_pods(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The labels of the pods that an object is, or brings forth."""
    rest: list[Any] = [manifest] if manifest.get("kind") != "CustomResourceDefinition" else []
    while rest:
        value = rest.pop()
        if isinstance(value, dict) and isinstance(
            as_map(value.get("spec")).get("containers"), list
        ):
            yield as_texts(as_map(value.get("metadata")).get("labels"))
        elif isinstance(value, dict | list):
            rest += value.values() if isinstance(value, dict) else value


def selects(body: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether an object of the cluster, such as a Service, is about pods with these labels."""
    selector = as_map(body.get("spec")).get("selector")
    if not isinstance(selector, dict):
        return False
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        return bool(selector) and all(labels.get(key) == text for key, text in selector.items())
    return labels_match(LabelSelector.model_validate(selector), labels)


def is_marked(body: Mapping[str, Any]) -> bool:
    """Whether an object is the rehearsal's, or a node of a group."""
    labels = as_map(as_map(body.get("metadata")).get("labels"))
    return REHEARSAL_LABEL in labels or NODE_GROUP_LABEL in labels


def _label(manifest: dict[str, Any], rehearsal: str) -> None:
    metadata = dict(as_map(manifest.get("metadata")))
    metadata["labels"] = {**as_map(metadata.get("labels")), REHEARSAL_LABEL: rehearsal}
    manifest["metadata"] = metadata


def _keep_on_groups(spec: dict[str, Any]) -> None:
    """Of the terms of a node selector one has to fit, with all of its expressions."""
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
    """Where a pod is, or, one of a DaemonSet that waits, where alone it can be."""
    spec = as_map(pod.get("spec"))
    required = as_map(as_map(as_map(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED))
    return {
        value
        for term in as_list(required.get("nodeSelectorTerms"))
        for each in as_list(as_map(term).get("matchFields"))
        for value in as_list(as_map(each).get("values"))
    } | ({spec["nodeName"]} if spec.get("nodeName") else set())


def workload_objects(scenario: Scenario) -> list[Manifest]:
    """What its workloads make."""
    return [
        manifest_of(workload, number)
        for workload in scenario.workloads
        for number in range(workload.objects)
    ]


def is_same_crd(there: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether all of ours is in the one that is there, and in its versions nothing else."""
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
