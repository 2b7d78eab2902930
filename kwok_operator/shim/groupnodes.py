"""The Nodes of one group, as far as the shim has seen them.

    an event of a Node    --put, remove-->   Nodes that exist, are starting, are gone
    a group's new status  --expect-->        Nodes that must exist by now, but were not seen yet

Groups and Nodes come by two watches, and either may be ahead of the other. Once an instance's Node
exists, the group's status no longer lists the instance. Then the instance is remembered here until
the watch shows its Node.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.cloud.annotations import Mark, mark_of
from kwok_operator.kube.decode import NodeView
from kwok_operator.nodegroups.serials import Batch, runs

STARTUP_TIME: Final = 15 * 60.0
"""Seconds that CA gives a node to become Ready, unless its flags say otherwise."""
BEHIND: Final = 5.0
"""Seconds that one watch may be behind the other."""


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A node of a group. `deleting`: it is being deleted, or the simulated cloud will delete it
    later.

    `opened`: it has been usable for pods at some time. `created` is in epoch seconds.
    """

    name: str
    provider_id: str
    deleting: bool
    mark: Mark | None
    created: float
    opened: bool

    def is_running(self, *, now: float) -> bool:
        """Whether the node has been usable for pods at some time, or is so old (STARTUP_TIME) that
        it counts as such."""
        return self.opened or self.created <= now - STARTUP_TIME


@dataclass(frozen=True, slots=True)
class _Expected:
    """A Node that must exist since resourceVersion `version`, but was not seen yet. It is expected
    until the time `until` (epoch seconds)."""

    version: int
    until: float


@dataclass(slots=True)
class GroupNodes:
    """A group's Nodes by serial (number in the name). `gone` are the serials whose Node no longer
    exists, `highest` is the highest serial seen so far.

    `starting` has new Nodes that don't take pods yet, and when each was created.
    """

    there: dict[int, GroupNode] = field(default_factory=dict)
    starting: dict[int, float] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    expected: dict[int, _Expected] = field(default_factory=dict)
    highest: int = -1

    def put(self, serial: int, view: NodeView, *, now: float) -> None:
        """Records that a Node exists, with its state at `now` (epoch seconds)."""
        mark = mark_of(labels=view.labels, annotations=view.annotations)
        # The simulated cloud may delay a deletion: then the node counts as leaving.
        leaving = view.deleting or (mark is not None and mark.delete_at is not None)
        young, before = view.created > now - STARTUP_TIME, self.there.get(serial)
        opened = view.usable or (before is not None and before.opened)
        self.there[serial] = GroupNode(
            view.name, view.provider_id, leaving, mark, created=view.created, opened=opened
        )
        if leaving or (view.usable and not (young and _is_initializing(mark, now=now))):
            self.starting.pop(serial, None)
        elif young:
            self.starting[serial] = view.created
        self.highest = max(self.highest, serial)
        self.expected.pop(serial, None)
        self.gone.discard(serial)

    def remove(self, serial: int) -> None:
        self.there.pop(serial, None)
        self.starting.pop(serial, None)
        self.expected.pop(serial, None)
        self.gone.add(serial)

    def expect(self, serials: Set[int], *, version: int, now: float) -> None:
        """Expects these Nodes, as the group's status at resourceVersion `version` no longer lists
        them as pending.

        A Node is expected until it is seen, but for at most BEHIND seconds.
        """
        for serial in serials - self.there.keys() - self.gone:
            self.expected[serial] = _Expected(version, now + BEHIND)

    def forget_gone(self, batches: Sequence[Batch], *, next_serial: int) -> None:
        """Forgets gone Nodes, except those with a serial in `batches`, which the group's status
        still lists as pending, or from `next_serial` on, which are newer than that status."""
        self.gone = {
            serial
            for serial in self.gone
            if serial >= next_serial or any(serial in batch for batch in batches)
        }

    def still_expected(self, *, seen: int, now: float) -> list[Batch]:
        """Returns the serials of those expected Nodes that the watch may not have shown yet, as
        runs of consecutive serials; forgets all other expected Nodes. `seen` is the resourceVersion
        that the watch has reached."""
        self.expected = {
            serial: expected
            for serial, expected in self.expected.items()
            if expected.version > seen and 0 < expected.until - now <= BEHIND
        }
        return [Batch(first, last, "") for first, last in runs(self.expected)]

    def is_starting(self, *, now: float) -> bool:
        """Whether one of the nodes is new and doesn't take pods yet."""
        # Sorted by age: the loop ends at the first young node, and removes each old node only once.
        while self.starting:
            serial = next(iter(self.starting))
            if self.starting[serial] > now - STARTUP_TIME:
                return True
            del self.starting[serial]
        return False

    def ended(self, *, capped: bool, now: float) -> frozenset[int]:
        """Returns the serials of nodes that the simulated cloud takes back now. `capped`: the group
        limits how many are interrupted at a time."""
        staying = ((s, n.mark) for s, n in self.there.items() if n.mark and not n.deleting)
        return frozenset(s for s, mark in staying if _is_over(mark, capped=capped, now=now))


def _is_initializing(mark: Mark | None, *, now: float) -> bool:
    """Whether the node still has the simulated cloud's startup taints, or lacks some of its
    resources.

    This is computed from `mark`, which is what the cloud has recorded on the Node. The Node's own
    taints don't show it: the group's template may set the same taints permanently.
    """
    if mark is None or mark.life is None:
        return False
    shown = mark.life.desired(int(now * 1_000))
    return bool(shown.taints or shown.missing)


def _is_over(mark: Mark, *, capped: bool, now: float) -> bool:
    """Whether the simulated cloud takes the node back now, as its time is over. `capped`: the group
    limits how many of its nodes are interrupted at a time."""
    life = mark.lived(capped=capped)
    end = life.end
    return end is not None and life.born + end.gone_after <= now * 1_000
