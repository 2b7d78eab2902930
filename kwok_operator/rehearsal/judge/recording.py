"""The recording of a rehearsal: one JSON object a line, in the order in which things happened.

    {"t": 0, "header": {"format": 1, "scenario": ..., "seed": ..., "expect": [...]}}
    {"t": 1.204, "node": "a-x7k2-000001", "is": {"group": "a", "ready": false, ...}}
    {"t": 9.871, "pod": "default/web-1", "is": null}
    {"t": 12.0, "watch": {"of": "pods", "state": "broken", "detail": "connection refused"}}
    {"t": 60.0, "end": {"reason": "settled", "detail": ""}}

`t` is in seconds since the run began. `is` is the whole state of an object, written when it has
changed; null means that the object was deleted. CPU is in thousandths, all else in its own unit.
`RecordedLine` both writes and reads lines. Unknown keys and kinds of lines are ignored; any other
mistake is an error. A recording that was cut off is read up to that point.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from operator import not_, or_
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    ValidationError,
    field_serializer,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass

from kwok_operator.errors import RecordingError
from kwok_operator.formats.jsonlines import numbered_lines, unzipped
from kwok_operator.formats.podparts import MAX_AMOUNT
from kwok_operator.formats.yamltext import in_words
from kwok_operator.rehearsal.judge.clocks import ClockOffset
from kwok_operator.rehearsal.scenario.expectation import A_TIME, A_WORD, Expectation

FORMAT: Final = 1
OPERATOR: Final = "operator"
SHIM: Final = "shim"
"""The name of the shim in warnings; OPERATOR is the operator's. A process has the name that the
scenario gives it.
"""
MAX_SECONDS: Final = 366 * 86_400.0
EARLIEST: Final = -100 * MAX_SECONDS
MAX_COUNT: Final = 2**62
"""Reading a recording refuses values beyond these bounds, so they must not be recorded."""
_DIGITS: Final = 10
"""An argument of a call with more digits than this isn't taken for a number of nodes."""
_MAX_STEP_BACK: Final = 5.0
"""Seconds. Lines of one moment may be slightly out of order; a larger step back is an error."""
_STRICT: Final = ConfigDict(
    strict=True, alias_generator=to_camel, populate_by_name=True, allow_inf_nan=False
)


def _is_none(value: object) -> bool:
    return value is None


def _argument(value: Any) -> str:
    if isinstance(value, str | int | float) or value is None:
        return "" if value is None else str(value)
    return json.dumps(value, separators=(",", ":"))


Seconds = Annotated[
    float, Field(ge=0, le=MAX_SECONDS), PlainSerializer(lambda t: round(t, 3), return_type=float)
]
Name = Annotated[str, Field(min_length=1)]
Text = Annotated[str, Field(exclude_if=not_)]
Words = Annotated[
    str,
    BeforeValidator(lambda v: v.encode(errors="replace").decode() if isinstance(v, str) else v),
]
"""A text that may contain names of files. Bytes in them that are no valid text are replaced."""
Amount = Annotated[float, Field(ge=0, le=MAX_AMOUNT)]
Amounts = Annotated[dict[str, Amount], Field(exclude_if=not_)]
Price = Annotated[Amount | None, Field(exclude_if=_is_none)]
Moment = Annotated[float, Field(ge=EARLIEST, le=MAX_SECONDS)]
"""Seconds since the run began; negative for moments before it."""
MaybeMoment = Annotated[Moment | None, Field(exclude_if=_is_none)]
Count = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]


@dataclass(frozen=True, slots=True, config=ConfigDict(strict=False, alias_generator=to_camel))
class RecordedTopology:
    """The labels by which nodes are in racks, and the kind of pod that measures free racks."""

    levels: tuple[str, ...] = ()
    """The labels, from wide to narrow: the last one is the rack's, the one before the block's."""
    pod: Amounts = Field(default_factory=dict)
    """What each such pod requests; if empty, each takes a whole node."""


@dataclass(frozen=True, slots=True, config=ConfigDict(strict=False, alias_generator=to_camel))
class RecordingHeader:
    format: Literal[1] = FORMAT
    scenario: str = ""
    teaches: str = ""
    seed: str = ""
    started: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    currency: Text = ""
    """The currency of all prices, if the scenario names one."""
    clock: Annotated[ClockOffset | None, Field(exclude_if=_is_none)] = None
    """The offset of the cluster's clock, if the cluster isn't the rehearsal's own. All times in the
    recording are by our clock.
    """
    topology: Annotated[RecordedTopology | None, Field(exclude_if=_is_none)] = None
    """None if nodes have no racks."""

    @field_serializer("expect")
    def _as_written(self, expect: tuple[Expectation, ...]) -> list[dict[str, Any]]:
        return [each.dump() for each in expect]


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeState:
    group: Text = ""
    pool: Text = ""
    """The node's NodePool of Karpenter."""
    zone: Text = ""
    instance_type: Text = ""
    shape: Text = ""
    ready: bool = False
    """Whether pods can use the node: it is Ready, and has no taint that marks it as not ready."""
    schedulable: bool = True
    deleting: bool = False
    allocatable: Amounts = Field(default_factory=dict)
    price: Price = None
    created: MaybeMoment = None
    requested: MaybeMoment = None
    """When the node's instance was requested."""
    topology: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()
    """The node's values of the topology's labels, from wide to narrow; empty if it has none."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class PodState:
    created: Moment
    workload: Text = ""
    """The owner of the pod, as KIND/NAMESPACE/NAME."""
    phase: Text = "Pending"
    bound: MaybeMoment = None
    running: MaybeMoment = None
    ready: bool = False
    deleting: bool = False
    node: Text = ""
    requests: Amounts = Field(default_factory=dict)
    priority: Count = 0
    restarts: Count = 0
    why: Text = ""
    """The last message of the scheduler while the pod has no node."""
    reason: Text = ""
    disrupted: Text = ""
    """The reason of the pod's condition DisruptionTarget, if that is True."""
    budgets: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()
    """The names of the PodDisruptionBudgets that covered the pod when it was disrupted."""
    covered: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()
    """The names of the PodDisruptionBudgets that cover the pod now."""
    rehearsed: Text = ""
    """The name of the scenario's workload, if the pod's owner has another name."""
    gang: Text = ""
    """The gang that labels or fields of the pod name, as KIND/NAMESPACE/NAME. Empty for a Job's
    pods, though a Job is a gang, too.
    """
    least: Annotated[Count, Field(exclude_if=not_)] = 0
    """How many pods of the gang must run at once, if the pod itself has this number; else 0."""
    claims: Annotated[Count, Field(exclude_if=not_)] = 0
    """How many ResourceClaims (DRA) the pod has."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class GroupState:
    target: Count = 0
    replicas: Count = 0
    ready: Count = 0
    states: Annotated[dict[str, Count], Field(exclude_if=not_)] = Field(default_factory=dict)
    """The number of simulated instances in each state, such as NotReady."""
    price: Price = None
    currency: Text = ""
    """The currency of the price, if the group names one."""
    conditions: Annotated[dict[str, str], Field(exclude_if=not_)] = Field(default_factory=dict)
    maximum: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    """The most nodes that an autoscaler may request of the group."""
    says: Text = ""
    """Why instances that were requested are missing; empty if none are."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class BudgetState:
    allowed: Count = 0
    healthy: Count = 0
    desired: Count = 0


@dataclass(frozen=True, slots=True, config=_STRICT)
class JobState:
    created: MaybeMoment = None
    wanted: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    done: str = ""
    """`Complete`, `Failed`, or empty."""
    rehearsed: Text = ""
    parallelism: Annotated[Count, Field(exclude_if=not_)] = 0
    """How many of the Job's pods run at once."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class PodGroupState:
    least: Count = 0
    """How many pods of the group must run at once."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeClaimState:
    """A NodeClaim of Karpenter. Group, zone and the like may be unknown until it is launched."""

    created: Moment
    pool: Text = ""
    node: Text = ""
    group: Text = ""
    zone: Text = ""
    instance_type: Text = ""
    capacity_type: Text = ""
    price: Price = None
    launched: MaybeMoment = None
    registered: MaybeMoment = None
    initialized: MaybeMoment = None
    deleting: bool = False
    reason: Text = ""
    """Why Karpenter ends the NodeClaim, such as Underutilized or Expired."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeLine:
    KEY: ClassVar = "node"
    t: Seconds
    name: Name = Field(validation_alias="node", serialization_alias="node")
    state: NodeState | None = Field(default=None, validation_alias="is", serialization_alias="is")


@dataclass(frozen=True, slots=True, config=_STRICT)
class PodLine:
    KEY: ClassVar = "pod"
    t: Seconds
    name: Name = Field(validation_alias="pod", serialization_alias="pod")
    state: PodState | None = Field(default=None, validation_alias="is", serialization_alias="is")


@dataclass(frozen=True, slots=True, config=_STRICT)
class GroupLine:
    KEY: ClassVar = "group"
    t: Seconds
    name: Name = Field(validation_alias="group", serialization_alias="group")
    state: GroupState | None = Field(default=None, validation_alias="is", serialization_alias="is")


@dataclass(frozen=True, slots=True, config=_STRICT)
class BudgetLine:
    KEY: ClassVar = "PodDisruptionBudget"
    t: Seconds
    name: Name = Field(validation_alias="object", serialization_alias="object")
    """The name, as PodDisruptionBudget/NAMESPACE/NAME."""
    state: BudgetState | None = Field(default=None, validation_alias="is", serialization_alias="is")


@dataclass(frozen=True, slots=True, config=_STRICT)
class JobLine:
    KEY: ClassVar = "Job"
    t: Seconds
    name: Name = Field(validation_alias="object", serialization_alias="object")
    """The name, as Job/NAMESPACE/NAME."""
    state: JobState | None = Field(default=None, validation_alias="is", serialization_alias="is")


@dataclass(frozen=True, slots=True, config=_STRICT)
class PodGroupLine:
    KEY: ClassVar = "podGroup"
    t: Seconds
    name: Name = Field(validation_alias="podGroup", serialization_alias="podGroup")
    """The name, as PodGroup/NAMESPACE/NAME."""
    state: PodGroupState | None = Field(
        default=None, validation_alias="is", serialization_alias="is"
    )


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeClaimLine:
    KEY: ClassVar = "nodeClaim"
    t: Seconds
    name: Name = Field(validation_alias="nodeClaim", serialization_alias="nodeClaim")
    state: NodeClaimState | None = Field(
        default=None, validation_alias="is", serialization_alias="is"
    )


@dataclass(frozen=True, slots=True, config=_STRICT)
class _Nested:
    """A line whose fields, without `t`, are in an object under KEY."""

    KEY: ClassVar[str]
    t: Seconds

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, line: Any) -> Any:
        if not isinstance(line, dict):
            return line
        if not isinstance(part := line[cls.KEY], dict):
            raise ValueError("is no object")
        return {**part, "t": line.get("t")}

    @model_serializer(mode="wrap")
    def _fold(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        part = dump(self)
        return {"t": part.pop("t"), self.KEY: part}


@dataclass(frozen=True, slots=True, config=_STRICT)
class EventLine(_Nested):
    KEY = "event"
    type: str = ""
    reason: str = ""
    about: str = ""
    component: str = Field(default="", validation_alias="from")
    message: str = ""
    count: Count = 1
    by: Text = ""
    """The pod, as NAMESPACE/NAME, in whose favour this Event's pod was preempted."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class CallLine(_Nested):
    """A call that the shim answered."""

    KEY = "call"
    method: str = ""
    group: str = ""
    argument: Annotated[str, BeforeValidator(_argument)] = ""
    code: str = ""
    ms: Amount = 0.0

    @property
    def number(self) -> int:
        """The argument of the call as a number, such as of nodes; 0 if it is no number."""
        is_one = self.argument.isdecimal() and len(self.argument) < _DIGITS
        return int(self.argument) if is_one else 0


@dataclass(frozen=True, slots=True, config=_STRICT)
class MarkLine(_Nested):
    """Something that the rehearsal did or noticed: a step of the timeline, a process that ended."""

    KEY = "mark"
    what: str = ""
    detail: Words = ""


@dataclass(frozen=True, slots=True, config=_STRICT)
class WatchLine(_Nested):
    """Reports a broken or restored watch, so that changes may be missing: see docs/figures.md."""

    KEY = "watch"
    of: str = ""
    """The kind: nodes, pods, groups, events, budgets, jobs, podGroups, nodeClaims or nodePools."""
    state: str = ""
    """BROKEN, BACK, or LISTED: listed again, without the changes in between (measures.py)."""
    detail: Words = ""


@dataclass(frozen=True, slots=True, config=_STRICT)
class WarningLine(_Nested):
    """A warning or error that a program has logged."""

    KEY = "warning"
    program: str = ""
    """`operator`, `shim`, or the name of a process."""
    message: Words = ""
    count: Count = 1
    """How many times the message was logged since its last line in the recording."""
    before: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether the warning is older than the run; then no figure counts it."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class WaitLine(_Nested):
    """The result of a `kubectl wait`. `expect` is the index of the expectation, from 0."""

    KEY = "wait"
    expect: Count = 0
    held: bool = False
    detail: Words = ""


@dataclass(frozen=True, slots=True, config=_STRICT)
class EndLine(_Nested):
    KEY = "end"
    reason: str = ""
    detail: Words = ""


@dataclass(frozen=True, slots=True, config=_STRICT)
class UnknownLine:
    """A line of a kind that this version doesn't know, as a later version may write."""

    KEY: ClassVar = "[unknown]"
    t: Seconds


RecordedLine = (NodeLine | PodLine | GroupLine | BudgetLine | JobLine | PodGroupLine) | (
    NodeClaimLine | EventLine | CallLine | MarkLine | WatchLine | WarningLine | WaitLine | EndLine
)
_KINDS: Final[dict[str, Any]] = {kind.KEY: kind for kind in (*get_args(RecordedLine), UnknownLine)}
_TAGGED: Final[Any] = reduce(or_, (Annotated[kind, Tag(key)] for key, kind in _KINDS.items()))


def _kind_of(line: Any) -> str | None:
    if not isinstance(line, dict):
        return getattr(line, "KEY", None)
    for key in line:
        if key == "object":
            budget = str(line[key]).startswith(f"{BudgetLine.KEY}/")
            return BudgetLine.KEY if budget else JobLine.KEY
        if key in _KINDS:
            return str(key)
    return UnknownLine.KEY


_ANY_LINE: Final[TypeAdapter[RecordedLine | UnknownLine]] = TypeAdapter(
    Annotated[_TAGGED, Discriminator(_kind_of)]
)


@dataclass(frozen=True, slots=True)
class _HeaderLine:
    t: float
    header: RecordingHeader


_FIRST_LINE: Final = TypeAdapter(_HeaderLine)


def encode(line: RecordedLine | RecordingHeader) -> str:
    """Encodes a line as JSON, without a newline."""
    if isinstance(line, RecordingHeader):
        return _FIRST_LINE.dump_json(_HeaderLine(0, line), by_alias=True).decode()
    return _ANY_LINE.dump_json(line, by_alias=True).decode()


Skips = Callable[[bytes], float | None]


def no_line(line: bytes) -> None:
    """Always returns None: as `skips`, it makes a RecordingReader skip no line."""


class RecordingReader:
    """Reads the lines of a recording one by one, so memory doesn't grow with its length.

    `chunks` are the bytes of the file `name`. Raises RecordingError; at once if there is no header.
    """

    def __init__(self, chunks: Iterator[bytes], *, name: str) -> None:
        self.cut = False
        """Whether the recording was cut off; known once all lines are read."""
        self.now = 0.0
        """The time of the last line that was read."""
        self._name = name
        data = unzipped(chunks, damaged=self._damaged, on_cut=self._note_cut)
        self._texts = numbered_lines(data, damaged=self._damaged)
        self.header = self._header()

    def lines(self, skips: Skips = no_line) -> Iterator[RecordedLine]:
        """Yields all lines but the header. Their times never decrease. Can be called only once.

        `skips` gets the bytes of a line, and returns its time if it need not be decoded, else None.
        """
        for number, text, ended in self._texts:
            line = None
            if (t := skips(text) if ended else None) is None:
                try:
                    line = _ANY_LINE.validate_json(text)
                except ValidationError as error:
                    if ended:
                        raise _refused(error, f"{self._name}:{number}") from error
                    self.cut = True
                    return
                t = line.t
            if t < self.now:
                if t < self.now - _MAX_STEP_BACK:
                    raise RecordingError(
                        where=f"{self._name}:{number}",
                        field="t",
                        value=t,
                        problem="goes back in time",
                        remedy="lines come in the order of their times",
                    )
                t = self.now
                line = line and replace(line, t=t)
            self.now = t
            if line is not None and not isinstance(line, UnknownLine):
                yield line

    def _header(self) -> RecordingHeader:
        for number, text, _ in self._texts:
            try:
                return _FIRST_LINE.validate_json(text).header
            except ValidationError as error:
                raise _refused(error, f"{self._name}:{number}") from error
        raise self._damaged("holds nothing")

    def _note_cut(self) -> None:
        self.cut = True

    def _damaged(self, problem: str) -> RecordingError:
        return RecordingError(
            where=self._name,
            field="the file",
            value=None,
            problem=problem,
            remedy="name the recording.jsonl.gz of a rehearsal",
        )


def _refused(error: ValidationError, where: str) -> RecordingError:
    details = error.errors(include_url=False)[0]
    path = tuple(step for step in details["loc"] if step not in (A_TIME, A_WORD))
    kind = _KINDS.get(str(path[0]), _Nested) if path else _Nested
    if not issubclass(kind, _Nested):
        path = path[1:]
    elif path[-1:] == ("t",):
        path = ("t",)
    return RecordingError(
        where=where,
        field=in_words(path) if path else "the line",
        value=details["input"] if path else None,
        problem=f"is refused ({details['msg']})",
        remedy="take the recording as it was written, by this version or an earlier one",
    )
