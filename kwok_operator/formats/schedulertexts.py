"""The scheduler's texts: its reasons against a node, and its message about a pod.

    0/5 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: ...

The texts are those of Kubernetes 1.36: pkg/scheduler/framework/types.go (FitError.Error) and the
folders of framework/plugins. Messages of earlier versions, of other plugins and schedulers are
read, too.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

UNSCHEDULABLE: Final = "node(s) were unschedulable"
TAINTS: Final = "node(s) had untolerated taint(s)"
"""Earlier versions name the taint: `node(s) had untolerated taint {key: value}`."""
NODE_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS: Final = "Too many pods"
VOLUME_NODE: Final = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_ZONE: Final = "node(s) had no available volume zone"
SPREAD: Final = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL: Final = f"{SPREAD} (missing required label)"
POD_AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_NONE: Final = re.compile(r"no nodes available to schedule pods\b")
_MESSAGE: Final = re.compile(
    r"0/([0-9]{1,9}) nodes are available: (.*?)(?:\.(?: (.*))?)?", re.DOTALL
)
_PREEMPTION: Final = re.compile(r"^(?:.*?, )??preemption: (?:0/[0-9]+ nodes are available: )?")
_COUNTED: Final = re.compile(r"([0-9]{1,9}) (.+)", re.DOTALL)


def insufficient(resource: str) -> str:
    return f"Insufficient {resource}"


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """A reason, and the number of nodes (or groups of nodes) to which it applies."""

    count: int
    text: str

    def __str__(self) -> str:
        return f"{self.count} {self.text}"


@dataclass(frozen=True, slots=True)
class SchedulerText:
    """What the scheduler's message about a pod says. A node may have several reasons."""

    nodes: int
    reasons: tuple[ReasonCount, ...] = ()
    pod: str = ""
    """Why the pod fits no node, if that doesn't depend on the nodes; then there are no reasons."""
    preemption: tuple[ReasonCount, ...] = ()
    """Why preempting other pods would not help, and on how many nodes; empty if the message doesn't
    say."""


@lru_cache(maxsize=1_024)  # a recording has the same one for many pods
def parse_scheduler_text(message: str) -> SchedulerText | None:
    """Reads the message of a pod's condition PodScheduled, or of an Event FailedScheduling; None if
    it has another form."""
    text = message.strip()
    if _NONE.match(text):
        return SchedulerText(0)
    if not (match := _MESSAGE.fullmatch(text)):
        return None
    nodes, body, rest = int(match[1]), match[2], match[3] or ""
    preemption = rest[end.end() :] if (end := _PREEMPTION.match(rest)) else ""
    later = _reasons(preemption.rstrip(".")) or ()
    reasons = _reasons(body)
    if reasons is None:
        return SchedulerText(nodes, pod=body, preemption=later)
    return SchedulerText(nodes, reasons, preemption=later)


def parse_reasons(text: str) -> tuple[ReasonCount, ...] | None:
    """Reads `1 Insufficient cpu, 2 Too many pods`; None if any part has no number."""
    return _reasons(text.strip())


def _reasons(text: str) -> tuple[ReasonCount, ...] | None:
    # A reason may contain a comma. A new reason begins only if a number follows the comma.
    parts = [_COUNTED.fullmatch(part) for part in re.split(r", (?=[0-9]+ )", text)] if text else []
    if not all(parts):
        return None
    return tuple(ReasonCount(int(part[1]), part[2]) for part in parts if part)
