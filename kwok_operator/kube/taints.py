"""Recognises Kubernetes' own taints that keep pods off a node: that of a new node, and that of a
node whose kubelet is silent."""

from collections.abc import Mapping
from typing import Any

from kwok_operator.constants import (
    NOT_READY_TAINT_EFFECT,
    NOT_READY_TAINT_KEY,
    UNREACHABLE_TAINT_KEY,
)


def is_not_ready_taint(taint: Mapping[str, Any]) -> bool:
    """Whether this is Kubernetes' own taint of a new node: without a value, and not with the effect
    NoExecute, which evicts pods."""
    return (
        taint.get("key") == NOT_READY_TAINT_KEY
        and taint.get("effect") == NOT_READY_TAINT_EFFECT
        and not taint.get("value")
    )


def is_unreachable_taint(taint: Mapping[str, Any]) -> bool:
    """Whether this is Kubernetes' taint of a node whose kubelet was silent for a while.

    It stays for some time once the node is Ready again. Only Kubernetes removes it.
    """
    return (
        taint.get("key") == UNREACHABLE_TAINT_KEY and taint.get("effect") == NOT_READY_TAINT_EFFECT
    )
