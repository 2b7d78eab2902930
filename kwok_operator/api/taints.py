"""Taints of devices (DRA). Devices of a template, and failing devices of a simulated cloud, have
such taints."""

from enum import StrEnum

from pydantic import Field

from kwok_operator.api.base import ApiModel, LabelValue, QualifiedName


class DeviceTaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"
    NONE = "None"


class DeviceTaint(ApiModel):
    key: QualifiedName = Field(description="The taint's key. Example: example.com/unhealthy.")
    value: LabelValue = Field(
        default="", description='The taint\'s value. Default: empty. Example: "true".'
    )
    effect: DeviceTaintEffect = Field(
        description="What happens to claims that don't tolerate it: NoSchedule keeps new ones away,"
        " NoExecute evicts pods as well, None does nothing."
    )
