"""Observes a group: what the node cache and the batches in its status say about it.

    NodeCache + Memory (status last written, serials seen) ──> Observation ──> plan, status

Memory is what the process knows and the API server doesn't: which requested serials have already
become nodes. So a node that a user deletes is not created again under its old name while the other
instances of its batch are still being created. If a crash loses the memory, such a node may come
back under its old name, which is the only harm.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kwok_operator.constants import MACHINES_ANNOTATION
from kwok_operator.formats.words import few_names
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord
from kwok_operator.nodegroups.plan import ObservedGroup, Places
from kwok_operator.nodegroups.status import batches_of


class Openings:
    """Decides when to retry a write, such as the removal of a node's taint, that the API server may
    refuse, or that others may undo.

    The first try is at once; the next one `FIRST` seconds later, and this pause doubles up to
    `longest` seconds. Tries more than `longest` seconds ago are forgotten.
    """

    FIRST: Final = 5.0

    def __init__(self, *, longest: float = 300.0) -> None:
        self._longest = longest
        self._tried: dict[str, tuple[float, float]] = {}
        """Name of a node -> the time of the last try, and the seconds to wait after it."""

    def is_due(self, name: str, *, now: float) -> bool:
        at, pause = self._tried.get(name, (now, 0.0))
        return now - at >= pause

    def tried(self, name: str, *, now: float) -> None:
        _, pause = self._tried.pop(name, (now, self.FIRST / 2))
        self._tried[name] = (now, min(pause * 2, self._longest))
        # Sorted by time, the oldest try first.
        while now - next(iter(self._tried.values()))[0] > self._longest:
            del self._tried[next(iter(self._tried))]


@dataclass(slots=True)
class HashedNodes:
    """Remembers which nodes had the hash of the present template. A node that has it no longer does
    not count as outdated, as somebody has removed the annotation.

    If it has the hash of the `former` template instead, nobody has removed it: a write of the
    operator, made with that template, came late. If a node's resourceVersion is lower than the one
    remembered, the cluster was restored, and all nodes are forgotten.
    """

    template_hash: str | None = None
    former: str | None = None
    serials: dict[int | None, int] = field(default_factory=dict)
    """Serial -> the resourceVersion in which the node was last seen to have the hash."""

    def note_written(self, serial: int | None, template_hash: str) -> None:
        """Notes that the operator has just written a node with this hash."""
        if template_hash == self.template_hash:
            self.serials.setdefault(serial, 0)

    def has_lost(self, record: NodeRecord, template_hash: str) -> bool:
        """Whether a node had the hash of the present template and now has neither that hash nor the
        former one."""
        known = template_hash == self.template_hash and record.serial in self.serials
        return known and record.template_hash not in (template_hash, self.former)

    def lost(
        self,
        template_hash: str,
        records: Collection[NodeRecord],
        *,
        strays: Iterable[NodeRecord] = (),
    ) -> list[NodeRecord]:
        """Returns which of a group's nodes have lost the hash of the present template. The strays
        (nodes that vanished from the watch) stay remembered, as they may have lost it, too."""
        if template_hash != self.template_hash:
            self.template_hash, self.former = template_hash, self.template_hash
            self.serials.clear()
        living = [r for r in records if r.serial is not None and not r.deleting]
        if any(r.resource_version < self.serials.get(r.serial, 0) for r in living):
            self.serials = {}
        hashed = {r.serial: r.resource_version for r in living if r.template_hash == template_hash}
        missing = self.serials.keys() - hashed.keys()
        lost = [r for r in living if self.has_lost(r, template_hash)]
        left = missing.intersection(r.serial for r in (*lost, *strays))
        self.serials = hashed | {serial: self.serials[serial] for serial in left}
        return lost


@dataclass(slots=True)
class Memory:
    """What the process remembers of one group, by uid.

    `status` is the status in the API server as far as we know, and `status_version` its
    resourceVersion; `group_version` is that of the group when last seen. `seen` are serials
    whose node existed, of batches that are not complete yet; `taken` maps serials to names that
    foreign nodes have; serials in `given_up` have addresses that another node has. `next_serial` is
    kept in case somebody empties the status: names of nodes don't show it if the newest nodes are
    gone.
    """

    uid: str
    status: KwokNodeGroupStatus
    status_version: int
    group_version: int = 0
    next_serial: int = 0
    written_at: float = float("-inf")
    seen: set[int] = field(default_factory=set)
    taken: dict[int, str] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    existing_names: frozenset[str] = frozenset()
    """Names in `nodesToDelete` that did stand for an existing node."""
    refusal: str | None = None
    doubted: bool = False
    """Whether the last write of the status failed because the API server did not find the group."""
    openings: Openings = field(default_factory=Openings)
    regains: Openings = field(default_factory=partial(Openings, longest=60.0))
    hashed_nodes: HashedNodes = field(default_factory=HashedNodes)
    altered: tuple[str, ...] = ()
    """Nodes that exist but have lost their marks (label, uid, owner, template hash)."""
    lost_marks: str = ""
    unmended: Mapping[str, str] = field(default_factory=dict)
    """Nodes that could not be looked up or repaired: name -> why."""

    @property
    def hindrance(self) -> str | None:
        """A sentence for status: why the API server refused the last write of a node, or why
        altered nodes can't be repaired; None if neither is so."""
        if self.refusal is not None or not self.unmended:
            return self.refusal
        error = next(iter(self.unmended.values()))
        return f"Nodes may be altered and can't be put right: {few_names(self.unmended)}. {error}"

    def never_there(self, named: Set[str], *, absent: Sequence[str]) -> tuple[str, ...]:
        """Returns those of the `absent` names (in `nodesToDelete`, without a node) for which this
        process has seen neither a node nor a request: probably they were named by mistake. The
        other names are those of deleted nodes.

        Clients that name nodes, above all cluster-autoscaler, leave the names in nodesToDelete for
        a while after the nodes are gone.
        """
        self.existing_names = (self.existing_names | (named - frozenset(absent))) & named
        return tuple(name for name in absent if name not in self.existing_names)

    def refresh(self, group: Group) -> None:
        """Takes over the group's status if the group has changed since the operator's last write.

        If the group's resourceVersion is lower than before, the cluster was restored from a backup,
        and the status is taken over, too.
        """
        restored = group.resource_version < self.group_version
        self.group_version = group.resource_version
        if restored or group.resource_version > self.status_version:
            self.next_serial = max(self.next_serial, self.status.next_serial)
            self.status = group.status
            self.status_version = group.resource_version


@dataclass(frozen=True, slots=True)
class Observation:
    """A group's nodes: `records` are ours by serial, `ready` those of them that are Ready, and
    `foreign` are names of nodes that only look like ours.

    `usable` is how many of the Ready ones take pods; `tainted` are Ready nodes that still have the
    taint of new nodes, which can be removed (nodegroups/usable.py). `terminating` are being
    deleted, `held` are the names of those of them that a finalizer keeps. But a node with a Machine
    (clusterapi/) that a finalizer keeps stays in `records`, as its instance ends only with the
    Machine, unless the operator deleted the node because the spec names it. `stuck` are to be
    deleted, but the simulated cloud delays that. `marked` have decisions of the simulated cloud in
    their annotations.
    `gone` are serials of open batches whose node existed and no longer does, or whose name belongs
    to a foreign node.
    """

    names: NodeNames
    records: dict[int, NodeRecord]
    ready: list[NodeRecord]
    terminating: dict[int, NodeRecord]
    held: tuple[str, ...]
    foreign: tuple[str, ...]
    stuck: dict[int, NodeRecord] = field(default_factory=dict)
    marked: dict[int, NodeRecord] = field(default_factory=dict)
    tainted: list[NodeRecord] = field(default_factory=list)
    usable: int = 0
    gone: frozenset[int] = frozenset()

    def count_updated(self, template_hash: str | None) -> int:
        return len([1 for r in self.records.values() if r.template_hash == template_hash])


def observe(group: Group, memory: Memory, cache: NodeCache) -> Observation:
    """Returns a group's nodes by state; notes in `memory` which serials have become nodes."""
    names = NodeNames.of(group.name, group.uid)
    records: dict[int, NodeRecord] = {}
    ready: list[NodeRecord] = []
    tainted: list[NodeRecord] = []
    terminating: dict[int, NodeRecord] = {}
    stuck: dict[int, NodeRecord] = {}
    marked: dict[int, NodeRecord] = {}
    held: list[str] = []
    has_machines = MACHINES_ANNOTATION in group.annotations
    named = group.spec.scale_down.nodes_to_delete
    foreign, strays = list(memory.taken.values()), cache.strays(group.name)
    for record in cache.group(group.name).values():
        serial = record.serial
        if record.owner != group.uid or serial is None:
            # Nodes of a deleted group of this name are not foreign: the garbage collector deletes
            # them.
            if not record.deleting and serial is None and record.name not in strays:
                foreign.append(record.name)
        elif record.deleting and not (has_machines and _goes_on(record, named)):
            terminating[serial] = record
            if record.held:
                held.append(record.name)
        elif record.mark is not None and record.mark.delete_at is not None:
            terminating[serial] = stuck[serial] = record
        else:
            records[serial] = record
            if record.ready:
                ready.append(record)
                if record.tainted:
                    tainted.append(record)
            if record.mark is not None and not record.deleting:
                marked[serial] = record
    # Only serials of open batches are remembered. Otherwise the set would grow without end while
    # one instance is late and others come and go.
    asked = {serial for batch in batches_of(memory.status) for serial in batch}
    memory.seen = asked & memory.seen.union(records, terminating)
    memory.given_up &= asked
    # Computed here, with the records: a node that is created a moment later is among `memory.seen`
    # but not in the records, and would seem lost.
    lost = [serial for serial in memory.seen if serial not in records and serial not in terminating]
    return Observation(
        names,
        records,
        ready,
        terminating,
        held=tuple(held),
        foreign=tuple(dict.fromkeys(foreign)),
        stuck=stuck,
        marked=marked,
        tainted=tainted,
        usable=len([1 for record in ready if record.usable]),
        gone=frozenset([*lost, *memory.taken, *memory.given_up]),
    )


def _goes_on(record: NodeRecord, named: Set[str]) -> bool:
    """Whether a node that is being deleted and has a Machine still counts as an instance: a
    finalizer keeps it, and the operator hasn't deleted it because the spec names it."""
    return record.held and not (record.dismissed and record.name in named)


class _Names(Mapping[int, str]):
    """Maps serials to names of nodes. It is a view, as a copy in each pass would cost time."""

    def __init__(self, records: Mapping[int, NodeRecord]) -> None:
        self._records = records

    def __getitem__(self, serial: int) -> str:
        return self._records[serial].name

    def __contains__(self, serial: object) -> bool:
        return serial in self._records

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


def observed(
    seen: Observation,
    memory: Memory,
    *,
    room: int,
    template_hash: str | None = None,
    ended: frozenset[int] = frozenset(),
    places: Places | None = None,
) -> ObservedGroup:
    """Converts an observation to what the planner needs; `template_hash` is None if there is no
    usable template."""
    records, terminating = seen.records, seen.terminating
    # Without nodes that have lost their hash, or lost it a moment ago: it is restored instead.
    outdated = frozenset(
        [
            serial
            for serial, record in records.items()
            if record.template_hash != template_hash
            and not record.deleting
            and not memory.hashed_nodes.has_lost(record, template_hash)
        ]
        if template_hash is not None
        else ()
    )
    batches = batches_of(memory.status)
    highest = max(max(records, default=-1), max(terminating, default=-1))
    asked = max((batch.last for batch in batches), default=-1)
    return ObservedGroup(
        nodes=_Names(records),
        terminating=frozenset(terminating),
        gone=seen.gone,
        batches=batches,
        next_serial=max(memory.next_serial, memory.status.next_serial, highest + 1, asked + 1),
        held=memory.status.target_size,
        room=max(0, room - len(seen.held)),
        finalizing=len(seen.held),
        ready=frozenset(s for s, r in records.items() if r.ready) if outdated else frozenset(),
        usable=frozenset(s for s, r in records.items() if r.usable) if outdated else frozenset(),
        outdated=outdated,
        ended=ended,
        places=places,
    )
