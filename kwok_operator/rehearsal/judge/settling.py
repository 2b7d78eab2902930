"""Decides what a quiet run still waits for before it counts as settled.

    outages, NodeClaims, pods without their node, NodePools with nodes
        --still_to_come-->  a clause, or nothing

Karpenter is quiet before it acts: while a machine boots, before it consolidates, and between its
periodic checks. Other controllers are quiet before they act, too: those that delete what a lost
node leaves behind, and those that evict the pods of a node in an outage.

`in_words` also describes the other things that a run waits for, such as steps of its timeline.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kwok_operator.formats.untyped import value_at
from kwok_operator.rehearsal.judge.recording import NodeState, PodState

_OUTAGE: Final = ("spec", "cloud", "outage")
POLL_SECONDS: Final = 10.0
"""Seconds until Karpenter checks a pending pod again (provisioning/controller.go), and what it may
disrupt (disruption/controller.go, pollingPeriod).
"""
LOOK_SECONDS: Final = POLL_SECONDS + 20.0
"""Seconds until Karpenter has reacted to a change, such as a changed NodePool, which makes nodes
drifted: it ignores nodes that it nominated for pods in the last 20 s (state/statenode.go,
nominationWindow). If it has done nothing by then, budgets or pods forbid it, and that stays so
until something changes.
"""
CONSOLIDATION_SECONDS: Final = LOOK_SECONDS + 15.0
"""Seconds after consolidateAfter within which Karpenter consolidates, if at all: it checks its
decision again after 15 s (disruption/consolidation.go, commandValidationDelay).
"""
COLLECTION_SECONDS: Final = 130.0
"""Seconds until everything that a lost node leaves behind is collected: Karpenter checks NodeClaims
every 2 min (nodeclaim/garbagecollection/controller.go); Kubernetes checks pods every 20 s, and
gives a node 40 s to come back (podgc/gc_controller.go).
"""

OUTAGE_SECONDS: Final = 60.0
"""Seconds until the nodes of a group in an outage are NotReady, and until Kubernetes evicts pods
beyond the time that they tolerate: the controllers check every few seconds, and were seen to take
40 s on a busy machine.
"""


def still_to_come(
    *,
    quiet: float,
    ready_in_outage: int,
    displaced: int,
    evicts_after: float | None,
    under_way: int,
    left_over: int,
    gathers: float | None,
    consolidates_after: Iterable[float],
) -> str:
    """Returns what a run still waits for after `quiet` seconds without a change; empty for nothing.

    `ready_in_outage` is the number of nodes that are Ready though their group is in an outage.
    `displaced` is the number of pods to evict or to place in an outage. `evicts_after` is after how
    many seconds Kubernetes evicts pods; None if that isn't known. `left_over` is the number of pods
    and NodeClaims whose node is gone. `gathers` is for how many seconds Karpenter collects pending
    pods before it decides; None if no pod is pending, or without Karpenter. `consolidates_after`
    has consolidateAfter of each NodePool with nodes; infinity for Never.
    """
    if ready_in_outage and (left := OUTAGE_SECONDS - quiet) > 0:
        return f"the outage of nodes that are Ready, which should come within {left:,.0f} s"
    if displaced and evicts_after is not None and evicts_after <= OUTAGE_SECONDS:
        if (left := evicts_after + OUTAGE_SECONDS - quiet) > 0:
            return f"new places for pods in an outage, which should come within {left:,.0f} s"
    if under_way:
        return f"{under_way:,} NodeClaim{'s' if under_way > 1 else ''} under way"
    if left_over and (left := COLLECTION_SECONDS - quiet) > 0:
        return f"the end of what lost nodes have left, which should come within {left:,.0f} s"
    if gathers is not None and (left := gathers + POLL_SECONDS - quiet) > 0:
        return f"Karpenter's nodes for a batch of pods, which should come within {left:,.0f} s"
    every = [
        LOOK_SECONDS if each == math.inf else each + CONSOLIDATION_SECONDS
        for each in consolidates_after
    ]
    left = max(every, default=0.0) - quiet
    return f"what Karpenter may do next, within {left:,.0f} s" if left > 0 else ""


def ready_in_outage(groups: Mapping[str, object], nodes: Mapping[str, NodeState]) -> int:
    """Counts the nodes that are Ready though their group, by its object, has an outage."""
    out = {name for name, body in groups.items() if value_at(body, *_OUTAGE) is True}
    return sum(node.ready and node.group in out for node in nodes.values()) if out else 0


def displaced(pods: Mapping[str, PodState], nodes: Mapping[str, NodeState]) -> int:
    """Counts the pods on nodes that aren't Ready, and those without a node that no scheduler has
    tried to place yet. Pods of DaemonSets stay where they are.
    """
    dark = {name for name, node in nodes.items() if not node.ready}
    return sum(
        (pod.node in dark if pod.node else not pod.why)
        and not pod.workload.startswith("DaemonSet/")
        for pod in pods.values()
    )


def in_words(
    *,
    condition: str,
    settled: float | None,
    quiet: float,
    to_play: Sequence[str],
    more: str,
) -> str:
    """Returns what a run waits for before it ends, as a clause; empty if only its time limit ends
    it.

    `condition` is that of `until`. Without one, the run ends once it was quiet for `settled`
    seconds: before, it waits for the parts `to_play`, then for `more`, the clause of still_to_come.
    """
    if condition or settled is None:
        return condition
    if to_play:
        others = f" and {len(to_play) - 1} more" if len(to_play) > 1 else ""
        return f"{to_play[0]}{others}"
    if quiet < settled or not more:
        return f"quiet, {min(quiet, settled):.0f} of {settled:g} s"
    return more
