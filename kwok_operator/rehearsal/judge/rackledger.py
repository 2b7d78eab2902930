"""The racks at one moment of a recording: how many are free, and how large a gang would fit.

    NodeLine, pods on nodes --_part--> what a node adds --> sums of its rack, its block, of all
                                                        --> levels of the Tally of everything

A topology is a list of node labels, from wide to narrow. The values of all of them name a rack,
those of all but the last a block. A node that lacks one of these labels is in no rack. Without a
topology, nothing is kept.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kwok_operator.rehearsal.judge.figures import Tally
from kwok_operator.rehearsal.judge.measures import Level
from kwok_operator.rehearsal.judge.recording import NodeState, PodState, RecordedTopology

Rack = tuple[str, ...]
RackOf = Callable[[str], Rack | None]
"""Returns the rack of a node: empty if it is in no rack, None if there is no such node."""
_ON_EVERY_NODE: Final = "DaemonSet/"
_UNUSABLE, _FREE, _BUSY = range(3)
NO_NODES: Final = 0
DEGRADED: Final = 8
"""Is added to the use of a rack in a picture if fewer of its nodes are usable than once were."""


class _Part(NamedTuple):
    """What one node adds to the sums of its rack and block."""

    rack: Rack
    block: Rack
    fits: int
    """How many pods of the measuring kind (RecordedTopology.pod) fit on the node now."""
    use: int
    """The node's use: _UNUSABLE, _FREE or _BUSY."""


class _Held:
    """The number of pods on a node, and the amounts that they request."""

    __slots__ = ("amounts", "others", "pods")

    def __init__(self) -> None:
        self.pods = self.others = 0
        self.amounts: Counter[str] = Counter()


class _Sums:
    """A sum for each rack or block, an integer, and the largest of these sums."""

    def __init__(self) -> None:
        self._of: Counter[Rack] = Counter()
        self._places: Counter[int] = Counter()
        self.most = 0

    def change(self, place: Rack, by: int) -> None:
        if not by or not place:
            return
        before = self._of[place]
        self._of[place] = after = before + by
        self._places[before] -= 1
        self._places[after] += 1
        self.most = max(self.most, after)
        while self.most and self._places[self.most] <= 0:
            self.most -= 1


class RackLedger:
    def __init__(self, tally: Tally, topology: RecordedTopology | None) -> None:
        self.levels = topology.levels if topology else ()
        self._pod: Mapping[str, float] = topology.pod if topology else {}
        self._levels = tally.racks
        if self.levels:
            names = ("racks.total", "racks.free", "largestGang.rack", "largestGang.cluster")
            self._levels |= {name: Level() for name in names}
        if len(self.levels) > 1:
            self._levels["largestGang.block"] = Level()
        self._nodes: dict[str, NodeState] = {}
        self._held: dict[str, _Held] = {}
        self._parts: dict[str, _Part] = {}
        self._in: dict[Rack, list[int]] = {}
        """How many nodes of each rack are _UNUSABLE, _FREE and _BUSY."""
        self._most: dict[Rack, int] = {}
        """The most nodes of each rack that were usable at the same time. Racks are in the order of
        their first node.
        """
        self._free = self._fits = 0
        self._changed = False
        self._racks, self._blocks = _Sums(), _Sums()

    def rack_of(self, node: str) -> Rack | None:
        part = self._parts.get(node)
        return part.rack if part is not None else None

    @property
    def racks(self) -> list[Rack]:
        """All racks that ever had a node, in the order of their first node."""
        return [*self._most]

    def picture(self) -> bytes:
        """Returns a byte for each of the `racks`: NO_NODES, or how many of the usable nodes have
        pods: 1 none, 2 up to half, 3 more, 4 all; plus DEGRADED if fewer are usable than before.
        """
        return bytes(self._use(rack, most) for rack, most in self._most.items())

    def _use(self, rack: Rack, most: int) -> int:
        unusable, free, busy = self._in.get(rack, (0, 0, 0))
        degraded = DEGRADED if free + busy < most else 0
        if not unusable + free + busy:
            return NO_NODES + degraded
        if not busy:
            return 1 + degraded
        return (2 if busy <= free else 3 if free else 4) + degraded

    def node(self, name: str, state: NodeState | None) -> bool:
        """Applies a line about a node. Returns whether the node is in another rack now."""
        if not self.levels:
            return False
        before = self.rack_of(name)
        if state is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = state
        self._refit(name)
        return self.rack_of(name) != before

    def holds(self, pod: PodState, *, sign: int) -> None:
        """Records that a pod occupies a part of its node (`sign` 1), or no longer does (-1)."""
        if not self.levels:
            return
        held = self._held.get(pod.node)
        if held is None:
            held = self._held[pod.node] = _Held()
        held.pods += sign
        if not pod.workload.startswith(_ON_EVERY_NODE):
            held.others += sign
        for name in self._pod:
            held.amounts[name] += sign * pod.requests.get(name, 0.0)  # type: ignore[assignment]
        if not held.pods:
            del self._held[pod.node]
        self._refit(pod.node)

    def settle(self, t: float) -> None:
        """Sets the levels, such as racks.free, to the present sums. Called after each line."""
        if not self._changed:
            return
        self._changed = False
        now = {
            "racks.total": len(self._in),
            "racks.free": self._free,
            "largestGang.rack": self._racks.most,
            "largestGang.block": self._blocks.most,
            "largestGang.cluster": self._fits,
        }
        for each, level in self._levels.items():
            if level.value != now[each]:
                level.move(t, now[each] - level.value)

    def _refit(self, name: str) -> None:
        before, state = self._parts.get(name), self._nodes.get(name)
        after = None if state is None else self._part(state, self._held.get(name))
        if after == before:
            return
        if before is not None:
            self._add(before, sign=-1)
            del self._parts[name]
        if after is not None:
            self._add(after, sign=1)
            self._parts[name] = after
        self._changed = True

    def _part(self, node: NodeState, held: _Held | None) -> _Part:
        values = node.topology
        rack = values if len(values) == len(self.levels) and all(values) else ()
        wide = values[: len(self.levels) - 1]
        block = wide if wide and all(wide) else ()
        if not _usable(node):
            return _Part(rack, block, 0, _UNUSABLE)
        use = _BUSY if held is not None and held.others else _FREE
        fits = self._fit(node, held) if self._pod else int(use == _FREE)
        return _Part(rack, block, fits, use)

    def _fit(self, node: NodeState, held: _Held | None) -> int:
        """Returns how many more pods of the kind by which racks are measured fit on a node."""
        left = (
            (node.allocatable.get(name, 0.0) - (held.amounts[name] if held else 0.0)) // each
            for name, each in self._pod.items()
        )
        most = min(left)
        if (slots := node.allocatable.get("pods")) is not None:
            most = min(most, slots - (held.pods if held else 0))
        return max(int(most), 0)

    def _add(self, part: _Part, *, sign: int) -> None:
        self._fits += sign * part.fits
        self._racks.change(part.rack, sign * part.fits)
        self._blocks.change(part.block, sign * part.fits)
        if not part.rack:
            return
        nodes = self._in.setdefault(part.rack, [0, 0, 0])
        self._free -= _is_free(nodes)
        nodes[part.use] += sign
        self._free += _is_free(nodes)
        self._most[part.rack] = max(self._most.get(part.rack, 0), nodes[_FREE] + nodes[_BUSY])
        if not any(nodes):
            del self._in[part.rack]


def _is_free(nodes: list[int]) -> bool:
    return nodes[_FREE] > 0 and not nodes[_BUSY] and not nodes[_UNUSABLE]


def _usable(node: NodeState) -> bool:
    return node.ready and node.schedulable and not node.deleting
