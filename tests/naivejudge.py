"""A second judge of recordings, which computes each figure of docs/figures.md by its definition.

Data flow: all lines --histories--> a snapshot after each line, and the life of each object
--naive--> figures. It keeps everything and is slow; the judge of the package has to agree with it.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator.rehearsal.judge.figures import FigureScope
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    EventLine,
    GroupLine,
    JobLine,
    JobState,
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

Figures = tuple[dict[str, float | None], set[str]]
ENDED: Final = ("Succeeded", "Failed")
_PODS: Final = {"workload", "namespace", "group", "zone", "nodePool"}
_WAITING: Final = {"workload", "namespace"}
_NODES: Final = {"group", "zone", "nodePool"}
_OF: Final[dict[str, set[str]]] = {
    "pods": _PODS,
    "pods.pending": _WAITING,
    "pods.unserved": _WAITING,
    "pendingSeconds": _PODS,
    "startSeconds": _PODS,
    "wait": _PODS,
    "gangs": _WAITING,
    "racks": set(),
    "largestGang": set(),
    "nodes": _NODES,
    "instances": {"group"},
    "nodeHours": _NODES,
    "cost": _NODES,
    "utilisation": _NODES,
    "churn": _NODES,
    "evictions": _PODS,
    "preemptions": _PODS,
    "losses": _PODS,
    "restarts": _PODS,
    "disruptions": _NODES,
    "disruptions.beyondBudget": {"namespace"},
    "nodeClaims": _NODES,
    "events": {"namespace"},
    "warnings": {"program"},
}


def narrows(name: str, scope: FigureScope) -> bool:
    """Whether the figure can be restricted so."""
    of = _OF.get(".".join(name.split(".")[:2])) or _OF[name.split(".")[0]]
    return scope.by.keys() <= of


@dataclass(eq=False)
class Life:
    """An object from its first line to its end."""

    name: str
    lines: list[tuple[int, float, Any]] = field(default_factory=list)
    """Index, time and state of each line."""
    gone: float | None = None
    gone_after: int = sys.maxsize
    """Index of the line that says so."""
    place: NodeState | None = None
    """Of a pod that is gone: its node then. What is said of it later changes nothing."""

    @property
    def first(self) -> Any:
        return self.lines[0][2]

    @property
    def last(self) -> Any:
        return self.lines[-1][2]


@dataclass
class Snapshot:
    """What holds after a line."""

    t: float
    index: int
    nodes: dict[str, NodeState]
    shown: dict[str, NodeState]
    gone: set[str]
    pods: list[tuple[Life, PodState, bool]]
    """With whether it is still there."""
    groups: dict[str, dict[str, int]]

    def belongs(self, pod: Life, state: PodState, scope: FigureScope) -> bool:
        node = self.shown.get(state.node) if state.node else None
        node = pod.place if self.index >= pod.gone_after else node
        return (
            _of_workload(scope, state.workload, state.rehearsed)
            and scope.namespace in ("", pod.name.split("/")[0])
            and _at(scope, node)
        )

    def orphaned(self, state: PodState) -> bool:
        return state.phase not in ENDED and state.node in self.gone


@dataclass
class History:
    snapshots: list[Snapshot]
    nodes: list[Life]
    pods: list[Life]
    jobs: list[Life]
    claims: list[Life]
    pod_groups: list[Life]
    lines: Sequence[RecordedLine]
    topology: RecordedTopology

    @property
    def end(self) -> float:
        return self.snapshots[-1].t


def history(lines: Sequence[RecordedLine], topology: RecordedTopology | None = None) -> History:
    kinds = (NodeLine, PodLine, JobLine, NodeClaimLine, PodGroupLine)
    lives: dict[type, dict[str, Life]] = {kind: {} for kind in kinds}
    every: dict[type, list[Life]] = {kind: [] for kind in kinds}
    now = Snapshot(0, 0, {}, {}, set(), [], {})
    snapshots = []
    for index, line in enumerate(lines):
        if isinstance(line, NodeLine | PodLine | JobLine | NodeClaimLine | PodGroupLine):
            there = lives[type(line)]
            if line.state is None:
                if line.name in there:
                    life = there.pop(line.name)
                    life.gone, life.gone_after = line.t, index
                    if isinstance(line, PodLine):
                        life.place = now.shown.get(life.last.node)
            else:
                if line.name not in there:
                    there[line.name] = Life(line.name)
                    every[type(line)].append(there[line.name])
                there[line.name].lines.append((index, line.t, line.state))
        if isinstance(line, NodeLine) and line.state is None:
            now.nodes.pop(line.name, None)
            now.gone.add(line.name)
        elif isinstance(line, NodeLine) and line.state is not None:
            now.nodes[line.name] = now.shown[line.name] = line.state
            now.gone.discard(line.name)
        elif isinstance(line, GroupLine):
            now.groups[line.name] = {} if line.state is None else dict(line.state.states)
        copy = replace(now, t=line.t, index=index, nodes=dict(now.nodes), shown=dict(now.shown))
        copy.gone, copy.groups = set(now.gone), dict(now.groups)
        copy.pods = [(pod, pod.last, pod.gone is None) for pod in every[PodLine]]
        snapshots.append(copy)
    nodes, pods, jobs, claims, groups = (every[kind] for kind in kinds)
    return History(snapshots, nodes, pods, jobs, claims, groups, lines, topology or NO_RACKS)


NO_RACKS: Final = RecordedTopology()


def naive(all_: History, scope: FigureScope) -> Figures:
    """All figures that the scope can restrict, and which of them are incomplete."""
    values: dict[str, float | None] = {}
    incomplete: set[str] = set()
    _levels(all_, scope, values)
    _all_waits(all_, scope, values, incomplete)
    _node_sums(all_, scope, values, incomplete)
    _uses(all_, scope, values, incomplete)
    _racks(all_, values)
    gangs = [gang for gang in _gangs(all_) if gang.of(scope)]
    _spread(all_, gangs, values)
    values["gangs.broken"] = sum(gang.broken for gang in gangs)
    _counts(all_, scope, values)
    _claims(all_, scope, values)
    outages = _outages(all_.lines)
    incomplete |= {name for name in values if _lacks(name, *outages)}
    return (
        {name: value for name, value in values.items() if narrows(name, scope)},
        {name for name in incomplete if narrows(name, scope)},
    )


def _outages(lines: Iterable[RecordedLine]) -> tuple[set[str], set[str]]:
    """The kinds whose watch is broken at the end, and those that were listed again."""
    broken = dict[str, bool]()
    listed = set[str]()
    for line in lines:
        if isinstance(line, WatchLine) and line.state == "listed":
            listed.add(line.of)
        elif isinstance(line, WatchLine):
            broken[line.of] = line.state == "broken"
    return {kind for kind, is_so in broken.items() if is_so}, listed


def _lacks(name: str, broken: set[str], listed: set[str]) -> bool:
    made_of = (
        {"pods", "budgets"}
        if name == "disruptions.beyondBudget"
        else {
            "gangs": {"nodes", "pods", "jobs", "podGroups"},
            "instances": {"groups"},
            "events": {"events"},
            "disruptions": {"nodeClaims"},
            "nodeClaims": {"nodeClaims"},
            "warnings": set[str](),
        }.get(name.split(".")[0], {"nodes", "pods"})
    )
    made_of = (
        {"jobs"} if name.startswith(("gangs.completion", "gangs.unfinished")) else made_of
    ) - ({"jobs", "podGroups"} if name.startswith("gangs.crossRack") else set())
    levels = ("pods", "nodes", "instances", "nodeClaims", "racks", "largestGang")
    of_now = name.split(".")[0] in levels and name not in (
        *("pods.gone", "pods.gone.final", "pods.unserved", "nodes.max"),
        "nodeClaims.neverRegistered",
    )
    of_now = (of_now and not name.endswith(".max")) or (
        name.startswith(("utilisation", "gangs.crossRack")) and name.endswith(".final")
    )
    return any(kind in broken or (kind in listed and not of_now) for kind in made_of)


def _of_workload(scope: FigureScope, full: str, rehearsed: str) -> bool:
    *kind_and_namespace, name = full.split("/")
    *wanted, wanted_name = scope.workload.split("/")
    if not scope.workload:
        return True
    return wanted_name in (name, rehearsed or name) and all(
        each.casefold() == there.casefold()
        for each, there in zip(wanted, kind_and_namespace, strict=False)
    )


def _at(scope: FigureScope, node: NodeState | NodeClaimState | None) -> bool:
    if node is None:
        return not scope.by.keys() & _NODES
    return (
        scope.group in ("", node.group)
        and scope.zone in ("", node.zone)
        and scope.node_pool in ("", node.pool)
    )


def _levels(all_: History, scope: FigureScope, values: dict[str, float | None]) -> None:
    def level(name: str, count: Callable[[Snapshot], int]) -> None:
        counts = [count(each) for each in all_.snapshots]
        values[name] = values[f"{name}.final"] = counts[-1]
        values[f"{name}.max"] = max(0, *counts)

    def pods(which: Callable[[Snapshot, PodState, bool], bool]) -> Callable[[Snapshot], int]:
        return lambda snap: sum(
            which(snap, state, there) and snap.belongs(pod, state, scope)
            for pod, state, there in snap.pods
        )

    def phase(named: str) -> Callable[[Snapshot], int]:
        return pods(
            lambda snap, state, there: there and not snap.orphaned(state) and state.phase == named
        )

    def nodes(which: Callable[[NodeState], bool]) -> Callable[[Snapshot], int]:
        return lambda snap: sum(which(n) and _at(scope, n) for n in snap.nodes.values())

    level("pods.running", phase("Running"))
    level("pods.succeeded", phase("Succeeded"))
    level("pods.failed", phase("Failed"))
    level(
        "pods.pending",
        pods(
            lambda snap, state, there: (
                there and not snap.orphaned(state) and state.phase not in ("Running", *ENDED)
            )
        ),
    )
    level("pods.orphaned", pods(lambda snap, state, there: there and snap.orphaned(state)))
    level("pods.gone", pods(lambda _, __, there: not there))
    level("nodes.total", nodes(lambda node: True))
    level("nodes.ready", nodes(lambda node: node.ready))
    level("nodes.notReady", nodes(lambda node: not node.ready))
    level("nodes.cordoned", nodes(lambda node: not node.schedulable))
    level("nodes.deleting", nodes(lambda node: node.deleting))
    values["nodes.max"] = values["nodes.total.max"]
    values["nodes.final"] = values["nodes.total.final"]
    for state in INSTANCE_STATES:
        level(
            f"instances.{state}",
            lambda snap, state=state: sum(  # type: ignore[misc]
                states.get(state, 0)
                for name, states in snap.groups.items()
                if scope.group in ("", name)
            ),
        )


INSTANCE_STATES: Final = (
    *("Waiting", "Creating", "Failed", "Unregistered", "Starting"),
    *("Initializing", "Ready", "NotReady", "Interrupted", "Deleting"),
)


@dataclass
class Waited:
    """Seconds of waits that ended and that haven't, and how many can't end."""

    ended: list[float] = field(default_factory=list)
    open: list[float] = field(default_factory=list)
    never: int = 0
    elsewhere: bool = False
    """Whether a pod without a node may have belonged here."""


def _all_waits(
    all_: History, scope: FigureScope, values: dict[str, float | None], incomplete: set[str]
) -> None:
    for name, waited in (
        ("pendingSeconds", _pod_waits(all_, scope, starts=False)),
        ("startSeconds", _pod_waits(all_, scope, starts=True)),
        *_phase_waits(all_, scope).items(),
        ("gangs.completionSeconds", _job_waits(all_, scope)),
        ("gangs.waitingSeconds", _gang_waits(all_, scope)),
    ):
        known = sorted(waited.ended + waited.open)
        worst = sorted(waited.ended + [math.inf] * (len(waited.open) + waited.never))
        for which in ("p50", "p95", "p99", "max", "mean"):
            values[f"{name}.{which}"] = _of_waits(which, known)
            if waited.elsewhere or _of_waits(which, known) != _of_waits(which, worst):
                incomplete.add(f"{name}.{which}")


def _of_waits(which: str, waits: list[float]) -> float | None:
    if not waits:
        return None
    if which == "mean":
        return sum(waits) / len(waits)
    return waits[-1] if which == "max" else waits[-(-len(waits) * int(which[1:]) // 100) - 1]


def _pod_waits(all_: History, scope: FigureScope, *, starts: bool) -> Waited:
    waited, end = Waited(), all_.snapshots[-1]
    for pod in all_.pods:
        before, states = pod.first.created < 0, [state for _, _, state in pod.lines]
        if before and (pod.first.phase in ENDED or _wait_end(pod.lines[0], starts) is not None):
            continue
        served = any(state.node for state in states)
        over = pod.gone is not None or pod.last.phase in ENDED
        times = [t for t in (_wait_end(line, starts) for line in pod.lines) if t is not None]
        if scope.by.keys() & _NODES and not served:
            # It may have belonged there.
            bare = scope.wide
            waited.elsewhere |= end.belongs(pod, pod.last, bare)
        if not end.belongs(pod, pod.last, scope):
            continue
        begin = max(0.0, pod.first.created)
        if served and times:
            waited.ended.append(max(0.0, times[0] - begin))
        elif over:
            waited.never += 1
        else:
            waited.open.append(max(0.0, end.t - begin))
    return waited


def _phase_waits(all_: History, scope: FigureScope) -> dict[str, Waited]:
    decision, boot, scheduling, start = phases = [Waited() for _ in range(4)]
    end = all_.snapshots[-1]
    for pod in all_.pods:
        before, created = pod.first.created < 0, max(0.0, pod.first.created)
        if before and (pod.first.phase in ENDED or _wait_end(pod.lines[0], True) is not None):
            continue
        served = any(state.node for _, _, state in pod.lines)
        if not served and scope.by.keys() & _NODES and end.belongs(pod, pod.last, scope.wide):
            for each in phases:
                each.elsewhere = True
        if not end.belongs(pod, pod.last, scope):
            continue
        ends = [
            [t for line in pod.lines if (t := _wait_end(line, s)) is not None]
            for s in (False, True)
        ]
        bounds, runs = ends
        over = pod.gone is not None or pod.last.phase in ENDED
        if not served:
            for each in phases:
                each.never += over
                each.open += [] if over else [0.0]
            continue
        bound = created if before and _wait_end(pod.lines[0], False) is not None else bounds[0]
        ran = max(created, runs[0]) if runs else math.inf
        bound = max(created, min(bound, ran))
        requested, usable = _node_moments(all_, pod) or (created, created)
        requested = min(max(requested, created), bound)
        usable = min(max(usable, requested), bound)
        decision.ended.append(requested - created)
        boot.ended.append(usable - requested)
        scheduling.ended.append(bound - usable)
        if runs:
            start.ended.append(ran - bound)
        elif over:
            start.never += 1
        else:
            start.open.append(max(0.0, end.t - bound))
    return dict(
        zip(("wait.decision", "wait.boot", "wait.scheduling", "wait.start"), phases, strict=True)
    )


def _node_moments(all_: History, pod: Life) -> tuple[float, float] | None:
    """When its node was requested, and usable; None if nothing is said of the node in its life."""
    shown, name = next((at, state.node) for at, _, state in pod.lines if state.node)
    namesakes = [node for node in all_.nodes if node.name == name]
    earlier = [node for node in namesakes if node.lines[0][0] < shown]
    later = [node for node in namesakes if shown < node.lines[0][0] < pod.gone_after]
    if not earlier + later:
        return None
    node = (earlier[-1:] + later)[0]
    first, first_t, state = node.lines[0]
    said = range(min(pod.gone_after, node.gone_after, len(all_.lines)))
    ends = [
        at
        for at in range(first)
        if isinstance(line := all_.lines[at], NodeLine) and line.name == name and not line.state
    ]
    claims = (
        line.state.created
        for at in said[max(ends, default=-1) + 1 :]
        if isinstance(line := all_.lines[at], NodeClaimLine)
        if line.state is not None and line.state.node == name
    )
    requested = next(
        (t for t in (state.requested, next(claims, None), state.created) if t is not None), first_t
    )
    ready = [(at, t) for at, t, state in node.lines if state.ready and at in said]
    if ready[:1] == [(first, first_t)] and state.created is not None and state.created < 0:
        return requested, state.created
    return requested, ready[0][1] if ready else math.inf


def _wait_end(line: tuple[int, float, PodState], starts: bool) -> float | None:
    _, t, state = line
    if starts:
        return t if state.running is None and state.phase == "Succeeded" else state.running
    return t if state.bound is None and state.node else state.bound


def _complete(job: JobState) -> bool:
    return job.done == "Complete" or 0 < job.wanted <= job.succeeded


def _jobs(all_: History, scope: FigureScope) -> Iterator[tuple[Life, float | None, bool]]:
    """When each was complete, and whether it never will be."""
    for job in all_.jobs:
        _, namespace, _ = job.name.split("/")
        if scope.namespace not in ("", namespace):
            continue
        if not _of_workload(scope, job.name, job.first.rehearsed):
            continue
        if job.first.created < 0 and (_complete(job.first) or job.first.done):
            continue
        done = next((t for _, t, state in job.lines if _complete(state)), None)
        failed = any(state.done == "Failed" for _, _, state in job.lines)
        yield job, done, done is None and (failed or job.gone is not None)


def _job_waits(all_: History, scope: FigureScope) -> Waited:
    waited = Waited()
    for job, done, never in _jobs(all_, scope):
        begin = max(0.0, job.first.created)
        if done is not None:
            waited.ended.append(max(0.0, done - begin))
        elif never:
            waited.never += 1
        else:
            waited.open.append(max(0.0, all_.end - begin))
    return waited


def _node_sums(
    all_: History, scope: FigureScope, values: dict[str, float | None], incomplete: set[str]
) -> None:
    hours = cost = unpriced = 0.0
    priced = False
    for node in all_.nodes:
        prices = [state.price for _, _, state in node.lines if state.price is not None]
        price = prices[0] if prices else None
        ends = [t for _, t, _ in node.lines[1:]] + [all_.end if node.gone is None else node.gone]
        for (_, t, state), until in zip(node.lines, ends, strict=True):
            price = price if state.price is None else state.price
            if not _at(scope, state):
                continue
            hours += (until - t) / 3600
            if price is None:
                unpriced += until - t
            else:
                priced, cost = True, cost + price * (until - t) / 3600
    values["nodeHours"] = hours
    values["cost"] = cost if priced else None
    if unpriced > 0:
        incomplete.add("cost")
    created = [n for n in all_.nodes if n.first.created >= 0]
    values["churn.created"] = sum(_at(scope, n.first) for n in created)
    values["churn.deleted"] = sum(n.gone is not None and _at(scope, n.last) for n in all_.nodes)
    values["churn.replacedSameShape"] = _replaced(all_, created, scope)


def _replaced(all_: History, created: Iterable[Life], scope: FigureScope) -> int:
    new = {node.lines[0][0]: node for node in created}
    went = {node.gone_after: node for node in all_.nodes if node.gone is not None}
    free, replaced, count = [*new.values()], set[Life](), 0
    for index in sorted({*new, *went}):
        node: Life | None = new.get(index)
        old: Life | None = went.get(index)
        if node is not None:
            kind, t = _kind(node.first), node.lines[0][1]
            before = [each for at, each in sorted(went.items()) if at < index]
            left = (each for each in before if round(t - (each.gone or 0), 3) <= 600)
            old = next((o for o in left if o not in replaced and _kind(o.last) == kind), None)
        elif old is not None:
            kind, since = _kind(old.last), _left_since(all_, old)
            came = (each for each in free if since < each.lines[0][0] < index)
            node = next((n for n in came if _kind(n.first) == kind), None)
        if node is not None and old is not None:
            free.remove(node)
            replaced.add(old)
            count += _at(scope, node.first)
    return count


def _kind(node: NodeState) -> tuple[str, ...]:
    return node.group, node.pool, node.shape


def _as_of(life: Life, index: int) -> Any:
    return [state for at, _, state in life.lines if at <= index][-1]


def _left_since(all_: History, node: Life) -> float:
    """From which line on it was there and its NodeClaim was being disrupted or deleted until it
    went.
    """
    lives = [each.gone_after for each in all_.nodes if each.name == node.name]
    begin = max([at for at in lives if at < node.gone_after], default=-1)
    since = math.inf
    for index in range(begin + 1, node.gone_after):
        line = all_.lines[index]
        if isinstance(line, NodeClaimLine) and line.state and line.state.node == node.name:
            leaves = line.state.reason or line.state.deleting
            since = min(since, index) if leaves else math.inf
    return max(since, node.lines[0][0])


def _amount(amounts: dict[str, float], resource: str) -> float:
    if resource == "gpu":
        return sum(n for name, n in amounts.items() if name.split("/")[1:] == ["gpu"])
    return amounts.get(resource, 0.0)


def _uses(
    all_: History, scope: FigureScope, values: dict[str, float | None], incomplete: set[str]
) -> None:
    if any(
        there and state.claims and state.node and snap.belongs(pod, state, scope)
        for snap in all_.snapshots
        for pod, state, there in snap.pods
    ):
        incomplete |= {f"utilisation.gpu{part}" for part in ("", ".max", ".final")}
    for resource in ("cpu", "memory", "gpu"):
        used: list[tuple[float, float, float]] = []
        for index, snap in enumerate(all_.snapshots):
            until = all_.snapshots[min(index + 1, len(all_.snapshots) - 1)].t
            offered = sum(
                _amount(node.allocatable, resource)
                for node in snap.nodes.values()
                if _at(scope, node)
            )
            requested = sum(
                _amount(state.requests, resource)
                for pod, state, there in snap.pods
                if there
                and state.node in snap.nodes
                and state.phase not in ENDED
                and snap.belongs(pod, state, scope)
            )
            used.append((until - snap.t, requested, offered))
        _shares(f"utilisation.{resource}", used, values)


def _shares(
    name: str, used: list[tuple[float, float, float]], values: dict[str, float | None]
) -> None:
    """The figures of a share, from seconds, part and whole of each time."""
    _, part, whole = used[-1]
    values[name] = values[f"{name}.max"] = values[f"{name}.final"] = part / whole if whole else None
    lasting = [each for each in used if each[0] > 0 and each[2] > 0]
    if lasting:
        values[name] = sum(s * p for s, p, _ in used) / sum(s * w for s, _, w in used)
        values[f"{name}.max"] = max(p / w for _, p, w in lasting)


def _racks(all_: History, values: dict[str, float | None]) -> None:
    levels, pod = all_.topology.levels, all_.topology.pod
    courses: dict[str, list[int]] = {}
    for snap in all_.snapshots:
        racks: dict[Any, list[tuple[int, bool]]] = {}
        blocks: dict[Any, int] = {}
        every = 0
        for name, node in snap.nodes.items():
            on = [s for _, s, there in snap.pods if there and s.node == name]
            on = [state for state in on if state.phase not in ENDED]
            empty = all(state.workload.split("/")[0] == "DaemonSet" for state in on)
            usable = node.ready and node.schedulable and not node.deleting
            fits = int(empty)
            if pod:
                left = {
                    r: node.allocatable.get(r, 0) - sum(s.requests.get(r, 0) for s in on)
                    for r in pod
                }
                fits = int(min(math.floor(left[r] / pod[r]) for r in pod))
                fits = (
                    min(fits, int(node.allocatable.get("pods", math.inf)) - len(on))
                    if ("pods" in node.allocatable)
                    else fits
                )
            fits = max(fits, 0) if usable else 0
            every += fits
            values_of = [*node.topology, *[""] * len(levels)][: len(levels)]
            if levels and all(values_of):
                racks.setdefault(tuple(values_of), []).append((fits, usable and empty))
            if len(levels) > 1 and all(values_of[:-1]):
                block = tuple(values_of[:-1])
                blocks[block] = blocks.get(block, 0) + fits
        now = {
            "racks.total": len(racks),
            "racks.free": sum(all(free for _, free in rack) for rack in racks.values()),
            "largestGang.rack": max(
                (sum(fits for fits, _ in rack) for rack in racks.values()), default=0
            ),
            "largestGang.block": max(blocks.values(), default=0),
            "largestGang.cluster": every,
        }
        for name, value in now.items():
            courses.setdefault(name, []).append(value)
    for name, course in courses.items():
        there = bool(levels) and (name != "largestGang.block" or len(levels) > 1)
        values[name] = values[f"{name}.final"] = course[-1] if there else None
        values[f"{name}.max"] = max(0, *course) if there else None


@dataclass
class Gang:
    """A gang from its first pod until it has none."""

    key: str
    first: Life
    start: int
    end: int = sys.maxsize
    ended: list[float] = field(default_factory=list)
    waits: float | None = None
    """Since when it waits at the end."""
    never: int = 0
    broken: int = 0
    least: int = 0
    ran: bool = False

    def of(self, scope: FigureScope) -> bool:
        state = self.first.first
        return _of_workload(scope, state.workload, state.rehearsed) and (
            scope.namespace in ("", self.first.name.split("/")[0])
        )


def _key(state: PodState) -> str:
    return state.gang or (state.workload if state.workload.split("/")[0] == "Job" else "")


def _gangs(all_: History) -> list[Gang]:
    keys = {_key(state): None for pod in all_.pods for _, _, state in pod.lines}
    return [gang for key in keys if key for gang in _lives_of(all_, key)]


def _lives_of(all_: History, key: str) -> Iterator[Gang]:
    gang: Gang | None = None
    begun = over = False
    for index, snap in enumerate(all_.snapshots):
        mine = [(pod, state, there) for pod, state, there in snap.pods if _key(state) == key]
        there = [(pod, state) for pod, state, is_there in mine if is_there]
        if gang is None and there:
            gang, begun, over = Gang(key, there[0][0], index), False, False
        if gang is None:
            continue
        whole = [(pod, state) for pod, state, _ in mine if pod.gone_after >= gang.start]
        said = [life for life in (*all_.jobs, *all_.pod_groups) if life.name == key]
        of_now = [life for life in said if life.lines[0][0] <= index < life.gone_after]
        least = 0
        if of_now:
            now = _as_of(of_now[0], index)
            least = now.parallelism if isinstance(now, JobState) else now.least
        gang.least = max([gang.least, *(state.least for _, state in whole)])
        least = least or gang.least
        running = sum(
            pod.gone_after > index and state.phase == "Running" and not snap.orphaned(state)
            for pod, state in whole
        )
        last = {pod.name: pod.lines[0][0] for pod, _ in whole}
        runs = running + sum(
            state.phase == "Succeeded" and pod.lines[0][0] == last[pod.name] for pod, state in whole
        )
        all_count = gang.ran or (snap.t == 0 and gang.first.first.created < 0)
        if any(life.gone_after == index for life in said):
            gang.never += gang.waits is not None
            gang.waits, over = None, True
        if not over and not begun and (least or not key.startswith("Job/")):
            begun, gang.waits = True, max(0.0, gang.first.first.created)
        if (
            not over
            and begun
            and gang.waits is not None
            and 0 < least <= (runs if all_count else running)
        ):
            gang.ran = True
            if snap.t > 0 or gang.first.first.created >= 0:
                gang.ended.append(max(0.0, snap.t - gang.waits))
            gang.waits = None
        elif not over and begun and gang.waits is None and runs < least:
            gang.waits = snap.t
            gang.broken += 1
        if not there and gang.waits is None:
            gang.end = index
            yield gang
            gang = None
    if gang is not None:
        yield gang


def _gang_waits(all_: History, scope: FigureScope) -> Waited:
    gangs, end = [gang for gang in _gangs(all_) if gang.of(scope)], all_.end
    waiting = [gang.waits for gang in gangs if gang.waits is not None]
    return Waited(
        ended=[seconds for gang in gangs for seconds in gang.ended],
        open=[max(0.0, end - since) for since in waiting],
        never=sum(gang.never for gang in gangs),
    )


def _spread(all_: History, gangs: list[Gang], values: dict[str, float | None]) -> None:
    shares: list[tuple[float, float, float]] = []
    levels = all_.topology.levels
    for index, snap in enumerate(all_.snapshots):
        until = all_.snapshots[min(index + 1, len(all_.snapshots) - 1)].t
        away = placed = 0
        for gang in gangs if levels else []:
            racks = [
                snap.nodes[state.node].topology
                for _, state, there in snap.pods
                if there and _key(state) == gang.key and gang.start <= index < gang.end
                if state.node in snap.nodes and state.phase not in ENDED
            ]
            if len(racks) > 1:
                whole = [rack for rack in racks if len(rack) == len(levels) and all(rack)]
                away += len(racks) - max(Counter(whole).values(), default=0)
                placed += len(racks)
        shares.append((until - snap.t, away, placed))
    _shares("gangs.crossRack", shares, values)


def _counts(all_: History, scope: FigureScope, values: dict[str, float | None]) -> None:
    reasons: dict[str, str] = {
        "EvictionByEvictionAPI": "evictions",
        "DeletionByTaintManager": "evictions",
        "PreemptionByScheduler": "preemptions",
        "DeletionByPodGC": "losses",
    }
    counts = dict.fromkeys(("restarts", *reasons.values()), 0)
    for pod in all_.pods:
        restarts = pod.first.restarts if pod.first.created < 0 else 0
        for index, _, state in pod.lines:
            if all_.snapshots[index].belongs(pod, state, scope):
                counts["restarts"] += state.restarts - restarts
            restarts = state.restarts
        for index, state in _disrupted(pod):
            if state.disrupted in reasons and all_.snapshots[index].belongs(pod, state, scope):
                counts[reasons[state.disrupted]] += 1
    values.update(counts)
    values["pods.unserved"] = sum(
        (pod.gone is not None or pod.last.phase in ENDED)
        and not any(state.node for _, _, state in pod.lines)
        and not (pod.first.created < 0 and pod.first.phase in ENDED)
        and all_.snapshots[-1].belongs(pod, pod.last, scope)
        for pod in all_.pods
    )
    values["disruptions.beyondBudget"] = _beyond(all_, scope)
    values["gangs.unfinished"] = sum(never for _, _, never in _jobs(all_, scope))
    values["events"] = sum(
        line.count
        for line in all_.lines
        if isinstance(line, EventLine) and scope.namespace in ("", line.about.split("/")[1])
    )
    values["warnings"] = sum(
        line.count
        for line in all_.lines
        if isinstance(line, WarningLine) and not line.before
        if scope.program in ("", line.program)
    )


def _claims(all_: History, scope: FigureScope, values: dict[str, float | None]) -> None:
    there: list[list[NodeClaimState]] = [
        [
            _as_of(claim, snap.index)
            for claim in all_.claims
            if claim.lines[0][0] <= snap.index < claim.gone_after
        ]
        for snap in all_.snapshots
    ]
    levels: dict[str, Callable[[NodeClaimState], bool]] = {
        "underWay": lambda claim: claim.registered is None and not claim.deleting,
        "launched": lambda claim: claim.launched is not None,
        "registered": lambda claim: claim.registered is not None,
    }
    for name, holds in levels.items():
        counts = [sum(holds(c) and _at(scope, c) for c in claims) for claims in there]
        figure = f"nodeClaims.{name}"
        values[figure] = values[f"{figure}.final"] = counts[-1]
        values[f"{figure}.max"] = max(counts)
    ends = [end for claim in all_.claims if (end := _end(claim)) and _at(scope, end)]
    values["nodeClaims.neverRegistered"] = sum(end.registered is None for end in ends)
    for reason in ("Underutilized", "Empty", "Drifted", "Expired"):
        values[f"disruptions.{reason}"] = sum(end.reason == reason for end in ends)


def _end(claim: Life) -> NodeClaimState | None:
    """Its state when it began to end, if that was in the run."""
    if claim.first.created < 0 and claim.first.deleting:
        return None
    deleting = [state for _, _, state in claim.lines if state.deleting]
    found: NodeClaimState | None = (deleting or [claim.last if claim.gone is not None else None])[0]
    return found


def _disrupted(pod: Life) -> list[tuple[int, PodState]]:
    """The line with its first reason, if that was in the run."""
    if pod.first.created < 0 and pod.first.disrupted:
        return []
    return [(index, state) for index, _, state in pod.lines if state.disrupted][:1]


def _beyond(all_: History, scope: FigureScope) -> int:
    evicted = {
        index: (pod, state.budgets, state.disrupted == "DeletionByTaintManager")
        for pod in all_.pods
        for index, state in _disrupted(pod)
        if state.disrupted in ("DeletionByTaintManager", "EvictionByEvictionAPI")
    }
    left: dict[str, int] = {}
    said: dict[str, int] = {}
    changes: dict[str, list[tuple[float, int]]] = {}
    count = 0
    for index, line in enumerate(all_.lines):
        if isinstance(line, BudgetLine):
            before = left.pop(line.name, None)
            if line.state is None or before is None:
                changes[line.name] = []
            elif line.state.allowed != max(before, 0):
                by = max(before, 0) - line.state.allowed
                if line.state.allowed > said[line.name]:
                    by = max(by, -max(_lately(changes[line.name], line.t), 0))
                if by:
                    changes[line.name].append((line.t, by))
            if line.state is not None:
                left[line.name] = said[line.name] = line.state.allowed
        if index in evicted:
            pod, budgets, by_taint = evicted[index]
            namespace = pod.name.split("/")[0]
            names = [f"PodDisruptionBudget/{namespace}/{name}" for name in budgets]
            known = [name for name in names if name in left]
            unexplained = [name for name in known if _lately(changes[name], line.t) > 0]
            asked = unexplained if by_taint else known
            for name in asked:
                changes[name].append((line.t, -1))
            taken = [name for name in known if by_taint and name not in asked]
            if any(left[name] <= 0 for name in taken) and scope.namespace in ("", namespace):
                count += 1
            for name in taken:
                left[name] -= 1
    return count


def _lately(changes: list[tuple[float, int]], now: float) -> int:
    """What they come to, back to the last second without any."""
    total, after = 0, now
    for t, by in reversed(changes):
        if round(after - t, 3) > 1:
            break
        total, after = total + by, t
    return total
