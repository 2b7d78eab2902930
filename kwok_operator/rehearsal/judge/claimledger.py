"""The NodeClaims of Karpenter at one moment of a recording, and how they ended.

    line --apply--> numbers of NodeClaims --> the Tally of each group, zone, NodePool
               └--> numbers of ended ones, when deletion begins or the NodeClaim is gone

A NodeClaim belongs to its NodePool from the beginning. It belongs to a group and a zone once its
labels name them, mostly when Karpenter has launched its machine.
"""

from collections.abc import Callable

from kwok_operator.rehearsal.judge.figures import DISRUPTIONS, NODE_CLAIM_LEVELS, Place, Tally
from kwok_operator.rehearsal.judge.recording import NodeClaimLine, NodeClaimState, NodeState


class NodeClaimLedger:
    def __init__(self, tallies: Callable[[Place], tuple[Tally, ...]]) -> None:
        self._tallies = tallies
        self.live: dict[str, NodeClaimState] = {}

    def apply(self, line: NodeClaimLine) -> None:
        before, after = self.live.pop(line.name, None), line.state
        if after is not None:
            self.live[line.name] = after
        for claim, sign in ((before, -1), (after, 1)):
            if claim is None:
                continue
            levels = [name for name, counts in NODE_CLAIM_LEVELS.items() if counts(claim)]
            for tally in self._tallies(place_of(claim)):
                for name in levels:
                    tally.claims[name].move(line.t, sign)
        if (ended := ends(before, after)) is not None:
            what = f"{line.name} at {line.t:.1f} s"
            for tally in self._tallies(place_of(ended)):
                if ended.registered is None:
                    tally.count("nodeClaims.neverRegistered", what)
                if ended.reason in DISRUPTIONS:
                    tally.count(f"disruptions.{ended.reason}", what)


def ends(before: NodeClaimState | None, after: NodeClaimState | None) -> NodeClaimState | None:
    """Returns the last known state of a NodeClaim that ends by this change: it begins to be
    deleted, or is gone at once. None for any other change, or if the deletion began before the run.
    """
    if before is None:
        return after if after is not None and after.deleting and after.created >= 0 else None
    if before.deleting or (after is not None and not after.deleting):
        return None
    return after or before


def place_of(state: NodeState | NodeClaimState) -> Place:
    return Place(group=state.group, zone=state.zone, node_pool=state.pool)
