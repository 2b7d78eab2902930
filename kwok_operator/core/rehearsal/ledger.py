"""What is there at one moment of a recording, and the sums of all scopes that somebody asks for.

    line --apply--> nodes, pods, objects --moves--> Tally of everything, of each group, of each
                                                    workload, of the scopes of expectations

A pod belongs to a group and a zone once it is bound, a node from when it is there. Memory follows
what is in the cluster and how many pods have waited, not the number of lines.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.core.rehearsal.figures import FigureScope, Place, Tally
from kwok_operator.core.rehearsal.podledger import PodLedger
from kwok_operator.core.rehearsal.recording import (
    EventLine,
    GroupLine,
    GroupState,
    NodeLine,
    NodeState,
    ObjectLine,
    PodLine,
    RecordedLine,
    WarningLine,
)

REPLACED_WITHIN: Final = 600.0
"""Seconds from a node's end to a new one that takes its place."""
MOST_GROUPS: Final = 500
MOST_WORKLOADS: Final = 300
"""Of which sums are kept for the report; expectations and totals count all of them."""
_PLACES_KEPT: Final = 50_000
_BUDGET: Final = "PodDisruptionBudget"
_NO_NODE: Final = NodeState()


@dataclass(slots=True)
class _Budget:
    healthy: int = 0
    was_met: bool = False


@dataclass(slots=True)
class _Gang:
    place: Place
    since: float
    ended: bool = False


@dataclass(slots=True)
class _Replacements:
    """When nodes of a shape went that nothing has replaced yet."""

    gone: defaultdict[tuple[str, str], deque[float]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def went(self, node: NodeState, t: float) -> None:
        self.gone[node.group, node.shape].append(t)

    def came(self, node: NodeState, t: float) -> bool:
        waiting = self.gone.get((node.group, node.shape))
        while waiting and waiting[0] < t - REPLACED_WITHIN:
            waiting.popleft()
        if not waiting:
            return False
        waiting.popleft()
        return True


class ClusterLedger:
    """Fed with the lines in their order; `tally` has the sums of a scope that was asked for."""

    def __init__(self, scopes: Iterable[FigureScope] = ()) -> None:
        self.now = 0.0
        self.all = Tally(FigureScope())
        self.groups: dict[str, Tally] = {}
        self.workloads: dict[str, Tally] = {}
        self._asked = {scope: Tally(scope) for scope in scopes if scope != FigureScope()}
        self._found: dict[Place, tuple[Tally, ...]] = {}
        self.nodes: dict[str, NodeState] = {}
        self.pods = PodLedger(self.tallies)
        self._group_states: dict[str, GroupState] = {}
        self._budgets: dict[str, _Budget] = {}
        self._gangs: dict[str, _Gang] = {}
        self._replacements = _Replacements()

    def tally(self, scope: FigureScope) -> Tally:
        return self._asked.get(scope, self.all)

    def apply(self, line: RecordedLine) -> None:
        self.now = line.t
        match line:
            case PodLine():
                self.pods.apply(line)
            case NodeLine():
                self._node(line)
            case EventLine():
                for tally in self.tallies(Place(namespace=_namespace(line.about))):
                    tally.counts["events"] += line.count
            case WarningLine():
                for tally in self.tallies(Place(program=line.program)):
                    tally.counts["warnings"] += line.count
            case GroupLine():
                self._group(line)
            case ObjectLine() if line.name.startswith(f"{_BUDGET}/"):
                self._budget(line)
            case ObjectLine():
                self._gang(line)

    def tallies(self, place: Place) -> tuple[Tally, ...]:
        """All that sum up what belongs there."""
        found = self._found.get(place)
        if found is None:
            if len(self._found) >= _PLACES_KEPT:
                self._found.clear()
            found = self._found[place] = self._look_up(place)
        return found

    def _look_up(self, place: Place) -> tuple[Tally, ...]:
        found = [self.all]
        found += _own(self.groups, place.group, FigureScope(group=place.group), MOST_GROUPS)
        found += _own(
            self.workloads, place.workload, FigureScope(workload=place.workload), MOST_WORKLOADS
        )
        found += [tally for scope, tally in self._asked.items() if scope.holds(place)]
        for tally in found:
            tally.known = True
        return tuple(found)

    def _node(self, line: NodeLine) -> None:
        t, after = line.t, line.state
        before = self.nodes.pop(line.name, None)
        if after is not None:
            self.nodes[line.name] = after
        if before is None and after is not None:
            self._came(after, t)
        elif after is None and before is not None:
            self._went(before, t)
        place = Place(group=(after or _NO_NODE).group, zone=(after or _NO_NODE).zone)
        used = self.pods.node_used(line.name)
        if before is not None:
            self._move_node(before, used, t=t, sign=-1)
        if after is not None:
            self._move_node(after, used, t=t, sign=1)
            self.pods.placed(line.name, place, t)
        else:
            self.pods.node_gone(line.name)

    def _came(self, node: NodeState, t: float) -> None:
        if node.created is not None and node.created < 0:
            return  # it was there before the run
        replaces = self._replacements.came(node, t)
        for tally in self.tallies(Place(group=node.group, zone=node.zone)):
            tally.counts["churn.created"] += 1
            tally.counts["churn.replacedSameShape"] += replaces

    def _went(self, node: NodeState, t: float) -> None:
        self._replacements.went(node, t)
        for tally in self.tallies(Place(group=node.group, zone=node.zone)):
            tally.counts["churn.deleted"] += 1

    def _move_node(
        self, node: NodeState, used: Mapping[str, float], *, t: float, sign: int
    ) -> None:
        levels = ["total", "ready" if node.ready else "notReady"]
        levels += [] if node.schedulable else ["cordoned"]
        levels += ["deleting"] if node.deleting else []
        for tally in self.tallies(Place(group=node.group, zone=node.zone)):
            for level in levels:
                tally.nodes[level].move(t, sign)
            if node.price is not None:
                tally.priced = True
                tally.price.move(t, sign * node.price)
            for name, ratio in tally.use.items():
                below = sign * node.allocatable.get(name, 0.0)
                ratio.move(t, above=sign * used.get(name, 0.0), below=below)

    def _group(self, line: GroupLine) -> None:
        before = self._group_states.pop(line.name, None)
        if line.state is not None:
            self._group_states[line.name] = line.state
        old = {} if before is None else before.states
        new = {} if line.state is None else line.state.states
        for tally in self.tallies(Place(group=line.name)):
            for name in old.keys() | new.keys():
                if (level := tally.instances.get(name)) is not None:
                    level.move(line.t, new.get(name, 0) - old.get(name, 0))

    def _budget(self, line: ObjectLine) -> None:
        """Pods that were disrupted though the budget had nothing left to allow.

        That it isn't met yet, or asks for more than before, is no disruption.
        """
        if line.state is None:
            self._budgets.pop(line.name, None)
            return
        budget = self._budgets.setdefault(line.name, _Budget())
        healthy, desired = line.state.get("healthy", 0), line.state.get("desired", 0)
        if budget.was_met:
            beyond = max(min(budget.healthy, desired) - healthy, 0)
            for tally in self.tallies(Place(namespace=_namespace(line.name))):
                tally.counts["disruptions.beyondBudget"] += beyond
        budget.was_met = budget.was_met or healthy >= desired > 0
        budget.healthy = healthy

    def _gang(self, line: ObjectLine) -> None:
        """A Job or PodGroup: from when it was made to when all of it has succeeded."""
        gang, t = self._gangs.get(line.name), line.t
        if line.state is None:
            if gang is not None:
                self._end_gang(line.name, self._gangs.pop(line.name), t)
            return
        if gang is None:
            rehearsed = line.state.get("rehearsed", "")
            place = Place(line.name, _namespace(line.name), rehearsed=rehearsed)
            gang = self._gangs[line.name] = _Gang(place, line.state.get("created", t))
            for tally in self.tallies(place):
                tally.gangs.begin(line.name, gang.since)
        wanted = line.state.get("wanted", 0)
        if line.state.get("done") == "Complete" or 0 < wanted <= line.state.get("succeeded", 0):
            self._end_gang(line.name, gang, t)

    def _end_gang(self, name: str, gang: _Gang, t: float) -> None:
        if not gang.ended:
            gang.ended = True
            for tally in self.tallies(gang.place):
                tally.gangs.end(name, t - gang.since)


def _own(tallies: dict[str, Tally], name: str, scope: FigureScope, most: int) -> list[Tally]:
    if not name:
        return []
    if name not in tallies and len(tallies) < most:
        tallies[name] = Tally(scope)
    return [tallies[name]] if name in tallies else []


def _namespace(about: str) -> str:
    """Of Kind/namespace/name; nothing where there is none."""
    parts = about.split("/")
    return parts[1] if len(parts) > 2 else ""
