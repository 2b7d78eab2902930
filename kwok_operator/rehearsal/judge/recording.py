"""The recording of a rehearsal: one JSON object a line, in the order in which things happened.

    {"t": 0, "header": {"format": 1, "scenario": ..., "seed": ..., "expect": [...]}}
    {"t": 1.204, "node": "a-x7k2-000001", "is": {"group": "a", "ready": false, ...}}
    {"t": 9.871, "pod": "default/web-1", "is": null}
    {"t": 12.0, "watch": {"of": "pods", "state": "broken", "detail": "connection refused"}}
    {"t": 60.0, "end": {"reason": "settled", "detail": ""}}

`t` is in seconds from the beginning of the run. `is` is the whole state of an object, written when
it has changed; null says that it is gone. CPU is in thousandths, all else in its own unit. How
lines are read is in `reading`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic.alias_generators import to_camel

from kwok_operator.rehearsal.judge.clocks import ClockOffset

FORMAT: Final = 1
OPERATOR: Final = "operator"
SHIM: Final = "shim"
"""Programs of a rehearsal's own; a process has the name that the scenario gives it."""
MAX_SECONDS: Final = 366 * 86_400.0
EARLIEST: Final = -100 * MAX_SECONDS
MAX_AMOUNT: Final = 2.0**80
MAX_COUNT: Final = 2**62
"""Beyond these bounds nothing is read, and so nothing is to be recorded."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))

Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    scenario: str = ""
    teaches: str = ""
    seed: str = ""
    started: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    expect: tuple[Any, ...] = ()
    """As the scenario has it; `expectations` makes sense of it."""
    clock: ClockOffset | None = None
    """That of a cluster that isn't the rehearsal's own; all times here are by our clock."""


@dataclass(frozen=True, slots=True)
class NodeState:
    group: str = ""
    zone: str = ""
    instance_type: str = ""
    shape: str = ""
    ready: bool = False
    """Usable: Ready, and nothing keeps pods off that doesn't run yet."""
    schedulable: bool = True
    deleting: bool = False
    allocatable: Amounts = field(default_factory=dict)
    price: float | None = None
    created: float | None = None
    requested: float | None = None
    """When its instance was asked for."""


@dataclass(frozen=True, slots=True)
class PodState:
    workload: str = ""
    """Kind/namespace/name."""
    phase: str = "Pending"
    created: float = 0.0
    bound: float | None = None
    running: float | None = None
    ready: bool = False
    deleting: bool = False
    node: str = ""
    requests: Amounts = field(default_factory=dict)
    priority: int = 0
    restarts: int = 0
    why: str = ""
    """What the scheduler said last."""
    reason: str = ""
    disrupted: str = ""
    """The reason of its condition DisruptionTarget."""
    budgets: tuple[str, ...] = ()
    """The PodDisruptionBudgets of its namespace that covered it when it was disrupted."""
    rehearsed: str = ""
    """The workload of the scenario that it is of, where its object has another name."""


@dataclass(frozen=True, slots=True)
class GroupState:
    target: int = 0
    replicas: int = 0
    ready: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    """Instances of the simulated cloud, by the names of their states, such as NotReady."""
    price: float | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeLine:
    t: float
    name: str
    state: NodeState | None


@dataclass(frozen=True, slots=True)
class PodLine:
    t: float
    name: str
    state: PodState | None


@dataclass(frozen=True, slots=True)
class GroupLine:
    t: float
    name: str
    state: GroupState | None


@dataclass(frozen=True, slots=True)
class ObjectLine:
    """Of a PodDisruptionBudget: allowed, healthy, ...; of a Job: wanted, succeeded, ..."""

    t: float
    name: str
    """Kind/namespace/name."""
    state: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class EventLine:
    t: float
    type: str = ""
    reason: str = ""
    about: str = ""
    component: str = ""
    message: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class CallLine:
    """A call that the shim answered."""

    t: float
    method: str
    group: str = ""
    argument: str = ""
    code: str = ""
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class MarkLine:
    """Something that the rehearsal did or noticed: a step of the timeline, a process that ended."""

    t: float
    what: str
    detail: str = ""


BROKEN: Final = "broken"
BACK: Final = "back"
LISTED: Final = "listed"


@dataclass(frozen=True, slots=True)
class WatchLine:
    """What a recording lacks: see docs/figures.md."""

    t: float
    of: str
    """nodes, pods, groups, events, budgets or jobs."""
    state: str
    """BROKEN, BACK, or LISTED anew, without what happened in between."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WarningLine:
    """What a program logged as a warning or an error."""

    t: float
    program: str
    """The operator, the shim, or a process of the scenario."""
    message: str = ""
    count: int = 1
    """How many times it was logged since the line before with this message."""
    before: bool = False
    """Whether that was before the run; no figure counts it then."""


@dataclass(frozen=True, slots=True)
class WaitLine:
    """The answer of what was asked of the cluster itself; `expect` counts from 0."""

    t: float
    expect: int
    held: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EndLine:
    t: float
    reason: str
    detail: str = ""


RecordedLine = (
    NodeLine | PodLine | GroupLine | ObjectLine | EventLine | CallLine | MarkLine | WarningLine
) | (WatchLine | WaitLine | EndLine)


def encode(line: RecordedLine | RecordingHeader) -> str:
    """One line, without its end."""
    return _ENCODER.encode(_told(line))


def _told(line: RecordedLine | RecordingHeader) -> dict[str, Any]:
    match line:
        case RecordingHeader():
            told = {"format": FORMAT, "scenario": line.scenario, "teaches": line.teaches}
            told |= {"seed": line.seed, "started": line.started}
            told |= {"versions": dict(line.versions), "expect": list(line.expect)}
            if line.clock is not None:
                told["clock"] = {"ahead": line.clock.ahead, "error": line.clock.error}
            return {"t": 0, "header": told}
        case NodeLine():
            return _state_told(line.t, "node", line.name, line.state)
        case PodLine():
            return _state_told(line.t, "pod", line.name, line.state)
        case GroupLine():
            return _state_told(line.t, "group", line.name, line.state)
        case ObjectLine():
            state = None if line.state is None else dict(line.state)
            return {"t": round(line.t, 3), "object": line.name, "is": state}
        case EventLine():
            return _part_told(line, "event", {"component": "from"})
        case CallLine():
            return _part_told(line, "call", {})
        case MarkLine():
            return _part_told(line, "mark", {})
        case WarningLine():
            told = {"program": line.program, "message": line.message, "count": line.count}
            told |= {"before": True} if line.before else {}
            return {"t": round(line.t, 3), "warning": told}
        case WatchLine():
            return _part_told(line, "watch", {})
        case WaitLine():
            return _part_told(line, "wait", {})
        case EndLine():
            return _part_told(line, "end", {})


def _state_told(
    t: float, key: str, name: str, state: NodeState | PodState | GroupState | None
) -> dict[str, Any]:
    told = None
    if state is not None:
        told = {
            key: value
            for name, key in _KEYS[type(state)]
            if (value := getattr(state, name)) not in (None, "", {}, ())
        }
    return {"t": round(t, 3), key: name, "is": told}


def _part_told(line: Any, key: str, names: Mapping[str, str]) -> dict[str, Any]:
    told = {names.get(f, f): getattr(line, f) for f in line.__slots__ if f != "t"}
    return {"t": round(line.t, 3), key: told}


_KEYS: Final = {
    kind: tuple((name, to_camel(name)) for name in kind.__slots__)
    for kind in (NodeState, PodState, GroupState)
}
"""Of each kind of state: its fields, and what a line calls them."""
