"""Reads and makes parts of a Node as JSON: conditions and taints. Nothing is changed in place.

The texts of the conditions that the simulated cloud gives a Node are here. `shaping` decides which
of them a Node gets, and in which order they are written.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kwok_operator.cloud.api.cloud import NOTICE_CONDITION
from kwok_operator.cloud.life import DesiredNode, Life
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.times import format_time
from kwok_operator.nodegroups.api.template import Taint
from kwok_operator.nodegroups.cleaning import Node, part_of

READY: Final = "Ready"
_HELD: Final = "the simulated cloud keeps this node not Ready: {reason}"
_POSTING: Final = {
    "type": READY,
    "status": "True",
    "reason": "KubeletReady",
    "message": "kubelet is posting ready status",
}
"""The condition Ready with the texts that the kubelet and kwok use."""

Condition = Mapping[str, Any]
TaintKey = tuple[str, str]
"""Key and effect: the API server refuses two taints that have both in common."""


def conditions_of(node: Node) -> list[Condition]:
    return list(part_of(node, "status").get("conditions") or ())


def ready_status(node: Node) -> str:
    """The status of the condition Ready: "True", "False", "Unknown", or "" if there is none yet."""
    of_ready = [c for c in conditions_of(node) if c.get("type") == READY]
    return str(of_ready[0].get("status")) if of_ready else ""


def is_ready() -> Condition:
    return _POSTING


def not_ready(desired: DesiredNode) -> Condition:
    return {
        "type": READY,
        "status": "False",
        "reason": desired.reason,
        "message": _HELD.format(reason=desired.reason),
    }


def notice(desired: DesiredNode, life: Life | None) -> Condition:
    """The condition that says that the cloud takes the instance back, and when."""
    when = ""
    if life is not None and life.end is not None:
        when = f" at {format_time(life.born + life.end.gone_after)}"
    return {
        "type": NOTICE_CONDITION,
        "status": "True",
        "reason": desired.reason,
        "message": f"the simulated cloud takes this instance back{when}",
    }


def with_condition(conditions: Iterable[Condition], new: Condition, *, now: str) -> list[Condition]:
    """Returns the conditions with `new` in place of the one of its type. If that one says the same,
    it stays as it is."""
    found = list(conditions)
    at = next((i for i, c in enumerate(found) if c.get("type") == new["type"]), len(found))
    old = found[at] if at < len(found) else {}
    if new.items() <= old.items():
        return found
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    found[at:] = [
        {**new, "lastHeartbeatTime": now, "lastTransitionTime": since or now},
        *found[at + 1 :],
    ]
    return found


def is_amount(text: str) -> bool:
    """Whether the API server accepts this quantity, which comes from an annotation that anybody may
    have edited."""
    try:
        return parse_quantity(text) >= 0
    except ValueError:
        return False


def taints_of(node: Node) -> list[Mapping[str, Any]]:
    return list(part_of(node, "spec").get("taints") or ())


def taint_key(taint: Mapping[str, Any]) -> TaintKey:
    return str(taint.get("key")), str(taint.get("effect"))


def taint_of(*, key: str, value: str, effect: str) -> Mapping[str, Any]:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def notice_taints(desired: DesiredNode, taint: Taint | None) -> list[Mapping[str, Any]]:
    """The taint that marks a Node under notice, [] before notice is given."""
    if taint is None or not desired.noticed:
        return []
    return [taint_of(key=taint.key, value=taint.value, effect=taint.effect.value)]


def with_taints(
    taints: Iterable[Mapping[str, Any]], more: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Returns `taints`, then those of `more` whose key and effect no taint before them has."""
    found = {taint_key(taint): taint for taint in taints}
    for taint in more:
        found.setdefault(taint_key(taint), taint)
    return list(found.values())
