"""The taints by which Kubernetes itself keeps pods off a node: a new one, or a silent one."""

from collections.abc import Mapping
from typing import Any

from kwok_operator.constants import (
    NOT_READY_TAINT_EFFECT,
    NOT_READY_TAINT_KEY,
    UNREACHABLE_TAINT_KEY,
)


def is_not_ready_taint(taint: Mapping[str, Any]) -> bool:
    """Whether it is Kubernetes' own: one with a value is somebody else's, NoExecute evicts."""
    return (
        taint.get("key") == NOT_READY_TAINT_KEY
        and taint.get("effect") == NOT_READY_TAINT_EFFECT
        and not taint.get("value")
    )


def is_unreachable_taint(taint: Mapping[str, Any]) -> bool:
    """Whether Kubernetes keeps pods off because it has not heard of the node for a while.

    It stays for some time once the node is Ready again. To take it off is Kubernetes' business.
    """
    return (
        taint.get("key") == UNREACHABLE_TAINT_KEY and taint.get("effect") == NOT_READY_TAINT_EFFECT
    )
