"""The state of the cluster at one moment of a recording, and the sums for each scope.

    line --apply--> nodes, pods, objects --moves--> Tally of everything, of each group, of each
                                                    workload, of the scopes of expectations

A node belongs to its group and zone as soon as it exists, a pod once it is bound. Memory grows with
the cluster, with the number of pods that waited and of nodes that were deleted, but not with the
number of lines.
"""

from bisect import bisect
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, TypeAlias

from kwok_operator.formats.words import names_in_words
from kwok_operator.rehearsal.judge.claimledger import NodeClaimLedger, place_of
from kwok_operator.rehearsal.judge.figures import (
    NODE_LEVELS,
    RESOURCES,
    FigureScope,
    Place,
    Tally,
    with_gpus,
)
from kwok_operator.rehearsal.judge.gangledger import GangLedger
from kwok_operator.rehearsal.judge.measures import WatchGaps
from kwok_operator.rehearsal.judge.nodestarts import NodeStarts
from kwok_operator.rehearsal.judge.podledger import PodLedger
from kwok_operator.rehearsal.judge.rackledger import RackLedger
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    EventLine,
    GroupLine,
    GroupState,
    JobLine,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    NodeState,
    PodGroupLine,
    PodLine,
    PodState,
    RecordedLine,
    RecordedTopology,
    WarningLine,
    WatchLine,
)

REPLACED_WITHIN: Final = 600.0
"""For this many seconds after a node's end, a new node of its shape counts as its replacement."""
_ROUNDING: Final = 1e-6
"""Seconds. Allows for rounding, as times of lines have milliseconds."""
MOST_GROUPS: Final = 500
MOST_WORKLOADS: Final = 300
"""The most workloads that the report has sums of. Expectations and totals count all workloads."""
_PLACES_KEPT: Final = 50_000
_REPLACED: Final = "churn.replacedSameShape"
_BUDGET: Final = "PodDisruptionBudget"
_BY_TAINT: Final = "DeletionByTaintManager"
_BY_API: Final = "EvictionByEvictionAPI"
_HEARD_APART: Final = 1.0
"""Seconds. Pods and budgets are watched separately, so a budget's change may be recorded before the
eviction that caused it.
"""
_NO_NODE: Final = NodeState()
_NO_NODE_COMES: Final = ("Failed", "Unregistered")
"""The states of simulated instances that never get a node: see docs/cloud.md."""
_Kind: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class _Budget:
    """Counts how many evictions a PodDisruptionBudget still allows."""

    reported: int
    """The last recorded disruptionsAllowed of the budget."""
    left: int
    unexplained: int = 0
    """By how much the budget has recently decreased without a recorded eviction. Later increases
    cancel it, earlier ones don't. Below 0: evictions whose decrease isn't recorded yet.
    """
    changed: float = 0.0

    def reports(self, allowed: int, t: float) -> None:
        self._forget(t)
        decrease = max(self.left, 0) - allowed
        undoes_at_most = max(self.unexplained, 0) if allowed > self.reported else -decrease
        self._change(max(decrease, -undoes_at_most), t)
        self.reported = self.left = allowed

    def evicts(self, t: float, *, by_api: bool) -> bool:
        """Records an eviction of a pod that the budget covers. Returns whether the budget allowed
        it.
        """
        self._forget(t)
        if by_api or self.unexplained > 0:  # the API server has checked the budget
            self._change(-1, t)
            return True
        self.left -= 1
        return self.left >= 0

    def _change(self, by: int, t: float) -> None:
        if by:
            self.unexplained += by
            self.changed = t

    def _forget(self, t: float) -> None:
        if t - self.changed > _HEARD_APART + _ROUNDING:
            self.unexplained = 0


@dataclass(slots=True)
class _Unpriced:
    """How many seconds a node without a known price has been in each place (group, zone and
    NodePool).
    """

    since: float
    spells: defaultdict[Place, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class _Replacements:
    """Finds out which nodes were replaced by a new node of the same group, NodePool and shape.

    Karpenter creates the new node before it deletes the old one, and may cancel the disruption of
    the old one in between. So a node that is created while another one is being disrupted counts as
    its replacement only once the old node is gone.
    """

    gone: defaultdict[_Kind, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    """When nodes of each kind were deleted that haven't been replaced yet."""
    came: defaultdict[_Kind, list[tuple[int, Place]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The nodes that were created while others were being disrupted, and have replaced none yet."""
    leaving: dict[str, int] = field(default_factory=dict)
    """The nodes whose NodeClaim is being disrupted or deleted, each with the step since when."""
    _steps: int = 0

    def apply_claim(self, claim: NodeClaimState) -> None:
        if not (claim.reason or claim.deleting):
            self.leaving.pop(claim.node, None)
        elif claim.node not in self.leaving:
            self.leaving[claim.node] = self._step()

    def replaces(self, name: str, node: NodeState, t: float, *, new: bool) -> bool:
        """Records a node that exists. Returns whether it replaces a node that is gone already."""
        step = self._step()
        if name in self.leaving:
            self.leaving[name] = step
        if not new:
            return False
        waiting = self.gone.get(_kind(node))
        while waiting and waiting[0] < t - REPLACED_WITHIN - _ROUNDING:
            waiting.popleft()
        if waiting:
            waiting.popleft()
            return True
        if self.leaving:
            self.came[_kind(node)].append((step, place_of(node)))
        return False

    def went(self, name: str, node: NodeState, t: float) -> Place | None:
        """Records that a node is gone. If its replacement exists already, returns the place of the
        replacement; else None.
        """
        since, came = self.leaving.pop(name, None), self.came[_kind(node)]
        first = len(came) if since is None else bisect(came, since, key=itemgetter(0))
        if first < len(came):
            return came.pop(first)[1]
        self.gone[_kind(node)].append(t)
        return None

    def _step(self) -> int:
        self._steps += 1
        return self._steps


class ClusterLedger:
    """Applies the lines of a recording in order. `tally` returns the sums of a scope: of
    everything, or of, say, one group.
    """

    def __init__(
        self, scopes: Iterable[FigureScope] = (), *, topology: RecordedTopology | None = None
    ) -> None:
        self.now = 0.0
        self.gaps = WatchGaps()
        self.all = Tally(self.gaps)
        self.groups: dict[str, Tally] = {}
        self.node_pools: dict[str, Tally] = {}
        self.workloads: dict[str, Tally] = {}
        self.parted = {
            "group": self.groups,
            "nodePool": self.node_pools,
            "workload": self.workloads,
        }
        self.beyond: defaultdict[str, set[str]] = defaultdict(set)
        """The names, by kind, for which no sums are kept, as there are too many."""
        self._of_scope: dict[FigureScope, Tally] = {}
        for scope in scopes:
            for each in (scope.wide, scope):
                if each != FigureScope() and each not in self._of_scope:
                    wide = None if each == each.wide else self.tally(each.wide)
                    self._of_scope[each] = Tally(self.gaps, wide)
        self._tallies_of: dict[Place, tuple[Tally, ...]] = {}
        self.nodes: dict[str, NodeState] = {}
        self._node_starts = NodeStarts()
        self.racks = RackLedger(self.all, topology)
        self._gangs = GangLedger(self.tallies, self.racks.rack_of)
        self.pods = PodLedger(self.tallies, self._node_starts, self.racks, self._gangs)
        self.claims = NodeClaimLedger(self.tallies)
        self._group_states: dict[str, GroupState] = {}
        self._unpriced: dict[str, _Unpriced] = {}
        self._budgets: dict[str, _Budget] = {}
        self._replacements = _Replacements()

    def tally(self, scope: FigureScope) -> Tally:
        return self._of_scope.get(scope, self.all)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Returns the number of nodes, and the number of ready nodes, of each group that has nodes.
        If no node has a group, returns those of each NodePool.
        """
        for tallies in (self.groups, self.node_pools):
            levels = {name: tally.nodes for name, tally in tallies.items()}
            counts = {
                name: (round(nodes["total"].value), round(nodes["ready"].value))
                for name, nodes in levels.items()
                if nodes["total"].value
            }
            if counts:
                return counts
        return {}

    def under_way(self) -> dict[str, tuple[int, int, int]]:
        """Returns three numbers for each group that isn't empty: instances that are being created,
        failed instances, and the target. Without groups, returns those of each NodePool.
        """
        if not self._group_states:
            return _claims_under_way(self.node_pools)
        under_way = {}
        for name, state in self._group_states.items():
            tally, states = self.groups.get(name), state.states
            nodes = 0 if tally is None else round(tally.nodes["total"].value)
            lost = sum(states.get(each, 0) for each in _NO_NODE_COMES)
            going = 0 if tally is None else round(tally.nodes["deleting"].value)
            # The target changes at once; the counts in the status and the deletion of nodes lag
            # behind.
            creating = max(state.target - (nodes - going) - lost, 0)
            if state.target or lost or nodes:
                under_way[name] = (creating, lost, state.target)
        return under_way

    def left_over(self) -> int:
        """Returns how many pods, and NodeClaims that had registered their node, still exist
        although their node is gone.
        """
        nodes = (each.node for each in self.claims.live.values() if each.registered is not None)
        lost = sum(name != "" and name not in self.nodes for name in nodes)
        return lost + round(self.all.pods["orphaned"].value)

    def apply(self, line: RecordedLine) -> None:
        self.now = line.t
        match line:
            case PodLine():
                if line.state is not None and line.state.budgets:
                    self._evicted(line.name, line.state, line.t)
                self.pods.apply(line)
            case NodeLine():
                self._node(line)
            case EventLine():
                for tally in self.tallies(Place(namespace=_namespace(line.about))):
                    tally.counts["events"] += line.count
            case WarningLine() if not line.before:
                for tally in self.tallies(Place(program=line.program)):
                    tally.counts["warnings"] += line.count
            case GroupLine():
                self._group(line)
            case WatchLine():
                self.gaps.apply(line.of, line.state, line.t)
            case BudgetLine():
                self._budget(line)
            case JobLine():
                self._gangs.job(line)
            case PodGroupLine():
                self._gangs.pod_group(line)
            case NodeClaimLine():
                self.claims.apply(line)
                if line.state is not None:
                    self._replacements.apply_claim(line.state)
                    if self._node_starts.claim(line.state):
                        self.pods.node_learned(line.state.node)
        self.racks.settle(line.t)

    def tallies(self, place: Place) -> tuple[Tally, ...]:
        """Returns the tallies that count objects of this place, such as that of its group."""
        tallies = self._tallies_of.get(place)
        if tallies is None:
            if len(self._tallies_of) >= _PLACES_KEPT:
                self._tallies_of.clear()
            tallies = self._tallies_of[place] = self._look_up(place)
        return tallies

    def _look_up(self, place: Place) -> tuple[Tally, ...]:
        tallies = [self.all]
        tallies += self._own("group", place.group, wide=self.all)
        tallies += self._own("nodePool", place.node_pool, wide=self.all)
        tallies += self._own("workload", place.workload)
        tallies += [tally for scope, tally in self._of_scope.items() if scope.contains(place)]
        for tally in tallies:
            tally.known = True
        return tuple(tallies)

    def _own(self, by: str, name: str, *, wide: Tally | None = None) -> list[Tally]:
        tallies, most = self.parted[by], MOST_WORKLOADS if by == "workload" else MOST_GROUPS
        if name and name not in tallies:
            if len(tallies) < most:
                tallies[name] = Tally(self.gaps, wide)
            else:
                self.beyond[by].add(name)
        return [tallies[name]] if name in tallies else []

    def _node(self, line: NodeLine) -> None:
        t, after = line.t, line.state
        before = self.nodes.pop(line.name, None)
        if before is None and after is not None:
            self._came(line.name, after, t)
        elif after is None and before is not None:
            self._went(line.name, before, t)
        if after is not None and before is not None and after.price is None is not before.price:
            after = replace(after, price=before.price)
        used = self.pods.node_used(line.name)
        if after is not None and before is not None and _amounts(after) == _amounts(before):
            # Most lines only change whether the node is Ready.
            self._change_levels(before, after, t)
        else:
            if before is not None:
                self._move_node(before, used, t=t, sign=-1)
            if after is not None:
                self._move_node(after, used, t=t, sign=1)
        moved = self.racks.node(line.name, after)
        if after is not None:
            self.nodes[line.name] = after
            self.pods.placed(line.name, place_of(after), t, moved=moved)
        else:
            self.pods.node_gone(line.name, t)
        if self._node_starts.apply(line):
            self.pods.node_learned(line.name)
        if (before or after or _NO_NODE).price is None:
            self._price(line.name, before, after, t)

    def _price(
        self, name: str, before: NodeState | None, after: NodeState | None, t: float
    ) -> None:
        """Once a node's price is known, adds what the node has cost before, in each place (group,
        zone and NodePool) that it had in that time. Until then, sums up that time by place.
        """
        unpriced = self._unpriced.setdefault(name, _Unpriced(t))
        if before is not None:
            unpriced.spells[place_of(before)] += t - unpriced.since
            unpriced.since = t
        if after is not None and after.price is None:
            return
        del self._unpriced[name]
        if after is None or after.price is None:
            return
        for place, seconds in unpriced.spells.items():
            for tally in self.tallies(place):
                tally.priced = True
                tally.price.add(after.price * seconds)
                tally.unpriced.add(-seconds)

    def _came(self, name: str, node: NodeState, t: float) -> None:
        new = node.created is None or node.created >= 0
        replaces = self._replacements.replaces(name, node, t, new=new)
        for tally in self.tallies(place_of(node)) if new else ():
            tally.count("churn.created", f"{name} at {t:.1f} s")
            if replaces:
                tally.count(_REPLACED, f"{name} at {t:.1f} s")

    def _went(self, name: str, node: NodeState, t: float) -> None:
        for tally in self.tallies(place_of(node)):
            tally.count("churn.deleted", f"{name} at {t:.1f} s")
        if (place := self._replacements.went(name, node, t)) is not None:
            for tally in self.tallies(place):
                tally.count(_REPLACED, f"{name} at {t:.1f} s")

    def _move_node(
        self, node: NodeState, used: Mapping[str, float], *, t: float, sign: int
    ) -> None:
        levels = [name for name, counts in NODE_LEVELS.items() if counts(node)]
        amounts = with_gpus(node.allocatable)
        offers = {name: sign * amounts.get(name, 0.0) for name in RESOURCES}
        for tally in self.tallies(place_of(node)):
            for level in levels:
                tally.nodes[level].move(t, sign)
            if node.price is None:
                tally.unpriced.move(t, sign)
            else:
                tally.priced = True
                tally.price.move(t, sign * node.price)
            for name, ratio in tally.use.items():
                ratio.move(t, above=sign * used.get(name, 0.0), below=offers[name])

    def _change_levels(self, before: NodeState, after: NodeState, t: float) -> None:
        changes = {
            name: 1 if counts(after) else -1
            for name, counts in NODE_LEVELS.items()
            if counts(after) is not counts(before)
        }
        for tally in self.tallies(place_of(after)):
            for level, by in changes.items():
                tally.nodes[level].move(t, by)

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

    def _budget(self, line: BudgetLine) -> None:
        if line.state is None:
            self._budgets.pop(line.name, None)
        elif line.name in self._budgets:
            self._budgets[line.name].reports(line.state.allowed, line.t)
        else:
            self._budgets[line.name] = _Budget(line.state.allowed, line.state.allowed)

    def _evicted(self, name: str, state: PodState, t: float) -> None:
        """Counts an eviction that a budget did not allow. The API server checks budgets for
        evictions by its eviction API; a deletion because of a taint skips them.
        """
        before = self.pods.live.get(name)
        was_before = state.created < 0 if before is None else bool(before.state.disrupted)
        if was_before or state.disrupted not in (_BY_TAINT, _BY_API):
            return
        namespace, by_api = name.partition("/")[0], state.disrupted == _BY_API
        budgets = {each: f"{_BUDGET}/{namespace}/{each}" for each in state.budgets}
        broken = [
            f"{namespace}/{each}"
            for each, full in budgets.items()
            if full in self._budgets and not self._budgets[full].evicts(t, by_api=by_api)
        ]
        by = f"the eviction of {name} at {t:.1f} s ({state.disrupted})"
        for tally in self.tallies(Place(namespace=namespace)) if broken else ():
            tally.count("disruptions.beyondBudget", f"{names_in_words(broken)} by {by}")


def _claims_under_way(pools: Mapping[str, Tally]) -> dict[str, tuple[int, int, int]]:
    under_way = {}
    for name, tally in pools.items():
        claims, nodes = tally.claims, round(tally.nodes["total"].value)
        wanted = round(claims["underWay"].value + claims["registered"].value)
        if wanted > nodes:
            under_way[name] = (wanted - nodes, 0, wanted)
    return under_way


def _kind(node: NodeState) -> _Kind:
    return node.group, node.pool, node.shape


def _amounts(node: NodeState) -> tuple[object, ...]:
    """Returns the fields of a node that decide what it adds to which sums: its place, price and
    resources; but not its levels, such as `ready`.
    """
    return node.group, node.zone, node.pool, node.price, node.allocatable


def _namespace(about: str) -> str:
    """Returns the namespace in KIND/NAMESPACE/NAME; empty if there is none."""
    parts = about.split("/")
    return parts[1] if len(parts) > 2 else ""
