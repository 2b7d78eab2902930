"""Finds out when nodes were requested, and when pods could use them for the first time.

    NodeLine, NodeClaimLine --apply--> NodeStart of a node, from its first line to its end

A later node may have the name of an earlier one. PodLedger applies the starts to pods.
"""

from dataclasses import dataclass

from kwok_operator.rehearsal.judge.recording import NodeClaimState, NodeLine


@dataclass(slots=True, eq=False)
class NodeStart:
    created: float
    """When the Node was created; like all moments here, in seconds since the run began."""
    instance_requested: float | None
    """When the node's instance was requested, if the Node shows it."""
    claimed: float | None
    """When the node's NodeClaim was created; None if it has none."""
    usable: float | None = None

    @property
    def requested(self) -> float:
        known = (each for each in (self.instance_requested, self.claimed) if each is not None)
        return next(known, self.created)


class NodeStarts:
    def __init__(self) -> None:
        self._last: dict[str, NodeStart] = {}
        """The start of each node that exists or existed; if several had one name, of the last."""
        self._there: set[str] = set()
        self._claimed: dict[str, float] = {}
        """When the first NodeClaim was created that names a node, by the node's name."""

    def of(self, node: str) -> NodeStart | None:
        return self._last.get(node)

    def apply(self, line: NodeLine) -> bool:
        """Applies a line about a node. Returns whether it shows more of the start of an existing
        node: that it was created, or is usable.
        """
        name, state, t = line.name, line.state, line.t
        if state is None:
            self._there.discard(name)
            self._claimed.pop(name, None)
            return False
        new = name not in self._there
        if new:
            self._there.add(name)
            created = t if state.created is None else state.created
            self._last[name] = NodeStart(created, state.requested, self._claimed.get(name))
        start = self._last[name]
        ready = state.ready and start.usable is None
        if ready:
            # A node that is older than the run was usable before the recording.
            start.usable = start.created if new and start.created < 0 else t
        return new or ready

    def claim(self, claim: NodeClaimState) -> bool:
        """Applies a NodeClaim. Returns whether it shows more of the start of an existing node: when
        the NodeClaim was created.
        """
        if not claim.node or claim.node in self._claimed:
            return False
        self._claimed[claim.node] = claim.created
        if claim.node in self._there:
            self._last[claim.node].claimed = claim.created
        return claim.node in self._there
