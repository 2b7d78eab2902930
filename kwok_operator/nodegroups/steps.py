"""What other features do in a pass over a group, by one interface that names none of them.

    prepare ─> join ─> revise ─> report ─> after_status ─> writes ─> births, born
              (nodes   (the      (status,                 (patches) (of new nodes)
               seen)    plan)     metrics)

A feature subclasses GroupStep, and StepPass for one pass over one group, and leaves out what it
has no part in. Steps are called one after the other, as the operator has ordered them.
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
"""Whether a plan has become pointless."""
Write = Callable[[Stop], Awaitable[None]]


class FirstWrite(Protocol):
    """What a step makes of the first write of a node."""

    @property
    def ready(self) -> bool:
        """Whether kwok may make the node Ready at once."""

    @property
    def keeps_ready_parts(self) -> bool:
        """Whether the write may have all that a Ready node has."""

    def body(self, plain: bytes, *, now: str) -> bytes:
        """Of the JSON that the template makes; `now` is RFC 3339."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step has to say in the status: conditions, and whole fields by their names in Python.

    `failed` counts instances that could not be created.
    """

    failed: int = 0
    conditions: Mapping[ConditionType, Verdict] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


class StepPass:
    """A step in one pass over one group."""

    @property
    def ended(self) -> frozenset[int]:
        """The serials of nodes that are to go whatever the target."""
        return frozenset()

    @property
    def writes(self) -> Sequence[Write]:
        """What it writes into nodes that exist."""
        return ()

    async def revise(
        self, plan: Plan, *, template: Node | None, reporting: bool, stop: Stop
    ) -> Plan | None:
        """What it makes of the plan, or of one only for `reporting`; None where it is to `stop`.

        `template` is the node that new nodes copy, None where there is no usable one.
        """
        return plan

    def shapes(self, node: NodeRecord) -> bool:
        """Whether it writes into that node itself, and lets pods on if they may come."""
        return False

    def complete(self, nodes: list[NodeRecord]) -> list[NodeRecord]:
        """Those of usable nodes that have all that they are to have."""
        return nodes

    def report(self) -> StepReport:
        """What the status is to say; metrics are set, too."""
        return StepReport()

    def after_status(self) -> float | None:
        """The status is written; returns in how many seconds to look at the group again."""
        return None

    async def before_nodes(self) -> None:
        """Returns once nodes may be created, or opened to pods."""

    def birth(self, serial: int, capacity: Mapping[str, str]) -> FirstWrite | None:
        """Of a new node that is to have this capacity; None where the template's node is right."""
        return None

    async def born(self, name: str, *, uid: str, made: int | None = None) -> None:
        """A node is to take pods, made a moment ago or then (epoch milliseconds)."""


class GroupStep:
    """A feature that takes part in passes."""

    def check(self, group: Group) -> None:
        """Raises TemplateError where its part of the template can't be used."""

    async def prepare(self, group: Group) -> None:
        """A pass begins."""

    def join(self, group: Group, memory: Memory, seen: Observation, *, now: int) -> StepPass | None:
        """Its part of a pass that has seen these nodes, `now` (epoch milliseconds); None: none."""
        return None

    def carry_over(self, wanted: Node, live: Node) -> Node:
        """`wanted`, as an edited template makes it, with what is to stay of the node as it is."""
        return wanted

    def cautions(self, spec: KwokNodeGroupSpec) -> Sequence[str]:
        """Sentences on what is allowed and goes badly together."""
        return ()

    def shown_by_nodes_only(self, spec: KwokNodeGroupSpec) -> bool:
        """Whether cluster-autoscaler learns what it adds to a node only from one that is there."""
        return False

    def forget(self, name: str) -> None:
        """A group is gone."""
