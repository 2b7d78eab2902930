"""One node merged over another: "like that one, but".

    base (cleaned) + overlay (cleaned)  --merge_nodes-->  node

Maps are merged by key, at any depth; null takes the key away (in a ConfigMap: in a KwokNodeGroup
the API server stores none). Lists are replaced as a whole, but
for taints: those are merged by key and effect. A resource whose capacity is given anew and whose
allocatable isn't can be used whole: what the base kept back belonged to another size.
"""

import copy
from collections.abc import Mapping
from typing import Any

from kwok_operator.nodegroups.cleaning import Node, merge_taints


def merge_nodes(base: Node, overlay: Mapping[str, Any]) -> Node:
    """A new node; both are as `clean_node` leaves them.

    `spec: {taints: null}` in the overlay takes all taints of the base away.
    """
    merged = _merge(base, overlay)
    taints = overlay.get("spec", {}).get("taints", [])
    if taints is not None:
        taints = merge_taints([*base.get("spec", {}).get("taints", []), *taints])
    merged["spec"]["taints"] = taints or []
    status = overlay.get("status", {})
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    result = merged["status"].setdefault("allocatable", {})
    for name, value in capacity.items():
        if value is None:
            result.pop(name, None)
        elif name not in allocatable:
            result[name] = value
    return merged


def _merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(dict(base))
    for key, value in overlay.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = _merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged
