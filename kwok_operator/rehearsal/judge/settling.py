"""Decides what a quiet run still waits for before it counts as settled.

    NodeClaims, pods without their node, NodePools with nodes  --still_to_come-->  a clause, or
                                                                                   nothing

Karpenter is quiet before it acts: while a machine boots, before it consolidates, and before it
looks at all. So are the controllers that collect what a lost node leaves behind.

What a run waits for in other ways is put into words here, too.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

POLL_SECONDS: Final = 10.0
"""Seconds until Karpenter looks again at a pod that is pending (provisioning/controller.go), and at
what it may disrupt (disruption/controller.go, pollingPeriod).
"""
LOOK_SECONDS: Final = POLL_SECONDS + 20.0
"""Seconds until Karpenter has acted on a change, such as one of a NodePool by which nodes are
drifted: it leaves out nodes that it nominated for pods in the last 20 s (state/statenode.go,
nominationWindow). If it has done nothing by then, budgets or pods forbid it, and it will decide
the same until something changes.
"""
CONSOLIDATION_SECONDS: Final = LOOK_SECONDS + 15.0
"""Seconds after consolidateAfter until Karpenter has consolidated, if it will: it checks its
decision again after 15 s (disruption/consolidation.go, commandValidationDelay).
"""
COLLECTION_SECONDS: Final = 130.0
"""Seconds until what a lost node leaves behind is collected: Karpenter looks for NodeClaims every
2 min (nodeclaim/garbagecollection/controller.go); Kubernetes looks for pods every 20 s, and leaves
a node 40 s to come back (podgc/gc_controller.go).
"""


def still_to_come(
    *,
    quiet: float,
    under_way: int,
    left_over: int,
    gathers: float | None,
    consolidates_after: Iterable[float],
) -> str:
    """Returns what a run waits for that has been quiet for so many seconds; empty for nothing.

    `left_over` are the pods and NodeClaims whose node is gone. For `gathers` seconds Karpenter
    gathers pods that are pending; None: none are, or there is no Karpenter. `consolidates_after`
    has the seconds of consolidateAfter of each NodePool with nodes; infinity for Never.
    """
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


def in_words(
    *,
    condition: str,
    settled: float | None,
    quiet: float,
    to_play: Sequence[str],
    more: str,
) -> str:
    """Returns what a run waits for before it ends: a clause, empty if only its time ends it.

    `condition` is that of `until`. Or the run ends once it has been quiet for `settled` seconds;
    before, the parts `to_play` are awaited, and afterwards what still_to_come says, `more`.
    """
    if condition or settled is None:
        return condition
    if to_play:
        others = f" and {len(to_play) - 1} more" if len(to_play) > 1 else ""
        return f"{to_play[0]}{others}"
    if quiet < settled or not more:
        return f"quiet, {min(quiet, settled):.0f} of {settled:g} s"
    return more
