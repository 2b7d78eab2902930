"""Reports the result of a pass: the group's status, its metrics, its Events.

    PassResult (plan, nodes, template, steps)  --status-->  KwokNodeGroupStatus
    status  --publish-->  one write, if it says something new, and Events of what changed

A status that requests instances is written at once, as their nodes are created only after it.
Changes of counts alone are written at intervals.
"""

from typing import Final

from kwok_operator.nodegroups.announcements import announce
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.autoscalable import hindrance
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.observation import Observation
from kwok_operator.nodegroups.parts import Parts, PassResult
from kwok_operator.nodegroups.plan import Plan
from kwok_operator.nodegroups.status import Facts, make_status, nodes_by_state, oldest_pending

STATUS_INTERVAL: Final = 1.0
"""The least seconds between two writes of a group's counts."""
LONGEST_INTERVAL: Final = 10.0
PROGRESS_WRITES: Final = 5
"""The most writes of counts per second, for all groups that are changing: each takes the API server
10 ms."""


def progress_interval(groups: int) -> float:
    """Returns the seconds between two progress reports of a group while `groups` groups are
    being changed."""
    return min(LONGEST_INTERVAL, max(STATUS_INTERVAL, groups / PROGRESS_WRITES))


class GroupReporter:
    """Makes and writes the status of groups."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._metrics = parts.metrics

    def status(self, result: PassResult) -> KwokNodeGroupStatus:
        """Returns the status of the group after a pass, and sets the group's metrics."""
        group, seen, plan, resolution = result.group, result.seen, result.plan, result.resolution
        resolved = None
        if resolution.node is not None:
            resolved = (resolution.node, resolution.hash, resolution.source)
        usable = [record for record in seen.ready if record.usable]
        for step in result.steps:
            usable = step.complete(usable)
        reports = [step.report() for step in result.steps]
        failed = sum(report.failed for report in reports)
        facts = Facts(
            generation=group.generation,
            target=plan.target,
            paused=group.spec.paused,
            replicas=len(seen.records),
            ready=len(usable),
            updated=seen.count_updated(resolution.hash),
            pending=len(plan.pending),
            failed=len(plan.pending) if result.memory.refusal else failed,
            out=sum(report.out for report in reports),
            leaving=len(plan.delete),
            terminating=seen.held,
            foreign=seen.foreign,
            next_serial=plan.next_serial,
            batches=plan.batches,
            template_error=resolution.error,
            template_reason=resolution.reason,
            template_tried=resolution.retry_in is None,
            template_origin=resolution.origin,
            last_template=resolution.why_last,
            kwok_silent=self._parts.kwok.problem,
            refusal=result.memory.hindrance,
            rollout=plan.rollout,
            autoscaled=group.spec.autoscaling is not None,
            hindrance=self._hindrance(group, seen, plan),
            known_from_one=self._is_known_from_one(group),
            conditions={kind: v for report in reports for kind, v in report.conditions.items()},
            fields={name: value for report in reports for name, value in report.fields.items()},
        )
        status = make_status(
            facts,
            group=group.name,
            previous=result.memory.status,
            resolved=resolved,
            now=result.now,
        )
        self._metrics.group(
            group.name,
            target=plan.target.value,
            nodes=nodes_by_state(facts, terminating=len(seen.terminating)),
            conditions=(c.type for c in status.conditions if c.status == "True"),
            oldest_pending=oldest_pending(status),
        )
        return status

    async def publish(self, result: PassResult, status: KwokNodeGroupStatus) -> float | None:
        """Writes a status that says something new, and emits Events about the changes.

        If only counts have changed, and the last write was less than an interval ago, it writes
        nothing and returns the seconds to wait.
        """
        group, memory = result.group, result.memory
        before = memory.status
        if status != before:
            since = self._parts.clock.monotonic() - memory.written_at
            urgent = any(step.urgent for step in result.steps)
            urgent |= status.next_serial != before.next_serial or _verdicts(status) != _verdicts(
                before
            )
            if since < STATUS_INTERVAL and not urgent:
                return STATUS_INTERVAL - since
            memory.status_version = await self._parts.status.write(group, status)
            memory.status = status
            memory.written_at = self._parts.clock.monotonic()
        cautions = (text for step in self._parts.steps for text in step.cautions(group.spec))
        announce(
            self._parts.recorder,
            group,
            before=before,
            after=status,
            plan=result.plan,
            cautions=cautions,
        )
        return None

    def _hindrance(self, group: Group, seen: Observation, plan: Plan) -> tuple[str, str] | None:
        """Returns reason and sentence why cluster-autoscaler can't drive the group, if the group
        has spec.autoscaling."""
        if group.spec.autoscaling is None:
            return None
        longest = f"{self._parts.provider_id_prefix}{seen.names.name(plan.next_serial)}"
        return hindrance(
            group=group.name,
            paused=group.spec.paused,
            instances=len(seen.records) + len(seen.terminating) + len(plan.pending),
            id_length=len(longest),
            gpu_labels=self._parts.store.gpu_labels,
        )

    def _is_known_from_one(self, group: Group) -> bool:
        bounds = group.spec.autoscaling
        if bounds is None or bounds.min_size:
            return False
        return any(step.shown_by_nodes_only(group.spec) for step in self._parts.steps)


def _verdicts(status: KwokNodeGroupStatus) -> tuple[object, ...]:
    """Returns the values in a status whose change is written at once: not counts, and no messages,
    as these may contain counts."""
    verdicts = [(c.type, c.status, c.reason) for c in status.conditions]
    cloud = status.cloud and (status.cloud.terms, status.cloud.refused)
    return (
        status.observed_generation,
        status.target_size,
        status.template_hash,
        cloud,
        *verdicts,
    )
