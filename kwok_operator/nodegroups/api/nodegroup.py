"""The spec of a KwokNodeGroup: what people and autoscalers want.

Owns every field of spec: its type, its limits, its default, the text that `kubectl explain` prints,
and the rules that the API server checks. The CRD is generated from it. Defaults are applied here
and not stored, so that manifests don't differ from stored objects; an empty spec is a group with
defaults.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from kwok_operator.api.base import (
    RULES,
    ApiModel,
    ApiRule,
    NodeName,
    all_match,
    matches,
    number_as_text,
    rules,
)
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.constants import (
    GUARD_TAINT_EFFECT,
    GUARD_TAINT_KEY,
    GUARD_TAINT_VALUE,
    MAX_NODES_TO_DELETE,
)
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE, Autoscaling, Price
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.topology.api import labels_of


class ScaleDownOrder(StrEnum):
    NEWEST_FIRST = "NewestFirst"
    OLDEST_FIRST = "OldestFirst"


class DeletedNodePods(StrEnum):
    LEAVE = "Leave"
    DELETE = "Delete"


class ScaleDown(ApiModel):
    order: ScaleDownOrder = Field(
        default=ScaleDownOrder.NEWEST_FIRST,
        description="Which nodes go first when the group shrinks and nobody named any: NewestFirst"
        " or OldestFirst. Default: NewestFirst.",
    )
    nodes_to_delete: frozenset[NodeName] = Field(
        default=frozenset(),
        max_length=MAX_NODES_TO_DELETE,
        description="Names of nodes of this group that go, whatever the target. How many remain"
        " is up to targetSize alone: lower it in the same write, or they are replaced. Names that"
        " don't exist do nothing. At most 20,000.",
    )
    pods: DeletedNodePods = Field(
        default=DeletedNodePods.LEAVE,
        description="What becomes of the pods of a deleted node: Leave leaves them to Kubernetes,"
        " as when a cloud pulls the plug; Delete removes them at once. Default: Leave.",
    )


class UpdateStrategyType(StrEnum):
    ON_DELETE = "OnDelete"
    IN_PLACE = "InPlace"
    ROLLING_UPDATE = "RollingUpdate"


_COUNT_OR_PERCENT = r"^([1-9][0-9]{0,6}|[1-9][0-9]?%|100%)$"

CountOrPercent = Annotated[
    str,
    BeforeValidator(number_as_text),
    StringConstraints(pattern=_COUNT_OR_PERCENT),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 7,
            RULES: [
                ApiRule(
                    matches(_COUNT_OR_PERCENT, of="string(self)"),
                    "must be a number of nodes from 1, or a share from 1% to 100%, such as 10 or"
                    " 10%",
                    lambda value: all_match(_COUNT_OR_PERCENT, [str(value)]),
                )
            ],
        }
    ),
]
"""A number of nodes, or a percentage of the target. Always text in Python."""


class RollingUpdate(ApiModel):
    max_unavailable: CountOrPercent = Field(
        default="10%",
        description="Nodes that may be missing or not Ready at a time while they are replaced: a"
        " number, or a share of the target (rounded down, at least 1). Default: 10%.",
    )


class UpdateStrategy(ApiModel):
    type: UpdateStrategyType = Field(
        default=UpdateStrategyType.ON_DELETE,
        description="What nodes that exist do when the template changes: OnDelete leaves them as"
        " they are, InPlace patches their labels, annotations, taints, capacity and allocatable,"
        " RollingUpdate replaces them by new ones. Default: OnDelete.",
    )
    rolling_update: RollingUpdate = Field(
        default_factory=RollingUpdate, description="How RollingUpdate goes about it."
    )


class KwokNodeGroupSpec(ApiModel):
    model_config = rules(
        ApiRule(
            # The API server checks the bound only when the target changes. So a user can lower
            # maxSize below a target that somebody else owns, such as cluster-autoscaler.
            "!has(self.targetSize) || !has(self.autoscaling) || !has(self.autoscaling.maxSize)"
            " || self.targetSize <= self.autoscaling.maxSize"
            " || (oldSelf.hasValue() && has(oldSelf.value().targetSize)"
            " && oldSelf.value().targetSize == self.targetSize)",
            "targetSize must not be greater than autoscaling.maxSize:"
            " ask for fewer nodes, or raise autoscaling.maxSize first",
            lambda spec: (
                spec.get("targetSize", 0)
                <= spec.get("autoscaling", {}).get("maxSize", MAX_TARGET_SIZE)
            ),
            field="targetSize",
            with_old=True,
        ),
        ApiRule(
            "!has(self.cloud) || !has(self.cloud.unit) || has(self.template)"
            " && has(self.template.topology) && self.template.topology.levels.exists(l,"
            " l.label == self.cloud.unit || has(l.also) && self.cloud.unit in l.also)",
            "cloud.unit must be a label of a level of template.topology, written as there",
            lambda spec: (
                "unit" not in spec.get("cloud", {})
                or any(
                    spec["cloud"]["unit"] in labels_of(level)
                    for level in spec.get("template", {}).get("topology", {}).get("levels", ())
                )
            ),
            field="cloud.unit",
        ),
    )

    target_size: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="How many nodes the group should have. `kubectl scale kng NAME --replicas=N`"
        " sets it too. Left out, the group keeps the number it has: leave it out of a manifest"
        " when somebody else scales the group. Example: 10.",
    )
    paused: bool = Field(
        default=False,
        description="When true, no node is created, deleted or updated. Default: false.",
    )
    template: Template = Field(
        default_factory=Template,
        description="What the nodes look like. Default: 32 CPU, 256Gi memory, 110 pods,"
        " linux/amd64. Example: {shape: {cpu: 8, memory: 32Gi}}.",
    )
    guard_taint: GuardTaint = Field(
        default_factory=GuardTaint,
        description="A taint on every node of the group that keeps workloads off unless they"
        " tolerate it. Default:"
        f" {GUARD_TAINT_KEY}={GUARD_TAINT_VALUE}:{GUARD_TAINT_EFFECT}.",
    )
    scale_down: ScaleDown = Field(
        default_factory=ScaleDown,
        description="Which nodes go when the group shrinks, and what becomes of their pods.",
    )
    update_strategy: UpdateStrategy = Field(
        default_factory=UpdateStrategy,
        description="What nodes that exist do when the template changes. Default: nothing."
        " Example: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}.",
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="Its presence, even empty ({}), lets cluster-autoscaler drive the group, within"
        " these bounds. Default: absent. Example: {minSize: 0, maxSize: 200}.",
    )
    price: Price | None = Field(
        default=None,
        description="What a node costs, for cluster-autoscaler's expander `price`. Default: absent."
        ' Example: {hourly: "0.192"}.',
    )
    cloud: Cloud | None = Field(
        default=None,
        description="The simulated cloud behind the nodes: delays, failures, stock, interruptions,"
        " outages. Default: absent, a perfect cloud."
        " Example: {provisioningDelay: {lognormal: {p50: 40s, p99: 3m}}}.",
        json_schema_extra={"nullable": True},
    )
