"""KwokPodProfile: how pods on fake nodes start, run, fail, end and use resources.

Owns the fields of its spec and its status. The other modules of this folder compile a profile to
Stages and usage objects for kwok. An empty spec leaves pods as they are on kwok without a profile.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kwok_operator.api.base import (
    ApiModel,
    ApiRule,
    LabelValue,
    ObjectName,
    Quantity,
    Text,
    all_match,
    at_least_one_of,
    exactly_one_of,
    matches,
    rules,
)
from kwok_operator.api.selectors import SelectorRequirement
from kwok_operator.cloud.api.delay import Delay, Time
from kwok_operator.nodegroups.api.autoscaling import Share
from kwok_operator.nodegroups.api.status import Condition

MAX_FAILURES = 8
MAX_PRIORITY = 1_000_000
KILLED_EXIT_CODE = 137
"""128 + 9 (SIGKILL): the exit code of a container that ran out of memory."""
FAILED_EXIT_CODE = 1

_ONE_RANGE = r"[0-9]{1,9}(-[0-9]{1,9})?"
_INDEXES = rf"^{_ONE_RANGE}(,{_ONE_RANGE})*$"
_PERCENT = r"[0-9]{1,4}%"
_AMOUNT = r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"
_LEVEL = rf"^({_PERCENT}|{_AMOUNT})$"
_FACTOR = r"^[0-9]{1,3}(\.[0-9]{1,6})?$"

Indexes = Annotated[
    str,
    Text(
        pattern=_INDEXES,
        min_length=1,
        max_length=256,
        message='must be indexes or ranges of them, such as "3,10-19"',
    ),
]
"""Indexes such as "3,10-19". A range whose first number is the greater one is empty."""

Level = Annotated[
    str,
    Text(
        pattern=_LEVEL,
        min_length=1,
        max_length=32,
        message='must be an amount such as "500m" or "2Gi", or a percentage of the requests such as'
        ' "80%"',
    ),
]
"""An amount, or a percentage of what the container requests."""

Factor = Annotated[
    str,
    Text(
        pattern=_FACTOR,
        min_length=1,
        max_length=10,
        message='must be a number as text, such as "0.8" or "1.2"',
    ),
]
"""A number as text, not negative."""


_MESSAGE = r"^[^\x00-\x1f\x7f-\x9f]*$"

Message = Annotated[
    str,
    Text(
        pattern=_MESSAGE,
        min_length=0,
        max_length=256,
        message="must have no control characters, which kwok can't write",
    ),
]
"""A sentence for a pod's status."""


class LabelSelector(ApiModel):
    """A label selector, as in the API of Kubernetes."""

    match_labels: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Labels that it has. Default: none. Example: {app: batch}.",
    )
    match_expressions: tuple[SelectorRequirement, ...] = Field(
        default=(),
        max_length=64,
        description="Further conditions on its labels. Default: none."
        " Example: [{key: tier, operator: NotIn, values: [system]}].",
    )


class Start(ApiModel):
    delay: Delay | None = Field(
        default=None,
        description="From when a pod is bound until its first container runs: pulling images,"
        " starting. Default: none. Example: {lognormal: {p50: 8s, p99: 1m}}.",
    )
    init_containers: tuple[Delay, ...] = Field(
        default=(),
        max_length=8,
        description="How long each init container runs, in order; the last holds for all that"
        " follow. Sidecars start at once. At most 8. Default: they are done at once."
        " Example: [{fixed: 5s}].",
    )
    ready_delay: Delay | None = Field(
        default=None,
        description="From when the containers run until the pod is Ready. Default: none."
        " Example: {uniform: {min: 2s, max: 10s}}.",
    )


class Run(ApiModel):
    duration: Delay | None = Field(
        default=None,
        description="How long the containers run until the pod has Succeeded. Pods with"
        " restartPolicy Always never do. Default: for ever; the pods of Jobs end as kwok's own"
        " Stages say. Example: {lognormal: {p50: 5m, p99: 20m}}.",
    )


class FailureType(StrEnum):
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
    ERROR = "Error"
    OOM_KILLED = "OOMKilled"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    EVICTED = "Evicted"


NEVER_START = (FailureType.IMAGE_PULL_BACK_OFF, FailureType.CREATE_CONTAINER_CONFIG_ERROR)
"""The failures after which no container ever runs."""


class Failure(ApiModel):
    model_config = rules(
        at_least_one_of(
            *("probability", "indexes"),
            message="must have probability, indexes or both, to say which pods fail",
        ),
        ApiRule(
            "!has(self.exitCode) || self.type in ['Error', 'OOMKilled', 'CrashLoopBackOff']",
            "exitCode must not be given where no container exits: leave it out, or choose another"
            " type",
            lambda failure: (
                "exitCode" not in failure
                or failure["type"] in ("Error", "OOMKilled", "CrashLoopBackOff")
            ),
        ),
    )

    type: FailureType = Field(
        description="What goes wrong: ImagePullBackOff, CreateContainerConfigError (the pod never"
        " starts), Error, OOMKilled (its first container fails), CrashLoopBackOff (it fails each"
        " time that it starts) or Evicted (the pod fails)."
    )
    probability: Share | None = Field(
        default=None,
        description="Share of the pods that it happens to, drawn for each (0 to 1). Default: those"
        ' in indexes only. Example: "0.05".',
    )
    indexes: Indexes | None = Field(
        default=None,
        description="Pods that it happens to for certain, each time: the completion index of an"
        ' indexed Job, the ordinal in a StatefulSet. Default: none. Example: "3,10-19".',
    )
    after: Delay | None = Field(
        default=None,
        description="When it happens: from when the containers run, or from when the pod is bound"
        " if it never starts. A pod that is to fail does so no later than its run would end."
        " Default: at once. Example: {exponential: {mean: 10m}}.",
    )
    exit_code: int | None = Field(
        default=None,
        ge=1,
        le=255,
        description="What the container exits with. Default: 137 for OOMKilled, else 1.",
    )
    message: Message | None = Field(
        default=None,
        description="What the pod's status says about it. Default: what a kubelet says.",
    )


class Termination(ApiModel):
    delay: Delay | None = Field(
        default=None,
        description="From when a pod is deleted until it is gone; its grace period is the longest."
        " Default: none. Example: {uniform: {min: 1s, max: 20s}}.",
    )


class Ramp(ApiModel):
    # Not named `from`, which is a keyword of Python.
    start: Level = Field(
        validation_alias="from",
        serialization_alias="from",
        description='What it uses at first. Example: "10%".',
    )
    to: Level = Field(description='What it uses in the end. Example: "2Gi".')
    over: Time = Field(
        description="From the pod's start, init containers and all, until it uses that."
        " Example: 30m."
    )


class Wave(ApiModel):
    model_config = rules(
        ApiRule(
            f"!has(self.period) || !{matches(r'^[0hms]+$', of='self.period')}",
            "wave.period must be longer than 0s",
            lambda wave: not all_match(r"[0hms]+", [wave.get("period", "24h")]),
        )
    )

    min: Level = Field(description='What it uses at the least. Example: "10%".')
    max: Level = Field(description='What it uses at the peak. Example: "90%".')
    period: Time = Field(
        default="24h", description="From one peak to the next. Default: 24h. Example: 1h."
    )
    peak_at: Time = Field(
        default="14h",
        description="When the peak is, counted from midnight UTC (periods start there on"
        " 1 January 1970). Default: 14h.",
    )


class ResourceUse(ApiModel):
    """How much of a resource each container of a running pod uses."""

    model_config = rules(exactly_one_of("constant", "shareOfRequests", "ramp", "wave"))

    constant: Quantity | None = Field(
        default=None, description='Always as much. Default: not this way. Example: "250m".'
    )
    share_of_requests: Factor | None = Field(
        default=None,
        description="So many times what the container requests. Default: not this way."
        ' Example: "0.8".',
    )
    ramp: Ramp | None = Field(
        default=None,
        description="From one amount to another, from when the pod starts."
        ' Example: {from: "10%", to: "90%", over: 30m}.',
    )
    wave: Wave | None = Field(
        default=None,
        description='Up and down by the clock, as a day does. Example: {min: "10%", max: "90%"}.',
    )


class Usage(ApiModel):
    cpu: ResourceUse | None = Field(
        default=None, description='CPU. Default: none is used. Example: {shareOfRequests: "0.8"}.'
    )
    memory: ResourceUse | None = Field(
        default=None, description="Memory. Default: none is used. Example: {constant: 200Mi}."
    )


class KwokPodProfileSpec(ApiModel):
    namespace_selector: LabelSelector | None = Field(
        default=None,
        description="Namespaces whose pods it is for, by their labels. Default: all."
        " Example: {matchLabels: {team: batch}}.",
    )
    pod_selector: LabelSelector | None = Field(
        default=None,
        description="Pods that it is for, by their labels. Default: all."
        " Example: {matchLabels: {app: worker}}.",
    )
    node_groups: tuple[ObjectName, ...] = Field(
        default=(),
        max_length=64,
        description="Groups on whose nodes it holds. At most 64. Default: all fake nodes."
        " Example: [gpu-b].",
    )
    priority: int = Field(
        default=0,
        ge=0,
        le=MAX_PRIORITY,
        description="Of several profiles for a pod the one with the greatest priority holds, then"
        " the first by name. Default: 0.",
    )
    seed: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="What every draw is made from: the same seed gives a pod of the same name, or"
        " of the same index of a Job of the same name, the same life. Default: the profile's name."
        " Example: run-1.",
    )
    start: Start = Field(default_factory=Start, description="How pods start. Default: at once.")
    run: Run = Field(default_factory=Run, description="How long they run. Default: for ever.")
    failures: tuple[Failure, ...] = Field(
        default=(),
        max_length=MAX_FAILURES,
        description="What goes wrong. Of those that name a pod's index the first holds, else one is"
        " drawn; probabilities add up, beyond 1 they don't count. At most 8. Default: nothing."
        ' Example: [{type: OOMKilled, probability: "0.05", after: {fixed: 2m}}].',
    )
    termination: Termination = Field(
        default_factory=Termination, description="How deleted pods go. Default: at once."
    )
    usage: Usage = Field(
        default_factory=Usage,
        description="CPU and memory in use, for kubectl top and autoscalers of pods. Default: as"
        " kwok's other usage objects say.",
    )


class ProfileConditionType(StrEnum):
    COMPILED = "Compiled"
    """The Stages of its spec could be made."""
    STAGES_PRESENT = "StagesPresent"
    """Its Stages are in the cluster, and kwok can play them."""
    OVERLAPPING = "Overlapping"
    """Another profile holds for some of its pods."""


class ProfileCondition(Condition):
    type: str = Field(
        description="What the condition is about: Compiled, StagesPresent or Overlapping."
    )


class KwokPodProfileStatus(ApiModel):
    observed_generation: int | None = Field(
        default=None, description="The metadata.generation that this status belongs to."
    )
    stages: int = Field(default=0, description="Stages that the profile was compiled to.")
    namespaces: int | None = Field(
        default=None, description="Namespaces that it selects; absent where it holds in all."
    )
    conditions: tuple[ProfileCondition, ...] = Field(
        default=(),
        description="How the profile is doing.",
        json_schema_extra={"x-kubernetes-list-map-keys": ["type"]},
    )
