"""A group as the cache and the record in status show it.

    NodeCache + Memory (status last written, serials seen) ──> Observation ──> plan, status

Memory is what the process knows beyond the API: which serials it has seen arrive, so that a node
that somebody deletes is not made again under its old name while its batch is still being filled.
Losing it in a crash costs nothing but that distinction.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from kwok_operator.controller.cache import NodeCache, NodeRecord
from kwok_operator.controller.groups import Group
from kwok_operator.core.naming import NodeNames
from kwok_operator.core.plan import Observed
from kwok_operator.core.status import batches_of
from kwok_operator.models.status import KwokNodeGroupStatus


@dataclass(slots=True)
class Memory:
    """What the process remembers of one group, by uid.

    `status` is what the API server holds as far as we know, as of `status_version`. `seen` are
    serials of open batches whose node was there; `taken` those whose name somebody else holds.
    `next_serial` outlives a status that was wiped: the nodes with the last serials may be gone.
    """

    uid: str
    status: KwokNodeGroupStatus
    status_version: int
    next_serial: int = 0
    written_at: float = float("-inf")
    seen: set[int] = field(default_factory=set)
    taken: dict[int, str] = field(default_factory=dict)
    honoured: frozenset[str] = frozenset()
    """Names in nodesToDelete that were there when they were named."""
    refusal: str | None = None

    def never_there(self, named: Set[str], *, absent: Sequence[str]) -> tuple[str, ...]:
        """Of the names that name nothing now, those that never did: the others have been deleted.

        Whoever names victims, cluster-autoscaler above all, leaves their names for a while.
        """
        self.honoured = (self.honoured | (named - frozenset(absent))) & named
        return tuple(name for name in absent if name not in self.honoured)

    def refresh(self, group: Group) -> None:
        """Takes over a status that somebody else has changed since we wrote it."""
        if group.resource_version > self.status_version:
            self.next_serial = max(self.next_serial, self.status.next_serial)
            self.status = group.status
            self.status_version = group.resource_version


@dataclass(frozen=True, slots=True)
class Observation:
    """The nodes of a group: ours by serial, and those that only look like it."""

    names: NodeNames
    records: dict[int, NodeRecord]
    terminating: dict[int, NodeRecord]
    held: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def ready(self) -> list[NodeRecord]:
        return [record for record in self.records.values() if record.ready]

    def count_updated(self, template_hash: str | None) -> int:
        return sum(record.template_hash == template_hash for record in self.records.values())


def observe(group: Group, memory: Memory, cache: NodeCache) -> Observation:
    """Sorts the nodes that carry the group's label; notes in `memory` which have arrived."""
    names = NodeNames.of(group.name, group.uid)
    records: dict[int, NodeRecord] = {}
    terminating: dict[int, NodeRecord] = {}
    held: list[str] = []
    foreign = list(memory.taken.values())
    for record in cache.group(group.name).values():
        serial = names.serial(record.name)
        if record.owner != group.uid or serial is None:
            if not record.deleting and not _of_predecessor(group, record):
                foreign.append(record.name)
        elif record.deleting:
            terminating[serial] = record
            if record.held:
                held.append(record.name)
        else:
            records[serial] = record
    if memory.status.pending:
        memory.seen |= records.keys() | terminating.keys()
    else:
        memory.seen.clear()
    return Observation(names, records, terminating, tuple(held), tuple(dict.fromkeys(foreign)))


def _of_predecessor(group: Group, record: NodeRecord) -> bool:
    """Whether a former group of this name owns the node: then it is the garbage collector's."""
    if record.owner in ("", group.uid):
        return False
    return NodeNames.of(group.name, record.owner).serial(record.name) is not None


def observed(
    seen: Observation, memory: Memory, *, room: int, template_hash: str | None = None
) -> Observed:
    """The same for the planner; `template_hash` is None where there is no usable template."""
    here = seen.records.keys() | seen.terminating.keys()
    batches = batches_of(memory.status)
    highest = max(here, default=-1)
    asked = max((batch.last for batch in batches), default=-1)
    return Observed(
        nodes={serial: record.name for serial, record in seen.records.items()},
        terminating=frozenset(seen.terminating),
        gone=frozenset(memory.seen - here) | memory.taken.keys(),
        batches=batches,
        next_serial=max(memory.next_serial, memory.status.next_serial, highest + 1, asked + 1),
        held=memory.status.target_size,
        room=room,
        ready=frozenset(serial for serial, record in seen.records.items() if record.ready),
        outdated=frozenset(
            serial
            for serial, record in seen.records.items()
            if template_hash is not None and record.template_hash != template_hash
        ),
    )
