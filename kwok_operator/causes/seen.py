"""The facts that a recording shows of pods, nodes, groups and NodeClaims, as far as chains need
them.

`recorded` sets them, line by line; `deciding` makes chains of causes from them.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.causes.model import ChainStep, StepKind
from kwok_operator.formats.autoscalertexts import GroupRefusal
from kwok_operator.rehearsal.judge.nodestarts import NodeStart, NodeStarts
from kwok_operator.rehearsal.judge.recording import (
    BudgetState,
    GroupState,
    NodeClaimState,
    NodeState,
    PodState,
)

MOST_TEXTS: Final = 12
"""The most texts that are kept of a pod, a group, a NodeClaim or a node: the first ones and the
last.
"""
MOST_CALLS: Final = 200
"""The most requests for instances that are kept of a group: the last ones."""


@dataclass(slots=True)
class SeenTexts:
    """What other programs said about one object, as steps of a chain of causes.

    A text that repeats the previous one is dropped. Of more than MOST_TEXTS, the first ones and the
    latest one are kept.
    """

    kept: list[ChainStep] = field(default_factory=list)

    def add(self, at: float, kind: StepKind, text: str) -> None:
        last = self.kept[-1] if self.kept else None
        if last is not None and (last.kind, last.text) == (kind, text):
            return
        if len(self.kept) >= MOST_TEXTS:
            self.kept.pop()
        self.kept.append(ChainStep(at, kind, text))

    def within(self, since: float, until: float) -> list[ChainStep]:
        return [step for step in self.kept if since <= step.at <= until]


@dataclass(slots=True)
class SeenNode:
    name: str
    state: NodeState | None = None
    claim: "SeenClaim | None" = None
    start: NodeStart | None = None
    """When the node was requested, and when it became usable."""
    held: SeenTexts = field(default_factory=SeenTexts)
    """Events that say why an autoscaler could not remove the node."""

    @property
    def requested(self) -> float | None:
        return None if self.start is None else self.start.requested

    @property
    def usable(self) -> float | None:
        return None if self.start is None else self.start.usable


@dataclass(slots=True)
class SeenGroup:
    state: GroupState = field(default_factory=GroupState)
    failed: SeenTexts = field(default_factory=SeenTexts)
    """Errors of the cloud: why the group's instances could not be created."""
    increases: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MOST_CALLS))
    """When cluster-autoscaler requested more instances, and how many."""
    coming: dict[str, SeenNode] = field(default_factory=dict)
    """The group's nodes that haven't become usable yet."""
    came: float = 0.0
    """When the group's last node was created: the cloud's earlier failures are over."""
    lost: tuple[SeenNode, float] | None = None
    """The group's node that was deleted last, and when."""
    shown: bool = False
    """Whether the group has had a node, so that the resources of its nodes are known."""
    last: SeenNode | None = None
    """The group's node that became usable last."""


@dataclass(slots=True)
class SeenClaim:
    name: str
    state: NodeClaimState
    failed: SeenTexts = field(default_factory=SeenTexts)
    gone: bool = False


@dataclass(slots=True)
class SeenPod:
    name: str
    state: PodState
    before_the_run: bool
    """Whether the pod ran already when the run began."""
    texts: SeenTexts = field(default_factory=SeenTexts)
    """What the scheduler and the autoscalers reported about the pod."""
    message: str = ""
    """The scheduler's last message about the pod."""
    decided: float | None = None
    """When an autoscaler last decided to add a node for the pod."""
    decided_by: str = ""
    groups: tuple[str, ...] = ()
    """The groups that the autoscaler scaled up by its last decision for the pod."""
    chosen: dict[str, float] = field(default_factory=dict)
    """When cluster-autoscaler first chose each group for the pod, by the group's name."""
    nominated: str = ""
    """The NodeClaim that Karpenter made for the pod."""
    said: dict[str, tuple[GroupRefusal, ...]] = field(default_factory=dict)
    """The last refusals of each autoscaler that adds no node for the pod, by autoscaler."""
    refusals: tuple[GroupRefusal, ...] | None = None
    """Why no autoscaler adds a node for the pod; None if the last decision was to add one."""
    refused: float = 0.0
    """When the autoscaler last refused to add a node."""
    refused_by: str = ""
    bound: float | None = None
    running: float | None = None
    node: SeenNode | None = None
    disrupted: float | None = None
    by: str = ""
    """Which program evicted or preempted the pod, and why."""
    ended: float | None = None
    gone: float | None = None

    @property
    def since(self) -> float:
        """When the pod began to wait to run: its creation, but not before the run began."""
        return max(self.state.created, 0.0)


@dataclass(slots=True)
class SeenCluster:
    autoscaled: bool = False
    """Whether anything has shown that an autoscaler runs."""
    events_read: bool = True
    """Whether the Events about pods could be read."""
    autoscalers_read: bool = True
    """Whether everything could be read that would show that an autoscaler runs."""
    starts: NodeStarts = field(default_factory=NodeStarts)
    nodes: dict[str, SeenNode] = field(default_factory=dict)
    groups: dict[str, SeenGroup] = field(default_factory=dict)
    claims: dict[str, SeenClaim] = field(default_factory=dict)
    budgets: dict[str, tuple[float, BudgetState]] = field(default_factory=dict)
    """The PodDisruptionBudgets by NAMESPACE/NAME, each with its state and since when it has it."""
    named: dict[tuple[GroupRefusal, ...], tuple[GroupRefusal, ...]] = field(default_factory=dict)
    """A cache: refusals, with the groups that they mean, until a group changes."""
    largest: dict[str, float] = field(default_factory=dict)
    """The most of each resource that any node has had for pods."""
    hints: tuple[str, list[str]] | None = None
    """A cache: the sentences of `deciding` on groups, until something but a pod changes."""

    def changed(self) -> None:
        """Clears the caches `named` and `hints`. To be called when a group or node has changed."""
        self.named.clear()
        self.hints = None

    def node(self, name: str) -> SeenNode:
        """Returns the facts of a node. They have no state yet if a pod on the node was recorded
        before the node.
        """
        if name not in self.nodes:
            self.nodes[name] = SeenNode(name)
        return self.nodes[name]

    def group(self, name: str) -> SeenGroup:
        if name not in self.groups:
            self.groups[name] = SeenGroup()
        return self.groups[name]
