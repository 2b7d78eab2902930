"""Finds where two recordings differ, and which part of the system made the difference.

    recording --traits--> RecordingTraits;  two of them --compared--> a DiffPart each for
    the scenario, the simulated cloud, the autoscaler, the scheduler

The cloud is compared instance by instance: an instance is identified by its group and serial
number, whatever its node's name. Times may differ by TOLERANCE, as rehearsals run in real time. An
instance that only one recording has counts as a difference of the cloud only if both recordings
have the same requests for nodes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.formats.words import counted
from kwok_operator.rehearsal.judge.claimledger import ends
from kwok_operator.rehearsal.judge.recording import (
    CallLine,
    GroupLine,
    MarkLine,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    NodeState,
    PodLine,
    RecordedLine,
    RecordingHeader,
    RecordingReader,
)
from kwok_operator.rehearsal.judge.story import WRITES
from kwok_operator.rehearsal.report.plots import in_time

TOLERANCE: Final = 2.0
SHARE: Final = 0.1
"""Times may differ by this share of themselves, in addition to TOLERANCE."""
MOST_SHOWN: Final = 10
_MOST_STEPS: Final = 100_000
_NODE_NAME: Final = re.compile(r"\b([a-z0-9][-a-z0-9.]*)-[a-z2-7]{4}-(\d{6,18})\b")


@dataclass(slots=True)
class _Instance:
    state: NodeState
    came: float
    boot: float | None = None
    """Seconds from the Node's creation until it was usable."""
    arrival: float | None = None
    """Seconds from the request to the Node's creation, if known."""


@dataclass(slots=True)
class RecordingTraits:
    """The parts of a recording that are compared."""

    header: RecordingHeader
    marks: list[tuple[float, str]] = field(default_factory=list)
    instances: dict[tuple[str, int], _Instance] = field(default_factory=dict)
    requests: defaultdict[str, list[tuple[float, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The requests for each group, in order: new targets, or calls; for each NodePool, its
    NodeClaims.
    """
    bound: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of bound pods, by workload and the group of their node."""
    targets: dict[str, int] = field(default_factory=dict)
    claims: dict[str, NodeClaimState] = field(default_factory=dict)
    """The NodeClaims that exist, by name."""
    called: bool = False


@dataclass(frozen=True, slots=True)
class RecordingDifference:
    what: str
    a: str
    b: str
    t: float | None = None
    """When the difference is first visible, in seconds since the run began."""


@dataclass(frozen=True, slots=True)
class DiffPart:
    name: str
    compared: str
    """A description of what was compared."""
    differences: list[RecordingDifference]


def traits(recording: RecordingReader) -> RecordingTraits:
    """Reads the traits of a recording, to its end. Raises RecordingError."""
    traits = RecordingTraits(recording.header)
    groups: dict[str, str] = {}
    bound: set[str] = set()
    for line in recording.lines():
        match line:
            case NodeLine(state=NodeState() as state):
                groups[line.name] = state.group
                _instance(traits, line, state)
            case PodLine():
                _pod(traits, line, groups, bound)
            case _:
                _step(traits, line)
    return traits


def _instance(traits: RecordingTraits, line: NodeLine, state: NodeState) -> None:
    named = _NODE_NAME.fullmatch(line.name)
    if not named or named[1] != state.group:
        return  # a node without a group of ours
    key = (state.group, int(named[2]))
    known = traits.instances.get(key)
    if known is None:
        known = traits.instances[key] = _Instance(state, line.t)
        if state.requested is not None:
            known.arrival = line.t - state.requested
    if state.ready and known.boot is None:
        known.boot = line.t - known.came


def _pod(
    traits: RecordingTraits, line: PodLine, groups: Mapping[str, str], bound: set[str]
) -> None:
    if line.state is None:
        bound.discard(line.name)
    elif line.state.node and line.name not in bound:
        bound.add(line.name)
        traits.bound[line.state.workload, groups.get(line.state.node, "")] += 1


def _step(traits: RecordingTraits, line: RecordedLine) -> None:
    match line:
        case MarkLine() if len(traits.marks) < _MOST_STEPS:
            traits.marks.append((line.t, line.what))
        case CallLine() if line.method in WRITES:
            traits.called = True
            argument = _NODE_NAME.sub(r"\1#\2", line.argument)
            _request(traits, line.group, line.t, f"{line.method} {argument}")
        case NodeClaimLine():
            traits.called = True
            before, after = traits.claims.pop(line.name, None), line.state
            if after is not None:
                traits.claims[line.name] = after
                if before is None and after.created >= 0:
                    _request(traits, f"NodePool {after.pool}", line.t, "a NodeClaim more")
            if (over := ends(before, after)) is not None:
                why = f" ({over.reason})" if over.reason else ""
                _request(traits, f"NodePool {over.pool}", line.t, f"a NodeClaim less{why}")
        case GroupLine() if line.state is not None:
            if traits.targets.get(line.name) != line.state.target:
                traits.targets[line.name] = line.state.target
                _request(traits, line.name, line.t, f"target {line.state.target}")


def _request(traits: RecordingTraits, group: str, t: float, request: str) -> None:
    steps = traits.requests[group]
    if len(steps) < _MOST_STEPS:
        steps.append((t, one_line(request, limit=200)))


def compared(a: RecordingTraits, b: RecordingTraits) -> list[DiffPart]:
    """Returns the differences between two recordings, part by part."""
    requests, groups = _requests(a, b), len(a.requests | b.requests)
    unlike = {group for group, _ in requests}
    return [
        DiffPart(
            "scenario", "its name, seed, expectations, and what it did", list(_scenario(a, b))
        ),
        DiffPart("cloud", _instances_in_words(a, b), list(_cloud(a, b, unlike))),
        DiffPart(
            "autoscaler" if a.called or b.called else "requests",
            f"what was asked for, in the same order, of {counted(groups, 'group')}",
            [difference for _, difference in requests],
        ),
        DiffPart("scheduler", "pods bound, by workload and group", list(_scheduler(a, b))),
    ]


def in_lines(parts: list[DiffPart]) -> Iterator[str]:
    """Yields lines for a terminal: which parts differ, and their first difference."""
    for part in parts:
        count = len(part.differences)
        texts = (
            f"{count:,} differences" if count > 1 else "1 difference" if count else "no difference"
        )
        yield f"{part.name}: {texts} ({part.compared})"
        ordered = sorted(part.differences, key=lambda each: (each.t is None, each.t or 0.0))
        for each in ordered[:MOST_SHOWN]:
            when = "" if each.t is None else f"from {in_time(each.t)} on: "
            yield "  " + one_line(f"{when}{each.what}: {each.a} | {each.b}", limit=500)
        if count > MOST_SHOWN:
            yield f"  and {count - MOST_SHOWN:,} more"


def _scenario(a: RecordingTraits, b: RecordingTraits) -> Iterator[RecordingDifference]:
    for what in ("scenario", "seed"):
        one, other = getattr(a.header, what), getattr(b.header, what)
        if one != other:
            yield RecordingDifference(what, one or "none", other or "none")
    for what in sorted(a.header.versions.keys() | b.header.versions.keys()):
        one, other = a.header.versions.get(what, "none"), b.header.versions.get(what, "none")
        if one != other:
            yield RecordingDifference(f"version of {what}", one, other)
    if a.header.expect != b.header.expect:
        one, other = (f"{len(each.header.expect)} expectations" for each in (a, b))
        yield RecordingDifference("what is expected", one, other)
    yield from _first_of(a.marks, b.marks, "what was done")


def _cloud(
    a: RecordingTraits, b: RecordingTraits, unlike: set[str]
) -> Iterator[RecordingDifference]:
    for key in sorted(a.instances.keys() | b.instances.keys()):
        one, other = a.instances.get(key), b.instances.get(key)
        what = f"{key[0]} instance {key[1]}"
        if one is None or other is None:
            there = one or other
            if key[0] not in unlike and there is not None:
                texts = ["there" if each else "never there" for each in (one, other)]
                yield RecordingDifference(what, texts[0], texts[1], there.came)
            continue
        t = min(one.came, other.came)
        for part in ("shape", "zone", "instance_type", "price"):
            has, had = getattr(one.state, part), getattr(other.state, part)
            if has != had:
                yield RecordingDifference(f"{what}, {part}", str(has), str(had), t)
        for part, took, took_other in (
            ("seconds until there", one.arrival, other.arrival),
            ("seconds until usable", one.boot, other.boot),
        ):
            if took is not None and took_other is not None and not _near(took, took_other):
                yield RecordingDifference(f"{what}, {part}", f"{took:.1f}", f"{took_other:.1f}", t)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE + SHARE * min(a, b)


def _requests(a: RecordingTraits, b: RecordingTraits) -> list[tuple[str, RecordingDifference]]:
    return [
        (group, difference)
        for group in sorted(a.requests.keys() | b.requests.keys())
        for difference in _first_of(
            a.requests.get(group, []), b.requests.get(group, []), f"of {group}"
        )
    ]


def _first_of(
    a: list[tuple[float, str]], b: list[tuple[float, str]], what: str
) -> Iterator[RecordingDifference]:
    """Yields only the first step in which two sequences differ: later differences may be a
    consequence of it.
    """
    for number in range(max(len(a), len(b))):
        one = a[number] if number < len(a) else None
        other = b[number] if number < len(b) else None
        if (one and one[1]) != (other and other[1]):
            t = min(step[0] for step in (one, other) if step)
            texts = [step[1] if step else "nothing more" for step in (one, other)]
            yield RecordingDifference(f"{what}, step {number + 1}", texts[0], texts[1], t)
            return


def _scheduler(a: RecordingTraits, b: RecordingTraits) -> Iterator[RecordingDifference]:
    for workload, group in sorted(a.bound.keys() | b.bound.keys()):
        one, other = a.bound[workload, group], b.bound[workload, group]
        if one != other:
            what = f"{workload} on {group or 'nodes of no group'}"
            yield RecordingDifference(what, f"{one:,} pods", f"{other:,} pods")


def _instances_in_words(a: RecordingTraits, b: RecordingTraits) -> str:
    both = a.instances.keys() & b.instances.keys()
    return f"{counted(len(both), 'instance')} that both have"
