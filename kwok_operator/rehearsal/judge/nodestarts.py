"""Follows when nodes were requested, and when pods could use them for the first time.

    NodeLine, NodeClaimLine --apply--> NodeStart of a node, from its first line to its end

A name can be used again; it is another node then. What becomes of the pods is the PodLedger's.
"""

from dataclasses import dataclass

from kwok_operator.rehearsal.judge.recording import NodeClaimState, NodeLine


@dataclass(slots=True, eq=False)
class NodeStart:
    created: float
    """In seconds since the run began, as all moments here."""
    instance_requested: float | None
    """When the node's instance was requested, if the node says so."""
    claimed: float | None
    """When its NodeClaim was created, if it has one."""
    usable: float | None = None

    @property
    def requested(self) -> float:
        known = (each for each in (self.instance_requested, self.claimed) if each is not None)
        return next(known, self.created)


class NodeStarts:
    def __init__(self) -> None:
        self._last: dict[str, NodeStart] = {}
        """The start of each node that there is, or was; of a name, that of the last node."""
        self._there: set[str] = set()
        self._claimed: dict[str, float] = {}
        """When the NodeClaim was created that was the first to name a node, by its name."""

    def of(self, node: str) -> NodeStart | None:
        return self._last.get(node)

    def apply(self, line: NodeLine) -> bool:
        """Applies a line; returns whether it changes the start of a node that exists."""
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
            # One that was there before the run has been usable for longer than the recording.
            start.usable = start.created if new and start.created < 0 else t
        return new or ready

    def claim(self, claim: NodeClaimState) -> bool:
        """Applies a NodeClaim; returns whether it changes the start of a node that exists."""
        if not claim.node or claim.node in self._claimed:
            return False
        self._claimed[claim.node] = claim.created
        if claim.node in self._there:
            self._last[claim.node].claimed = claim.created
        return claim.node in self._there
