"""The interface by which other features, such as the simulated cloud, take part in a pass over a
group.

    prepare ─> join ─> revise ─> report ─> after_status ─> writes ─> births, born
              (nodes   (the      (status,                 (patches) (of new nodes)
               seen)    plan)     metrics)

A feature subclasses GroupStep, and StepPass for its part in one pass over one group, and overrides
only the methods that it needs. Steps are called one after the other, in the order that
operator/assembly.py sets.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import ConditionType, Verdict
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.observation import Memory, Observation
from kwok_operator.nodegroups.plan import Plan

Stop = Callable[[], bool]
"""A function that returns whether the plan has become pointless, so that work on it stops."""
Write = Callable[[Stop], Awaitable[None]]


class FirstWrite(Protocol):
    """How a step changes the request that creates a node, the node's first write."""

    @property
    def ready(self) -> bool:
        """Whether kwok may make the node Ready as soon as it is created."""

    @property
    def keeps_ready_parts(self) -> bool:
        """Whether the request may contain everything that a Ready node has (conditions, kubelet's
        address)."""

    def body(self, plain: bytes, *, now: str) -> bytes:
        """Returns the JSON to send instead of `plain`, which the template makes; `now` is RFC
        3339."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step adds to the status: conditions, and whole fields by their Python names.

    `failed` counts instances that could not be created, `out` the nodes that are in an outage.
    """

    failed: int = 0
    out: int = 0
    conditions: Mapping[ConditionType, Verdict] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


class StepPass:
    """A step's part in one pass over one group."""

    @property
    def ended(self) -> frozenset[int]:
        """The serials of nodes that are to be deleted, whatever the target."""
        return frozenset()

    @property
    def writes(self) -> Sequence[Write]:
        """The writes that this step makes to existing nodes."""
        return ()

    async def revise(
        self, plan: Plan, *, template: Node | None, reporting: bool, stop: Stop
    ) -> Plan | None:
        """Returns the plan with this step's changes; None if `stop` ended it. `reporting`: the plan
        is only for a progress report, so nothing new may be requested.

        `template` is the node that new nodes copy, None if there is no usable template.
        """
        return plan

    @property
    def urgent(self) -> bool:
        """Whether this step's part of the status must be written at once, because nodes are created
        only after it."""
        return False

    def shapes(self, node: NodeRecord) -> bool:
        """Whether `writes` of this step patch the node. They then also remove its taint of new
        nodes, once pods may come, so the reconciler leaves the taint to them."""
        return False

    def complete(self, nodes: list[NodeRecord]) -> list[NodeRecord]:
        """Returns those of the usable `nodes` that have everything that this step adds, such as
        companions."""
        return nodes

    def report(self) -> StepReport:
        """Returns what this step adds to the status, and sets its metrics."""
        return StepReport()

    def after_status(self) -> float | None:
        """Called after the status was written. Returns the seconds until the group needs another
        pass, None if it needs none."""
        return None

    async def before_nodes(self) -> None:
        """Called before nodes are created or the taint of new nodes is removed; the caller waits
        until this method returns."""

    def birth(self, serial: int, capacity: Mapping[str, str]) -> FirstWrite | None:
        """Returns how to change the request that creates the node; None to leave it unchanged.
        `capacity` is that of the node."""
        return None

    async def born(self, name: str, *, uid: str, made: int | None = None) -> None:
        """Called after a node was created and before it takes pods, perhaps more than once. `made`
        is the time of its creation (epoch milliseconds); None means just now."""


class GroupStep:
    """A feature that takes part in passes over groups."""

    def check(self, group: Group) -> None:
        """Raises TemplateError if the part of the template that belongs to this step can't be
        used."""

    def resolved(self, group: Group, node: Node) -> Node:
        """Returns `node`, which new nodes copy, with what this step adds to every new node."""
        return node

    async def prepare(self, group: Group) -> None:
        """Called at the start of each pass over the group."""

    def join(self, group: Group, memory: Memory, seen: Observation, *, now: int) -> StepPass | None:
        """Returns this step's part of a pass that has observed these nodes, or None if it has
        none. `now` is in epoch milliseconds."""
        return None

    def carry_over(self, wanted: Node, live: Node) -> Node:
        """Returns `wanted`, the node that the edited template makes, with those parts of `live`
        that this step keeps."""
        return wanted

    def cautions(self, spec: KwokNodeGroupSpec) -> Sequence[str]:
        """Returns warnings about settings that are each valid, but conflict with each other."""
        return ()

    def shown_by_nodes_only(self, spec: KwokNodeGroupSpec) -> bool:
        """Whether this step adds something to nodes that the template doesn't show, so that
        cluster-autoscaler learns of it only from an existing node."""
        return False

    def forget(self, name: str) -> None:
        """Drops what the step knows of a deleted group."""
