"""The life of each node in a run, and of each pod on it, for a picture with one row (lane) per
node.

    NodeLine --> NodeLane: requested, created, ready or not, deleted
    PodLine  --> PodLane: created, bound, running, ended; once it has a node

Nodes and pods beyond a limit are only counted. A node that is created again under its name gets
another row.
"""

from dataclasses import dataclass, field
from typing import Final

from kwok_operator.rehearsal.judge.recording import (
    NodeLine,
    NodeState,
    PodLine,
    PodState,
    RecordedLine,
)

MOST_NODES: Final = 20_000
MOST_PODS: Final = 60_000
MOST_TURNS: Final = 20
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class NodeLane:
    name: str
    group: str
    """The node's group, or else its NodePool."""
    requested: float | None
    """When the node's instance was requested, in seconds; None if the recording doesn't have it."""
    came: float | None
    """When the Node was created; None if the recording doesn't show it while it has these pods."""
    gone: float | None = None
    turns: list[float] = field(default_factory=list)
    """When the node became ready, then not ready, and so on."""


@dataclass(slots=True)
class PodLane:
    name: str
    workload: str
    node: NodeLane
    created: float
    bound: float
    running: float | None = None
    ended: float | None = None


@dataclass(slots=True)
class NodeLanes:
    nodes: list[NodeLane] = field(default_factory=list)
    pods: list[PodLane] = field(default_factory=list)
    more_nodes: int = 0
    more_pods: int = 0
    _live: dict[str, NodeLane | None] = field(default_factory=dict)
    """The existing nodes by name; None for nodes that are only counted."""
    _bound: dict[str, PodLane | None] = field(default_factory=dict)
    """The existing pods that have a node, by name; None for pods that are only counted."""
    _early: dict[str, PodLine] = field(default_factory=dict)
    """The last line of each pod that is bound to a node that isn't recorded yet."""
    _early_on: dict[str, list[str]] = field(default_factory=dict)
    """The names of the pods in `_early`, by node."""

    def apply(self, line: RecordedLine) -> None:
        match line:
            case NodeLine():
                self._node(line)
            case PodLine():
                self._pod(line)

    def _node(self, line: NodeLine) -> None:
        state, t = line.state, line.t
        if state is None:
            if (gone := self._live.pop(line.name, None)) is not None:
                gone.gone = t
            return
        if line.name not in self._live:
            self._live[line.name] = self._comes(line.name, state, t)
            for name in self._early_on.pop(line.name, ()):
                early = self._early.get(name)
                if early is not None and early.state is not None and early.state.node == line.name:
                    self._pod(self._early.pop(name))
        node = self._live[line.name]
        if node is not None and len(node.turns) < MOST_TURNS:
            if state.ready == (len(node.turns) % 2 == 0):
                node.turns.append(t)

    def _comes(self, name: str, state: NodeState, t: float) -> NodeLane | None:
        came = t if state.created is None else min(state.created, t)
        return self._kept(NodeLane(name, state.group or state.pool, state.requested, came))

    def _kept(self, node: NodeLane) -> NodeLane | None:
        if len(self.nodes) == MOST_NODES:
            self.more_nodes += 1
            return None
        self.nodes.append(node)
        return node

    def _pod(self, line: PodLine) -> None:
        state, t = line.state, line.t
        if state is None:
            self._early.pop(line.name, None)
            pod = self._bound.pop(line.name, None)
            if pod is not None and pod.ended is None:
                pod.ended = t
            return
        if line.name not in self._bound:
            # Nodes and pods are watched separately: a node may be recorded after its pods.
            if state.node not in self._live:
                if state.node:
                    self._wait(line, state.node)
                return
            self._early.pop(line.name, None)
            self._bound[line.name] = self._begins(line.name, state, t)
        pod = self._bound[line.name]
        if pod is not None:
            pod.running = state.running if pod.running is None else pod.running
            if pod.ended is None and state.phase in _ENDED:
                pod.ended = t

    def finish(self) -> None:
        """Adds lanes for nodes that no line was about, but that pods were bound to."""
        for name, pods in self._early_on.items():
            early = [self._early.pop(pod) for pod in pods if pod in self._early]
            self._live[name] = self._kept(NodeLane(name, "", None, None))
            for line in early:
                self._pod(line)

    def _wait(self, line: PodLine, node: str) -> None:
        if line.name not in self._early:
            self._early_on.setdefault(node, []).append(line.name)
        self._early[line.name] = line

    def _begins(self, name: str, state: PodState, t: float) -> PodLane | None:
        node = self._live[state.node]
        if node is None or len(self.pods) == MOST_PODS:
            self.more_pods += 1
            return None
        bound = t if state.bound is None else state.bound
        pod = PodLane(name, state.workload, node, state.created, bound)
        self.pods.append(pod)
        return pod
