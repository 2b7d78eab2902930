"""Finds out what cluster-autoscaler (CA) decided at one moment, from its log and its Events.

    LogReader, Events of a dump, the moment, the pods that were pending  --decide-->  Decision

The moment is that of the snapshot. The decision is what CA did in the loop at this moment and in
the following loops, until other pods come, nothing is left to do, `HORIZON` is over or the log
ends. Until then, CA sees the same in a copy of the cluster as it saw in the original. What CA did
before the moment doesn't count, except its last messages about pods that were pending.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from kwok_operator.formats.autoscalertexts import (
    NOT_TRIGGERED,
    TRIGGERED,
    GroupRefusal,
    ScaleUp,
    refused,
    triggered,
)
from kwok_operator.importing.incidents.calog import (
    MOST_TEXT,
    CloudFailure,
    LoggedEvent,
    LogReader,
    Loop,
)

HORIZON: Final = 900.0
"""For how many seconds after the moment loops count: mostly beyond --scale-down-unneeded-time."""
BEFORE: Final = 900.0
"""For how many seconds before the moment messages about a pending pod count."""
_SLACK: Final = 0.05
"""A snapshot may begin this many seconds before the log shows the beginning of its loop."""
_EVENTS_LATE: Final = 2.0
"""A loop's Events are logged at most this many seconds after it."""
_LONGEST_LOOP: Final = 60.0
FULL: Final = "max node group size reached"
BACKOFF: Final = "in backoff after failed scale-up"


class WindowEnd(StrEnum):
    """Why the window of loops that count for a decision ends."""

    SETTLED = "settled"
    """No pod is pending for which CA could do anything."""
    OTHER_PODS = "otherPods"
    """Pods were created or deleted, and not by CA."""
    HORIZON = "horizon"
    LOG = "log"
    """The log ends."""


@dataclass(frozen=True, slots=True)
class PlannedScaleUp:
    """One scale-up. It has several groups if CA balanced them."""

    at: float
    groups: tuple[ScaleUp, ...]
    alternatives: frozenset[str] | None = frozenset()
    """Groups that CA might as well have chosen; None if the log doesn't show them."""
    excluded: frozenset[str] = frozenset()
    """Groups that CA could not choose."""
    pods: frozenset[str] = frozenset()
    """The pods whose Events are about this scale-up, as NAMESPACE/NAME. CA logs these at -v=4."""
    merged: bool = False
    """Whether this stands for several scale-ups, the first of them before the moment. In a copy all
    pods are pending at the start, so CA may make a single scale-up.
    """
    to_minimum: bool = False
    """Whether no pod was pending: a group had less than its minimum. No Event is about this."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What CA decided. Groups have their names in CA; pods are NAMESPACE/NAME."""

    at: float | None = None
    """When the first loop that counts began, in seconds since 1970; None if there is none."""
    version: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    """All flags as CA prints them, without dashes; empty if the log doesn't contain CA's start."""
    scale_ups: tuple[PlannedScaleUp, ...] = ()
    refusals: Mapping[str, tuple[GroupRefusal, ...]] = field(default_factory=dict)
    """The pods for which CA added no node, each with the reasons."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Groups that CA did not consider, each with the reason."""
    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes that CA removed, each with the pods that it evicted for that."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Nodes that CA did not remove, each with the reason."""
    removable: frozenset[str] = frozenset()
    """Nodes that CA considered unneeded, but didn't remove in the loops that count."""
    failures: tuple[CloudFailure, ...] = ()
    """The cloud's errors, after which CA backed off from the groups."""
    backed_off: frozenset[str] = frozenset()
    """Groups from which CA had backed off before the moment."""
    errors: tuple[str, ...] = ()
    accounted: bool = False
    """Whether it is known for all pending pods what CA did about them."""
    named: frozenset[str] = frozenset()
    """All groups that the log names."""
    ended: WindowEnd = WindowEnd.LOG
    problems: tuple[str, ...] = ()
    """What is missing in the log, as sentences."""

    @property
    def known(self) -> bool:
        return self.at is not None


@dataclass(slots=True)
class _LoopWindow:
    """The loops that count for a decision; `ended`: why no later loop counts."""

    loops: list[Loop] = field(default_factory=list)
    ended: WindowEnd = WindowEnd.LOG


def decide(
    reader: LogReader | None,
    *,
    events: Iterable[LoggedEvent] = (),
    at: float | None = None,
    pending: Iterable[str] | None = None,
    housed: Iterable[str] = (),
) -> Decision:
    """Returns the decision at a moment, in seconds since 1970; None for the end of the log, or of
    the Events. `pending` are the pods that had no node then; None if unknown. Pending pods in
    `housed` fitted on existing nodes, in CA's simulation.
    """
    problems = [] if reader is None else _about_the_log(reader)
    log = LogReader(at=at, near=0.0) if reader is None else reader
    at = None if at is None else at - log.shift
    logged_events = [replace(event, at=event.at - log.shift) for event in events] + list(log.events)
    logged_events.sort(key=lambda event: event.at)
    loops = list(log.loops)
    window = _window(loops, at, pending)
    if window.loops:
        begin, end = window.loops[0].at, window.loops[-1].at + _EVENTS_LATE
    else:
        begin = end = at if at is not None else logged_events[-1].at if logged_events else 0.0
        problems += [_elsewhere(log, at)] if loops else []
    near = [event for event in logged_events if begin - BEFORE <= event.at <= end]
    if not window.loops and not near:
        return Decision(problems=(*problems, "neither the log nor Events say what was decided"))
    former = [loop for loop in loops if begin - BEFORE <= loop.at < begin]
    every = [*former, *window.loops]
    waiting = _waiting(window.loops, pending)
    plans = _plans(former, window.loops, near, waiting)
    refusals = _refusals(near, waiting)
    known = {pod for plan in plans for pod in plan.pods} | refusals.keys() | set(housed)
    full = any(loop.full for loop in window.loops)
    failures, backed_off = _failures(former, window.loops)
    removed = {node: pods for loop in window.loops for node, pods in loop.removed.items()}
    kept, removable = _nodes(former, window.loops, removed)
    return Decision(
        at=begin + log.shift,
        version=log.version,
        flags=dict(log.flags),
        scale_ups=plans,
        refusals=refusals,
        skipped={group: why for loop in every for group, why in loop.skipped.items()},
        removed=removed,
        kept=kept,
        removable=removable,
        failures=failures,
        backed_off=backed_off,
        errors=tuple(dict.fromkeys(each for loop in window.loops for each in loop.errors)),
        accounted=waiting is not None and (full or waiting <= known),
        named=_named(plans, every),
        ended=window.ended,
        problems=tuple(problems),
    )


def _about_the_log(reader: LogReader) -> list[str]:
    problems = []
    if not reader.loops:
        problems.append("the log has no loop of cluster-autoscaler; give the log of its leader")
    elif not reader.detailed:
        problems.append(
            "the log was not written with -v=4: groups that were not chosen, and the"
            " reasons, are missing"
        )
    if reader.fields:
        problems.append(
            f"{reader.fields:,} lines about decisions have fields, such as key=value, which this"
            " version of kwok-operator doesn't read: what they say is missing"
        )
    if reader.cut:
        problems.append(
            f"{reader.cut:,} lines about decisions are longer than {MOST_TEXT:,} characters: what"
            " they say after these is missing"
        )
    if not reader.flags:
        problems.append("the log doesn't begin with cluster-autoscaler's flags: they are unknown")
    if not reader.version:
        problems.append("the log doesn't say which version of cluster-autoscaler wrote it")
    return problems


def _elsewhere(reader: LogReader, at: float | None) -> str:
    """Returns in words how long before the moment the log ends, or how long after it the log
    begins.
    """
    if at is None or reader.first is None or reader.last is None:
        return "the log has no loop of cluster-autoscaler"
    if at > reader.last:
        return f"the log ends {at - reader.last:,.0f} s before the snapshot was taken"
    return f"the log begins {reader.first - at:,.0f} s after the snapshot was taken"


def _window(loops: Sequence[Loop], at: float | None, pending: Iterable[str] | None) -> _LoopWindow:
    if not loops:
        return _LoopWindow()
    first = _first(loops, at)
    if first is None:
        return _LoopWindow()
    known = None if pending is None else set(pending)
    window = _LoopWindow()
    helped = False
    for loop in loops[first:]:
        if loop.at > loops[first].at + HORIZON:
            window.ended = WindowEnd.HORIZON
            break
        if known is None and loop.pods:
            known = set(loop.pods) if not loop.more_pods else None
        others = loop.pods - known if known is not None and not loop.more_pods else set()
        if window.loops and (others or _changed(window.loops, loop)):
            window.ended = WindowEnd.OTHER_PODS
            break
        window.loops.append(loop)
        helped |= bool(loop.plan or loop.sizes)
        if (helped or loop.pods) and loop.no_pods:
            window.ended = WindowEnd.SETTLED
            break
    return window


def _changed(before: Sequence[Loop], loop: Loop) -> bool:
    """Whether the number of all pods shows that clients other than CA created or deleted pods
    between the loops `before` and `loop`. After a scale-up, only a lower number shows that, as new
    nodes get DaemonSet pods; after a removal of nodes, none does, as evicted pods are created
    again.
    """
    last = before[-1].total
    if last is None or loop.total is None or any(each.removed for each in before):
        return False
    added = any(each.plan or each.sizes for each in before)
    return loop.total < last or (loop.total > last and not added)


def _first(loops: Sequence[Loop], at: float | None) -> int | None:
    """Returns the index of the loop at the moment `at`: the last loop that began before the moment,
    if it may still have run then; else the next loop, if it began soon enough; else None. If `at`
    is None: the last loop that did anything or had pending pods, or else the last loop.
    """
    if at is None:
        for index in range(len(loops) - 1, -1, -1):
            if loops[index].acts or loops[index].pods:
                return index
        return len(loops) - 1
    before = [index for index, loop in enumerate(loops) if loop.at <= at + _SLACK]
    if before and at - loops[before[-1]].at <= _LONGEST_LOOP:
        return before[-1]
    after = before[-1] + 1 if before else 0
    if after < len(loops) and loops[after].at - at <= HORIZON:
        return after
    return None


def _waiting(loops: Sequence[Loop], pending: Iterable[str] | None) -> frozenset[str] | None:
    """Returns the pods that the decision is about: `pending`, or if that is None, the pending pods
    that the log lists in the first loop that lists any or says that there are none. None if there
    is no such loop, or its list isn't complete.
    """
    if pending is not None:
        return frozenset(pending)
    first = next((loop for loop in loops if loop.pods or loop.no_pods), None)
    return frozenset(first.pods) if first and not first.more_pods else None


def _about(event: LoggedEvent) -> str:
    kind, _, name = event.about.partition("/")
    return name if kind == "Pod" else ""


def _plans(
    former: Sequence[Loop],
    loops: Sequence[Loop],
    events: Sequence[LoggedEvent],
    waiting: frozenset[str] | None,
) -> tuple[PlannedScaleUp, ...]:
    """Returns the scale-ups of the loops, and earlier ones whose pods were still pending."""
    pods_of: dict[tuple[ScaleUp, ...], set[str]] = {}
    times: dict[tuple[ScaleUp, ...], float] = {}
    for event in events:
        if event.reason == TRIGGERED and (ups := triggered(event.message)):
            pods_of.setdefault(ups, set()).add(_about(event))
            times[ups] = event.at
    plans = [
        PlannedScaleUp(
            loop.at,
            plan,
            frozenset() if loop.no_pods else rated_alike(loop),
            _excluded(loop),
            frozenset(pods_of.get(plan, ())),
            to_minimum=loop.no_pods,
        )
        for loop in loops
        if (plan := loop.plan or tuple(_of_sizes(loop)))
    ]
    there = {plan.groups for plan in plans}
    chosen = {loop.plan: (rated_alike(loop), _excluded(loop)) for loop in former if loop.plan}
    before = [
        PlannedScaleUp(times[ups], ups, *chosen.get(ups, (None, frozenset())), frozenset(pods))
        for ups, pods in pods_of.items()
        if ups not in there and waiting is not None and pods & waiting
    ]
    return _merged(before, plans)


def _merged(
    before: Sequence[PlannedScaleUp], plans: Sequence[PlannedScaleUp]
) -> tuple[PlannedScaleUp, ...]:
    """Returns all scale-ups. If a group was scaled up `before` the moment and again after it, these
    scale-ups become one.
    """
    every = [*before, *plans]
    count = Counter(up.group for plan in every for up in plan.groups)
    early = {up.group for plan in before for up in plan.groups if count[up.group] > 1}
    merged = [plan for plan in every if not early & {up.group for up in plan.groups}]
    for group in sorted(early):
        own = [plan for plan in every if group in {up.group for up in plan.groups}]
        ups = [up for plan in own for up in plan.groups if up.group == group]
        others = [plan.alternatives for plan in own if plan.alternatives is not None]
        whole = PlannedScaleUp(
            own[0].at,
            (replace(ups[0], after=ups[-1].after),),
            frozenset().union(*others) if len(others) == len(own) else None,
            frozenset.intersection(*(plan.excluded for plan in own)),
            frozenset().union(*(plan.pods for plan in own)),
            merged=True,
        )
        merged.append(whole)
    return tuple(merged)


def _named(plans: Iterable[PlannedScaleUp], loops: Iterable[Loop]) -> frozenset[str]:
    named = {up.group for plan in plans for up in plan.groups}
    for loop in loops:
        named |= loop.skipped.keys() | loop.empty | loop.waste.keys() | loop.highest
        named |= {each.group for each in loop.failures} | {group for _, group in loop.unfit}
    return frozenset(named)


def _of_sizes(loop: Loop) -> Iterable[ScaleUp]:
    """Makes scale-ups from the new sizes of groups, for a loop whose log has only these. The old
    size is -1 and the maximum 0, which mean unknown.
    """
    return (ScaleUp(group, -1, size, 0) for group, size in loop.sizes.items())


def rated_alike(loop: Loop) -> frozenset[str] | None:
    """Returns the groups that the expander rated as high as the chosen one, so that the choice was
    random. None if unknown: only the expanders least-waste and priority log how they compared the
    groups.
    """
    left: frozenset[str] | None = frozenset(loop.highest) or None
    if loop.waste:
        least = min(loop.waste.values())
        left = frozenset(group for group, waste in loop.waste.items() if waste <= least)
    chosen = {up.group for up in loop.plan}
    # If another expander narrowed the choice before, the chosen group is not among them.
    return None if left is None or not chosen & left else left - chosen


def _failures(
    former: Sequence[Loop], loops: Sequence[Loop]
) -> tuple[tuple[CloudFailure, ...], frozenset[str]]:
    """Returns the cloud's errors, and the groups from which CA had backed off before."""
    skipped = loops[0].skipped.items() if loops else ()
    backed_off = frozenset(group for group, why in skipped if why == BACKOFF)
    failures = [each for loop in former for each in loop.failures if each.group in backed_off]
    failures += [each for loop in loops for each in loop.failures]
    return tuple({each.group: each for each in failures}.values()), backed_off


def _excluded(loop: Loop) -> frozenset[str]:
    return frozenset(loop.skipped) | loop.empty


def _refusals(
    events: Sequence[LoggedEvent], waiting: frozenset[str] | None
) -> dict[str, tuple[GroupRefusal, ...]]:
    """Returns, by pod, why CA added no node for the pod, if CA's last Event about the pod gives a
    reason.
    """
    refusals: dict[str, tuple[GroupRefusal, ...]] = {}
    for event in events:
        pod = _about(event)
        if not pod or (waiting is not None and pod not in waiting):
            continue
        if event.reason == TRIGGERED:
            refusals.pop(pod, None)
        elif event.reason == NOT_TRIGGERED and (reasons := refused(event.message)) is not None:
            refusals[pod] = tuple(sorted(reasons))
    return refusals


def _nodes(
    former: Sequence[Loop], loops: Sequence[Loop], removed: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, str], frozenset[str]]:
    """Returns the nodes that CA kept, each with the reason, and the nodes that it considered
    unneeded but did not remove. As CA doesn't check each node in each loop, messages of earlier
    loops count, too.
    """
    kept: dict[str, str] = {}
    for loop in (*former, *loops):
        kept = {n: why for n, why in kept.items() if n not in loop.unneeded} | loop.kept
    removable = {node for loop in loops for node in loop.unneeded} - removed.keys()
    gone = {node for loop in former for node in loop.removed} | removed.keys() | removable
    return {n: why for n, why in kept.items() if n not in gone}, frozenset(removable)
