"""What a recording has shown of pods, nodes, groups and NodeClaims, as far as chains need it.

Owns the facts. `recorded` fills them in, line by line; `deciding` makes chains of them.
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
"""The most texts that are kept of a pod, a group, a NodeClaim or a node: the first, and the last.
"""
MOST_CALLS: Final = 200
"""The most requests of a group that are kept: the last ones."""


@dataclass(slots=True)
class SeenTexts:
    """Steps with the texts of other programs, of which only a limited number is kept."""

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
    """When it was requested, and usable."""
    held: SeenTexts = field(default_factory=SeenTexts)
    """What kept an autoscaler from removing it."""

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
    """Why its instances could not be created."""
    increases: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MOST_CALLS))
    """When cluster-autoscaler called for more instances, and how many more."""
    coming: dict[str, SeenNode] = field(default_factory=dict)
    """Its nodes that were never usable so far."""
    came: float = 0.0
    """When its last node came: failures before that are over."""
    lost: tuple[SeenNode, float] | None = None
    """The node that went last, and when."""
    shown: bool = False
    """Whether it has had a node, so that it is known what its nodes have."""
    last: SeenNode | None = None
    """The node that became usable last."""


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
    """Whether its wait to run was over before the run."""
    texts: SeenTexts = field(default_factory=SeenTexts)
    """What the scheduler and the autoscaler said about it."""
    message: str = ""
    """The scheduler's last message."""
    decided: float | None = None
    """When the autoscaler last decided to add a node for it."""
    decided_by: str = ""
    groups: tuple[str, ...] = ()
    """The groups that it chose then."""
    chosen: dict[str, float] = field(default_factory=dict)
    """When cluster-autoscaler first chose each group for it."""
    nominated: str = ""
    """The NodeClaim that Karpenter made for it."""
    said: dict[str, tuple[GroupRefusal, ...]] = field(default_factory=dict)
    """What each autoscaler that refuses has said last."""
    refusals: tuple[GroupRefusal, ...] | None = None
    """Why no autoscaler adds a node, if that is what they said last."""
    refused: float = 0.0
    """When it said so."""
    refused_by: str = ""
    bound: float | None = None
    running: float | None = None
    node: SeenNode | None = None
    disrupted: float | None = None
    by: str = ""
    """Who disrupted it, and why."""
    ended: float | None = None
    gone: float | None = None

    @property
    def since(self) -> float:
        """When its wait began: at the earliest, at the beginning of the run."""
        return max(self.state.created, 0.0)


@dataclass(slots=True)
class SeenCluster:
    autoscaled: bool = False
    """Whether anything has shown that an autoscaler runs."""
    heard: bool = True
    """Whether Events about pods are known."""
    looked: bool = True
    """Whether each sign of an autoscaler is known."""
    starts: NodeStarts = field(default_factory=NodeStarts)
    nodes: dict[str, SeenNode] = field(default_factory=dict)
    groups: dict[str, SeenGroup] = field(default_factory=dict)
    claims: dict[str, SeenClaim] = field(default_factory=dict)
    budgets: dict[str, tuple[float, BudgetState]] = field(default_factory=dict)
    """By NAMESPACE/NAME; with the moment since when its state is as it is."""
    named: dict[tuple[GroupRefusal, ...], tuple[GroupRefusal, ...]] = field(default_factory=dict)
    """Refusals with the groups that they are about, until anything of a group changes."""
    largest: dict[str, float] = field(default_factory=dict)
    """The most that any node has offered of each resource."""
    hints: tuple[str, list[str]] | None = None
    """What `deciding` says of all groups, as long as nothing but pods changes."""

    def changed(self) -> None:
        """Forgets what was made of groups and nodes as they were."""
        self.named.clear()
        self.hints = None

    def node(self, name: str) -> SeenNode:
        """Returns what is known of a node; pods and nodes are watched apart."""
        if name not in self.nodes:
            self.nodes[name] = SeenNode(name)
        return self.nodes[name]

    def group(self, name: str) -> SeenGroup:
        if name not in self.groups:
            self.groups[name] = SeenGroup()
        return self.groups[name]
