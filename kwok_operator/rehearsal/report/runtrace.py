"""Makes trace.json.gz of a recording: the run in a form that chrome://tracing and Perfetto show.

    line --ClusterLedger--> levels of pods --> slices of waiting, starting, running; counters
        └--> nodes: slices of their boots; decisions of autoscalers; marks, Events, warnings
        └--> flows: a decision, the boot of the node that came of it, the pods that waited for it

Whether a pod waits, runs or has lost its node comes from the ledger that the judge uses, too.
Slices begin at the moments by which figures are computed; times before the run count as 0.

A slice is written once it has ended, so memory grows with the cluster, not with time. A
cluster-autoscaler's request is linked to as many nodes of its group as it requested: those whose
instances were requested next; a NodeClaim to the node that it names.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.formats.autoscalertexts import AUTOSCALERS
from kwok_operator.rehearsal.judge.claimledger import ends
from kwok_operator.rehearsal.judge.figures import rounded
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import (
    CallLine,
    EndLine,
    EventLine,
    MarkLine,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    NodeState,
    PodLine,
    PodState,
    RecordedLine,
    WarningLine,
    WatchLine,
)
from kwok_operator.rehearsal.judge.story import WRITES
from kwok_operator.rehearsal.report.traceevents import (
    Lanes,
    TraceEvents,
    TracePoint,
    TraceThread,
    microseconds,
)

MOST_WAITING: Final = 2_000
"""The most waiting pods that are shown at a time; viewers are slow with more threads."""
_AT_ONCE: Final = 1_000
"""How many events are written together."""
_RUN, _DECISIONS, _WAITS, _GROUP, _POOL, _OTHERS = range(6)
"""The ranks of the trace's processes, in the order in which viewers show them."""
_SECOND: Final = 1_000_000
_READ_LATE: Final = 0.1
"""Seconds by which a call may be recorded later than it was answered: calls.py reads a log."""
_JOINED: Final = _SECOND
"""Microseconds. Decisions of a kind that follow each other within this time are one slice."""
_SHORTEST: Final = 1_000
"""Microseconds. A decision without a duration lasts a millisecond, the precision of recordings."""
_MOST_REQUESTS: Final = 64
"""The most requests for a group that are remembered, to link them to nodes that may still come."""
_COUNTED: Final = 0.1
"""Seconds between values of counters, unless a value lasts."""
_UNPRICED: Final = "nodes that cost leaves out, without a price"
_ENDED: Final = ("succeeded", "failed")
_WAITING, _STARTING, _RUNNING = "waits", "starts", "runs"


@dataclass(slots=True)
class _Request:
    """A request for more nodes of a group."""

    since: int
    left: int
    """How many of the requested nodes haven't been created yet."""
    point: TracePoint


@dataclass(slots=True)
class _Claim:
    state: NodeClaimState
    point: TracePoint
    """The decision to make the NodeClaim, from which arrows lead."""


@dataclass(slots=True)
class _TracedNode:
    name: str
    state: NodeState | None = None
    """The node's last state; None if only pods on it are known."""
    lanes: Lanes | None = None
    shown: bool = False
    """Whether the recording has shown the node."""
    requested: int = 0
    usable: int | None = None
    """When the node became usable, or was gone without that, in microseconds; None before."""
    boots: bool = False
    """Whether the node's boot is part of the run."""
    written: bool = False
    linked: bool = False
    """Whether an arrow from the decision leads to the node."""
    decision: TracePoint | None = None
    pods: dict[str, "_TracedPod"] = field(default_factory=dict)


@dataclass(slots=True)
class _TracedPod:
    name: str
    state: PodState
    stage: str = ""
    begun: int = 0
    thread: TraceThread | None = None
    node: _TracedNode | None = None
    why: str = ""
    """The scheduler's last message about the pod."""
    waited: bool = False
    """Whether the pod has waited in the run, and no arrow leads to it yet."""


class _Decisions:
    """Slices for the decisions of autoscalers, on a thread for each kind of decision."""

    def __init__(self, events: TraceEvents) -> None:
        self._events = events
        self._threads: dict[str, TraceThread] = {}
        self._open: dict[str, tuple[TracePoint, str, int, int, int]] = {}
        """For each unfinished slice: its beginning, name, end so far, number of decisions and
        number of nodes.
        """

    def make(self, kind: str, what: str, since: int, until: int, nodes: int) -> TracePoint:
        """Adds a slice for a decision, or extends the last slice of this kind if that ended shortly
        before. Returns the point where the slice begins.
        """
        point, name, last, times, sum_of_nodes = self._open.get(kind, (None, what, 0, 0, 0))
        if point is not None and since > last + _JOINED:
            self._close(kind)
            point, name, times, sum_of_nodes = None, what, 0, 0
        if point is None:
            if kind not in self._threads:
                pid = self._events.process("decisions", rank=_DECISIONS)
                self._threads[kind] = self._events.thread(pid, kind)
            point = TracePoint(self._threads[kind], since)
            self._events.begin(point.thread, what, "decision", since)
        self._open[kind] = (point, name, max(last, until), times + 1, sum_of_nodes + nodes)
        return point

    def close(self) -> None:
        for kind in [*self._open]:
            self._close(kind)

    def _close(self, kind: str) -> None:
        (thread, since), name, last, times, nodes = self._open.pop(kind)
        self._events.end(thread, name, max(last, since + _SHORTEST), times=times, nodes=nodes or "")


class RunTrace:
    """Passes the trace to `write`, as pieces of a JSON text. It is complete after `finish`."""

    def __init__(self, scenario: str, write: Callable[[str], object]) -> None:
        self._write = write
        self._before = '{"displayTimeUnit":"ms","traceEvents":[\n'
        self.events = TraceEvents()
        self._run = self.events.process(f"run of {scenario}" if scenario else "run", rank=_RUN)
        self._threads: dict[str, TraceThread] = {}
        self._decisions = _Decisions(self.events)
        self._counted: dict[str, dict[str, float]] = {}
        self._count_at = self._cost_at = -1.0
        self._waits: Lanes | None = None
        self._over = False
        self._hidden = 0
        """How many waits of pods are left out, as too many pods wait at the same time."""
        self._nodes: dict[str, _TracedNode] = {}
        self._pods: dict[str, _TracedPod] = {}
        self._claims: dict[str, _Claim] = {}
        self._claim_of: dict[str, str] = {}
        """The name of each node's NodeClaim, by the node's name."""
        self._requests: dict[str, deque[_Request]] = {}

    def moves_on(self, ledger: ClusterLedger, t: float) -> None:
        # A state that lasts is counted even if it comes soon after another.
        if ledger.now - self._count_at >= _COUNTED or t - ledger.now >= _COUNTED:
            self._count(ledger)

    def on_line(self, line: RecordedLine, ledger: ClusterLedger) -> None:
        """Writes what a line shows, after the ledger has applied it."""
        if self.events.waiting >= _AT_ONCE:
            self._hand_out()
        at = microseconds(line.t)
        match line:
            case PodLine():
                record = ledger.pods.live.get(line.name)
                self._pod(line, "" if record is None else record.level, at)
            case NodeLine():
                self._node(line, ledger, at)
            case NodeClaimLine():
                self._claim(line, at)
            case CallLine() if line.method in WRITES:
                self._call(line, at)
            case EndLine():
                self._note("steps", "the end", at, wide=True, reason=line.reason)
            case MarkLine():
                self._note("steps", line.what, at, wide=True, detail=line.detail)
            case WatchLine():
                what = f"{line.of}: {line.state}"
                self._note("watches", what, at, detail=line.detail)
            case WarningLine():
                self._note(f"warnings of {line.program}", line.message, at, count=line.count)
            case EventLine() if line.component in AUTOSCALERS:
                thread, about = f"Events of {line.component}", line.about
                count, message = line.count, line.message
                self._note(thread, line.reason, at, about=about, message=message, count=count)

    def finish(self, ledger: ClusterLedger) -> None:
        """Ends what still goes on when the recording ends."""
        at, self._over = microseconds(ledger.now), True
        self._count(ledger, last=True)
        for pod in self._pods.values():
            self._to(pod, "", at)
        for node in self._nodes.values():
            self._end_node(node, at)
        self._decisions.close()
        if self._hidden:
            what = f"{self._hidden:,} waits of pods are left out"
            most = f"at most {MOST_WAITING:,} are shown at a time"
            self._note("steps", what, at, detail=most)
        self._hand_out()
        self._write("\n]}\n")

    def _hand_out(self) -> None:
        self._write(self._before + ",\n".join(self.events.taken()))
        self._before = ",\n"

    def _note(
        self, thread: str, what: str, at: int, *, wide: bool = False, **args: str | int
    ) -> None:
        if thread not in self._threads:
            self._threads[thread] = self.events.thread(self._run, thread)
        self.events.instant(self._threads[thread], what, thread, at, wide=wide, **args)

    def _count(self, ledger: ClusterLedger, *, last: bool = False) -> None:
        """Writes a counter for each group of levels (such as pods, nodes, cost) that has changed
        since its previous counter.
        """
        every, t = ledger.all, ledger.now
        self._count_at = t
        ready, nodes = (round(every.nodes[name].value) for name in ("ready", "total"))
        levels: dict[str, dict[str, float]] = {
            "pods": {name: round(every.pods[name].value) for name in ("pending", "running")},
            "nodes": {"ready": ready, "others": nodes - ready},
        }
        if every.priced:
            lacking = round(every.unpriced.value)
            if lacking or _UNPRICED in self._counted:
                levels[_UNPRICED] = {"nodes": lacking}
            levels["cost per hour"] = {"cost": rounded(every.price.value) or 0.0}
            if last or t >= self._cost_at + 1:
                self._cost_at = t
                levels["cost"] = {"cost": rounded(every.price.area(t) / 3_600) or 0.0}
        for name, values in levels.items():
            if self._counted.get(name) != values:
                self._counted[name] = values
                self.events.counter(self._run, name, microseconds(t), values)

    def _call(self, line: CallLine, at: int) -> None:
        since = microseconds(line.t - line.ms / 1_000 - _READ_LATE)
        failed = "" if line.code == "OK" else f": {line.code}"
        nodes = line.number
        kind = f"{line.method} of {line.group}{failed}"
        point = self._decisions.make(kind, f"{line.method}{failed}", since, at, nodes)
        if WRITES[line.method] == "up" and nodes and not failed:
            request = self._requests.setdefault(line.group, deque(maxlen=_MOST_REQUESTS))
            request.append(_Request(since, nodes, point))

    def _claim(self, line: NodeClaimLine, at: int) -> None:
        known, state = self._claims.pop(line.name, None), line.state
        if (ended := ends(known.state if known else None, state)) is not None:
            why = ended.reason or "deleted"
            self._decisions.make(f"NodeClaims of {ended.pool} end", why, at, at, 1)
        if state is None:
            if known is not None:
                self._claim_of.pop(known.state.node, None)
            return
        if known is None and state.created >= 0:
            kind, since = f"NodeClaims of {state.pool}", microseconds(state.created)
            known = _Claim(state, self._decisions.make(kind, "NodeClaims", since, at, 1))
        if known is not None:
            known.state = state
            self._claims[line.name] = known
            if state.node:
                self._claim_of[state.node] = line.name
                if (node := self._nodes.get(state.node)) is not None:
                    self._decided(node, known)

    def _decided(self, node: _TracedNode, claim: _Claim) -> None:
        if node.decision is None and not node.written:
            node.decision = claim.point
            node.requested = microseconds(claim.state.created)

    def _node(self, line: NodeLine, ledger: ClusterLedger, at: int) -> None:
        node, state = self._nodes.get(line.name), line.state
        if state is None:
            if node is not None and node.state is not None:
                self._goes(node, at)
            elif node is not None:  # the recording has shown only its pods
                for pod in node.pods.values():
                    self._to(pod, "", at)
            return
        if node is None:
            node = self._nodes[line.name] = _TracedNode(line.name)
        before, node.state = node.state, state
        if not node.shown:
            self._comes(node, state, at)
        lanes = self._lanes(node)
        for what in _changes(before, state) if node.usable is not None and before else ():
            self.events.instant(lanes.first, what, "node", at)
        if node.usable is None and state.ready:
            node.usable = at
            lanes.give(lanes.first, at)
        if before is None:
            for pod in node.pods.values():
                self._settle(pod, ledger.pods.live[pod.name].level, at)
                if pod.stage and pod.thread is None:
                    pod.thread = lanes.take(pod.begun)

    def _comes(self, node: _TracedNode, state: NodeState, at: int) -> None:
        """Notes when a node was requested, and which autoscaler's decision requested it."""
        node.shown, used = True, node.lanes is not None
        known = [each for each in (state.requested, state.created) if each is not None]
        node.requested = min(microseconds(known[0]) if known else at, at)
        # If pods on it are gone already, its first thread isn't free from the beginning.
        node.boots = not state.ready or (state.created is not None and state.created >= 0)
        if used or not node.boots:
            node.boots, node.usable = False, 0
            return
        self._lanes(node).take(0)
        for request in reversed(self._requests.get(state.group, ())):
            if request.left and request.since <= node.requested:
                request.left -= 1
                node.decision = request.point
                return
        if (claim := self._claims.get(self._claim_of.get(node.name, ""))) is not None:
            self._decided(node, claim)

    def _goes(self, node: _TracedNode, at: int) -> None:
        for pod in node.pods.values():
            self._to(pod, "", at)
        self.events.instant(self._lanes(node).first, "gone", "node", at)
        self._end_node(node, at)
        node.state = None
        if not node.pods:
            del self._nodes[node.name]

    def _end_node(self, node: _TracedNode, at: int) -> None:
        """Writes the slices of a node that aren't written yet. Called when the node is gone, or
        when the run ends.
        """
        if not node.boots:
            return
        if not node.written:
            self._write_boot(node, at)
        if node.decision is not None and not node.linked:
            self._link(node, None, at)
        node.boots = False

    def _write_boot(self, node: _TracedNode, at: int) -> None:
        node.written = True
        usable, until = node.usable is not None, at if node.usable is None else node.usable
        node.usable, node.requested = until, min(node.requested, until)
        given = {} if usable else {"outcome": "never usable"}
        self.events.slice(self._lanes(node).first, "boot", "boot", node.requested, until, **given)

    def _link(self, node: _TracedNode, pod: TracePoint | None, at: int) -> None:
        """Draws arrows from the decision to the node, once, and from the node to a pod."""
        if not node.written:
            self._write_boot(node, at)
        points = [TracePoint(self._lanes(node).first, node.requested)]
        if node.decision is not None and not node.linked:
            node.linked = True
            # A call is recorded some time after it was answered.
            boots = max(node.requested, node.decision.at)
            if boots == node.requested or boots < (node.usable or 0):
                points = [node.decision, points[0]._replace(at=boots)]
        if pod is not None:
            points.append(pod)
        times = [point.at for point in points]
        if len(points) > 1 and times == sorted(times):
            self.events.flow(points)

    def _lanes(self, node: _TracedNode) -> Lanes:
        if node.lanes is None:
            group = node.state.group if node.state else ""
            pool = node.state.pool if node.state else ""
            if group:
                pid = self.events.process(f"group {group}", rank=_GROUP)
            elif pool:
                pid = self.events.process(f"NodePool {pool}", rank=_POOL)
            else:
                pid = self.events.process("other nodes", rank=_OTHERS)
            node.lanes = Lanes(self.events, pid, node.name)
        return node.lanes

    def _pod(self, line: PodLine, level: str, at: int) -> None:
        pod, state = self._pods.get(line.name), line.state
        if state is None:
            if pod is not None:
                self._to(pod, "", at)
                self._leaves(pod)
                del self._pods[line.name]
            return
        new = pod is None
        if pod is None:
            pod = self._pods[line.name] = _TracedPod(line.name, state)
            if state.created >= 0 or not (state.node or level in _ENDED):
                self._to(pod, _WAITING, microseconds(state.created))
        pod.state, pod.why = state, state.why or pod.why
        self._settle(pod, level, at, new=new)

    def _leaves(self, pod: _TracedPod) -> None:
        node, pod.node = pod.node, None
        if node is not None:
            del node.pods[pod.name]
            if node.state is None and not node.pods:
                del self._nodes[node.name]

    def _settle(self, pod: _TracedPod, level: str, at: int, *, new: bool = False) -> None:
        """Ends and begins slices until the pod's stage (waits, starts, runs) fits its `level`."""
        state = pod.state
        bound = at if state.bound is None else microseconds(state.bound)
        running = at if state.running is None else microseconds(state.running)
        if state.node and (pod.node is None or pod.node.name != state.node):
            if pod.stage != _WAITING:
                self._to(pod, "", at)
            self._leaves(pod)
            pod.node = self._nodes.setdefault(state.node, _TracedNode(state.node))
            pod.node.pods[pod.name] = pod
        if pod.stage == _WAITING and state.node:
            self._to(pod, _STARTING, bound)
        has_run = level in _ENDED and pod.stage == _STARTING and state.running is not None
        if level == "running" or has_run:
            self._to(pod, _RUNNING, running if new or pod.stage == _STARTING else at)
        if level == "pending":
            stage = _STARTING if state.node else _WAITING
            self._to(pod, stage, bound if new and state.node else at)
        if level in (*_ENDED, "orphaned"):
            self._to(pod, "", at)

    def _to(self, pod: _TracedPod, stage: str, at: int) -> None:
        """Ends the slice of a pod's stage (waits, starts, runs), and begins the slice of the next
        `stage`; if `stage` is empty, begins none.
        """
        if stage == pod.stage:
            return
        at = max(at, pod.begun)
        if pod.stage == _WAITING:
            self._end_wait(pod, at, node=pod.state.node if stage else "")
        elif pod.stage:
            self._end_stage(pod, at, stage)
        pod.stage, pod.begun = stage, at
        if stage == _WAITING:
            if self._waits is None:
                pid = self.events.process("pods that wait", rank=_WAITS)
                self._waits = Lanes(self.events, pid, "pods that wait", most=MOST_WAITING)
            pod.thread = self._waits.take(at)
        elif stage and pod.thread is None and pod.node is not None and pod.node.lanes is not None:
            pod.thread = pod.node.lanes.take(at)

    def _end_wait(self, pod: _TracedPod, at: int, *, node: str) -> None:
        pod.waited, thread, state = bool(node), pod.thread, pod.state
        if thread is None or self._waits is None:
            self._hidden += 1
        else:
            outcome = "" if node else "still waits" if self._over else "went without a node"
            given = {"workload": state.workload, "why": pod.why, "node": node, "outcome": outcome}
            self.events.slice(thread, pod.name, _WAITING, pod.begun, at, **given)
            self._waits.give(thread, at)
        pod.thread = None

    def _end_stage(self, pod: _TracedPod, at: int, following: str) -> None:
        node, since, state = pod.node, pod.begun, pod.state
        if node is None or (following and at == since):
            return
        lanes = self._lanes(node)
        thread = pod.thread or lanes.take(since)
        if thread is None:
            return
        name = pod.name if pod.stage == _RUNNING else f"{pod.name} starts"
        waited = max(since / _SECOND - max(state.created, 0.0), 0.0)
        given = {"workload": state.workload, "reason": state.reason}
        self.events.slice(
            thread, name, pod.stage, since, at, **given, secondsSinceCreated=round(waited, 3)
        )
        usable = node.usable
        if pod.waited and node.boots and usable is not None:
            if microseconds(state.created) < usable:
                self._link(node, TracePoint(thread, since), at)
        pod.waited = False
        pod.thread = thread if following else None
        if not following:
            lanes.give(thread, at)


def _changes(before: NodeState, after: NodeState) -> Iterator[str]:
    """Yields what has changed in a node's state, in words."""
    if before.ready != after.ready:
        yield "ready" if after.ready else "not ready"
    if before.schedulable != after.schedulable:
        yield "uncordoned" if after.schedulable else "cordoned"
    if after.deleting and not before.deleting:
        yield "deleting"
