"""One pass over one group: look, decide, record, act.

    observe ──> plan ──> status (what is asked for is recorded first) ──> execution ──> again

Level-triggered: a pass needs no reason and no memory of the one before. It ends when there is
nothing left to do, or when the group changes under it: then the next pass plans anew. Whatever it
does can be cut short at any instant and goes on from what the API server holds.

Nodes and status are written from here alone; what is decided comes from the core.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from kwok_operator.controller.announcements import announce, announce_slowness
from kwok_operator.controller.budget import NodeBudget
from kwok_operator.controller.cache import NodeCache, NodeRecord
from kwok_operator.controller.execution import Execution, Work, deletes_pods
from kwok_operator.controller.executor import Executor
from kwok_operator.controller.groups import Group, GroupStore
from kwok_operator.controller.kwok import KwokLink
from kwok_operator.controller.nodes import NodeWriter
from kwok_operator.controller.observation import Memory, Observation, observe, observed
from kwok_operator.controller.recorder import Recorder
from kwok_operator.controller.statuswriter import GroupGoneError, StatusWriter
from kwok_operator.controller.templates import Resolution, Templates
from kwok_operator.core.autoscalable import disagreement, hindrance
from kwok_operator.core.plan import Plan, make_plan
from kwok_operator.core.status import Facts, make_status, nodes_by_state, oldest_pending
from kwok_operator.errors import BadRequestError, ForbiddenError, InvalidError
from kwok_operator.metrics import Metrics
from kwok_operator.models.status import KwokNodeGroupStatus

logger = logging.getLogger(__name__)

STATUS_INTERVAL = 1.0
"""Seconds between two writes of counts."""
NOT_READY_RECHECK = 5.0
LEFTOVER_RECHECK = 1.0

_REFUSED = (BadRequestError, InvalidError, ForbiddenError)
_VERBS = {"DELETE": "delete", "PATCH": "update"}


@dataclass(frozen=True, slots=True)
class Clock:
    """Time: `monotonic` seconds, the time of day, and how to wait."""

    monotonic: Callable[[], float]
    wall: Callable[[], datetime]

    def now(self) -> str:
        """RFC 3339, in seconds."""
        return self.wall().strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler works with."""

    store: GroupStore
    cache: NodeCache
    writer: NodeWriter
    templates: Templates
    kwok: KwokLink
    recorder: Recorder
    executor: Executor
    budget: NodeBudget
    status: StatusWriter
    metrics: Metrics
    clock: Clock
    provider_id_prefix: str


class Reconciler:
    """Brings groups to their target. `wake(name, delay)` has a group looked at again."""

    def __init__(self, parts: Parts, *, wake: Callable[[str, float], None]) -> None:
        self._parts = parts
        self._wake = wake
        self._memories: dict[str, Memory] = {}
        self._gpu_labels: dict[str, str] = {}
        """Those that groups set, by name, while they don't agree."""
        self._closing = False
        self._execution = Execution(
            writer=parts.writer,
            executor=parts.executor,
            kwok=parts.kwok,
            metrics=parts.metrics,
            now=parts.clock.now,
            provider_id_prefix=parts.provider_id_prefix,
        )

    def close(self) -> None:
        """Start no write any more; what is in flight ends."""
        self._closing = True

    async def reconcile(self, name: str) -> None:
        """One pass. Raises KwokOperatorError where it has to be tried again."""
        with self._parts.metrics.reconciling(self._parts.clock.monotonic):
            await self._look_at(name)

    async def _look_at(self, name: str) -> None:
        parts = self._parts
        self._compare_gpu_labels(name)
        await self._sweep_retired(name)
        group = parts.store.get(name)
        if group is None:
            self._forget(name)
        elif group.deleting:
            if not group.orphaning:
                await self._delete_owned(group.name, group.uid, pods=deletes_pods(group))
        elif not self._closing:
            try:
                await self._pass(group, self._memory(group))
            except GroupGoneError:
                # Where the whole API is gone, so is the certainty: the garbage collector decides.
                retire = await parts.status.served()
                logger.info("group is gone: group=%s", name)
                parts.store.remove(name=name, uid=group.uid, retire=retire)
                self._wake(name, 0.0)

    async def recheck_taken(self, name: str) -> None:
        """Drops the report of foreign nodes that hold our names, once they are gone."""
        memory = self._memories.get(name)
        for serial, node in list(memory.taken.items()) if memory else ():
            if memory and not await self._parts.writer.exists(node):
                memory.taken.pop(serial, None)
                self._wake(name, 0.0)

    def _compare_gpu_labels(self, name: str) -> None:
        """Has the others looked at again where a group's label makes them agree no more, or again.

        Whatever changes a group, its end too, leads to a pass, and the pass here.
        """
        labels = disagreement(self._parts.store.gpu_labels)
        if labels != self._gpu_labels:
            for other in (labels.keys() | self._gpu_labels.keys()) - {name}:
                self._wake(other, 0.0)
            self._gpu_labels = labels

    async def _pass(self, group: Group, memory: Memory) -> None:
        parts = self._parts
        resolution = await parts.templates.resolve(group)
        seen = observe(group, memory, parts.cache)
        plan = self._plan(group, memory, seen, resolution, may_create=resolution.node is not None)
        writes = bool(plan.create or plan.delete or plan.update)
        if not writes:
            memory.refusal = None
        self._book(group, plan, seen, may_create=resolution.node is not None)
        if len(seen.ready) < len(seen.records) and not plan.create:
            await parts.kwok.look(r.name for r in seen.ready or seen.records.values())
        status = self._status(group, memory, seen, plan, resolution)
        postponed = await self._publish(group, memory, status, plan)
        if writes:
            await self._execute(group, memory, plan, seen, resolution)
            self._wake(group.name, 0.0)
        elif postponed is not None:
            self._wake(group.name, postponed)
        elif status.ready_replicas < status.replicas:
            self._wake(group.name, NOT_READY_RECHECK)

    def _plan(
        self,
        group: Group,
        memory: Memory,
        seen: Observation,
        resolution: Resolution,
        *,
        may_create: bool,
    ) -> Plan:
        room = self._parts.budget.room(group.name)
        node_hash = resolution.hash if resolution.node is not None else None
        plan = make_plan(
            group.spec,
            observed(seen, memory, room=room, template_hash=node_hash),
            names=seen.names,
            now=self._parts.clock.now(),
            may_create=may_create,
        )
        named = group.spec.scale_down.nodes_to_delete
        return replace(plan, unknown=memory.never_there(named, absent=plan.unknown))

    def _book(self, group: Group, plan: Plan, seen: Observation, *, may_create: bool) -> None:
        active = may_create and not group.spec.paused
        nodes = len(seen.records) + len(plan.pending)
        limit, rollout = plan.target.limit, plan.rollout
        waits = limit is not None and limit.reason == "NodeLimit"
        self._parts.budget.grant(
            group.name,
            max(nodes, plan.target.value) if active else nodes,
            wants_more=waits or (rollout is not None and rollout.held),
        )

    def _status(
        self,
        group: Group,
        memory: Memory,
        seen: Observation,
        plan: Plan,
        resolution: Resolution,
    ) -> KwokNodeGroupStatus:
        ready, resolved = len(seen.ready), None
        if resolution.node is not None:
            resolved = (resolution.node, resolution.hash, resolution.source)
        facts = Facts(
            generation=group.generation,
            target=plan.target,
            paused=group.spec.paused,
            replicas=len(seen.records),
            ready=ready,
            updated=seen.count_updated(resolution.hash),
            pending=len(plan.pending),
            failed=len(plan.pending) if memory.refusal else 0,
            leaving=len(plan.delete),
            terminating=seen.held,
            foreign=seen.foreign,
            next_serial=plan.next_serial,
            batches=plan.batches,
            template_error=resolution.error,
            template_reason=resolution.reason,
            template_origin=resolution.origin,
            last_template=resolution.why_last,
            kwok_silent=self._parts.kwok.silent,
            refusal=memory.refusal,
            rollout=plan.rollout,
            autoscaled=group.spec.autoscaling is not None,
            hindrance=self._hindrance(group, seen, plan),
        )
        status = make_status(
            facts,
            group=group.name,
            previous=memory.status,
            resolved=resolved,
            now=self._parts.clock.now(),
        )
        self._parts.metrics.group(
            group.name,
            target=plan.target.value,
            nodes=nodes_by_state(facts, terminating=len(seen.terminating)),
            conditions=(c.type for c in status.conditions if c.status == "True"),
            oldest_pending=oldest_pending(status),
        )
        return status

    def _hindrance(self, group: Group, seen: Observation, plan: Plan) -> tuple[str, str] | None:
        """Why cluster-autoscaler can't drive the group, if it may and can't."""
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

    async def _publish(
        self, group: Group, memory: Memory, status: KwokNodeGroupStatus, plan: Plan
    ) -> float | None:
        """Writes a status that says something new, and what it means for people as Events.

        Counts alone wait their turn: returns the seconds to wait where the write was put off.
        """
        parts, before = self._parts, memory.status
        if status != before:
            since = parts.clock.monotonic() - memory.written_at
            urgent = status.next_serial != before.next_serial or _verdicts(status) != _verdicts(
                before
            )
            if since < STATUS_INTERVAL and not urgent:
                return STATUS_INTERVAL - since
            memory.status_version = await parts.status.write(group, status)
            memory.status = status
            memory.written_at = parts.clock.monotonic()
        announce(parts.recorder, group, before=before, after=status, plan=plan)
        return None

    async def _execute(
        self,
        group: Group,
        memory: Memory,
        plan: Plan,
        seen: Observation,
        resolution: Resolution,
    ) -> None:
        """Carries the plan out while counts are reported; stops when the group changes."""
        done = asyncio.Event()
        progress = asyncio.create_task(self._report_progress(group, memory, resolution, done))
        work = Work(
            group, memory, plan, seen, resolution.node, stop=lambda: self._interrupted(group)
        )
        try:
            await self._execution.carry_out(work)
            memory.refusal = None
        except _REFUSED as error:
            what = _VERBS.get(error.method, "create")
            memory.refusal = f"The API server refuses to {what} nodes: {error.message}"
            self._parts.templates.forget(group.name)
            raise
        finally:
            done.set()
            await progress

    def _interrupted(self, group: Group) -> bool:
        now = self._parts.store.get(group.name)
        return (
            self._closing
            or now is None
            or (now.uid, now.generation, now.deleting)
            != (group.uid, group.generation, group.deleting)
        )

    async def _report_progress(
        self, group: Group, memory: Memory, resolution: Resolution, done: asyncio.Event
    ) -> None:
        """Writes the counts once a second until `done`, without asking for anything new."""
        throttled = False
        while not done.is_set():
            try:
                await asyncio.wait_for(done.wait(), STATUS_INTERVAL)
                return
            except TimeoutError:
                pass
            if self._parts.executor.throttled and not throttled:
                throttled = True
                announce_slowness(self._parts.recorder, group)
            if self._interrupted(group):
                continue
            seen = observe(group, memory, self._parts.cache)
            plan = self._plan(group, memory, seen, resolution, may_create=False)
            status = self._status(group, memory, seen, plan, resolution)
            try:
                await self._publish(group, memory, status, plan)
            except Exception as error:
                logger.debug("progress not written: group=%s error=%s", group.name, error)

    async def _sweep_retired(self, name: str) -> None:
        for retired in self._parts.store.retired(name):
            await self._delete_owned(name, retired.uid, pods=retired.delete_pods)

    async def _delete_owned(self, name: str, uid: str, *, pods: bool) -> None:
        """Deletes the nodes of a group that goes or is gone, faster than the garbage collector."""
        records = [r for r in self._parts.cache.group(name).values() if r.owner == uid]
        left = [r for r in records if not r.deleting]
        if left:
            logger.info("deleting the nodes of a deleted group: group=%s nodes=%d", name, len(left))

        async def delete(record: NodeRecord) -> None:
            await self._parts.writer.delete_owned(record, owner=uid, pods=pods)

        await self._parts.executor.run(left, delete, stop=lambda: self._closing)
        if left and not self._closing:
            self._wake(name, LEFTOVER_RECHECK)

    def _memory(self, group: Group) -> Memory:
        memory = self._memories.get(group.name)
        if memory is None or memory.uid != group.uid:
            memory = Memory(group.uid, group.status, group.resource_version)
            self._memories[group.name] = memory
        memory.refresh(group)
        return memory

    def _forget(self, name: str) -> None:
        if self._memories.pop(name, None) is not None:
            self._parts.templates.forget(name)
            self._parts.budget.release(name)
            self._parts.metrics.forget(name)


def _verdicts(status: KwokNodeGroupStatus) -> tuple[object, ...]:
    """What must not wait: everything but counts and the sentences that contain them."""
    verdicts = [(c.type, c.status, c.reason) for c in status.conditions]
    return (status.observed_generation, status.target_size, status.template_hash, *verdicts)
