"""Simulates MachineDeployments and MachineSets: makes as many Machines as spec.replicas says.

    spec.replicas ──> the group's target, nodes to delete (a JSON Patch) ──> the engine: Nodes
    serials, Nodes ──> Machines ──> counts in status

Like the shim, this is a client of the *engine*, the reconciler of groups: it writes two fields of a
group's spec, and reads its serials and Nodes. Each pass starts from the objects that exist, so it
completes what an earlier pass left undone. Only one thing exists in memory alone: which Machines
somebody has deleted while their Node lives. After a restart, such a Machine is made again.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.cloud.clouds import Clouds
from kwok_operator.clusterapi.consent import Consent
from kwok_operator.clusterapi.keys import KARPENTER_MEMBER, LABELS
from kwok_operator.clusterapi.machines import (
    MACHINES,
    EmulationTerms,
    MachineCounts,
    Owner,
    default_selector,
    has_selector,
    machine_labels,
    machine_manifest,
    machine_set,
    machine_set_name,
    owner_reference,
    scalable_status,
    selector_text,
    selects,
)
from kwok_operator.clusterapi.machinewriter import MachineWriter, is_ours
from kwok_operator.clusterapi.objectstores import (
    MachineRecord,
    MachineStore,
    ScalableRecord,
    ScalableStore,
    machines_decoder,
    scalables_decoder,
)
from kwok_operator.clusterapi.projection import (
    Projection,
    default_replicas,
    labels_annotation,
    project,
)
from kwok_operator.clusterapi.scalable import Kind, Scalable
from kwok_operator.clusterapi.scaling import (
    Machines,
    deletion_order,
    follow,
    needs_machines,
    without_retries,
)
from kwok_operator.errors import (
    REFUSED,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.executor import Executor
from kwok_operator.kube.reflector import Reflector
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.autoscaler import MOST_INSTANCES, Fleet
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.naming import group_name
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord
from kwok_operator.nodegroups.observation import Memory, Observation, observe, observed
from kwok_operator.nodegroups.parts import Clock
from kwok_operator.nodegroups.queue import WorkQueue

logger = logging.getLogger(__name__)

COALESCING: Final = 0.05
"""Seconds for which changes are collected before a pass."""
WRITES_PER_PASS: Final = 250
"""The most writes of Machines in one pass; the rest is left to the next pass."""
STATUS_INTERVAL: Final = 1.0
"""The least seconds between two writes of the counts of one group."""
LOOK_AGAIN: Final = 0.2
TAKEN_RECHECK: Final = 5.0
RETRIES_WITHIN: Final = 3.0
"""Seconds in which Karpenter may lower the replicas a second time for the same Machine: its
provider collects calls for up to a second, and sees changes a little later."""
GRACE: Final = 2.0
"""Seconds that `close` waits for requests in flight."""


@dataclass(slots=True)
class _Known:
    """What is kept in memory about a group between the passes over it."""

    memory: Memory
    foreign: set[str]
    """Names of the group's Machines that foreign Machines have."""
    status_at: float = float("-inf")
    """When counts were last written, in monotonic seconds."""
    chosen_at: float = float("-inf")
    """When Karpenter last chose Machines to delete, in monotonic seconds."""
    refused_at: int = -1
    """The group's generation at which the API server refused to scale it."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """The data of one pass over a group. `owner` is None if a foreign MachineSet has the name that
    the group's MachineSet needs. `nodes` has the group's Nodes by serial, also strays: Nodes that
    are gone from the watch, perhaps only because they lost their label.
    """

    group: Group
    record: ScalableRecord
    known: _Known
    owner: Owner | None
    seen: Observation
    nodes: Mapping[int, NodeRecord]
    fleet: Fleet


class Emulation:
    """Simulates the Machines of the groups in `store` once `begin` is called; a standby only runs
    `watches`.

    `client` is for the cluster of the groups. `sure()` returns whether the caches of groups and of
    Nodes are equally new: after an outage, only once both kinds are listed again.
    """

    def __init__(
        self,
        terms: EmulationTerms,
        *,
        client: KubeClient,
        store: GroupStore,
        cache: NodeCache,
        clouds: Clouds,
        executor: Executor,
        recorder: Recorder,
        wake: Callable[[str], None],
        sure: Callable[[], bool],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._terms = terms
        self._wake = wake
        self._store = store
        self._cache = cache
        self._clouds = clouds
        self._executor = executor
        self._recorder = recorder
        self._sure = sure
        self._clock = Clock(time.monotonic, client.server_clock.now)
        self._queue = WorkQueue(self.reconcile, draw=draw, wish=store.wish)
        self._known: dict[str, _Known] = {}
        self._deleted: dict[str, set[str]] = {}
        self._closing = False
        keys, version = terms.keys, terms.version
        self.api_group = keys.group
        self.consent = Consent(client=client, group=keys.group)
        self.machines = MachineStore(
            changed=self._soon, lost=self._lost, restored=self._machine_restored
        )
        self.scalables = {
            kind: ScalableStore(changed=self._scalable_changed)
            for kind in (Kind.MACHINE_DEPLOYMENT, Kind.MACHINE_SET)
        }
        self._writer = MachineWriter(client=client, store=self.machines, keys=keys, version=version)
        machines = Reflector(
            client=client,
            path=self._writer.path(MACHINES),
            decoder=machines_decoder(keys),
            params={"labelSelector": constants.NODE_GROUP_LABEL},
            sink=self.machines,
            on_restored=self._cluster_restored,
        )
        self.reflectors: list[Reflector[Any]] = [machines]
        for kind, store_of_kind in self.scalables.items():
            scalables = Reflector(
                client=client,
                path=self._writer.path(kind.plural),
                decoder=scalables_decoder(keys, kind),
                sink=store_of_kind,
                on_restored=store_of_kind.forget,
            )
            self.reflectors.append(scalables)

    @property
    def watches(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """The watches that must run: each as a name and a function that starts it. A standby runs
        them, too.
        """
        machines, *scalables = self.reflectors
        watches = [("watch scalables", each.run) for each in scalables]
        return [("watch machines", machines.run), *watches]

    async def begin(self) -> None:
        """Plans a pass over every group once all watches have listed their objects; also over
        groups that are gone, if they have Machines left.
        """
        for reflector in self.reflectors:
            await reflector.synced.wait()
        self._queue.open()
        for name in {*self.machines.groups(), *self._store.names()}:
            self._queue.add(name)

    async def close(self) -> None:
        """Starts no more writes, and waits for those in flight."""
        self._closing = True
        await self._queue.close(grace=GRACE)

    def group_changed(self, name: str) -> None:
        """Plans a pass after a change of a group or of one of its Nodes."""
        if name in self._known or self._record_of(self._store.get(name)) is not None:
            self._queue.add(name, COALESCING)

    async def reconcile(self, name: str) -> None:
        """Makes one pass over a group. Raises KwokOperatorError if it has to be tried again."""
        if not (all(each.version for each in self.reflectors) and self._sure()):
            self._queue.add(name, LOOK_AGAIN)
            return
        group = self._store.get(name)
        record = self._record_of(group)
        if self._closing or (group is not None and record is None and name not in self._known):
            return
        await self._sweep(name, group)
        if group is None or group.deleting or record is None or record.scalable.deleting:
            self._known.pop(name, None)
            return
        known = self._known.get(name)
        if known is None or known.memory.uid != group.uid:
            memory = Memory(group.uid, group.status, group.resource_version)
            known = self._known[name] = _Known(memory, set())
        known.memory.refresh(group)
        try:
            await self._pass(group, record, known)
        except REFUSED as error:
            sentence = f"the API server refuses what {record.scalable.id} needs: {error}"
            self._recorder.emit(group, "Warning", "EmulationRefused", sentence)
            raise

    async def _pass(self, group: Group, record: ScalableRecord, known: _Known) -> None:
        if await self._default(group, record):
            return
        owner = await self._owner(group, record)
        seen = observe(group, known.memory, self._cache)
        await asyncio.sleep(0)  # observing thousands of nodes takes a while; lets other tasks run
        strays = [r for r in self._cache.strays(group.name).values() if r.owner == group.uid]
        if strays:
            self._queue.add(group.name, LOOK_AGAIN)  # nothing reports that one is known to be gone
        nodes = {**{r.serial: r for r in strays if r.serial is not None}, **seen.records}
        fleet = _fleet(group, known.memory, seen, nodes)
        this = _Pass(group, record, known, owner, seen, nodes, fleet)
        if not await self._scale(this) and owner is not None:
            await self._sync_machines(this, owner)

    def _soon(self, name: str) -> None:
        self._queue.add(name, COALESCING)

    def _lost(self, group: str, name: str) -> None:
        self._deleted.setdefault(group, set()).add(name)

    def _machine_restored(self, group: str, name: str) -> None:
        self._deleted.get(group, set()).discard(name)

    def _cluster_restored(self) -> None:
        self.machines.forget()
        self._deleted.clear()

    def _scalable_changed(self, scalable: Scalable) -> None:
        owner = scalable.deployment or scalable.name
        for name in {owner, scalable.name}:
            # Without delay, as the client that scales waits for it.
            self._queue.add(group_name(f"{scalable.namespace}.{name}"), 0.0)

    def _record_of(self, group: Group | None) -> ScalableRecord | None:
        """Returns the object from which a group is made; None if its Machines are not simulated."""
        if group is None or constants.MACHINES_ANNOTATION not in group.annotations:
            return None
        kind, _, place = group.annotations.get(constants.CAPI_ANNOTATION, "").partition("/")
        namespace, _, name = place.partition("/")
        for known, store in self.scalables.items():
            if known == kind:
                return store.get(namespace, name)
        return None

    async def _sweep(self, name: str, group: Group | None) -> None:
        """Deletes the Machines of groups of this name that are gone or being deleted."""
        living = "" if group is None or group.deleting else group.uid
        left = [
            record
            for record in self.machines.group(name).values()
            if record.group_uid != living
            and is_ours(record)
            and (record.kept or not record.deleting)
        ]
        if group is None or group.deleting:
            self._deleted.pop(name, None)
        await self._executor.run(left, self._writer.remove, group=name, stop=lambda: self._closing)
        if any(record.kept for record in left):
            self._queue.add(name, LOOK_AGAIN)  # patches fail if the Machine has changed meanwhile

    async def _default(self, group: Group, record: ScalableRecord) -> bool:
        """Writes the defaults that Cluster API's webhook would set, and adds the label that all
        simulated nodes have to the annotation from which cluster-autoscaler learns labels.

        Returns whether defaults were missing: then this pass can do nothing more.
        """
        scalable, keys = record.scalable, self._terms.keys
        spec: dict[str, Any] = {}
        if scalable.replicas is None:
            before = group.spec.target_size
            spec["replicas"] = default_replicas(scalable, keys, before=before)
        if not has_selector(scalable):
            spec["selector"] = {"matchLabels": default_selector(scalable, keys)}
        labels = labels_annotation(scalable)
        annotations = {LABELS: labels} if labels != scalable.annotations.get(LABELS) else {}
        if spec or annotations:
            try:
                await self._writer.amend(record, spec, annotations)
            except (ConflictError, NotFoundError):
                self._queue.add(group.name, LOOK_AGAIN)
        return bool(spec)

    async def _scale(self, this: _Pass) -> bool:
        """Writes the group's target and the nodes to delete; returns whether it had to write."""
        replicas = min(this.record.scalable.replicas or 0, MAX_TARGET_SIZE)
        wishes = await self._wishes(this, replicas)
        wanted = replicas
        if needs_machines(this.fleet, replicas):
            wanted = self._without_retries(this, replicas, wishes)
        scaled = await self._scale_group(this, wanted, wishes)
        if wanted != replicas:
            try:
                await self._writer.amend(this.record, {"replicas": wanted}, {})
            except (ConflictError, NotFoundError):
                self._queue.add(this.group.name, LOOK_AGAIN)
            else:
                words = (
                    "replicas put back, as Karpenter chose fewer Machines: group=%s from=%d to=%d"
                )
                logger.info(words, this.group.name, replicas, wanted)
        return scaled

    async def _wishes(self, this: _Pass, replicas: int) -> Machines:
        """Returns which Machines the next scale-down deletes first. If the group must scale down
        now, lists the Machines before, as the cache may lack the newest annotations.
        """
        group, fleet, scalable = this.group, this.fleet, this.record.scalable
        machines = self.machines.group(group.name)
        lost = self._deleted.setdefault(group.name, set())
        lost |= {
            r.name for r in machines.values() if r.deleting or _goes_with_others(r, this.owner)
        }
        annotated: set[str] = set()
        if needs_machines(fleet, replicas):
            # cluster-autoscaler annotates Machines just before it scales down, so the cache may
            # lack that.
            afresh = await self._writer.afresh(scalable.namespace, group.name)
            for record in afresh:
                self.machines.upsert(record)
            annotated = {record.name for record in afresh if record.annotated}
            lost |= machines.keys() - {record.name for record in afresh if not record.deleting}
        lost &= {*fleet.present.values(), *map(fleet.names.name, fleet.waiting)}
        usable = {record.name for record in this.seen.ready}
        return Machines(annotated, frozenset(lost), usable=usable)

    def _without_retries(self, this: _Pass, replicas: int, wishes: Machines) -> int:
        known, now = this.known, self._clock.monotonic()
        if KARPENTER_MEMBER not in this.record.scalable.labels:
            return replicas
        recently = now - known.chosen_at <= RETRIES_WITHIN
        wanted, chosen = without_retries(this.fleet, replicas, wishes, recently=recently)
        if chosen:
            known.chosen_at = now
        return wanted

    async def _scale_group(self, this: _Pass, replicas: int, wishes: Machines) -> bool:
        group = this.group
        change = follow(this.fleet, replicas, wishes, order=deletion_order(this.record.scalable))
        if change is None:
            return False
        try:
            # Stored before the watch reports it, as the next pass must see the group as it is now.
            if self._store.seen(await self._writer.scale(group, change), False):
                self._wake(group.name)
        except NotFoundError:
            return True
        except InvalidError:
            if this.known.refused_at == group.generation:
                raise
            # Usually the group has just changed, and the watch will report it.
            this.known.refused_at = group.generation
            self._queue.add(group.name, LOOK_AGAIN)
            return True
        logger.info("scaled: group=%s target=%d", group.name, change.target)
        # Without delay: Karpenter waits for the deletionTimestamps of the Machines.
        self._queue.add(group.name, 0.0)
        return True

    async def _owner(self, group: Group, record: ScalableRecord) -> Owner | None:
        """Returns the MachineSet that owns the Machines, and creates it if necessary. None if a
        foreign MachineSet has its name."""
        scalable = record.scalable
        if scalable.kind is Kind.MACHINE_SET:
            return Owner(scalable.name, scalable.uid)
        terms, sets = self._terms, self.scalables[Kind.MACHINE_SET]
        wanted = machine_set(scalable, terms, group_uid=group.uid)
        existing = sets.get(scalable.namespace, machine_set_name(scalable))
        if existing is None:
            existing = await self._writer.create_set(wanted)
        if existing is not None and not _is_marked(existing):
            sentence = (
                f"MachineSet {scalable.namespace}/{machine_set_name(scalable)} is somebody else's,"
                f" and has the name of {scalable.id}'s: no Machines are made; delete it"
            )
            self._recorder.emit(group, "Warning", "MachineSetTaken", sentence)
            self._queue.add(group.name, TAKEN_RECHECK)
            return None
        if existing is not None and not _is_as_wanted(existing, wanted):
            existing = await self._writer.correct_set(existing, wanted)
        sets.upsert(existing)
        if existing is None:
            return None
        return Owner(existing.scalable.name, existing.scalable.uid)

    async def _sync_machines(self, this: _Pass, owner: Owner) -> None:
        """Creates, updates and deletes Machines to match the group's instances, and writes the
        counts."""
        group, scalable, terms = this.group, this.record.scalable, self._terms
        labels = machine_labels(scalable, terms.keys, machine_set=owner.name)
        if not selects(scalable, terms.keys, labels):
            sentence = (
                f"spec.selector of {scalable.id} does not select the Machines of its template:"
                " cluster-autoscaler finds none of them; correct one of the two"
            )
            self._recorder.emit(group, "Warning", "SelectorMismatch", sentence)
        projection = project(
            this.fleet,
            self.machines.group(group.name),
            nodes=this.nodes,
            leaving=this.seen.stuck,
            phases=self._clouds.phases(group.name),
            deleted=self._deleted.get(group.name, set()) | this.known.foreign,
            labels=labels,
            owner_uid=owner.uid,
            style=terms.style,
        )
        await asyncio.sleep(0)
        calls = list(self._calls(this, projection, owner, labels))
        lost = frozenset(self._deleted.get(group.name, ()))
        await self._executor.run(
            calls[:WRITES_PER_PASS],
            _make,
            group=group.name,
            stop=lambda: self._is_outdated(this, lost),
        )
        if calls:
            self._queue.add(group.name, 0.0)
        await self._count(this, owner)

    def _calls(
        self, this: _Pass, projection: Projection, owner: Owner, labels: Mapping[str, str]
    ) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yields all writes of Machines in the order of their urgency."""
        terms, writer = self._terms, self._writer
        group, scalable = this.group, this.record.scalable
        machines = self.machines.group(group.name)
        reference = owner_reference(Kind.MACHINE_SET, owner, terms)

        async def create(name: str) -> None:
            manifest = machine_manifest(
                name, scalable, terms, owner=owner, group=group.name, group_uid=group.uid
            )
            if not await writer.create(manifest):
                this.known.foreign.add(name)
                sentence = f"Machine {scalable.namespace}/{name} is somebody else's: left alone"
                self._recorder.emit(group, "Warning", "MachineTaken", sentence)

        for names, write in ((projection.end, writer.end), (projection.delete, writer.remove)):
            for name in filter(lambda name: is_ours(machines[name]), names):
                yield partial(write, machines[name])
        for name in projection.relabel:
            yield partial(writer.relabel, machines[name], labels, reference)
        for name in projection.create:
            yield partial(create, name)
        for name, (shown, uid) in projection.show.items():
            yield partial(writer.show, machines[name], shown, node_uid=uid, now=self._clock.now())

    def _is_outdated(self, this: _Pass, lost: Set[str]) -> bool:
        """Whether a pass must stop, as its group or scalable has changed since the pass began, or
        more Machines were deleted. `lost` are the deleted Machines that the pass knows.
        """
        group, scalable = this.group, self._record_of(this.group)
        now = self._store.get(group.name)
        return (
            self._closing
            or now is None
            or now.deleting
            or now.generation != group.generation
            or scalable is None
            or scalable.generation != this.record.generation
            or bool(self._deleted.get(group.name, set()) - lost)
        )

    async def _count(self, this: _Pass, owner: Owner) -> None:
        """Writes the counts into the statuses, at most once per STATUS_INTERVAL."""
        group, record, known, seen = this.group, this.record, this.known, this.seen
        wait = known.status_at + STATUS_INTERVAL - self._clock.monotonic()
        machines = self.machines.group(group.name)
        counts = MachineCounts(
            replicas=sum(not machine.deleting for machine in machines.values()),
            ready=sum(node.name in machines for node in seen.ready),
            available=sum(r.usable and r.name in machines for r in seen.ready),
        )
        shown = [record]
        if record.scalable.kind is Kind.MACHINE_DEPLOYMENT:
            of_set = self.scalables[Kind.MACHINE_SET].get(record.scalable.namespace, owner.name)
            shown += [of_set] if of_set is not None else []
        for scalable_record in shown:
            status = scalable_status(
                counts,
                wanted=record.scalable.replicas or 0,
                generation=scalable_record.generation,
                selector=selector_text(scalable_record.scalable, self._terms.keys),
                before=scalable_record.status,
                now=self._clock.now(),
            )
            if all(scalable_record.status.get(key) == value for key, value in status.items()):
                continue
            if wait > 0:
                self._queue.add(group.name, wait)
                return
            known.status_at = self._clock.monotonic()
            try:
                written = await self._writer.set_status(scalable_record.scalable, status)
            except (ConflictError, NotFoundError):
                continue
            self.scalables[scalable_record.scalable.kind].upsert(written)


async def _make(call: Callable[[], Awaitable[None]]) -> None:
    await call()


def _fleet(
    group: Group, memory: Memory, seen: Observation, nodes: Mapping[int, NodeRecord]
) -> Fleet:
    """Returns the group as a Fleet, the form in which the shim, too, decides about scaling."""
    now = observed(seen, memory, room=MOST_INSTANCES)
    return Fleet(
        group=group.name,
        names=group.names,
        spec=group.spec,
        status=memory.status,
        present={serial: record.name for serial, record in nodes.items()},
        leaving=frozenset(seen.terminating),
        batches=now.batches,
        next_serial=now.next_serial,
        gone=now.gone,
    )


def _goes_with_others(record: MachineRecord, owner: Owner | None) -> bool:
    """Whether another MachineSet than `owner` owns a Machine. Such a MachineSet is gone, so the
    garbage collector will delete the Machine.
    """
    return bool(record.owners) and owner is not None and owner.uid not in record.owners


def _is_marked(existing: ScalableRecord) -> bool:
    """Whether the operator made this MachineSet."""
    return constants.NODE_GROUP_UID_ANNOTATION in existing.scalable.annotations


def _is_as_wanted(existing: ScalableRecord, wanted: Mapping[str, Any]) -> bool:
    """Whether nothing in this MachineSet has to be corrected."""
    metadata, spec = wanted["metadata"], wanted["spec"]
    return (
        existing.scalable.deployment == metadata["ownerReferences"][0]["name"]
        and metadata["labels"].items() <= existing.labels.items()
        and all(existing.scalable.spec.get(key) == value for key, value in spec.items())
    )
