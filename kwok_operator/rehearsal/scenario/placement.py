"""The field `placement` of a scenario: it says on which nodes pods are at the beginning.

It is in the scenario, or in a separate file that the scenario names, such as the placement.json of
an import. Nodes are named GROUP/NUMBER. `rehearsal/seats.py` decides which pod gets which node;
`rehearsal/placing.py` binds the pods.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.api.template import Taint
from kwok_operator.rehearsal.scenario.parts import (
    MAX_PODS,
    NODE_PLACE,
    Line,
    NamespaceName,
    ScenarioPart,
    Whole,
)
from kwok_operator.rehearsal.scenario.problems import field_problems

_KINDS = "pod|deployment|statefulset|daemonset|replicaset|replicationcontroller|job"

NodePlace = Annotated[str, StringConstraints(pattern=NODE_PLACE, max_length=300)]
"""A node of a group by its number, from 0, in the order of names: general/0."""

PlacedWorkload = Annotated[
    str, StringConstraints(pattern=rf"^({_KINDS})/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=300)
]
_Count = Annotated[Whole, Field(ge=1, le=MAX_PODS)]
_Time = Annotated[str, StringConstraints(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,20}Z)?$")]
_Ordinal = Annotated[str, StringConstraints(pattern="^(0|[1-9][0-9]{0,8})$")]


class PlacedNode(ScenarioPart):
    """What keeps pods off a node, beside what its group's template says."""

    cordoned: bool = Field(default=False, description="Default: false.")
    taints: tuple[Taint, ...] = Field(
        default=(), max_length=64, description="Taints of this node alone. Default: none."
    )


class PlacedPods(ScenarioPart):
    """The pods of a workload, or one pod without a workload."""

    what: PlacedWorkload = Field(
        description="KIND/NAME of a workload or of a pod without one. Example: deployment/web."
    )
    namespace: NamespaceName = Field(default="default", description="Default: default.")
    on: dict[NodePlace, _Count] = Field(
        default_factory=dict,
        description="How many of its pods stand on a node, named GROUP/NUMBER. Example: {general/0:"
        " 2}.",
    )
    ordinals: dict[_Ordinal, NodePlace] = Field(
        default_factory=dict,
        description="Of a StatefulSet, the node of each pod by its ordinal. Example: {0: general/1"
        "}.",
    )
    pending: tuple[_Time, ...] = Field(
        default=(),
        max_length=MAX_PODS,
        description="Of pods that had no node, when they were created. They are left to the"
        " scheduler. Example: [2026-01-02T03:04:05Z].",
    )

    @model_validator(mode="before")
    @classmethod
    def _ordinals_as_text(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(ordinals := data.get("ordinals"), dict):
            return {**data, "ordinals": {str(key): node for key, node in ordinals.items()}}
        return data

    @model_validator(mode="after")
    def _fits(self) -> "PlacedPods":
        if self.ordinals and not self.what.startswith("statefulset/"):
            raise ValueError("has ordinals, which only a StatefulSet has; write `on` instead")
        return self


class Placement(ScenarioPart):
    """Where pods stand at the beginning, also where the scheduler would put none."""

    path: Line | None = Field(
        default=None,
        description="The JSON file that has it, alone, relative to the scenario. Example:"
        " placement.json.",
    )
    format: Literal[1] = Field(default=1, description="Of this form. Default: 1.")
    writer: str = Field(default="", max_length=200, description="Which program wrote it.")
    nodes: dict[NodePlace, PlacedNode] = Field(
        default_factory=dict,
        max_length=MAX_TARGET_SIZE,
        description="Nodes that are cordoned, or have taints of their own. Example: {general/3:"
        " {cordoned: true}}.",
    )
    pods: tuple[PlacedPods, ...] = Field(
        default=(),
        max_length=MAX_PODS,
        description="The pods, by workload. Others are left to the scheduler. Example: [{what:"
        " deployment/web, on: {general/0: 2}}].",
    )

    @model_validator(mode="after")
    def _alone(self) -> "Placement":
        if self.path is not None and len(self.model_fields_set) > 1:
            raise ValueError("has a path and other fields; keep one of them")
        return self

    @model_validator(mode="after")
    def _once(self) -> "Placement":
        seen: dict[tuple[str, str], int] = {}
        for number, each in enumerate(self.pods):
            if (first := seen.setdefault((each.namespace, each.what), number)) != number:
                where = f"pods[{first}] and pods[{number}]"
                raise ValueError(f"has {each.namespace}/{each.what} twice, in {where}; keep one")
        return self


def placement_in(text: str) -> Placement:
    """Reads a placement from the JSON of a file. Raises ValueError with a sentence that names the
    field.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON: {error}") from error
    if not isinstance(value, dict) or "path" in value:
        raise ValueError("has no object with `pods` in it; name a placement.json of an import")
    try:
        return Placement.model_validate(value)
    except ValidationError as error:
        first = field_problems(error, Placement, value)[0]
        raise ValueError(f"has a mistake: {first.message}") from error


def _at(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


PlacementField = Annotated[
    Placement, BeforeValidator(_at), WithJsonSchema({"type": ["string", "object"]})
]
"""A placement, or the path of its file as plain text."""
