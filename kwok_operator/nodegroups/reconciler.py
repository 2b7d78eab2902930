"""One pass over one group: observe, decide, record, act.

    template ──> prepare ──> strays ──> observe ──> plan
             ──> status (new requests are recorded first) ──> execution ──> again

steps.py shows when a pass calls the methods of each feature; `prepare` is the first of them.
strays.py handles nodes that vanished from the watch.

Level-triggered: a pass needs no reason and no memory of the pass before. It ends when there is
nothing left to do, or when the group changes meanwhile: then the next pass plans anew. A pass can
be interrupted at any instant; the next one continues from the state in the API server.

Writes to nodes and to the status of groups start only here; other modules decide what to write.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from kwok_operator.errors import (
    FAILED_REQUEST,
    ApiError,
    ApiUnreachableError,
    ConflictError,
    DecodeError,
    KwokOperatorError,
    NotLeadingError,
    TemplateError,
)
from kwok_operator.formats.times import format_exact_time, format_time, milliseconds_of
from kwok_operator.kube.retry import ACCIDENTS
from kwok_operator.nodegroups.actions import Actions, deletes_pods
from kwok_operator.nodegroups.announcements import announce_slowness
from kwok_operator.nodegroups.autoscalable import disagreement
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.creation import NodeCreation, NodePoster
from kwok_operator.nodegroups.network import NodeNetwork
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.observation import (
    Memory,
    Observation,
    Openings,
    observe,
    observed,
)
from kwok_operator.nodegroups.parts import Parts, PassResult
from kwok_operator.nodegroups.plan import NO_ADDRESSES, NODE_LIMIT, Places, Plan, make_plan
from kwok_operator.nodegroups.reporting import GroupReporter, progress_interval
from kwok_operator.nodegroups.statuswriter import GroupDoubtedError
from kwok_operator.nodegroups.steps import Write
from kwok_operator.nodegroups.strays import Strays
from kwok_operator.nodegroups.templates import Resolution

logger = logging.getLogger(__name__)

UNSURE_RECHECK = 0.1
"""Seconds until the next look at a group while it is unknown whether groups and nodes are up to
date."""
NOT_READY_RECHECK = 5.0
LEFTOVER_RECHECK = 1.0
DOUBT_RECHECK = 1.0
"""Seconds after which a list of all groups has shown whether a group exists."""
NO_ADDRESSES_RECHECK = 5.0

_VERBS = {"DELETE": "delete", "PATCH": "update"}


class Reconciler:
    """Brings groups to their target. `wake(name, delay)` schedules another pass over a group;
    `sure()` says whether the known groups and nodes may be acted on."""

    def __init__(
        self,
        parts: Parts,
        poster: NodePoster,
        *,
        wake: Callable[[str, float], None],
        sure: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._wake = wake
        self._sure = sure
        self._memories: dict[str, Memory] = {}
        self._gpu_labels: dict[str, str] = {}
        """Group's name -> the GPU label that it sets; empty while all groups set the same."""
        self._closing = False
        self._at_work = 0
        """The number of groups whose nodes are being created, deleted or patched."""
        self._actions = Actions(parts)
        self._creation = NodeCreation(parts, poster)
        self._reporter = GroupReporter(parts)
        self._strays = Strays(parts)
        self._sweeps = Openings()
        """When to retry deleting the nodes of deleted groups after a failure."""

    def close(self) -> None:
        """Starts no more writes; those in flight end."""
        self._closing = True

    async def reconcile(self, name: str) -> None:
        """Makes one pass over a group: compares the wanted nodes with the existing ones, and acts.
        Raises KwokOperatorError if it has to be tried again."""
        if not self._sure():
            self._wake(name, UNSURE_RECHECK)
            return
        try:
            with self._parts.metrics.reconciling(self._parts.clock.monotonic):
                await self._look_at(name)
        except NotLeadingError as error:
            # The program is ending, so neither a retry nor an Event is of use.
            logger.debug("not reconciled: group=%s error=%s", name, error)

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
            await self._pass_over(group)

    async def _pass_over(self, group: Group) -> None:
        memory = self._memory(group)
        try:
            await self._pass(group, memory)
            memory.doubted = False
        except GroupDoubtedError:
            # A 404 is no proof that the group is gone. Only a list or the watch can say so; then
            # the group's nodes are deleted.
            self._parts.store.doubted.set()
            if memory.doubted:
                raise
            memory.doubted = True
            self._wake(group.name, DOUBT_RECHECK)

    async def recheck_taken(self, name: str) -> None:
        """Reads the nodes of others that have the names of a group's nodes, and stops reporting
        those that are gone.

        If a node can't be read, its group's Events say so, and other groups continue.
        """
        memory, group = self._memories.get(name), self._parts.store.get(name)
        if memory is None or group is None:
            return
        for serial, node in list(memory.taken.items()):
            try:
                there = await self._parts.writer.exists(node)
            except KwokOperatorError as error:
                sentence = f"node {node} has a name of this group's, and can't be read: {error}"
                self._parts.recorder.emit(group, "Warning", "NodeUnreadable", sentence)
                continue
            if not there:
                memory.taken.pop(serial, None)
                self._wake(name, 0.0)

    def _compare_gpu_labels(self, name: str) -> None:
        """Schedules passes over other groups if this group's change of a GPU label makes the labels
        of all groups differ, or agree again: the status of these groups mentions the difference.

        Any change of a group, its deletion included, leads to a pass, and so to this comparison.
        """
        labels = disagreement(self._parts.store.gpu_labels)
        if labels != self._gpu_labels:
            for other in (labels.keys() | self._gpu_labels.keys()) - {name}:
                self._wake(other, 0.0)
            self._gpu_labels = labels

    async def _pass(self, group: Group, memory: Memory) -> None:
        parts = self._parts
        resolution = await parts.templates.resolve(group)
        if resolution.retry_in is not None:
            self._wake(group.name, resolution.retry_in)
        for step in parts.steps:
            await step.prepare(group)
        resolution = await self._strays.look(
            group,
            memory,
            resolution,
            stop=lambda: self._interrupted(group),
            at_work=partial(self._working, group, memory, resolution),
        )
        result = await self._find(group, memory, resolution)
        if result is None:
            return
        plan, seen = result.plan, result.seen
        if seen.tainted or (seen.usable < len(seen.records) and not plan.create):
            try:
                await parts.kwok.look(r.name for r in seen.ready or seen.records.values())
            except KwokOperatorError as error:
                # Then it is unknown whether kwok is alive, and nothing in the plan depends on it.
                logger.debug("Leases not read: group=%s error=%s", group.name, error)
        opening = self._opening(result)
        planned = plan.create or plan.delete or plan.update
        writes = bool(planned or opening or any(step.writes for step in result.steps))
        if not writes:
            memory.refusal = None
        status = self._reporter.status(result)
        postponed = await self._reporter.publish(result, status)
        for joined in result.steps:
            look_again = joined.after_status()
            if look_again is not None:
                self._wake(group.name, look_again)
        if writes:
            await self._execute(result, opening)
            self._wake(group.name, 0.0)
        elif postponed is not None:
            self._wake(group.name, postponed)
        elif self._strays.are_left(group, memory) or status.ready_replicas < status.replicas:
            self._wake(group.name, NOT_READY_RECHECK)

    def _opening(self, result: PassResult) -> list[NodeRecord]:
        """Returns the Ready nodes whose taint of new nodes is to be removed now: the plan keeps
        them, and kwok is alive."""
        if not result.seen.tainted or result.group.spec.paused or not self._parts.kwok.alive:
            return []
        leaving = frozenset(result.plan.delete)
        openings, now = result.memory.openings, self._parts.clock.monotonic()
        return [
            record
            for record in result.seen.tainted
            if record.name not in leaving
            and not any(step.shapes(record) for step in result.steps)
            and openings.is_due(record.name, now=now)
        ]

    async def _find(
        self,
        group: Group,
        memory: Memory,
        resolution: Resolution,
        *,
        reporting: bool = False,
    ) -> PassResult | None:
        """Observes the group's nodes and makes a plan. With `reporting` the plan requests nothing
        new, as it is only for a progress report. Returns None if the group changed meanwhile.

        With thousands of nodes each step takes milliseconds, so other tasks run in between.
        """
        parts = self._parts
        seen = observe(group, memory, parts.cache)
        await asyncio.sleep(0)
        now = milliseconds_of(parts.clock.wall())
        joining = (s.join(group, memory, seen, now=now) for s in parts.steps)
        steps = [step for step in joining if step is not None]
        may_create = resolution.node is not None and not reporting
        plan = make_plan(
            group.spec,
            observed(
                seen,
                memory,
                room=parts.budget.room(group.name),
                template_hash=resolution.hash if resolution.node is not None else None,
                ended=frozenset().union(*(step.ended for step in steps)),
                places=self._places(group, seen),
            ),
            names=seen.names,
            now=format_exact_time(now),
            may_create=may_create,
        )
        strays = len(parts.cache.strays(group.name))
        plan = replace(plan, create=plan.create[: max(0, len(plan.create) - strays)])
        if not reporting:
            self._book(group, plan, seen, strays=strays, may_create=may_create)
        named = group.spec.scale_down.nodes_to_delete
        plan = replace(plan, unknown=memory.never_there(named, absent=plan.unknown))
        for step in steps:
            revised = await step.revise(
                plan,
                template=resolution.node,
                reporting=reporting,
                stop=lambda: self._interrupted(group),
            )
            if revised is None:
                return None
            plan = revised
        await asyncio.sleep(0)
        return PassResult(group, memory, seen, plan, resolution, steps, format_time(now))

    def _places(self, group: Group, seen: Observation) -> Places | None:
        try:
            network = NodeNetwork.of(group.spec.template.network, group=group.name)
        except TemplateError:
            return None  # templates.py reports the invalid template
        if network is None:
            return None
        self._parts.cache.release_unheard_of(now=self._parts.clock.monotonic())
        held = self._parts.cache.addresses
        return Places(
            network.places,
            lambda serial: held.taken(network, serial, node=seen.names.name(serial)),
        )

    def _book(
        self, group: Group, plan: Plan, seen: Observation, *, strays: int, may_create: bool
    ) -> None:
        """Records in the budget how many nodes the group has or is going to have, before other
        groups plan: they share what remains."""
        active = may_create and not group.spec.paused
        nodes = len(seen.records) + len(plan.pending)
        limit, rollout = plan.target.limit, plan.rollout
        waits = limit is not None and limit.reason == NODE_LIMIT
        if limit is not None and limit.reason == NO_ADDRESSES:
            # Nodes of any group may have these addresses, so no event of this group reports when
            # they are free.
            self._wake(group.name, NO_ADDRESSES_RECHECK)
        self._parts.budget.grant(
            group.name,
            strays + len(seen.held) + (max(nodes, plan.target.value) if active else nodes),
            wants_more=waits or (rollout is not None and rollout.held),
        )

    async def _execute(self, result: PassResult, opening: list[NodeRecord]) -> None:
        """Carries out the plan, and writes the counts to the status meanwhile; stops if the group
        changes."""
        group, memory = result.group, result.memory
        try:
            async with self._working(group, memory, result.resolution):
                await self._carry_out(result, opening)
            memory.refusal = None
        except FAILED_REQUEST as error:
            memory.refusal = _in_words(error)
            self._parts.templates.forget(group.name)
            raise

    async def _carry_out(self, result: PassResult, opening: list[NodeRecord]) -> None:
        """Makes all writes of a plan. If some fail with one of FAILED_REQUEST, it raises the first
        of these errors at the end."""
        plan, node, actions = result.plan, result.resolution.node, self._actions
        writes: list[Write] = []
        if plan.delete:
            writes.append(partial(actions.delete, result))
        if opening:
            writes.append(partial(actions.let_pods_on, result, opening))
        writes += [write for step in result.steps for write in step.writes]
        if node is not None and plan.create:
            writes.append(partial(self._creation.create, result, node))
        if node is not None and plan.update:
            writes.append(partial(actions.update, result, node))
        first: KwokOperatorError | None = None
        for write in writes:
            if self._interrupted(result.group):
                break
            try:
                await write(lambda: self._interrupted(result.group))
            except FAILED_REQUEST as error:
                first = first or error
        if first is not None:
            raise first

    @asynccontextmanager
    async def _working(
        self, group: Group, memory: Memory, resolution: Resolution
    ) -> AsyncIterator[None]:
        """Writes counts of nodes to the group's status at intervals within the `with` block."""
        done = asyncio.Event()
        self._at_work += 1
        progress = asyncio.create_task(self._report_progress(group, memory, resolution, done))
        try:
            yield
        finally:
            self._at_work -= 1
            done.set()
            await progress

    def _interrupted(self, group: Group) -> bool:
        return self._closing or self._parts.store.wish(group.name) != group.wish

    async def _report_progress(
        self,
        group: Group,
        memory: Memory,
        resolution: Resolution,
        done: asyncio.Event,
    ) -> None:
        """Writes the counts to the group's status at intervals, until `done` is set. Announces once
        that the API server slows the work down."""
        throttled = False
        while not done.is_set():
            try:
                await asyncio.wait_for(done.wait(), progress_interval(self._at_work))
                return
            except TimeoutError:
                pass
            if self._parts.executor.throttled(group.name) and not throttled:
                throttled = True
                announce_slowness(self._parts.recorder, group)
            if self._interrupted(group):
                continue
            now = await self._find(group, memory, resolution, reporting=True)
            if now is None:
                continue
            try:
                await self._reporter.publish(now, self._reporter.status(now))
            except Exception as error:
                logger.debug("progress not written: group=%s error=%s", group.name, error)

    async def _sweep_retired(self, name: str) -> None:
        """Deletes nodes of deleted groups of this name. A failure doesn't stop the pass of an
        existing group of that name."""
        now = self._parts.clock.monotonic()
        for retired in self._parts.store.retired(name):
            if not self._sweeps.is_due(retired.uid, now=now):
                self._wake(name, LEFTOVER_RECHECK)
                continue
            try:
                await self._delete_owned(name, retired.uid, pods=retired.delete_pods)
            except FAILED_REQUEST as error:
                logger.warning("not deleted with its group: group=%s error=%s", name, error)
                self._sweeps.tried(retired.uid, now=now)
                self._wake(name, LEFTOVER_RECHECK)

    async def _delete_owned(self, name: str, uid: str, *, pods: bool) -> None:
        """Deletes the nodes of a group that is being deleted or is gone, faster than the garbage
        collector.

        With `pods`, also deletes the pods of these nodes, and of those that the garbage collector
        has deleted already.
        """
        cache = self._parts.cache
        records = [*cache.group(name).values(), *(cache.strays(name).values() if pods else ())]
        left = [r for r in records if r.owner == uid and not r.deleting]
        if left:
            logger.info("deleting the nodes of a deleted group: group=%s nodes=%d", name, len(left))

        async def delete(record: NodeRecord) -> None:
            await self._parts.writer.delete_owned(record, owner=uid, pods=pods)
            cache.settle_stray(name, record.name)

        await self._parts.executor.run(left, delete, group=name, stop=lambda: self._closing)
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
        self._parts.cache.forget_strays(name)
        # An unreadable group, and one that another operator served before, has room before its
        # first pass.
        if self._parts.store.is_unreadable(name):
            self._parts.budget.grant(name, self._parts.cache.count(name), wants_more=False)
        else:
            self._parts.budget.release(name)
        if self._memories.pop(name, None) is not None:
            self._parts.templates.drop(name)
            for step in self._parts.steps:
                step.forget(name)
            self._parts.metrics.forget(name)


def _in_words(error: KwokOperatorError) -> str:
    method = error.method if isinstance(error, ApiError | ApiUnreachableError) else ""
    failed = isinstance(error, (*ACCIDENTS, ConflictError, DecodeError))
    what = f"{'fails' if failed else 'refuses'} to {_VERBS.get(method, 'create')} nodes"
    why = error.message if isinstance(error, ApiError) else str(error)
    return f"The API server {what}: {why}"
