"""KwokCapacityPool: what several groups share, such as a zone's stock, a quota or a reservation.

Owns the fields of its spec and its status. cloud/stock.py decides which group gets room: use is
counted from groups and nodes each time, and the status here only shows it.
"""

from enum import StrEnum

from pydantic import Field

from kwok_operator.api.base import (
    QUALIFIED_NAME,
    ApiModel,
    ApiRule,
    Quantity,
    all_match,
    matches,
    rules,
)
from kwok_operator.cloud.api.cloud import CloudError
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.api.status import Condition

MAX_SHOWN_GROUPS = 50


class KwokCapacityPoolSpec(ApiModel):
    model_config = rules(
        ApiRule(
            "!has(self.resources) || self.resources.all(name,"
            f" {matches(QUALIFIED_NAME, of='name')})",
            "resources: a name must be that of a resource, such as cpu, memory or nvidia.com/gpu",
            lambda spec: all_match(QUALIFIED_NAME, spec.get("resources", ())),
            field="resources",
        )
    )

    instances: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="Most instances of all groups together. Default: no limit. Example: 50.",
    )
    resources: dict[str, Quantity] = Field(
        default_factory=dict,
        max_length=32,
        description="Most of each resource, as the capacity of the groups' nodes counts: cpu is"
        " vCPUs. A resource that is not named is not limited. Default: none."
        " Example: {cpu: 512, memory: 2Ti, nvidia.com/gpu: 16}.",
    )
    error: CloudError = Field(
        default_factory=CloudError,
        description="What the cloud says to those that find no room. Default: OutOfResources."
        " Example: {class: QuotaExceeded, code: VcpuLimitExceeded}.",
    )
    outage: bool = Field(
        default=False,
        description="While true, no Node that draws from the pool is Ready and no instance comes."
        " Default: false.",
    )


class GroupShare(ApiModel):
    group: str = Field(description="The KwokNodeGroup that draws from the pool.")
    instances: int = Field(default=0, description="Its instances in the pool.")
    resources: dict[str, str] = Field(
        default_factory=dict, description="What they take of the pool's resources."
    )


class PoolConditionType(StrEnum):
    OUTAGE = "Outage"
    """Whether the pool is out; lastTransitionTime says since when."""
    EXHAUSTED = "Exhausted"
    """Instances found no room, and wait for it."""


class PoolCondition(Condition):
    type: str = Field(description="What the condition is about: Outage or Exhausted.")


class KwokCapacityPoolStatus(ApiModel):
    observed_generation: int | None = Field(
        default=None, description="The metadata.generation that this status belongs to."
    )
    instances: int = Field(default=0, description="Instances that draw from the pool.")
    resources: dict[str, str] = Field(
        default_factory=dict, description="What they take of the pool's resources."
    )
    groups: tuple[GroupShare, ...] = Field(
        default=(),
        description="Who takes how much; of many groups those with the most instances.",
        json_schema_extra={"x-kubernetes-list-map-keys": ["group"]},
    )
    other_groups: int = Field(default=0, description="Groups that are not listed.")
    refused: int = Field(default=0, description="Instances that found no room here, and wait.")
    conditions: tuple[PoolCondition, ...] = Field(
        default=(),
        description="How the pool is doing.",
        json_schema_extra={"x-kubernetes-list-map-keys": ["type"]},
    )
