"""The timeline of a scenario: what is done to the cluster, at a time or after a condition.

This module has only the fields of the steps. `rehearsal/runner.py` plays them.
"""

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from kwok_operator.cloud.api.cloud import DEFAULT_NOTICE, MAX_OUTAGE_UNITS
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.rehearsal.scenario.expectation import ScenarioCondition
from kwok_operator.rehearsal.scenario.linepattern import LinePattern
from kwok_operator.rehearsal.scenario.parts import (
    LabelKey,
    LabelText,
    Line,
    NamespaceName,
    Number,
    PositiveSpan,
    ScenarioName,
    ScenarioPart,
    Span,
    TextOrNumber,
    Whole,
    require_one,
)

ObjectReference = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z][-A-Za-z0-9.]*/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=300
    ),
]
"""A reference to an object as kubectl writes it, such as deployment/web or kng/batch."""

_KEY = r"([-a-zA-Z0-9.]+/)?[a-zA-Z0-9][-._a-zA-Z0-9]*"
_VALUE = r"[-._a-zA-Z0-9]*"
_REQUIREMENT = (
    rf"(!?{_KEY}|{_KEY} *(==?|!=) *{_VALUE}"
    rf"|{_KEY} +(in|notin) *\( *{_VALUE} *(, *{_VALUE} *)*\))"
)
Selector = Annotated[
    str,
    StringConstraints(pattern=rf"^ *{_REQUIREMENT} *(, *{_REQUIREMENT} *)*$", max_length=2_000),
]
"""A label selector as kubectl takes it, such as pool=spot,zone in (a, b)."""

Command = Annotated[
    tuple[Annotated[str, StringConstraints(max_length=20_000)], ...],
    Field(min_length=1, max_length=500),
]
"""A program and its arguments, in which $(NAME) stands for a variable."""


class ApplySource(ScenarioPart):
    """A file, a folder or a kustomization, or an object as it is."""

    path: Line | None = Field(
        default=None, description="Relative to the scenario. Example: groups.yaml."
    )
    object: dict[str, Any] | None = Field(default=None, description="A Kubernetes object.")

    @model_validator(mode="after")
    def _one(self) -> "ApplySource":
        require_one(self, "path", "object")
        return self


def _applied(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


_TO_APPLY_SCHEMA: Final = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"object": {"type": "object"}},
            "required": ["object"],
            "additionalProperties": False,
        },
    ]
}
APPLYING_SCHEMA: Final = {"type": "array", "items": _TO_APPLY_SCHEMA}

ToApply = Annotated[ApplySource, BeforeValidator(_applied), WithJsonSchema(_TO_APPLY_SCHEMA)]
"""Something to apply. A path may be given as plain text."""

Applying = Annotated[tuple[ToApply, ...], Field(max_length=100_000)]


class _OfAnObject(ScenarioPart):
    what: ObjectReference = Field(description="KIND/NAME. Example: deployment/web, kng/batch.")
    namespace: NamespaceName = Field(default="default", description="Default: default.")


class ScaleStep(_OfAnObject):
    replicas: Whole = Field(ge=0, le=MAX_TARGET_SIZE, description="How many. Example: 100.")


class PatchStep(_OfAnObject):
    patch: dict[str, Any] = Field(
        min_length=1,
        description="What is to be different (merge patch). Example: {spec: {paused: true}}.",
    )


class DeleteStep(_OfAnObject):
    pass


class NodesStep(ScenarioPart):
    """Nodes of a group, or that have labels; those with the lowest names first."""

    group: Line | None = Field(default=None, description="Nodes of this KwokNodeGroup.")
    selector: Selector | None = Field(
        default=None,
        description="Nodes with these labels. Example: topology.kubernetes.io/zone=region-1a.",
    )
    count: Whole | None = Field(
        default=None, ge=1, le=MAX_TARGET_SIZE, description="So many of them. Default: all."
    )

    @model_validator(mode="after")
    def _one(self) -> "NodesStep":
        require_one(self, "group", "selector")
        return self


class MachinesStep(ScenarioPart):
    """Machines of a group, of a NodePool, or with the given labels. If `count` or `share` limits
    their number, the scenario's seed decides which ones."""

    group: Line | None = Field(
        default=None,
        description="Machines of this KwokNodeGroup; of Karpenter those with the group's label.",
    )
    node_pool: Line | None = Field(default=None, description="Machines of this NodePool.")
    selector: Selector | None = Field(
        default=None,
        description="Machines whose Nodes have these labels. Example:"
        " karpenter.sh/capacity-type=spot.",
    )
    count: Whole | None = Field(
        default=None, ge=1, le=MAX_TARGET_SIZE, description="So many of them. Default: all."
    )
    share: Number | None = Field(
        default=None,
        gt=0,
        le=1,
        description="This share of them, rounded up, instead of count. Example: 0.3.",
    )

    @model_validator(mode="after")
    def _one(self) -> "MachinesStep":
        require_one(self, "group", "node_pool", "selector")
        if self.count is not None and self.share is not None:
            raise ValueError("has count and share; keep one of them")
        return self


class InterruptStep(MachinesStep):
    notice: Span | None = Field(
        default=None,
        description="How long before its end a machine gets notice. Default: that of the group's"
        f" spec.cloud.interruptions, or {DEFAULT_NOTICE}. Example: 30s.",
    )


class UnitsStep(ScenarioPart):
    """Units of the groups' template.topology, such as racks: some of a level, or named ones."""

    level: LabelKey | None = Field(
        default=None,
        description="A label of template.topology, or its short form: units of this level that have"
        " nodes; which ones, the seed decides. Example: example.com/rack.",
    )
    count: Whole = Field(
        default=1, ge=1, le=MAX_OUTAGE_UNITS, description="So many of the level. Default: 1."
    )
    values: tuple[LabelText, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_OUTAGE_UNITS,
        description="The units that have these values as labels. Example: [pool-a-0-1].",
    )

    @model_validator(mode="after")
    def _one(self) -> "UnitsStep":
        if require_one(self, "level", "values") == "values" and "count" in self.model_fields_set:
            raise ValueError("has values and count; count is for level")
        return self


class OutageStep(ScenarioPart):
    """An outage of a group, a pool, all groups of a zone, or units of a topology."""

    group: Line | None = Field(default=None, description="A KwokNodeGroup.")
    pool: Line | None = Field(default=None, description="A KwokCapacityPool.")
    zone: Line | None = Field(
        default=None,
        description="All KwokNodeGroups of this zone; they have no stock meanwhile. Example:"
        " region-1a.",
    )
    topology: UnitsStep | None = Field(
        default=None,
        description="Units such as racks, in all KwokNodeGroups. Example: {level:"
        " example.com/rack, count: 1}.",
    )
    span: PositiveSpan | None = Field(
        default=None, alias="for", description="How long. Default: to the end. Example: 1m."
    )

    @model_validator(mode="after")
    def _one(self) -> "OutageStep":
        require_one(self, "group", "pool", "zone", "topology")
        return self


class RunStep(ScenarioPart):
    command: Command = Field(description="Program and arguments. Example: [kubectl, drain, node].")
    env: dict[str, TextOrNumber] = Field(
        default_factory=dict, max_length=100, description="Variables beside those of the rehearsal."
    )
    within: PositiveSpan = Field(
        default=60.0, description="It is ended after this time, and has failed. Default: 60s."
    )
    may_fail: bool = Field(
        default=False, strict=True, description="Whether the rehearsal goes on when it fails."
    )
    prints: Line | None = Field(
        default=None,
        description="What a line of its output must have, as a regular expression without"
        " look-around and back-references, also if it may fail. Example: No resources found.",
    )
    show: bool = Field(
        default=False, strict=True, description="Whether the command and its output are printed."
    )

    @model_validator(mode="after")
    def _pattern(self) -> "RunStep":
        try:
            LinePattern(self.prints or "")
        except ValueError as error:
            raise ValueError(f"prints {error}") from error
        return self


_ACTIONS = (
    "apply",
    "scale",
    "patch",
    "delete",
    "cordon",
    "uncordon",
    "outage",
    "interrupt",
    "lose",
    "run",
    "start",
    "stop",
)


class Step(ScenarioPart):
    """One thing that is done: at a time, after a condition, or else after the step before it."""

    at: Span | None = Field(
        default=None,
        description="When, from the beginning. Default: once the step before it is done.",
    )
    after: ScenarioCondition | None = Field(
        default=None,
        description="When this holds for the first time. Example: {figure: pods.running, atLeast:"
        " 50}.",
    )
    settled_for: PositiveSpan | None = Field(
        default=None,
        description="Without at and after: once nothing has changed for so long after the step"
        " before it. Example: 15s.",
    )
    delay: Span = Field(default=0.0, description="Without at: so much later. Default: 0s.")
    say: Line | None = Field(
        default=None, description="What is printed before it: a title, and lines that explain it."
    )
    apply: Annotated[Applying, Field(min_length=1)] | None = Field(
        default=None, description="Files, folders, objects."
    )
    scale: ScaleStep | None = Field(default=None, description="An object's scale.")
    patch: PatchStep | None = Field(default=None, description="A merge patch of an object.")
    delete: DeleteStep | None = Field(default=None, description="An object goes.")
    cordon: NodesStep | None = Field(default=None, description="Nodes take no more pods.")
    uncordon: NodesStep | None = Field(default=None, description="Nodes take pods again.")
    outage: OutageStep | None = Field(
        default=None, description="A group, a pool, a zone or racks go dark."
    )
    interrupt: InterruptStep | None = Field(
        default=None, description="The cloud takes machines back, with notice."
    )
    lose: MachinesStep | None = Field(
        default=None, description="Machines are gone at once, without notice."
    )
    run: RunStep | None = Field(default=None, description="A program, to its end.")
    start: ScenarioName | None = Field(default=None, description="A process of the scenario.")
    stop: ScenarioName | None = Field(default=None, description="A process of the scenario.")

    @model_validator(mode="after")
    def _one(self) -> "Step":
        if self.at is not None and self.after is not None:
            raise ValueError("has at and after; keep one of them")
        if self.settled_for is not None and (self.at is not None or self.after is not None):
            raise ValueError("has settledFor, and at or after; keep one of them")
        require_one(self, *_ACTIONS)
        if self.at is not None and "delay" in self.model_fields_set:
            raise ValueError("delay is for a step without at; add it to at")
        return self

    @property
    def action(self) -> str:
        """The name of the field that says what is done."""
        return require_one(self, *_ACTIONS)
