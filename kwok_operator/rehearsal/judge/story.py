"""Collects what the report shows besides figures: the run over time, and what was done when.

The numbers of samples, calls, marks (such as steps), Events and warnings are limited, so memory
grows with the number of groups and nodes, but not with the recording. Samples are thinned out; what
is beyond the other limits is only counted.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kwok_operator.rehearsal.judge.claimledger import ends
from kwok_operator.rehearsal.judge.figures import GPU
from kwok_operator.rehearsal.judge.lanes import NodeLanes
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.rackledger import Rack
from kwok_operator.rehearsal.judge.recording import (
    CallLine,
    EventLine,
    GroupLine,
    GroupState,
    MarkLine,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    RecordedLine,
    WarningLine,
    WatchLine,
)

MOST_SAMPLES: Final = 480
MOST_MARKS: Final = 100
MOST_CALLS: Final = 200
MOST_KINDS_OF_EVENTS: Final = 200
MOST_MESSAGES: Final = 20
MOST_ABOUTS: Final = 50
MOST_WARNINGS: Final = 200
_FIRST_STEP: Final = 0.125
_ONE_AFTER_ANOTHER: Final = 15.0
"""Calls, and changes of NodeClaims, at most this many seconds apart are shown in one row."""
BACK: Final = "back"
FAILED: Final = "failed"
_DECREASE: Final = "NodeGroupDecreaseTargetSize"
_DELETIONS: Final = frozenset({"NodeGroupDeleteNodes", "NodeGroupForceDeleteNodes"})
WRITES: Final = {
    "NodeGroupIncreaseSize": "up",
    "NodeGroupDeleteNodes": "down",
    "NodeGroupForceDeleteNodes": "down",
    _DECREASE: "down",
}
"""The calls by which an autoscaler changes a group, each with whether it makes the group larger or
smaller.
"""


class NodeCounts(NamedTuple):
    """The nodes of a group or NodePool, and the instances that have no node yet."""

    total: int = 0
    ready: int = 0
    creating: int = 0
    failed: int = 0
    """The number of instances that could not be created, or never got a node."""
    target: int | None = None
    """The wanted size; None if unknown."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the cluster from `t` on."""

    t: float
    pending: int
    running: int
    orphaned: int
    nodes: Mapping[str, NodeCounts]
    """By group, if there are groups, or else by NodePool; the key "" has all other nodes."""
    price: float
    cost: float
    cpu: float | None
    memory: float | None
    gpu: float | None
    racks: bytes
    """The use of each rack of `Story.racks`, as in RackLedger; missing racks had no nodes yet."""
    of_racks: Mapping[str, float]
    """The values of RACK_LEVELS and LARGEST_GANGS."""


@dataclass(slots=True)
class EventsOfAKind:
    first: float
    last: float
    abouts: dict[str, None] = field(default_factory=dict)
    """The objects of these Events, as KIND/NAMESPACE/NAME; at most MOST_ABOUTS, the first ones."""
    count: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    """The messages, and how often each came; at most MOST_MESSAGES, the first ones."""

    def add(self, line: EventLine) -> None:
        self.last = line.t
        self.count += line.count
        if len(self.abouts) < MOST_ABOUTS:
            self.abouts[line.about] = None
        if line.message in self.messages or len(self.messages) < MOST_MESSAGES:
            self.messages[line.message] += line.count


@dataclass(slots=True)
class LoggedWarning:
    """How often a program logged one text, during the run or before it."""

    program: str
    message: str
    before: bool
    first: float
    last: float
    count: int = 0


@dataclass(slots=True)
class CallsOfAKind:
    """Calls of one method for one group with one answer, soon one after another."""

    first: float
    last: float
    method: str
    group: str
    code: str
    way: str
    """`up`, `down` or BACK as in `Story.requested_at`; empty for a call that changes no group."""
    argument: str
    """The argument of the first call."""
    total: int = 0
    """The sum of the calls' arguments that are numbers."""
    count: int = 0
    slowest_ms: float = 0.0

    def add(self, call: CallLine) -> None:
        self.last = call.t
        self.count += 1
        self.total += call.number
        self.slowest_ms = max(self.slowest_ms, call.ms)


@dataclass(slots=True)
class ClaimsOfAKind:
    """NodeClaims of one NodePool to which the same happened, soon one after another."""

    first: float
    last: float
    pool: str
    what: str
    count: int = 0
    types: Counter[str] = field(default_factory=Counter)
    """How many of them have each instance type."""


@dataclass(slots=True)
class Story:
    samples: list[Sample] = field(default_factory=list)
    racks: list[Rack] = field(default_factory=list)
    """All racks of the run; complete once the run is over."""
    marks: list[MarkLine] = field(default_factory=list)
    calls: list[CallsOfAKind] = field(default_factory=list)
    """The calls that change a group, and those that failed."""
    claims: list[ClaimsOfAKind] = field(default_factory=list)
    """What happened to NodeClaims of Karpenter."""
    requested_at: dict[str, set[float]] = field(
        default_factory=lambda: {"up": set(), "down": set(), BACK: set(), FAILED: set()}
    )
    """By kind of request, the times to a tenth of a second: an autoscaler made a group larger
    (`up`) or smaller (`down`), or created or deleted a NodeClaim; or gave back (BACK) an instance
    that never became a node; or such a call FAILED.
    """
    lanes: NodeLanes = field(default_factory=NodeLanes)
    groups: dict[str, GroupState] = field(default_factory=dict)
    """The last state of each group that existed."""
    deleted: dict[str, float] = field(default_factory=dict)
    """When each group was deleted that doesn't exist any more."""
    grown: set[tuple[str, str]] = field(default_factory=set)
    """What got a node in the run: ("group", NAME), ("nodePool", NAME)."""
    requests: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """The answers to the calls for more nodes of each group, and how often each was given."""
    launched: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many NodeClaims of each were launched, with keys as in `grown`."""
    more_marks: int = 0
    more_calls: int = 0
    more_claims: int = 0
    events: dict[tuple[str, str, str], EventsOfAKind] = field(default_factory=dict)
    """The Events, by component, reason and type."""
    more_events: int = 0
    warnings: dict[tuple[str, str, bool], LoggedWarning] = field(default_factory=dict)
    more_warnings: int = 0
    _seen: set[str] = field(default_factory=set)
    """The names of all nodes so far."""
    _step: float = _FIRST_STEP
    _latest: dict[tuple[str, str, str, str], CallsOfAKind] = field(default_factory=dict)
    _latest_claims: dict[tuple[str, str], ClaimsOfAKind] = field(default_factory=dict)
    _known_claims: dict[str, NodeClaimState] = field(default_factory=dict)

    def moves_on(self, ledger: ClusterLedger, t: float) -> None:
        """Takes a sample of the ledger if one is due before `t`, the time of the next line."""
        now = ledger.now
        last = self.samples[-1].t if self.samples else -self._step
        # A state that lasts is sampled even if it comes soon after the last sample.
        if now - last < self._step and t - now < self._step:
            return
        sample = _sample(ledger, now)
        if self.samples and last == now:
            self.samples[-1] = sample
        else:
            self.samples.append(sample)
        if len(self.samples) > MOST_SAMPLES:
            self._thin_out()

    def finish(self, ledger: ClusterLedger) -> None:
        self.lanes.finish()
        self.racks = ledger.racks.racks
        self.samples.append(_sample(ledger, ledger.now))

    def on_line(self, line: RecordedLine, ledger: ClusterLedger) -> None:
        self.lanes.apply(line)
        match line:
            case WatchLine():
                detail = f"{line.state} {line.detail}".rstrip()
                self.on_line(MarkLine(line.t, f"watch of {line.of}", detail), ledger)
            case MarkLine():
                if len(self.marks) < MOST_MARKS:
                    self.marks.append(line)
                else:
                    self.more_marks += 1
            case CallLine() if line.method in WRITES or line.code != "OK":
                way = self._way(line)
                if way:
                    self.requested_at[way if line.code == "OK" else FAILED].add(round(line.t, 1))
                if way == "up":
                    self.requests[line.group][line.code] += 1
                self._call(line, way)
            case GroupLine():
                self._group(line)
            case NodeLine(state=state):
                self._seen.add(line.name)
                if state is not None and (state.created is None or state.created >= 0):
                    self.grown.update((("group", state.group), ("nodePool", state.pool)))
            case NodeClaimLine():
                self._claim(line)
            case EventLine():
                self._event(line)
            case WarningLine():
                self._warning(line)

    def _way(self, call: CallLine) -> str:
        """Returns what a call does with nodes: requests more (`up`), requests fewer (`down`), or
        gives back instances that never became nodes; empty for any other call. A deletion gives
        back instances if none of the nodes that it names was ever recorded.
        """
        if call.method not in _DELETIONS:
            return BACK if call.method == _DECREASE else WRITES.get(call.method, "")
        names = call.argument.split(" and ")[0].split(", ")
        return "down" if self._seen.intersection(names) else BACK

    def _group(self, line: GroupLine) -> None:
        if line.state is None:
            self.deleted[line.name] = line.t
        else:
            self.deleted.pop(line.name, None)
            self.groups[line.name] = line.state

    def _call(self, line: CallLine, way: str) -> None:
        key = (line.method, line.group, line.code, way)
        calls = self._latest.get(key)
        if calls is None or line.t - calls.last > _ONE_AFTER_ANOTHER:
            if len(self.calls) == MOST_CALLS:
                self.more_calls += 1
                return
            calls = CallsOfAKind(line.t, line.t, *key, argument=line.argument)
            self._latest[key] = calls
            self.calls.append(calls)
        calls.add(line)

    def _claim(self, line: NodeClaimLine) -> None:
        before, after, t = self._known_claims.pop(line.name, None), line.state, line.t
        if after is not None:
            self._known_claims[line.name] = after
            if before is None and after.created < 0:
                return  # it is older than the run
            if before is None:
                self.requested_at["up"].add(round(t, 1))
            if after.launched is not None and (before is None or before.launched is None):
                self.launched.update([("group", after.group), ("nodePool", after.pool)])
                self._note_claim(after, "launched", t)
            if after.registered is not None and (before is None or before.registered is None):
                self._note_claim(after, "registered", t)
        if (ended := ends(before, after)) is not None:
            self.requested_at[BACK if ended.registered is None else "down"].add(round(t, 1))
            how = f"disrupted: {ended.reason}" if ended.reason else "deleted"
            never = ", never registered" if ended.registered is None else ""
            self._note_claim(ended, f"{how}{never}", t)

    def _note_claim(self, claim: NodeClaimState, what: str, t: float) -> None:
        key = (claim.pool, what)
        claims = self._latest_claims.get(key)
        if claims is None or t - claims.last > _ONE_AFTER_ANOTHER:
            if len(self.claims) == MOST_CALLS:
                self.more_claims += 1
                return
            claims = self._latest_claims[key] = ClaimsOfAKind(t, t, *key)
            self.claims.append(claims)
        claims.last = t
        claims.count += 1
        claims.types[claim.instance_type] += 1

    def _event(self, line: EventLine) -> None:
        key = (line.component, line.reason, line.type)
        if key not in self.events and len(self.events) == MOST_KINDS_OF_EVENTS:
            self.more_events += line.count
            return
        events = self.events.setdefault(key, EventsOfAKind(line.t, line.t))
        events.add(line)

    def _warning(self, line: WarningLine) -> None:
        key = (line.program, line.message, line.before)
        if key not in self.warnings and len(self.warnings) == MOST_WARNINGS:
            self.more_warnings += line.count
            return
        warning = self.warnings.setdefault(key, LoggedWarning(*key, first=line.t, last=line.t))
        warning.last = line.t
        warning.count += line.count

    def _thin_out(self) -> None:
        self._step *= 2
        kept = [self.samples[0]]
        following = [*self.samples[2:], None]
        for sample, after in zip(self.samples[1:], following, strict=True):
            lasts = after is None or after.t - sample.t >= self._step
            if lasts or sample.t - kept[-1].t >= self._step:
                kept.append(sample)
        self.samples = kept


def _sample(ledger: ClusterLedger, t: float) -> Sample:
    every = ledger.all
    counts, under_way = ledger.counts(), ledger.under_way()
    rest = NodeCounts(
        round(every.nodes["total"].value) - sum(total for total, _ in counts.values()),
        round(every.nodes["ready"].value) - sum(ready for _, ready in counts.values()),
    )
    nodes = {
        name: NodeCounts(*counts.get(name, (0, 0)), *under_way.get(name, ()))
        for name in [*counts, *(name for name in under_way if name not in counts)]
    }
    return Sample(
        t=t,
        pending=round(every.pods["pending"].value),
        running=round(every.pods["running"].value),
        orphaned=round(every.pods["orphaned"].value),
        nodes={**nodes, "": rest} if rest.total else nodes,
        price=every.price.value,
        cost=every.price.area(t) / 3_600,
        cpu=every.use["cpu"].value,
        memory=every.use["memory"].value,
        gpu=every.use[GPU].value,
        racks=ledger.racks.picture(),
        of_racks={name: level.value for name, level in every.racks.items()},
    )
