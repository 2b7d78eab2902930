"""How the simulated cloud behaves: `spec.cloud`. By default it has no delays and no failures.

Owns the fields for delays, failures, stock, interruptions and outages, and their limits. Other
modules of the cloud's folder compute from them what happens to an instance, and when.
Every draw depends on the seed, the group's name, the instance's serial and the purpose.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from kwok_operator.api.base import (
    ApiModel,
    ApiRule,
    ExtendedResourceName,
    ObjectName,
    QualifiedName,
    Text,
    at_least_one_of,
    rules,
)
from kwok_operator.api.taints import DeviceTaint, DeviceTaintEffect
from kwok_operator.cloud.api.delay import Delay, Time, TimeOrNever
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE, Share
from kwok_operator.nodegroups.api.template import Taint, TaintEffect

DEFAULT_RETRY_AFTER = "5m"
DEFAULT_NOTICE = "2m"
NOTICE_TAINT_KEY = "kwok-operator.io/interruption"
DEVICE_TAINT_KEY = "kwok-operator.io/device-failure"
NOTICE_CONDITION = "Interruption"
"""The condition of a Node that has been given notice."""
MAX_CREATION_FAILURES = 8
MAX_OUTAGE_UNITS = 100

_ONE_RANGE = r"[0-9]{1,9}(-[0-9]{1,9})?"
_SERIALS = rf"^{_ONE_RANGE}(,{_ONE_RANGE})*$"
_CODE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,62}[A-Za-z0-9])?$"


Serials = Annotated[
    str,
    Text(
        pattern=_SERIALS,
        min_length=1,
        max_length=256,
        message='must be serials or ranges of them, such as "3,10-19"',
    ),
]
"""Serials such as "3,10-19". A range from a greater to a smaller number has none."""

ErrorCode = Annotated[
    str,
    Text(
        pattern=_CODE,
        min_length=1,
        max_length=64,
        message="must begin and end with a letter or a digit, with letters, digits, '-', '_' and"
        " '.' between, such as InsufficientInstanceCapacity",
    ),
]
"""A cloud's word for an error; not empty, as cluster-autoscaler takes that for no error."""


UnitValue = Annotated[str, StringConstraints(min_length=1, max_length=63)]


class StartupTaint(Taint):
    removed_after: Delay = Field(
        description="When the taint is taken off, counted from when the Node appears."
        " Example: {fixed: 40s}."
    )


class LateResource(ApiModel):
    name: ExtendedResourceName = Field(
        description="The resource, which the template has. Example: nvidia.com/gpu."
    )
    after: Delay = Field(
        description="When it shows in the Node's capacity, counted from when the Node appears."
        " Example: {fixed: 90s}."
    )


class ErrorClass(StrEnum):
    OUT_OF_RESOURCES = "OutOfResources"
    QUOTA_EXCEEDED = "QuotaExceeded"
    OTHER = "Other"


class CloudError(ApiModel):
    """The error with which a cloud refuses an instance."""

    # Not `alias`: a type checker would then demand a keyword argument named class.
    error_class: ErrorClass = Field(
        default=ErrorClass.OUT_OF_RESOURCES,
        validation_alias="class",
        serialization_alias="class",
        description="The kind of error: OutOfResources, QuotaExceeded (cluster-autoscaler takes"
        " both for a lack of resources) or Other. Default: OutOfResources.",
    )
    code: ErrorCode | None = Field(
        default=None,
        description="The cloud's word for it. Default: that of class."
        " Example: InsufficientInstanceCapacity.",
    )
    message: str | None = Field(
        default=None,
        max_length=128,
        description="What the cloud says. Default: a sentence that names the cause.",
    )


class Chance(ApiModel):
    """Which instances something happens to: by probability, by serial, or both."""

    model_config = rules(
        at_least_one_of(
            *("probability", "serials"),
            message="must have probability, serials or both, to say whom it happens to",
        )
    )

    probability: Share | None = Field(
        default=None,
        description="Share of the instances that it happens to, drawn for each (0 to 1)."
        ' Default: those in serials only. Example: "0.05".',
    )
    serials: Serials | None = Field(
        default=None,
        description="Serials of instances that it happens to for certain: the number that a node's"
        ' name ends in. Default: none. Example: "3,10-19".',
    )


class CreationFailure(CloudError, Chance):
    after: Delay | None = Field(
        default=None,
        description="When the failure shows, counted from when the instance was asked for."
        " Default: at once. Example: {fixed: 20s}.",
    )
    times: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="How many tries of one instance can fail this way. Default: any number.",
    )


class DeviceFailures(Chance):
    """The probability is that of each device; of the instances in `serials` all devices fail."""

    after: Delay | None = Field(
        default=None,
        description="When the device fails, counted from when it is published. Default: at once."
        " Example: {exponential: {mean: 6h}}.",
    )
    taint: DeviceTaint = Field(
        default_factory=lambda: DeviceTaint(
            key=DEVICE_TAINT_KEY, effect=DeviceTaintEffect.NO_EXECUTE
        ),
        description=f"The taint that it gets. Default: {DEVICE_TAINT_KEY}:NoExecute.",
    )


class CloudDevices(ApiModel):
    after: Delay | None = Field(
        default=None,
        description="When a node's ResourceSlices are published, counted from when the Node"
        " appears. Default: at once. Example: {fixed: 90s}.",
    )
    never_published: Chance | None = Field(
        default=None, description="Instances whose devices are never published. Default: none."
    )
    failures: DeviceFailures | None = Field(
        default=None,
        description='Devices that fail. Default: none. Example: {probability: "0.01"}.',
    )


class SlowDeletion(Chance):
    delay: Delay = Field(
        description="How long the Node stays when it is to be deleted. Example: {fixed: 10m}."
    )


class Failures(ApiModel):
    creation: tuple[CreationFailure, ...] = Field(
        default=(),
        max_length=MAX_CREATION_FAILURES,
        description="Instances that are not created. Of those that name an instance's serial the"
        " first holds, else one is drawn; probabilities add up, beyond 1 they don't count. At most"
        ' 8. Default: none. Example: [{probability: "0.1", class: OutOfResources}].',
    )
    never_registers: Chance | None = Field(
        default=None,
        description="Instances that the cloud says are running, and that no Node ever comes of.",
    )
    never_ready: Chance | None = Field(
        default=None, description="Instances whose Node appears, and is never Ready."
    )
    slow_deletion: SlowDeletion | None = Field(
        default=None,
        description="Instances that get stuck in deletion: their Node stays for a time.",
    )


def _notice_taint() -> Taint:
    return Taint(key=NOTICE_TAINT_KEY, effect=TaintEffect.NO_SCHEDULE)


class Interruptions(ApiModel):
    model_config = rules(
        ApiRule(
            "!has(self.lifetime) || !has(self.hourlyRate)",
            "interruptions must have lifetime or hourlyRate, not both",
            lambda it: not ("lifetime" in it and "hourlyRate" in it),
        )
    )

    lifetime: Delay | None = Field(
        default=None,
        description="How long a Node lives before the cloud takes the instance back."
        " Example: {exponential: {mean: 6h}}.",
    )
    hourly_rate: Share | None = Field(
        default=None,
        description="Share of the instances that the cloud takes back within an hour (0 to 1)."
        ' Default: none. Example: "0.05".',
    )
    max_lifetime: Time | None = Field(
        default=None,
        description="No Node lives longer. Default: no limit. Example: 24h.",
    )
    notice: Time = Field(
        default=DEFAULT_NOTICE,
        description="How long before it goes a Node gets the taint and the condition"
        f" {NOTICE_CONDITION}. Default: {DEFAULT_NOTICE}.",
    )
    taint: Taint = Field(
        default_factory=_notice_taint,
        description=f"The taint of notice. Default: {NOTICE_TAINT_KEY}:NoSchedule.",
    )
    at_a_time: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="Most Nodes under notice at a time; others are left until one has gone."
        " Default: no limit.",
    )


class Flapping(ApiModel):
    period: Time = Field(description="Time from one spell to the next. Example: 10m.")
    not_ready: Share = Field(
        default="0.1",
        description='Share of the period that a Node is not Ready (0 to 1). Default: "0.1".',
    )
    nodes: Share = Field(
        default="1", description='Share of the Nodes that flap (0 to 1). Default: "1".'
    )


class Cloud(ApiModel):
    seed: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="What every draw is made from: the same seed gives a group of the same name the"
        " same course. Default: the group's name. Example: run-1.",
    )
    unit: QualifiedName | None = Field(
        default=None,
        description="A label of template.topology: what is drawn is drawn once for all instances"
        " that stand in one such unit, and stock and pools give whole units or nothing. Serials"
        " in failures are then numbers of units. Default: each instance by itself."
        " Example: example.com/rack.",
    )
    provisioning_delay: Delay | None = Field(
        default=None,
        description="From when an instance is asked for until its Node appears. Default: none."
        " Example: {lognormal: {p50: 40s, p99: 3m}}.",
    )
    readiness_delay: Delay | None = Field(
        default=None,
        description="From when a Node appears until it is Ready. Default: none."
        " Example: {fixed: 20s}.",
    )
    startup_taints: tuple[StartupTaint, ...] = Field(
        default=(),
        max_length=8,
        description="Taints that a Node has at first. At most 8. Default: none."
        " Example: [{key: agent, effect: NoSchedule, removedAfter: {fixed: 40s}}].",
        json_schema_extra={"x-kubernetes-list-map-keys": ["key", "effect"]},
    )
    late_resources: tuple[LateResource, ...] = Field(
        default=(),
        max_length=8,
        description="Resources that a Node lacks at first, such as GPUs whose driver is not there"
        " yet. At most 8. Default: none."
        " Example: [{name: nvidia.com/gpu, after: {fixed: 90s}}].",
        json_schema_extra={"x-kubernetes-list-map-keys": ["name"]},
    )
    failures: Failures = Field(
        default_factory=Failures, description="What goes wrong with instances. Default: nothing."
    )
    retry_after: TimeOrNever | None = Field(
        default=None,
        description="When an instance that failed is tried again. Default: Never with"
        " spec.autoscaling, as cluster-autoscaler deletes what failed and asks again itself, else"
        f" {DEFAULT_RETRY_AFTER}.",
    )
    stock: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="Instances that the cloud has for this group; more are refused. Default: no"
        " limit.",
    )
    capacity_pools: tuple[ObjectName, ...] = Field(
        default=(),
        max_length=8,
        description="Names of the KwokCapacityPools that each instance draws from; all of them must"
        " have room. At most 8. Default: none. Example: [zone-b, gpu-quota].",
    )
    interruptions: Interruptions | None = Field(
        default=None,
        description="Instances that the cloud takes back, as spot clouds do; the group replaces"
        ' them. Default: absent. Example: {hourlyRate: "0.05"}.',
        json_schema_extra={"nullable": True},
    )
    outage: bool = Field(
        default=False,
        description="While true, no Node of the group is Ready and no instance comes."
        " Default: false.",
    )
    outage_units: tuple[UnitValue, ...] = Field(
        default=(),
        max_length=MAX_OUTAGE_UNITS,
        description="Units of template.topology, by the values of their labels: no Node in them is"
        " Ready, and none comes there. At most 100. Default: none. Example: [pool-a-0-1].",
    )
    flapping: Flapping | None = Field(
        default=None,
        description="Nodes that are not Ready again and again. Default: absent."
        ' Example: {period: 10m, notReady: "0.1"}.',
    )
    devices: CloudDevices | None = Field(
        default=None,
        description="What happens to the devices of nodes that have template.companions or"
        " shape.gpu.dra, not to shared ones. Default: nothing. Example: {after: {fixed: 90s}}.",
        json_schema_extra={"nullable": True},
    )
    api_trouble: bool = Field(
        default=False,
        description="Whether the shim may pretend trouble of the cloud's API for this group, where"
        " it was started with --api-trouble. Default: false.",
    )
