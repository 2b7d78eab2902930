"""Counts the pods at one moment of a recording: how many run or are pending, how long they wait,
what they request of nodes.

    line --apply--> PodRecord --_settle--> counts and waits of the pod's group and zone
                              --_waited--> a wait has ended, or can't end any more

A pod has the group and zone of its node, even if the node is recorded later, as nodes and pods are
watched separately. When a node changes its place, is deleted or created again, its pods are counted
anew.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kwok_operator.causes.phases import PHASES, split
from kwok_operator.formats.schedulertexts import parse_scheduler_text
from kwok_operator.rehearsal.judge.figures import COUNTED, RESOURCES, Place, Tally, with_gpus
from kwok_operator.rehearsal.judge.gangledger import GangLedger, TalliesOf, gang_of
from kwok_operator.rehearsal.judge.measures import Waits
from kwok_operator.rehearsal.judge.nodestarts import NodeStart, NodeStarts
from kwok_operator.rehearsal.judge.rackledger import RackLedger
from kwok_operator.rehearsal.judge.recording import PodLine, PodState

SLOWEST: Final = 20
MOST_REASONS: Final = 1_000
_MOST_REASON: Final = 300
"""The most characters of a reason."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_LEVELS: Final = {"Running": "running", "Succeeded": "succeeded", "Failed": "failed"}


@dataclass(slots=True)
class PodWait:
    since: float
    """When the wait began, in seconds; at the earliest, the beginning of the run."""
    seconds: float | None = None
    """How many seconds the wait took; None if it hasn't ended."""
    never: bool = False
    """Whether the wait can't end any more."""

    @property
    def goes_on(self) -> bool:
        return self.seconds is None and not self.never


@dataclass(slots=True)
class PodRecord:
    name: str
    state: PodState
    place: Place
    pending: PodWait | None
    """The wait to be bound; None if it was over before the run."""
    starting: PodWait | None
    """The wait to run; None if it was over before the run."""
    before_the_run: bool
    """Whether the pod is older than the run: then its first line isn't counted as an event of the
    run.
    """
    gang: str = ""
    """The gang that counts the pod; empty if it belongs to none."""
    bound: float | None = None
    """When the pod was bound, at the earliest at the beginning of the run; None if it wasn't."""
    ran: float | None = None
    """When the wait to run ended; None if it hasn't."""
    phases: tuple[float, ...] = ()
    """The seconds of the phases of the pod's start that are over."""
    node_start: NodeStart | None = None
    tallies: tuple[Tally, ...] = ()
    level: str = ""
    had_node: bool = False
    disrupted: bool = False
    unserved: bool = False
    """Whether the pod was counted as unserved, or had ended before the run."""
    why: str = ""
    """The scheduler's last message while the pod waited."""
    reasons: tuple[str, ...] = ()
    """All reasons that the scheduler has given for the pod so far."""


@dataclass(frozen=True, slots=True, order=True)
class SlowPod:
    """A pod that waited long. Pods are ordered by the length of their wait."""

    seconds: float
    name: str
    workload: str
    created: float
    outcome: str
    why: str


class PodLedger:
    def __init__(
        self, tallies: TalliesOf, node_starts: NodeStarts, racks: RackLedger, gangs: GangLedger
    ) -> None:
        self._tallies = tallies
        self._node_starts = node_starts
        self._racks = racks
        self._gangs = gangs
        self.live: dict[str, PodRecord] = {}
        self.reasons: Counter[str] = Counter()
        """The number of pods that the scheduler couldn't place for a while, by each reason that it
        gave.
        """
        self._slowest: list[SlowPod] = []
        self._places: dict[str, Place] = {}
        """The place of each node that ever existed, by name."""
        self._gone_nodes: set[str] = set()
        self._used: dict[str, dict[str, float]] = {}
        self._on: defaultdict[str, dict[str, PodRecord]] = defaultdict(dict)
        """The existing pods on each node."""

    def node_used(self, node: str) -> Mapping[str, float]:
        """Returns the sum of what the pods on a node request, by resource."""
        return self._used.get(node, {})

    def orphans(self) -> list[str]:
        return sorted(name for name, pod in self.live.items() if pod.level == "orphaned")

    def was_slow(self, name: str) -> bool:
        """Whether the pod is among the pods with the longest waits. Only waits that are
        over count.
        """
        return any(pod.name == name for pod in self._slowest)

    def slowest(self, now: float) -> list[SlowPod]:
        """Returns the pods that waited longest, including pods that still wait."""
        waiting = (
            _slow(pod, now - pod.pending.since, "still waits")
            for pod in self.live.values()
            if pod.pending is not None and pod.pending.goes_on
        )
        return heapq.nlargest(SLOWEST, [*self._slowest, *heapq.nlargest(SLOWEST, waiting)])

    def placed(self, node: str, place: Place, t: float, *, moved: bool) -> None:
        """Records that a node exists in this place (group, zone). Counts the node's pods anew if
        the node is new, or its place is another one than before, or (`moved`) its rack is.
        """
        if moved or self._places.get(node) != place or node in self._gone_nodes:
            self._places[node] = place
            self._gone_nodes.discard(node)
            self._settle_on(node, t)

    def node_gone(self, node: str, t: float) -> None:
        self._gone_nodes.add(node)
        self._settle_on(node, t)
        if not any(self.node_used(node).values()):
            self._used.pop(node, None)

    def node_learned(self, node: str) -> None:
        """Computes the phases of a node's pods again, as more is known about the node's start."""
        start = self._node_starts.of(node)
        for pod in self._on.get(node, {}).values():
            if pod.node_start in (None, start):
                pod.node_start = start
                self._split(pod)

    def _settle_on(self, node: str, t: float) -> None:
        for pod in self._on.get(node, {}).values():
            self._settle(pod, t)

    def apply(self, line: PodLine) -> None:
        pod, state, t = self.live.get(line.name), line.state, line.t
        if state is None:
            if pod is not None:
                self._gone(pod, t)
            return
        before = None if pod is None else pod.state
        if pod is None:
            pod = self.live[line.name] = _new(line.name, state)
            self._ask(state, t, sign=1)
        elif (pod.state.node, pod.state.requests, pod.state.phase) != (
            state.node,
            state.requests,
            state.phase,
        ):
            self._ask(pod.state, t, sign=-1)
            self._ask(state, t, sign=1)
        if before is None or before.node != state.node:
            self._moves(pod, before, state)
        pod.state = state
        self._settle(pod, t)
        if state.why and pod.pending is not None and pod.pending.goes_on:
            self._count_reasons(pod, state.why)
            pod.why = state.why
        self._waited(pod, t)
        if state.disrupted or state.restarts:
            _count(pod, before, t)

    def _moves(self, pod: PodRecord, before: PodState | None, state: PodState) -> None:
        if before is not None:
            self._leaves(before.node, pod.name)
        if state.node:
            pod.had_node = True
            pod.node_start = self._node_starts.of(state.node)
            self._on[state.node][pod.name] = pod

    def _leaves(self, node: str, name: str) -> None:
        there = self._on.get(node)
        if there is not None:
            there.pop(name, None)
            if not there:
                del self._on[node]

    def _gone(self, pod: PodRecord, t: float) -> None:
        del self.live[pod.name]
        self._ask(pod.state, t, sign=-1)
        self._leaves(pod.state.node, pod.name)
        self._no_longer(pod, t, "deleted without a node")
        if pod.gang:
            self._gangs.gone(pod.gang, pod.name, t, deleted=True)
        for tally in pod.tallies:
            tally.pods[pod.level].move(t, -1)
            tally.pods["gone"].move(t, 1)

    def _settle(self, pod: PodRecord, t: float) -> None:
        """Counts a pod at its present level, such as running, in the tallies of its place."""
        state, before, was = pod.state, pod.tallies, pod.level
        pod.level = _LEVELS.get(state.phase, "pending")
        if state.node in self._gone_nodes and state.phase not in _ENDED:
            pod.level = "orphaned"
        on = self._places.get(state.node)
        place = pod.place
        if on is not None:
            place = place._replace(group=on.group, zone=on.zone, node_pool=on.node_pool)
        if not before or place != pod.place:
            pod.place = place
            pod.tallies = self._tallies(pod.place)
            waits = _waits_of(pod)
            for tally in before:
                if tally not in pod.tallies:
                    tally.pods[was].move(t, -1)
                    for each, wait in zip(_pod_waits(tally), waits, strict=True):
                        _leave(each, pod.name, wait)
            for tally in pod.tallies:
                if tally not in before:
                    tally.pods[pod.level].move(t, 1)
                    for each, wait in zip(_pod_waits(tally), waits, strict=True):
                        _enter(each, pod.name, wait)
        if pod.level != was:
            for tally in before:
                if tally in pod.tallies:
                    tally.pods[was].move(t, -1)
                    tally.pods[pod.level].move(t, 1)
        gang = gang_of(state)
        if pod.gang and pod.gang != gang:
            self._gangs.gone(pod.gang, pod.name, t, deleted=False)
        pod.gang = gang
        if gang:
            self._gangs.apply(pod.name, state, level=pod.level, place=pod.place, t=t)
        if state.claims and state.node:
            for tally in pod.tallies:
                tally.claiming = True

    def _waited(self, pod: PodRecord, t: float) -> None:
        """Ends the waits of a pod that are over, or gives up those that can't end any more."""
        state, pending, starting = pod.state, pod.pending, pod.starting
        known = pod.bound, pod.ran
        if pending is None:
            pod.bound = 0.0
        elif pending.goes_on:
            bound = state.bound if state.bound is not None else t if state.node else None
            if bound is not None:
                pod.bound = bound
                pending.seconds = max(bound - pending.since, 0.0)
                for tally in pod.tallies:
                    tally.pending.end(pod.name, pending.seconds)
                self._keep_slow(pod, pending.seconds, f"on {state.node}" if state.node else "bound")
        if starting is not None and starting.goes_on:
            served = state.phase == "Succeeded" and pod.had_node
            running = state.running if state.running is not None else t if served else None
            if running is not None:
                pod.ran = running
                starting.seconds = max(running - starting.since, 0.0)
                for tally in pod.tallies:
                    tally.starting.end(pod.name, starting.seconds)
        if (pod.bound, pod.ran) != known:
            self._split(pod)
        if state.phase in _ENDED:
            self._no_longer(pod, t, "ended without a node")

    def _split(self, pod: PodRecord) -> None:
        """Computes how long each phase of a pod's start took, as far as known, and counts these
        times in the tallies of its place.
        """
        node, old = pod.node_start, pod.phases
        if pod.starting is None:
            return
        pod.phases = split(
            created=pod.starting.since,
            requested=None if node is None else node.requested,
            usable=None if node is None else node.usable,
            bound=pod.bound,
            running=pod.ran,
        )
        for place, seconds in enumerate(pod.phases):
            before = old[place] if place < len(old) else None
            for tally in pod.tallies if seconds != before else ():
                if before is not None:
                    tally.phases[place].drop(pod.name, ended=before)
                tally.phases[place].end(pod.name, seconds)
        if pod.starting.goes_on and pod.bound is not None:
            for tally in pod.tallies:
                tally.phases[-1].begin(pod.name, _phase_begun(pod, pod.starting))

    def _no_longer(self, pod: PodRecord, t: float, outcome: str) -> None:
        """Gives up the waits of a pod that has ended or was deleted."""
        if not pod.unserved and not pod.had_node:
            pod.unserved = True
            for tally in pod.tallies:
                tally.count("pods.unserved", f"{pod.name} at {t:.1f} s")
        if pod.pending is not None and pod.pending.goes_on:
            pod.pending.never = True
            for tally in pod.tallies:
                tally.pending.give_up(pod.name)
            self._keep_slow(pod, max(t - pod.pending.since, 0.0), outcome)
        if pod.starting is not None and pod.starting.goes_on:
            pod.starting.never = True
            for tally in pod.tallies:
                tally.starting.give_up(pod.name)
                for waits in tally.phases[len(pod.phases) :]:
                    waits.give_up(pod.name)

    def _keep_slow(self, pod: PodRecord, seconds: float, outcome: str) -> None:
        pod.reasons = ()
        slow = _slow(pod, seconds, outcome)
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, slow)
        elif slow > self._slowest[0]:
            heapq.heapreplace(self._slowest, slow)

    def _ask(self, state: PodState, t: float, *, sign: int) -> None:
        """Adds what a pod requests to its node's sums (`sign` 1), or subtracts it (-1). Pods that
        have ended request nothing.
        """
        if not state.node or state.phase in _ENDED:
            return
        self._racks.holds(state, sign=sign)
        used = self._used.setdefault(state.node, dict.fromkeys(RESOURCES, 0.0))
        place = None if state.node in self._gone_nodes else self._places.get(state.node)
        amounts = with_gpus(state.requests)
        for name in RESOURCES:
            amount = sign * amounts.get(name, 0.0)
            used[name] += amount
            if place is not None and amount:
                for tally in self._tallies(place):
                    tally.use[name].move(t, above=amount)
        if place is None and not any(used.values()):
            del self._used[state.node]

    def _count_reasons(self, pod: PodRecord, message: str) -> None:
        """Counts each reason once for each pod, however often the scheduler gives it."""
        if message == pod.why:
            return
        for reason in scheduling_reasons(message):
            if reason not in pod.reasons and (
                reason in self.reasons or len(self.reasons) < MOST_REASONS
            ):
                pod.reasons = (*pod.reasons, reason)
                self.reasons[reason] += 1


def scheduling_reasons(message: str) -> list[str]:
    """Splits a message such as `0/5 nodes are available: 2 Insufficient cpu, 3 node(s) ...` into
    its reasons.
    """
    parsed = parse_scheduler_text(message)
    texts = {each.text[:_MOST_REASON] for each in parsed.reasons} if parsed else set()
    return sorted(texts) or [message[:_MOST_REASON]]


def _new(name: str, state: PodState) -> PodRecord:
    begun, over = max(state.created, 0.0), state.phase in _ENDED
    before_the_run = state.created < 0
    was_bound = before_the_run and (over or state.bound is not None or state.node != "")
    had_run = before_the_run and (over or state.running is not None)
    return PodRecord(
        name,
        state,
        Place(state.workload, name.partition("/")[0], rehearsed=state.rehearsed),
        pending=None if was_bound else PodWait(begun),
        starting=None if had_run else PodWait(begun),
        before_the_run=before_the_run,
        unserved=before_the_run and over,
    )


_UNKNOWN: Final = PodWait(math.inf)
_GIVEN_UP: Final = PodWait(math.inf, never=True)
"""Stands for each phase of a pod that isn't bound, and won't run; _UNKNOWN if it still may."""


def _pod_waits(tally: Tally) -> tuple[Waits, ...]:
    return tally.pending, tally.starting, *tally.phases


def _waits_of(pod: PodRecord) -> tuple[PodWait | None, ...]:
    """Returns the waits of a pod in the order of `_pod_waits`: until it has a node, until it runs,
    and in each phase of its start.
    """
    starting = pod.starting
    if starting is None:
        return pod.pending, *(None for _ in ("", *PHASES))
    if not pod.phases:
        phase = _GIVEN_UP if starting.never else _UNKNOWN
        return pod.pending, starting, *(phase for _ in PHASES)
    since = _phase_begun(pod, starting)
    over = [PodWait(since, seconds) for seconds in pod.phases]
    others = [PodWait(since, never=starting.never) for _ in PHASES[len(over) :]]
    return pod.pending, starting, *over, *others


def _phase_begun(pod: PodRecord, starting: PodWait) -> float:
    """Returns when the unfinished phases of a pod's start began, in seconds. Infinity (unknown) for
    a pod without a node, as it may still get one that was requested long ago.
    """
    return math.inf if pod.bound is None else max(pod.bound, starting.since)


def _enter(waits: Waits, name: str, wait: PodWait | None) -> None:
    if wait is None:
        return
    if wait.goes_on:
        waits.begin(name, wait.since)
    elif wait.seconds is not None:
        waits.end(name, wait.seconds)
    else:
        waits.give_up(name)


def _leave(waits: Waits, name: str, wait: PodWait | None) -> None:
    if wait is not None:
        waits.drop(name, ended=wait.seconds, never=wait.never)


def _count(pod: PodRecord, before: PodState | None, t: float) -> None:
    """Counts the restarts and the disruption (such as an eviction) that a line about a pod shows,
    unless they are older than the run.
    """
    counts = before is not None or not pod.before_the_run
    restarts = pod.state.restarts - (before.restarts if before else 0)
    disruption = "" if pod.disrupted else pod.state.disrupted
    pod.disrupted = pod.disrupted or bool(pod.state.disrupted)
    what = f"{pod.name} at {t:.1f} s"
    for tally in pod.tallies if counts else ():
        if restarts > 0:
            tally.count("restarts", what, restarts)
        if disruption in COUNTED:
            tally.count(disruption, f"{what} ({disruption})")


def _slow(pod: PodRecord, seconds: float, outcome: str) -> SlowPod:
    return SlowPod(
        seconds=seconds,
        name=pod.name,
        workload=pod.state.workload,
        created=pod.state.created,
        outcome=outcome,
        why=pod.why,
    )
