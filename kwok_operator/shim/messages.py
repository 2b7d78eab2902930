"""Converts between our values and the bytes of cluster-autoscaler's messages.

    request bytes ──read, options_request──> values
    values ──instances, options, template, ...──> response bytes

Only this module knows the old and the new fields of the protocol (see externalgrpc.proto): it reads
either in requests, and writes both into answers. What to answer is decided in service.py.

A request is decoded as a whole, even if only two of its strings are needed. A call about one node
takes 200 µs; decoding takes at most 2 of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from kwok_operator.shim.grpcwire import RpcError, StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.proto import kubernetes_pb2 as k8s

M = TypeVar("M", bound=Message)

SECOND: Final = 10**9
"""Nanoseconds in a second; durations in the protocol are in nanoseconds."""
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
_LONGEST: Final = 2**63 - 1


def read(kind: type[M], request: bytes) -> M:
    """Decodes a request. Raises RpcError (INVALID_ARGUMENT) if the bytes are no such message."""
    try:
        return kind.FromString(request)
    except DecodeError as error:
        raise RpcError(
            StatusCode.INVALID_ARGUMENT,
            f"the {len(request)} bytes are no {kind.DESCRIPTOR.full_name}",
        ) from error


RUNNING: Final = pb.InstanceStatus.instanceRunning
CREATING: Final = pb.InstanceStatus.instanceCreating
DELETING: Final = pb.InstanceStatus.instanceDeleting


class InstanceErrorClass(IntEnum):
    """The class of a failure: no resources left, or anything else. cluster-autoscaler shows the
    class, but acts the same way on either."""

    OUT_OF_RESOURCES = 1
    OTHER = 99


class InstanceFailure(NamedTuple):
    """Why an instance can't be created. `code` is never empty, as cluster-autoscaler ignores
    failures without one.
    """

    code: str
    message: str
    kind: InstanceErrorClass = InstanceErrorClass.OTHER


class ExternalInstance(NamedTuple):
    """An instance as cluster-autoscaler gets it; `provider_id` equals the Node's exactly.

    cluster-autoscaler heeds a failure only while the instance is CREATING.
    """

    provider_id: str
    state: pb.InstanceStatus.InstanceState
    failure: InstanceFailure | None = None


def node_groups(groups: Iterable[pb.NodeGroup]) -> bytes:
    return pb.NodeGroupsResponse(nodeGroups=groups).SerializeToString()


def node_group_for_node(group: pb.NodeGroup | None) -> bytes:
    """Encodes the group of a node. If the node has none, the answer is a group without an id."""
    return pb.NodeGroupForNodeResponse(nodeGroup=group or pb.NodeGroup()).SerializeToString()


def target_size(nodes: int) -> bytes:
    return pb.NodeGroupTargetSizeResponse(targetSize=nodes).SerializeToString()


def instances(group: Iterable[ExternalInstance]) -> bytes:
    response = pb.NodeGroupNodesResponse()
    for provider_id, state, failure in group:
        status = response.instances.add(id=provider_id).status
        status.instanceState = state
        if failure is not None:
            status.errorInfo.errorCode = failure.code
            status.errorInfo.errorMessage = failure.message
            status.errorInfo.instanceErrorClass = failure.kind
    return response.SerializeToString()


def template(node: bytes) -> bytes:
    """Encodes a template. `node` is a core/v1 Node and must not be empty, as cluster-autoscaler
    would crash."""
    response = pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=node, nodeBytes=node)
    return response.SerializeToString()


def gpu_label(label: str) -> bytes:
    return pb.GPULabelResponse(label=label).SerializeToString()


def gpu_types(types: Iterable[str]) -> bytes:
    empty = {name: Any() for name in types}
    return pb.GetAvailableGPUTypesResponse(gpuTypes=empty).SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """cluster-autoscaler's options for one group. The defaults of the fields are
    cluster-autoscaler's own; times are in nanoseconds."""

    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    scale_down_unneeded_time: int = 10 * MINUTE
    scale_down_unready_time: int = 20 * MINUTE
    max_node_provision_time: int = 15 * MINUTE
    zero_or_max_node_scaling: bool = False
    ignore_daemon_sets_utilization: bool = False


_DEFAULTS: Final = GroupOptions()
_TIMES: Final = {
    "scale_down_unneeded_time": ("scaleDownUnneededDuration", "scaleDownUnneededTime"),
    "scale_down_unready_time": ("scaleDownUnreadyDuration", "scaleDownUnreadyTime"),
    "max_node_provision_time": ("MaxNodeProvisionDuration", "MaxNodeProvisionTime"),
}
"""For each option its fields in the two generations of the protocol, the new one first."""


def options_request(request: bytes) -> tuple[str, GroupOptions]:
    """Returns the name of the group that a request names, and the options to use where the group
    sets none.

    Times that the request leaves out get cluster-autoscaler's own defaults: zero would mean that
    nodes are removed at once.
    """
    call = read(pb.NodeGroupAutoscalingOptionsRequest, request)
    if not call.HasField("defaults"):
        return call.id, _DEFAULTS
    given = call.defaults
    times = {field: _time(given, *fields) for field, fields in _TIMES.items()}
    defaults = replace(
        _DEFAULTS,
        scale_down_utilization_threshold=given.scaleDownUtilizationThreshold,
        scale_down_gpu_utilization_threshold=given.scaleDownGpuUtilizationThreshold,
        zero_or_max_node_scaling=given.zeroOrMaxNodeScaling,
        ignore_daemon_sets_utilization=given.ignoreDaemonSetsUtilization,
        **{field: time for field, time in times.items() if time is not None},
    )
    return call.id, defaults


def options(wanted: GroupOptions) -> bytes:
    """Encodes all options: cluster-autoscaler takes an option that is left out for 0, or
    crashes."""
    answer = pb.NodeGroupAutoscalingOptions(
        scaleDownUtilizationThreshold=wanted.scale_down_utilization_threshold,
        scaleDownGpuUtilizationThreshold=wanted.scale_down_gpu_utilization_threshold,
        zeroOrMaxNodeScaling=wanted.zero_or_max_node_scaling,
        ignoreDaemonSetsUtilization=wanted.ignore_daemon_sets_utilization,
    )
    for field, (new, old) in _TIMES.items():
        time: int = getattr(wanted, field)
        getattr(answer, new).FromNanoseconds(time)
        getattr(answer, new).SetInParent()
        getattr(answer, old).duration = time
        getattr(answer, old).SetInParent()
    response = pb.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=answer)
    return response.SerializeToString()


def _time(given: pb.NodeGroupAutoscalingOptions, new: str, old: str) -> int | None:
    if given.HasField(new):
        duration: Duration = getattr(given, new)
        # The older generation of fields has 63 bits for it.
        return max(-_LONGEST, min(duration.seconds * SECOND + duration.nanos, _LONGEST))
    if given.HasField(old):
        nanoseconds: int = getattr(given, old).duration
        return nanoseconds
    return None


def pod_of(call: pb.PricingPodPriceRequest) -> k8s.Pod:
    """Decodes the pod in a request for its price. Raises RpcError."""
    return read(k8s.Pod, call.pod_bytes or call.pod)


def price(amount: float) -> bytes:
    """Encodes the price of a node or of a pod."""
    return pb.PricingNodePriceResponse(price=amount).SerializeToString()


def hours(call: pb.PricingNodePriceRequest | pb.PricingPodPriceRequest) -> float:
    """Returns for how many hours a price is requested."""
    start: Timestamp | k8s.Time = call.startTime
    end: Timestamp | k8s.Time = call.endTime
    if call.HasField("startTimestamp") and call.HasField("endTimestamp"):
        start, end = call.startTimestamp, call.endTimestamp
    seconds, nanos = end.seconds - start.seconds, end.nanos - start.nanos
    return (seconds * SECOND + nanos) / HOUR
