"""The objects that belong to a node besides the Node: `spec.template.companions`.

Owns the fields in which CSINodes and ResourceSlices are described, with the names and limits of
storage.k8s.io/v1 and resource.k8s.io/v1. desired.py makes the objects from them, keeper.py keeps
them in the cluster.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kwok_operator.api.base import (
    DNS_NAME,
    ApiModel,
    QualifiedName,
    Quantity,
    Text,
    exactly_one_of,
    rules,
)
from kwok_operator.api.taints import DeviceTaint

_DRIVER_NAME = rf"^{DNS_NAME}$"
_MAX_DRIVER_NAME = 63
MAX_DRIVERS = 16
MAX_NODE_ID = 128
"""The API server accepts 192 characters, of which 63 are reserved for a node's name."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DEVICE_NAME = rf"^{_LABEL}$"
_MAX_DEVICE_NAME = 58
"""The API server accepts 63 characters, of which five are reserved for a number."""
_COUNTER_SET = r"^[a-z0-9{]([-a-z0-9{}]*[a-z0-9}])?$"
MAX_COUNT = 1_024

DriverName = Annotated[
    str,
    Text(
        pattern=_DRIVER_NAME,
        max_length=_MAX_DRIVER_NAME,
        message="must be a DNS name in lower case, such as ebs.csi.aws.com",
    ),
]


DeviceName = Annotated[
    str,
    Text(
        pattern=_DEVICE_NAME,
        max_length=_MAX_DEVICE_NAME,
        message="must be lower-case letters, digits and '-', such as gpu",
    ),
]
CounterSetReference = Annotated[
    str,
    Text(
        pattern=_COUNTER_SET,
        max_length=63,
        message="must be the name of one of sharedCounters, such as gpu-0 or gpu-{index}",
    ),
]

AlikeCount = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_COUNT,
        description="Makes as many alike, called name-0, name-1, ... Default: one, called name."
        " Example: 8.",
    ),
]


class CsiAllocatable(ApiModel):
    count: int = Field(
        ge=0,
        le=1_000_000,
        description="Volumes of the driver that fit on each node. Example: 25.",
    )


class CsiDriver(ApiModel):
    name: DriverName = Field(description="The driver's name. Example: ebs.csi.aws.com.")
    node_id: str = Field(
        default="{node}",
        min_length=1,
        max_length=MAX_NODE_ID,
        validation_alias="nodeID",
        serialization_alias="nodeID",
        description="What the driver calls the node; {node} stands for the node's name."
        " Default: {node}. Example: projects/p/zones/z/instances/{node}.",
    )
    topology_keys: tuple[QualifiedName, ...] = Field(
        default=(),
        max_length=16,
        description="Labels of the node by which the driver knows where it is. Default: none."
        " Example: [topology.ebs.csi.aws.com/zone].",
    )
    allocatable: CsiAllocatable | None = Field(
        default=None,
        description="How many volumes of the driver fit on each node. Default: no limit."
        " Example: {count: 25}.",
        json_schema_extra={"nullable": True},
    )


class CsiNode(ApiModel):
    drivers: tuple[CsiDriver, ...] = Field(
        default=(),
        max_length=MAX_DRIVERS,
        description="The CSI drivers on each node, each once. Default: none."
        " Example: [{name: ebs.csi.aws.com, allocatable: {count: 25}}].",
        json_schema_extra={"x-kubernetes-list-map-keys": ["name"]},
    )


class DeviceAttribute(ApiModel):
    model_config = rules(
        exactly_one_of(
            *("string", "int", "bool", "version"),
            message="must have one value: string, int, bool or version",
        )
    )

    string: str | None = Field(
        default=None,
        max_length=64,
        description="Text; {node} stands for the node's name, {index} for the device's number."
        " Default: none. Example: GPU-{node}-{index}.",
    )
    integer: int | None = Field(
        default=None,
        validation_alias="int",
        serialization_alias="int",
        ge=0,
        le=1_000_000,
        description="A number. Default: none. Example: 9.",
    )
    boolean: bool | None = Field(
        default=None,
        validation_alias="bool",
        serialization_alias="bool",
        description="Yes or no. Default: none. Example: true.",
    )
    version: str | None = Field(
        default=None,
        max_length=64,
        description="A semantic version. Default: none. Example: 12.4.0.",
    )


class DeviceValue(ApiModel):
    value: Quantity = Field(description="How much of it. Example: 80Gi.")


class DeviceCounters(ApiModel):
    counter_set: CounterSetReference = Field(
        description="One of sharedCounters; {index} stands for the device's number."
        " Example: gpu-{index}."
    )
    counters: dict[str, DeviceValue] = Field(
        default_factory=dict,
        max_length=32,
        description="What the device takes of it. Default: nothing."
        " Example: {memory: {value: 10Gi}}.",
    )


class Device(ApiModel):
    name: DeviceName = Field(
        description="The device's name; with count, what the names begin with. Example: gpu."
    )
    count: AlikeCount = None
    attributes: dict[str, DeviceAttribute] = Field(
        default_factory=dict,
        max_length=32,
        description="What claims select by. Default: none."
        " Example: {productName: {string: H100}, cudaComputeCapability: {version: 9.0.0}}.",
    )
    capacity: dict[str, DeviceValue] = Field(
        default_factory=dict,
        max_length=32,
        description="What the device has. Default: nothing. Example: {memory: {value: 80Gi}}.",
    )
    consumes_counters: tuple[DeviceCounters, ...] = Field(
        default=(),
        max_length=2,
        description="What the device takes of sharedCounters when it is allocated. Default:"
        " nothing. Example: [{counterSet: gpu-0, counters: {memory: {value: 10Gi}}}].",
    )
    taints: tuple[DeviceTaint, ...] = Field(
        default=(),
        max_length=8,
        description="Keep claims off that don't tolerate them. Default: none."
        " Example: [{key: example.com/unhealthy, effect: NoSchedule}].",
    )


class CounterSet(ApiModel):
    name: DeviceName = Field(
        description="The set's name; with count, what the names begin with. Example: gpu."
    )
    count: AlikeCount = None
    counters: dict[str, DeviceValue] = Field(
        default_factory=dict,
        max_length=32,
        description="What there is to be shared. Default: nothing."
        " Example: {memory: {value: 80Gi}}.",
    )


class PoolScope(StrEnum):
    NODE = "Node"
    SHARED = "Shared"


class ResourceSlices(ApiModel):
    driver: DriverName = Field(description="The DRA driver's name. Example: gpu.example.com.")
    pool: PoolScope = Field(
        default=PoolScope.NODE,
        description="Whose the devices are: each node has a pool of its own (Node), or all nodes of"
        " the group can use one (Shared). Default: Node.",
    )
    devices: tuple[Device, ...] = Field(
        min_length=1,
        max_length=32,
        description="The devices of the pool. Example: [{name: gpu, count: 8}].",
    )
    shared_counters: tuple[CounterSet, ...] = Field(
        default=(),
        max_length=32,
        description="What devices take from one another, as the partitions of a GPU do. Default:"
        " none. Example: [{name: gpu, count: 8, counters: {memory: {value: 80Gi}}}].",
    )


class Companions(ApiModel):
    csi_node: CsiNode | None = Field(
        default=None,
        description="A CSINode for each node, from which the scheduler and cluster-autoscaler read"
        " how many volumes fit. Default: none."
        " Example: {drivers: [{name: ebs.csi.aws.com, allocatable: {count: 25}}]}.",
        json_schema_extra={"nullable": True},
    )
    resource_slices: tuple[ResourceSlices, ...] = Field(
        default=(),
        max_length=8,
        description="Devices of dynamic resource allocation, by driver, published as"
        " ResourceSlices. Default: none."
        " Example: [{driver: gpu.example.com, devices: [{name: gpu, count: 8}]}].",
        json_schema_extra={"x-kubernetes-list-map-keys": ["driver"]},
    )
