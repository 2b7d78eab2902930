"""The simulated cloud's part of a pass: a GroupStep, made of what `Clouds` decides.

observe (nodes) ─> decide (plan) ─> status, metrics, notices ─> patches ─> births of new nodes
           └─ `ended` ─> plan.delete ─> actions.py ─> nodewriter.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kwok_operator.cloud.annotations import Mark, mark_of, mark_on, read_life
from kwok_operator.cloud.api.cloud import Interruptions
from kwok_operator.cloud.api.cloudstatus import CloudStatus
from kwok_operator.cloud.checks import cautions
from kwok_operator.cloud.clouds import CloudDecision, Clouds, ObservedCloud
from kwok_operator.cloud.hold import HoldLink
from kwok_operator.cloud.shaping import (
    Birth,
    DesiredShape,
    Hold,
    carried_over,
    changes,
    shows_notice,
)
from kwok_operator.formats.times import milliseconds_of
from kwok_operator.formats.words import few_names
from kwok_operator.kube.decode import NodeView
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.executor import Executor
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import ConditionType
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.kwok import KwokLink
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.observation import Memory, Observation
from kwok_operator.nodegroups.parts import Clock
from kwok_operator.nodegroups.plan import Plan
from kwok_operator.nodegroups.steps import GroupStep, StepPass, StepReport, Stop, Write
from kwok_operator.observability.metrics import Metrics

INTERRUPTED = "Interrupted"
MAX_LIFETIME = "MaxLifetime"
MAX_NODES_REPORTED: Final = 50
"""At most so many nodes get an Event of their own; the Event of the group counts all of them."""


def read_mark(node: NodeView) -> Mark | None:
    """Reads what the cloud has recorded on a node, for the node cache."""
    return mark_of(labels=node.labels, annotations=node.annotations)


@dataclass(frozen=True, slots=True)
class CloudStep(GroupStep):
    """Lets the simulated cloud take part in the passes over all groups."""

    clouds: Clouds
    hold: HoldLink
    writer: NodeWriter
    executor: Executor
    kwok: KwokLink
    recorder: Recorder
    metrics: Metrics
    clock: Clock

    async def prepare(self, group: Group) -> None:
        if group.spec.cloud is not None:
            await self.hold.current()

    def join(self, group: Group, memory: Memory, seen: Observation, *, now: int) -> StepPass | None:
        observed = self.clouds.observe(group, memory, seen, now=now)
        if observed is None:
            self.metrics.cloud(group.name, None)
            return None
        return CloudPass(self, group, memory, seen, observed)

    def carry_over(self, wanted: Node, live: Node) -> Node:
        life = read_life(live["metadata"].get("annotations") or {})
        missing = life.desired(milliseconds_of(self.clock.wall())).missing if life else ()
        return carried_over(wanted, live, missing={resource.name for resource in missing})

    def cautions(self, spec: KwokNodeGroupSpec) -> Sequence[str]:
        return cautions(spec)

    def forget(self, name: str) -> None:
        self.clouds.forget(name)


class CloudPass(StepPass):
    """The simulated cloud's part of one pass over one group."""

    _decision: CloudDecision
    _reshaped: frozenset[int]
    """Both are set by `revise`."""

    def __init__(
        self,
        step: CloudStep,
        group: Group,
        memory: Memory,
        seen: Observation,
        observed: ObservedCloud,
    ) -> None:
        self._step = step
        self._group = group
        self._memory = memory
        self._seen = seen
        self._observed = observed
        self._notice_by_unit: Mapping[int, int] | None = None
        self._hold = step.hold.known if group.spec.cloud is not None else Hold.NONE

    @property
    def ended(self) -> frozenset[int]:
        return self._observed.nodes.ended

    async def revise(
        self, plan: Plan, *, template: Node | None, reporting: bool, stop: Stop
    ) -> Plan | None:
        decision = await self._step.clouds.decide(
            self._group,
            self._memory,
            self._seen,
            plan,
            self._observed,
            node=template or self._memory.status.resolved_template,
            hold=self._hold,
            deciding=not reporting,
            stop=stop,
        )
        if decision is None:
            return None
        self._decision, self._reshaped = decision, frozenset(decision.reshape)
        return decision.plan

    def shapes(self, node: NodeRecord) -> bool:
        return node.serial in self._reshaped

    def report(self) -> StepReport:
        decision, metrics, name = self._decision, self._step.metrics, self._group.name
        for error_class, count in decision.failures.items():
            metrics.instance_failed(name, error_class, count)
        cloud = self._group.spec.cloud
        metrics.cloud(name, decision.states if cloud else None)
        conditions = {ConditionType.PROVISIONED: decision.provisioned}
        if cloud is not None:
            outage = self._observed.outage
            boots = cloud.readiness_delay is not None or cloud.failures.never_ready is not None
            lasting = outage.status or cloud.flapping is not None
            conditions[ConditionType.OUTAGE] = outage
            conditions[ConditionType.CLOUD_SIMULATED] = self._step.hold.condition(
                wanted=boots or lasting
            )
        elif decision.status == CloudStatus():
            return StepReport(decision.failed)
        # Instances requested before spec.cloud was removed still follow it.
        shown = cloud is not None or decision.status.instances
        return StepReport(
            decision.failed,
            self._observed.nodes_out,
            conditions if shown else {},
            {"cloud": decision.status},
        )

    def after_status(self) -> float | None:
        step, notices = self._step, dict[str, list[str]]()
        for serial in self._decision.reshape:
            record, desired = self._seen.records[serial], self._observed.nodes.desired[serial]
            mark = mark_on(record.mark)
            if mark is not None and mark.hold and record.ready and not desired.ready:
                step.hold.disobeyed(record.name)
            if desired.noticed and not shows_notice(mark):
                notices.setdefault(desired.reason, []).append(record.name)
        for reason, names in notices.items():
            step.metrics.interrupted(self._group.name, reason, len(names))
            announce_notice(step.recorder, self._group, names, reason=reason)
        return self._decision.look_again

    @property
    def writes(self) -> Sequence[Write]:
        return (self._postpone, self._reshape) if self._decision.writes else ()

    async def _postpone(self, stop: Stop) -> None:
        step, postponed = self._step, self._decision.postpone
        by_name = {record.name: record for record in self._seen.records.values()}

        async def postpone(name: str) -> None:
            await step.writer.postpone(by_name[name], postponed[name])

        await step.executor.run(list(postponed), postpone, group=self._group.name, stop=stop)

    async def _reshape(self, stop: Stop) -> None:
        step, nodes = self._step, self._observed.nodes
        interruptions = self._observed.cloud.interruptions

        async def reshape(serial: int) -> None:
            shape = DesiredShape(
                desired=nodes.desired[serial],
                life=nodes.lives.get(serial),
                hold=self._hold,
                taint=(interruptions or Interruptions()).taint,
                now=step.clock.now(),
                noticed_at=nodes.noticed.get(serial),
                kwok_alive=step.kwok.alive,
            )
            await step.writer.patch_current(
                self._seen.records[serial], lambda live: changes(live, shape), uid=self._group.uid
            )

        reshaped = self._decision.reshape
        await step.executor.run(reshaped, reshape, group=self._group.name, stop=stop)

    def birth(self, serial: int, capacity: Mapping[str, str]) -> Birth:
        unit = self._decision.units.number(self._observed.cloud, serial)
        return Birth.of(
            self._observed.cloud,
            group=self._group.name,
            serial=serial,
            due=self._decision.due[serial],
            now=self._observed.now,
            capacity=capacity,
            hold=self._hold,
            unit=unit,
            notice_at=self._notices().get(unit) if unit is not None else None,
        )

    def _notices(self) -> Mapping[int, int]:
        """Returns when the first node of each unit (such as a rack) gets notice of its end, by the
        unit's number."""
        if self._notice_by_unit is None:
            cloud, notices = self._observed.cloud, dict[int, int]()
            marked = self._seen.marked.items()
            units = self._decision.units.of_nodes((s, record.place) for s, record in marked)
            for serial, life in self._observed.nodes.lives.items():
                unit, at = units.number(cloud, serial), life.notice_at
                if unit is not None and at is not None:
                    notices[unit] = min(at, notices.get(unit, at))
            self._notice_by_unit = notices
        return self._notice_by_unit


def announce_notice(recorder: Recorder, group: Group, names: Sequence[str], *, reason: str) -> None:
    """Reports that nodes got notice of their end: one Event of the group, and one of each node.

    `reason` says why the nodes end: MaxLifetime, or else an interruption.
    """
    if not names:
        return
    cloud = group.spec.cloud
    interruptions = cloud.interruptions if cloud is not None else None
    soon = "soon" if interruptions is None else f"in {interruptions.notice}"
    aged = reason == MAX_LIFETIME
    nodes, one = _nodes(len(names)), len(names) == 1
    if aged:
        has = "has" if one else "have"
        cause = f"{nodes} {has} reached the maximum lifetime and"
    else:
        cause = f"{nodes} {'gets' if one else 'get'} notice and"
    message = f"{cause} {'goes' if one else 'go'} {soon}: {few_names(names)}."
    recorder.emit(group, "Normal", INTERRUPTED, message)
    why = "at the end of its maximum lifetime" if aged else "by an interruption"
    for name in names[:MAX_NODES_REPORTED]:
        recorder.emit_for_node(
            name, "Warning", INTERRUPTED, f"The simulated cloud takes the node back {soon}, {why}."
        )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
