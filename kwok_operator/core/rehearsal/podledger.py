"""The pods at one moment of a recording: their levels, how they waited, what they ask of nodes.

A pod that is bound to a node of which nothing is known yet gets its group and zone when the node's
first line comes: nodes and pods are watched apart.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kwok_operator.core.rehearsal.figures import RESOURCES, Place, Tally
from kwok_operator.core.rehearsal.recording import PodLine, PodState

SLOWEST: Final = 20
MOST_REASONS: Final = 1_000
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_EVICTIONS: Final = frozenset({"EvictionByEvictionAPI", "DeletionByTaintManager"})
_LEVELS: Final = {"Running": "running", "Succeeded": "succeeded", "Failed": "failed"}

TalliesOf = Callable[[Place], tuple[Tally, ...]]


@dataclass(slots=True)
class PodRecord:
    name: str
    state: PodState
    place: Place
    tallies: tuple[Tally, ...]
    pends_since: float | None = None
    """When its waiting to be bound began, as figures count it: at the earliest with the run.
    Nothing where it was bound before."""
    starts_since: float | None = None
    """The same, until it ran."""
    pending: float | None = None
    """Seconds until it was bound, or ended without; nothing while it waits."""
    starting: float | None = None
    why: str = ""
    """The last that the scheduler said while it waited."""
    reasons: tuple[str, ...] = ()
    """All that it gave until then."""


@dataclass(frozen=True, slots=True, order=True)
class SlowPod:
    """Ordered by how long it waited."""

    seconds: float
    name: str
    workload: str
    created: float
    outcome: str
    why: str


class PodLedger:
    def __init__(self, tallies: TalliesOf) -> None:
        self._tallies = tallies
        self.live: dict[str, PodRecord] = {}
        self.reasons: Counter[str] = Counter()
        """Pods that the scheduler couldn't place for a while, by each reason that it gave."""
        self._slowest: list[SlowPod] = []
        self._places: dict[str, Place] = {}
        """Of the nodes that are there."""
        self._used: dict[str, dict[str, float]] = {}
        self._unplaced: defaultdict[str, set[str]] = defaultdict(set)

    def node_used(self, node: str) -> Mapping[str, float]:
        """What its pods ask for."""
        return self._used.get(node, {})

    def slowest(self, now: float) -> list[SlowPod]:
        """The pods that waited longest, those that still do too."""
        waiting = (
            _slow(pod, now - pod.pends_since, "still waits")
            for pod in self.live.values()
            if pod.pending is None and pod.pends_since is not None
        )
        return heapq.nlargest(SLOWEST, [*self._slowest, *heapq.nlargest(SLOWEST, waiting)])

    def placed(self, node: str, place: Place, t: float) -> None:
        """A node is there, and belongs there."""
        self._places[node] = place
        for name in sorted(self._unplaced.pop(node, ())):
            pod = self.live.get(name)
            if pod is not None and pod.state.node == node:
                self._belongs(pod, pod.place._replace(group=place.group, zone=place.zone), t)

    def node_gone(self, node: str) -> None:
        self._places.pop(node, None)
        if not any(self.node_used(node).values()):
            self._used.pop(node, None)

    def apply(self, line: PodLine) -> None:
        pod, state, t = self.live.get(line.name), line.state, line.t
        if state is None:
            if pod is not None:
                self._gone(pod, t)
            return
        if pod is None:
            pod = self._new(line.name, state, t)
        else:
            self._changed(pod, state, t)
        if pod.pending is None and state.why:
            self._count_reasons(pod, state.why)
            pod.why = state.why
        self._waited(pod, t)

    def _new(self, name: str, state: PodState, t: float) -> PodRecord:
        place = Place(state.workload, name.partition("/")[0], rehearsed=state.rehearsed)
        place = self._located(name, state, place)
        pod = self.live[name] = PodRecord(name, state, place, self._tallies(place))
        begun, over = state.created >= 0, state.phase in _ENDED
        if begun or (not state.node and not over):
            pod.pends_since = max(state.created, 0.0)
        if begun or (state.running is None and not over):
            pod.starts_since = max(state.created, 0.0)
        self._ask(state, t, sign=1)
        for tally in pod.tallies:
            _enter(pod, tally, t)
            _count(tally, None, state)
        return pod

    def _changed(self, pod: PodRecord, state: PodState, t: float) -> None:
        before, pod.state = pod.state, state
        if (before.node, before.requests, before.phase) != (
            state.node,
            state.requests,
            state.phase,
        ):
            self._ask(before, t, sign=-1)
            self._ask(state, t, sign=1)
        old, new = _level(before), _level(state)
        for tally in pod.tallies:
            if old != new:
                tally.pods[old].move(t, -1)
                tally.pods[new].move(t, 1)
        if state.node != before.node:
            self._belongs(pod, self._located(pod.name, state, pod.place), t)
        for tally in pod.tallies:
            _count(tally, before, state)

    def _gone(self, pod: PodRecord, t: float) -> None:
        del self.live[pod.name]
        self._ask(pod.state, t, sign=-1)
        if pod.pending is None:
            self._bound(pod, t, "went")
        if pod.starting is None:
            self._started(pod, t)
        if pod.state.node:
            self._unplaced[pod.state.node].discard(pod.name)
            if not self._unplaced[pod.state.node]:
                del self._unplaced[pod.state.node]
        for tally in pod.tallies:
            tally.pods[_level(pod.state)].move(t, -1)
            tally.pods["gone"].move(t, 1)

    def _located(self, name: str, state: PodState, place: Place) -> Place:
        if not state.node:
            return place
        known = self._places.get(state.node)
        if known is None:
            self._unplaced[state.node].add(name)
            return place
        return place._replace(group=known.group, zone=known.zone)

    def _belongs(self, pod: PodRecord, place: Place, t: float) -> None:
        before, pod.place = pod.tallies, place
        pod.tallies = self._tallies(place)
        for tally in before:
            if tally not in pod.tallies:
                tally.pods[_level(pod.state)].move(t, -1)
                tally.pending.drop(pod.name)
                tally.starting.drop(pod.name)
        for tally in pod.tallies:
            if tally not in before:
                _enter(pod, tally, t)

    def _waited(self, pod: PodRecord, t: float) -> None:
        """Ends what it waited for and has got by now, or won't any more."""
        state = pod.state
        ended = t if state.phase in _ENDED else None
        if pod.pending is None:
            bound = state.bound if state.bound is not None else ended
            if bound is not None:
                self._bound(pod, bound, f"on {state.node}" if state.node else "ended")
        if pod.starting is None:
            running = state.running if state.running is not None else ended
            if running is not None:
                self._started(pod, running)

    def _bound(self, pod: PodRecord, at: float, outcome: str) -> None:
        pod.pending = max(at - (pod.pends_since or 0.0), 0.0)
        pod.reasons = ()
        if pod.pends_since is None:
            return
        for tally in pod.tallies:
            tally.pending.end(pod.name, pod.pending)
        slow = _slow(pod, pod.pending, outcome)
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, slow)
        elif slow > self._slowest[0]:
            heapq.heapreplace(self._slowest, slow)

    def _started(self, pod: PodRecord, at: float) -> None:
        pod.starting = max(at - (pod.starts_since or 0.0), 0.0)
        if pod.starts_since is not None:
            for tally in pod.tallies:
                tally.starting.end(pod.name, pod.starting)

    def _ask(self, state: PodState, t: float, *, sign: int) -> None:
        """Counts what a pod asks for on its node, for as long as it holds it."""
        if not state.node or state.phase in _ENDED:
            return
        used = self._used.setdefault(state.node, dict.fromkeys(RESOURCES, 0.0))
        place = self._places.get(state.node)
        for name in RESOURCES:
            amount = sign * state.requests.get(name, 0.0)
            used[name] += amount
            if place is not None and amount:
                for tally in self._tallies(place):
                    tally.use[name].move(t, above=amount)
        if place is None and not any(used.values()):
            del self._used[state.node]

    def _count_reasons(self, pod: PodRecord, message: str) -> None:
        """Each reason once for each pod, however often it was given."""
        if message == pod.why:
            return
        for reason in scheduling_reasons(message):
            if reason not in pod.reasons and (
                reason in self.reasons or len(self.reasons) < MOST_REASONS
            ):
                pod.reasons = (*pod.reasons, reason)
                self.reasons[reason] += 1


def scheduling_reasons(message: str) -> list[str]:
    """Of `0/5 nodes are available: 2 Insufficient cpu, 3 node(s) ... preemption: ...` each one."""
    available, colon, rest = message.partition(" nodes are available: ")
    if not colon:
        return [message]
    listed = rest.partition(". ")[0].rstrip(".").split(", ")
    texts = (each.partition(" ") for each in listed)
    found = {rest if count.isdigit() else f"{count}{space}{rest}" for count, space, rest in texts}
    return sorted(found - {""}) or [available]


def _level(state: PodState) -> str:
    return _LEVELS.get(state.phase, "pending")


def _enter(pod: PodRecord, tally: Tally, t: float) -> None:
    tally.pods[_level(pod.state)].move(t, 1)
    for waits, since, seconds in (
        (tally.pending, pod.pends_since, pod.pending),
        (tally.starting, pod.starts_since, pod.starting),
    ):
        if since is None:
            continue
        if seconds is None:
            waits.begin(pod.name, since)
        else:
            waits.end(pod.name, seconds)


def _count(tally: Tally, before: PodState | None, state: PodState) -> None:
    restarts = state.restarts - (before.restarts if before else 0)
    if restarts > 0:
        tally.counts["restarts"] += restarts
    if state.disrupted in _EVICTIONS and (before is None or not before.disrupted):
        tally.counts["evictions"] += 1


def _slow(pod: PodRecord, seconds: float, outcome: str) -> SlowPod:
    return SlowPod(
        seconds=seconds,
        name=pod.name,
        workload=pod.state.workload,
        created=pod.state.created,
        outcome=outcome,
        why=pod.why,
    )
