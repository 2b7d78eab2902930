"""When a node takes pods, and what makes a Ready one do so.

    a Node as the API server holds it  --untaint-->  the JSON Patch that lets pods onto it

The API server puts the taint node.kubernetes.io/not-ready on every node at its creation, whatever
its conditions say. kube-controller-manager takes it off again, at the pace of one client: a few
nodes a second. So whoever makes a node Ready does it. A node is *usable* once it is Ready and that
taint is gone.
"""

from collections.abc import Mapping
from typing import Any

from kwok_operator import constants
from kwok_operator.core.cleaning import Node


def is_not_ready_taint(taint: Mapping[str, Any]) -> bool:
    """Whether it is Kubernetes' own: one with a value is somebody else's, NoExecute evicts."""
    return (
        taint.get("key") == constants.NOT_READY_TAINT_KEY
        and taint.get("effect") == constants.NOT_READY_TAINT_EFFECT
        and not taint.get("value")
    )


def untaint(node: Node) -> list[dict[str, Any]] | None:
    """A JSON Patch that removes the taint, and nothing else; None where there is nothing to do.

    It holds only for the node that was seen, as long as that is Ready and the taint is where it was
    and as it was.
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
