"""Merges one node over another, so that a template can say "like that node, but with ...".

    base (cleaned) + overlay (cleaned)  --merge_nodes-->  node

Maps are merged by key, at any depth. Null removes the key; only ConfigMaps can have nulls, as the
API server stores none in a KwokNodeGroup. Lists are replaced as a whole, except taints, which are
merged by key and effect. If the overlay sets a resource's capacity without its allocatable, all of
it is allocatable: the amount that the base reserved belonged to another size.
"""

import copy
from collections.abc import Mapping
from typing import Any

from kwok_operator.nodegroups.cleaning import Node, merge_taints


def merge_nodes(base: Node, overlay: Mapping[str, Any]) -> Node:
    """Returns the merged node; both arguments are as `clean_node` returns them.

    `spec: {taints: null}` in the overlay removes all taints of the base.
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
