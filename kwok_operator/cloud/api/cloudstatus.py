"""The status of the simulated cloud: `status.cloud`.

Owns the fields. `terms` and `refused` are read back by the operator and by the shim, which both
work out from them in which state each instance is; `instances` and `counts` are for people, and
nobody reads them back.
"""

from typing import Any

from pydantic import Field

from kwok_operator.api.base import ApiModel

MAX_ROWS = 20
MAX_REFUSED = 8


class TermsRecord(ApiModel):
    since: str = Field(
        description="From when on tries to create an instance go by it, in RFC 3339.",
        json_schema_extra={"format": "date-time"},
    )
    cloud: dict[str, Any] = Field(
        default_factory=dict,
        description="The part of spec.cloud that decides on them.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class RefusedRecord(ApiModel):
    serials: str = Field(
        description='Serials as ranges, such as "5,17-20", or as a bitmap where that is shorter.'
    )
    since: str = Field(
        description="When it was decided, in RFC 3339.",
        json_schema_extra={"format": "date-time"},
    )
    pool: str | None = Field(
        default=None, description="The KwokCapacityPool without room. Default: the group's stock."
    )
    reason: str = Field(description="Why, in one word for programs.")
    # Not `alias`: a type checker would then demand a keyword argument named class.
    error_class: str | None = Field(
        default=None,
        validation_alias="class",
        serialization_alias="class",
        description="The kind of error. Default: not refused, but waiting.",
    )
    code: str | None = Field(default=None, description="The cloud's word for it.")
    message: str | None = Field(default=None, description="What the cloud says.")


class InstanceRow(ApiModel):
    state: str = Field(description="The state of these instances.")
    reason: str = Field(description="Why, in one word for programs.")
    count: int = Field(description="How many they are.")
    serials: str = Field(
        description='Their serials as ranges; ends in "..." where there are more. Example:'
        ' "5,17-20".'
    )
    since: str = Field(
        description="Since when the first of them is in this state, in RFC 3339.",
        json_schema_extra={"format": "date-time"},
    )
    message: str | None = Field(default=None, description="What the cloud said to the first.")


class InstanceCounts(ApiModel):
    """The number of instances in each State; those that are Due count as creating."""

    waiting: int = Field(default=0, description="Instances not decided on, or held up.")
    creating: int = Field(default=0, description="Instances on their way.")
    failed: int = Field(default=0, description="Instances that could not be created.")
    unregistered: int = Field(
        default=0, description="Instances that run, and that no Node comes of."
    )
    starting: int = Field(default=0, description="Instances whose Node takes no pods yet.")
    initializing: int = Field(
        default=0,
        description="Instances that are Ready, with startup taints or without all resources.",
    )
    ready: int = Field(default=0, description="Instances whose Node is as it should be.")
    not_ready: int = Field(default=0, description="Instances whose Node is not Ready any more.")
    interrupted: int = Field(default=0, description="Instances under notice.")
    deleting: int = Field(default=0, description="Instances to be deleted, and stuck in it.")


class CloudStatus(ApiModel):
    terms: tuple[TermsRecord, ...] = Field(
        default=(),
        description="What of spec.cloud holds for instances that were asked for and aren't there,"
        " by time: an edit applies to what is decided later.",
    )
    refused: tuple[RefusedRecord, ...] = Field(
        default=(),
        description="Instances that found no room, or for which that is not decided yet.",
    )
    instances: tuple[InstanceRow, ...] = Field(
        default=(),
        description="Instances that have no Node, by state and reason. At most 20 rows.",
    )
    counts: InstanceCounts | None = Field(
        default=None, description="How many instances are in each state."
    )
