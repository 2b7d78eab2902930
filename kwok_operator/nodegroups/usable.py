"""Makes a new node usable at once; Kubernetes alone would take a while.

The API server puts the taint node.kubernetes.io/not-ready on every new node.
kube-controller-manager removes it, and adds labels and an annotation, for a few nodes a second. So
the operator removes the taint at the first sign that a node is Ready, and creates nodes with the
labels and the annotation. A node is *usable* while it is Ready and Kubernetes keeps no pods off it.
"""

from collections.abc import Mapping
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.kube.taints import is_not_ready_taint
from kwok_operator.nodegroups.cleaning import Node

_TTLS: Final = ((100, 0), (500, 15), (1_000, 30), (2_000, 60))
"""Pairs: the most nodes in a cluster, and the seconds that the TTL annotation then has.

kube-controller-manager (pkg/controller/ttl) sets it on each node, for kubelets. When a cluster
shrinks, that controller changes it only at a lower number of nodes.
"""
_LONGEST_TTL: Final = 300
TAINTS_OF_STATES: Final = frozenset(
    f"node.kubernetes.io/{state}"
    for state in (
        "not-ready unreachable unschedulable network-unavailable memory-pressure disk-pressure"
        " pid-pressure"
    ).split()
)
"""The taints that Kubernetes removes from a healthy Ready node, whatever added them."""


def labels_of_every_node(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels that the node lifecycle controller adds to a node with these labels."""
    pairs = (
        (constants.BETA_ARCH_LABEL, constants.ARCH_LABEL),
        (constants.BETA_OS_LABEL, constants.OS_LABEL),
    )
    return {old: labels[new] for old, new in pairs if new in labels}


def annotations_of_every_node(nodes: int) -> dict[str, str]:
    """Returns the annotations that the TTL controller adds to each node of a cluster of this
    size."""
    ttl = next((ttl for most, ttl in _TTLS if nodes <= most), _LONGEST_TTL)
    return {constants.TTL_ANNOTATION: str(ttl)}


def untaint(node: Node) -> list[dict[str, Any]] | None:
    """Returns a JSON Patch that removes only the taint of new nodes; None if there is nothing to
    do.

    The API server applies it only if it is the same node (by uid), still Ready, and the taint is
    unchanged.
    """
    conditions = (node.get("status") or {}).get("conditions") or ()
    taints = (node.get("spec") or {}).get("taints") or ()
    ready = [i for i, c in enumerate(conditions) if c.get("type") == "Ready"]
    kept_off = [i for i, t in enumerate(taints) if is_not_ready_taint(t)]
    if not ready or not kept_off or conditions[ready[0]].get("status") != "True":
        return None
    condition, taint = f"/status/conditions/{ready[0]}", f"/spec/taints/{kept_off[0]}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]},
        {"op": "test", "path": f"{condition}/type", "value": "Ready"},
        {"op": "test", "path": f"{condition}/status", "value": "True"},
        {"op": "test", "path": taint, "value": taints[kept_off[0]]},
        {"op": "remove", "path": taint},
    ]
