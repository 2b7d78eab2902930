"""The part of companions in the reconciler's pass: new nodes get their companions, and the group's
status gets a condition.

Everything else about companions is done by passes of its own, in companions/keeper.py.
"""

from dataclasses import dataclass, replace

from kwok_operator.companions.desired import (
    adds_companions,
    compile_companions,
    with_csi_node,
)
from kwok_operator.companions.keeper import CompanionKeeper
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import ConditionType
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.observation import Memory, Observation
from kwok_operator.nodegroups.steps import GroupStep, StepPass, StepReport


def with_empty_csi_node(group: Group) -> Group:
    """Returns the group with an empty CSINode in its template, unless the template has or copies
    one."""
    template = with_csi_node(group.spec.template)
    return replace(group, spec=group.spec.model_copy(update={"template": template}))


@dataclass(frozen=True, slots=True)
class CompanionStep(GroupStep):
    """Has companions (CSINode, ResourceSlices) created for new nodes in the passes over groups."""

    keeper: CompanionKeeper

    def check(self, group: Group) -> None:
        compile_companions(group.spec.template, group=group.name)

    def join(self, group: Group, memory: Memory, seen: Observation, *, now: int) -> StepPass | None:
        if not self.keeper.looks_after(group):
            return None
        return CompanionPass(self.keeper, group, nodes=len(seen.records))

    def shown_by_nodes_only(self, spec: KwokNodeGroupSpec) -> bool:
        return adds_companions(spec.template)


class CompanionPass(StepPass):
    """The part of companions in one pass over one group."""

    def __init__(self, keeper: CompanionKeeper, group: Group, *, nodes: int) -> None:
        self._keeper = keeper
        self._group = group
        self._nodes = nodes

    def complete(self, nodes: list[NodeRecord]) -> list[NodeRecord]:
        return self._keeper.complete(self._group, nodes)

    def report(self) -> StepReport:
        verdict = self._keeper.verdict(self._group, nodes=self._nodes)
        if verdict is None:
            return StepReport()
        return StepReport(conditions={ConditionType.COMPANIONS_PRESENT: verdict})

    async def before_nodes(self) -> None:
        await self._keeper.first_look(self._group)

    async def born(self, name: str, *, uid: str, made: int | None = None) -> None:
        await self._keeper.born(self._group, name, uid=uid, made=made)
