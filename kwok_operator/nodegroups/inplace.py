"""Makes the patches that bring an existing node up to its group's present template.

    live node + the node that the template makes  --make_patches-->  merge patches

A key of a map that the template has is set. A key that the operator wrote earlier and the template
no longer has is removed. What others have added stays. Who wrote a key is read from the node's
managedFields; but a list of taints has only one owner there, so an annotation lists the taints of
the template. Never changed are names, owner, providerID, the time of the request, conditions and
addresses.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kwok_operator import constants
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.kube.taints import is_not_ready_taint
from kwok_operator.nodegroups.cleaning import Node, merge_taints, part_of

Patch = tuple[str, dict[str, Any]]
"""A subresource ("/status" or "") and the merge patch for it."""
_KEPT = frozenset({constants.REQUESTED_AT_ANNOTATION, constants.TTL_ANNOTATION})
"""Annotations that are written only when the node is created, and kept by later patches."""
_TAINTS_LIST = constants.TEMPLATE_TAINTS_ANNOTATION


@dataclass(frozen=True, slots=True)
class Patches:
    """The merge patches of a node: `status` is written first, then `rest`; each is None if it would
    change nothing.

    `rest` has the hash of the template, so a node that got only the first patch still counts as
    outdated.
    """

    status: dict[str, Any] | None
    rest: dict[str, Any] | None


def make_patches(live: Node, wanted: Node, *, manager: str) -> Patches:
    """Returns the patches that make `live`, the node in the API server, as `wanted` says.

    `wanted` is the whole node that the template makes; `manager` is the operator's name in
    managedFields.
    """
    status: dict[str, Any] = {}
    for kind in ("capacity", "allocatable"):
        now, new = part_of(live, "status", kind), part_of(wanted, "status", kind)
        removable = _ours_in_status(live, kind, manager=manager)
        status[kind] = _changes(now, new, removable=removable, equal=_equal_quantities)
    now, new = part_of(live, "status", "nodeInfo"), part_of(wanted, "status", "nodeInfo")
    status["nodeInfo"] = _changes(now, new, removable=frozenset())
    metadata: dict[str, Any] = {}
    for kind in ("labels", "annotations"):
        now, new = part_of(live, "metadata", kind), part_of(wanted, "metadata", kind)
        ours, others = _owned(live, "metadata", kind, manager=manager)
        metadata[kind] = _changes(now, new, removable=(ours - others) | {_TAINTS_LIST})
    return Patches(
        status=_patch(status=_filled(status)),
        rest=_patch(metadata=_filled(metadata), spec=_taint_changes(live, wanted)),
    )


def _filled(parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part}


def _patch(**parts: dict[str, Any]) -> dict[str, Any] | None:
    return _filled(parts) or None


def _changes(
    now: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    removable: frozenset[str],
    equal: Callable[[Any, Any], bool] = lambda a, b: a == b,
) -> dict[str, Any]:
    """Returns the merge patch that makes map `now` like `new`: new values, and None for those of
    the `removable` keys that `new` lacks."""
    changes: dict[str, Any] = {
        key: value
        for key, value in new.items()
        if key not in _KEPT and (key not in now or not equal(now[key], value))
    }
    changes.update(dict.fromkeys(sorted(removable & now.keys() - new.keys())))
    return changes


def _equal_quantities(one: object, other: object) -> bool:
    # The API server normalises quantities: it stores 1000m as 1.
    try:
        return parse_quantity(one) == parse_quantity(other)
    except ValueError:
        return one == other


def _owned(live: Node, *path: str, manager: str) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the keys of a map of the node that the manager owns by managedFields, and those that
    others own."""
    ours: set[str] = set()
    others: set[str] = set()
    for entry in live["metadata"].get("managedFields") or ():
        fields = part_of(entry, "fieldsV1", *(f"f:{step}" for step in path))
        keys = {key.removeprefix("f:") for key in fields if key.startswith("f:")}
        (ours if entry.get("manager") == manager else others).update(keys)
    return frozenset(ours), frozenset(others)


def _ours_in_status(live: Node, kind: str, *, manager: str) -> frozenset[str]:
    """Returns the keys of a map in status that only the manager owns.

    The API server notes no owner of the status with which a node is created, and the operator
    created the node. So if managedFields names the operator at all, keys without an owner are its
    own.
    """
    entries = live["metadata"].get("managedFields") or ()
    if not any(entry.get("manager") == manager for entry in entries):
        return frozenset()
    _, others = _owned(live, "status", kind, manager=manager)
    return frozenset(part_of(live, "status", kind)) - others


def _taint_changes(live: Node, wanted: Node) -> dict[str, Any]:
    """Returns the patch of the list of taints: the template's taints, and those that others added;
    empty if nothing changes.

    A node without the annotation that lists the template's taints may be older than that
    annotation: it keeps all its taints.
    """
    now = list(live.get("spec", {}).get("taints") or ())
    listed = str(part_of(live, "metadata", "annotations").get(_TAINTS_LIST) or "").split(",")
    known = {_identity(taint): taint for taint in now}
    others = [t for t in now if f"{t.get('key')}:{t.get('effect')}" not in listed]
    new = [
        # The taint on the node also has the time at which it was added, so it is kept as it is.
        known.get(_identity(taint), taint)
        for taint in wanted["spec"].get("taints") or ()
    ]
    taints = merge_taints([*others, *new])
    same = sorted(map(_identity, taints)) == sorted(map(_identity, now))
    return {} if same else {"taints": taints}


def _identity(taint: Mapping[str, Any]) -> tuple[str, str, str]:
    return (str(taint.get("key")), str(taint.get("effect")), str(taint.get("value") or ""))


def after(patches: Iterable[Patch], *, ready: bool, tainted: bool) -> tuple[bool, bool]:
    """Returns whether a Node is Ready, and whether it has the taint of new nodes, once `patches`
    are written. `ready` and `tainted` say the same of the Node before."""
    for _, body in patches:
        for condition in body.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready":
                ready = condition["status"] == "True"
        if "taints" in body.get("spec", {}):
            tainted = any(map(is_not_ready_taint, body["spec"]["taints"]))
    return ready, tainted
