"""How cluster-autoscaler may scale a group, by which options, and what a node costs:
`spec.autoscaling`, `spec.price`.

Owns the bounds, the options that cluster-autoscaler's protocol has for single groups, and their
units. The shim translates them to the protocol.
"""

from typing import Annotated

from pydantic import Field

from kwok_operator.api.base import (
    STORED_DEFAULT,
    ApiModel,
    ApiRule,
    LabelName,
    QualifiedName,
    Text,
    rules,
)

MAX_TARGET_SIZE = 1_000_000
MAX_GPU_TYPES = 100

_DURATION = r"^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?$"
_SHARE = r"^(0|1|0\.[0-9]{1,6}|1\.0{1,6})$"
_AMOUNT = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"


Duration = Annotated[
    str,
    Text(
        pattern=_DURATION,
        min_length=2,
        max_length=24,
        message="must be a time such as 90s, 10m or 1h30m",
    ),
]
"""A time such as 10m or 1h30m."""

Share = Annotated[
    str,
    Text(
        pattern=_SHARE,
        min_length=1,
        max_length=8,
        message='must be a share from 0 to 1, such as "0.5"',
    ),
]
"""A number from 0 to 1, as text."""

Amount = Annotated[
    str,
    Text(pattern=_AMOUNT, min_length=1, max_length=19, message='must be an amount such as "0.192"'),
]
"""A sum of money, as text."""

Currency = Annotated[
    str,
    Text(pattern="^[A-Z]{3}$", min_length=3, max_length=3, message='must be a code such as "EUR"'),
]


class AutoscalingOptions(ApiModel):
    scale_down_utilization_threshold: Share | None = Field(
        default=None,
        description="Share of CPU or memory in use below which a node may go (0 to 1). Default:"
        ' cluster-autoscaler\'s flag. Example: "0.5".',
    )
    scale_down_gpu_utilization_threshold: Share | None = Field(
        default=None,
        description="Share of GPUs in use below which a node may go (0 to 1). Default:"
        ' cluster-autoscaler\'s flag. Example: "0.5".',
    )
    scale_down_unneeded_time: Duration | None = Field(
        default=None,
        description="How long a node is not needed before it goes. Default: cluster-autoscaler's"
        " flag. Example: 5m.",
    )
    scale_down_unready_time: Duration | None = Field(
        default=None,
        description="How long a node that isn't Ready is not needed before it goes. Default:"
        " cluster-autoscaler's flag. Example: 20m.",
    )
    max_node_provision_time: Duration | None = Field(
        default=None,
        description="How long a node may take to come before it counts as failed. Default:"
        " cluster-autoscaler's flag. Example: 15m.",
    )
    zero_or_max_node_scaling: bool | None = Field(
        default=None,
        description="Whether the group has all its nodes or none. Default: cluster-autoscaler's"
        " flag, which is false.",
    )
    ignore_daemon_sets_utilization: bool | None = Field(
        default=None,
        description="Whether pods of DaemonSets don't count as use. Default: cluster-autoscaler's"
        " flag.",
    )


class Price(ApiModel):
    hourly: Amount = Field(description='What a node costs for an hour. Example: "0.192".')
    currency: Currency | None = Field(
        default=None,
        description="The ISO 4217 code of the currency, which reports of rehearsals name. All"
        ' groups should have the same. Default: absent. Example: "EUR".',
    )


class Autoscaling(ApiModel):
    model_config = rules(
        ApiRule(
            "!has(self.minSize) || !has(self.maxSize) || self.minSize <= self.maxSize",
            "autoscaling.minSize must not be greater than autoscaling.maxSize:"
            " lower minSize or raise maxSize",
            lambda it: it.get("minSize", 0) <= it.get("maxSize", MAX_TARGET_SIZE),
            field="minSize",
        )
    )

    min_size: int = Field(
        default=0,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="Fewest nodes. A lower targetSize is allowed, and this many are kept all the"
        " same. Default: 0.",
        # Stored, so that an empty `autoscaling` has a field. Server-side apply makes an object
        # without fields null, and then cluster-autoscaler could no longer scale the group.
        json_schema_extra={STORED_DEFAULT: 0},
    )
    max_size: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="Most nodes. A new targetSize above it is refused; lowered below the"
        " present targetSize, the group shrinks to it. Default: no limit. Example: 200.",
    )
    options: AutoscalingOptions | None = Field(
        default=None,
        description="Options of cluster-autoscaler for this group alone. Default: absent, so that"
        " its own flags hold. Example: {scaleDownUnneededTime: 5m}.",
    )
    gpu_label: QualifiedName | None = Field(
        default=None,
        description="The label whose value is the type of GPU; cluster-autoscaler waits for the"
        " GPUs of a node that has it. It knows one label: give all groups the same. Default: none."
        " Example: k8s.amazonaws.com/accelerator.",
    )
    gpu_types: frozenset[LabelName] = Field(
        default=frozenset(),
        max_length=MAX_GPU_TYPES,
        description="Types of GPU that cluster-autoscaler should know of, as values of gpuLabel,"
        " beside those that the groups' templates carry. A set, at most 100. Default: none."
        " Example: [nvidia-tesla-k80].",
    )
