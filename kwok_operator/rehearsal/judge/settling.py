"""Decides what a quiet run still waits for before it counts as settled.

    NodeClaims under way, NodePools with nodes  --still_to_come-->  a clause, or nothing

Karpenter is quiet before it acts: while a machine boots, and before it consolidates.
"""

import math
from collections.abc import Iterable
from typing import Final

CONSOLIDATION_SECONDS: Final = 45.0
"""Seconds after consolidateAfter until Karpenter has consolidated, if it will: it looks every 10 s
(disruption/controller.go, pollingPeriod), leaves out nodes that it nominated for pods in the last
20 s (state/statenode.go, nominationWindow), and checks its decision again after 15 s
(disruption/consolidation.go, commandValidationDelay).
"""


def still_to_come(*, quiet: float, under_way: int, consolidates_after: Iterable[float]) -> str:
    """Returns what a run waits for that has been quiet for so many seconds; empty for nothing.

    `consolidates_after` has the seconds of consolidateAfter of each NodePool with nodes; infinity
    for Never.
    """
    if under_way:
        return f"{under_way:,} NodeClaim{'s' if under_way > 1 else ''} under way"
    longest = max((each for each in consolidates_after if each < math.inf), default=None)
    left = 0.0 if longest is None else longest + CONSOLIDATION_SECONDS - quiet
    return f"a consolidation by Karpenter, which may come within {left:,.0f} s" if left > 0 else ""
