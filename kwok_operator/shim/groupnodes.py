"""The Nodes of one group, as far as the shim has seen them.

    a Node's news         --put, remove-->   which are there, starting, gone
    a group's new status  --expect-->        whose Node must be there by now, and isn't yet

Groups and Nodes come by two watches, and either may be ahead of the other. An instance that a
group has stopped to wait for, because its Node is there, is kept in mind until that Node is seen.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.cloud.annotations import Mark, mark_of
from kwok_operator.kube.decode import NodeView
from kwok_operator.nodegroups.serials import Batch, runs

STARTUP_TIME: Final = 15 * 60.0
"""Seconds that CA gives a node to become Ready, unless its flags say else."""
BEHIND: Final = 5.0
"""Seconds that one watch may be behind the other."""


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A node of a group; one that the simulated cloud is slow to delete counts as deleting.

    `opened` says whether it has taken pods, `created` (epoch seconds) for how long it may not have.
    """

    name: str
    provider_id: str
    deleting: bool
    mark: Mark | None
    created: float
    opened: bool

    def is_running(self, *, now: float) -> bool:
        """Whether it has taken pods before, or has had long enough for it."""
        return self.opened or self.created <= now - STARTUP_TIME


@dataclass(frozen=True, slots=True)
class _Expected:
    """Since which version of the API server, and until when (epoch seconds) at most."""

    version: int
    until: float


@dataclass(slots=True)
class GroupNodes:
    """By serial; `gone` are those that were there, `highest` is the highest ever.

    `starting` has those that were made a moment ago and don't take pods yet, and when they were.
    """

    there: dict[int, GroupNode] = field(default_factory=dict)
    starting: dict[int, float] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    expected: dict[int, _Expected] = field(default_factory=dict)
    highest: int = -1

    def put(self, serial: int, view: NodeView, *, now: float) -> None:
        """`now` is epoch seconds."""
        mark = mark_of(labels=view.labels, annotations=view.annotations)
        # Where the cloud puts off a deletion, the node is going.
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
        """Expects these Nodes, for which the group as of `version` no longer waits."""
        for serial in serials - self.there.keys() - self.gone:
            self.expected[serial] = _Expected(version, now + BEHIND)

    def forget_gone(self, asked: Sequence[Batch], *, next_serial: int) -> None:
        """Keeps, of those that are gone, only what the group as it is now may still wait for."""
        self.gone = {
            serial
            for serial in self.gone
            if serial >= next_serial or any(serial in batch for batch in asked)
        }

    def still_expected(self, *, seen: int, now: float) -> list[Batch]:
        """Those whose Node can't have been seen, as of version `seen`."""
        self.expected = {
            serial: expected
            for serial, expected in self.expected.items()
            if expected.version > seen and 0 < expected.until - now <= BEHIND
        }
        return [Batch(first, last, "") for first, last in runs(self.expected)]

    def is_starting(self, *, now: float) -> bool:
        """Whether one of them is new and doesn't take pods yet."""
        # Each call ends at the first young one; an old one is met once, and never again.
        while self.starting:
            serial = next(iter(self.starting))
            if self.starting[serial] > now - STARTUP_TIME:
                return True
            del self.starting[serial]
        return False

    def ended(self, *, capped: bool, now: float) -> frozenset[int]:
        """Those that the simulated cloud takes back now; `capped` is whether others must wait."""
        staying = ((s, n.mark) for s, n in self.there.items() if n.mark and not n.deleting)
        return frozenset(s for s, mark in staying if _is_over(mark, capped=capped, now=now))


def _is_initializing(mark: Mark | None, *, now: float) -> bool:
    """Whether the node still has startup taints, or lacks some of its resources.

    Not seen from its taints, as those of the group's template stay.
    """
    if mark is None or mark.life is None:
        return False
    shown = mark.life.desired(int(now * 1_000))
    return bool(shown.taints or shown.missing)


def _is_over(mark: Mark, *, capped: bool, now: float) -> bool:
    """Whether the cloud takes the node back now; `capped` is whether others must wait."""
    life = mark.lived(capped=capped)
    end = life.end
    return end is not None and life.born + end.gone_after <= now * 1_000
