"""The .proto files say what cluster-autoscaler, Kubernetes and gRPC mean."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.proto import health_pb2
from kwok_operator.shim.proto import kubernetes_pb2 as k8s

PACKAGE = "clusterautoscaler.cloudprovider.v1.externalgrpc"
CALLS = """
NodeGroups NodeGroupForNode PricingNodePrice PricingPodPrice GPULabel GetAvailableGPUTypes Cleanup
Refresh NodeGroupTargetSize NodeGroupIncreaseSize NodeGroupDeleteNodes NodeGroupDecreaseTargetSize
NodeGroupNodes NodeGroupTemplateNodeInfo NodeGroupGetOptions
"""
OF_ANOTHER_NAME = {"NodeGroupGetOptions": "NodeGroupAutoscalingOptions"}
"""The request and the response of a call, where they aren't called like it."""

EXTERNALGRPC = """
NodeGroup: id 1 string, minSize 2 int32, maxSize 3 int32, debug 4 string
ExternalGrpcNode: providerID 1 string, name 2 string, labels 3 map, annotations 4 map
NodeGroupsRequest:
NodeGroupsResponse: nodeGroups 1 NodeGroup*
NodeGroupForNodeRequest: node 1 ExternalGrpcNode
NodeGroupForNodeResponse: nodeGroup 1 NodeGroup
PricingNodePriceRequest: node 1 ExternalGrpcNode, startTime 2 Time, endTime 3 Time, startTimestamp 4 Timestamp, endTimestamp 5 Timestamp
PricingNodePriceResponse: price 1 double
PricingPodPriceRequest: pod 1 bytes, startTime 2 Time, endTime 3 Time, pod_bytes 4 bytes, startTimestamp 5 Timestamp, endTimestamp 6 Timestamp
PricingPodPriceResponse: price 1 double
GPULabelRequest:
GPULabelResponse: label 1 string
GetAvailableGPUTypesRequest:
GetAvailableGPUTypesResponse: gpuTypes 1 map
CleanupRequest:
CleanupResponse:
RefreshRequest:
RefreshResponse:
NodeGroupTargetSizeRequest: id 1 string
NodeGroupTargetSizeResponse: targetSize 1 int32
NodeGroupIncreaseSizeRequest: delta 1 int32, id 2 string
NodeGroupIncreaseSizeResponse:
NodeGroupDeleteNodesRequest: nodes 1 ExternalGrpcNode*, id 2 string
NodeGroupDeleteNodesResponse:
NodeGroupDecreaseTargetSizeRequest: delta 1 int32, id 2 string
NodeGroupDecreaseTargetSizeResponse:
NodeGroupNodesRequest: id 1 string
NodeGroupNodesResponse: instances 1 Instance*
Instance: id 1 string, status 2 InstanceStatus
InstanceStatus: instanceState 1 InstanceState, errorInfo 2 InstanceErrorInfo
InstanceErrorInfo: errorCode 1 string, errorMessage 2 string, instanceErrorClass 3 int32
NodeGroupTemplateNodeInfoRequest: id 1 string
NodeGroupTemplateNodeInfoResponse: nodeInfo 1 bytes, nodeBytes 2 bytes
NodeGroupAutoscalingOptions: scaleDownUtilizationThreshold 1 double, scaleDownGpuUtilizationThreshold 2 double, scaleDownUnneededTime 3 Duration, scaleDownUnreadyTime 4 Duration, MaxNodeProvisionTime 5 Duration, zeroOrMaxNodeScaling 6 bool, ignoreDaemonSetsUtilization 7 bool, scaleDownUnneededDuration 8 Duration, scaleDownUnreadyDuration 9 Duration, MaxNodeProvisionDuration 10 Duration
NodeGroupAutoscalingOptionsRequest: id 1 string, defaults 2 NodeGroupAutoscalingOptions
NodeGroupAutoscalingOptionsResponse: nodeGroupAutoscalingOptions 1 NodeGroupAutoscalingOptions
"""  # noqa: E501 - a message a line

KUBERNETES = """
Node: metadata 1 ObjectMeta, spec 2 NodeSpec, status 3 NodeStatus
ObjectMeta: name 1 string, generateName 2 string, namespace 3 string, uid 5 string, resourceVersion 6 string, generation 7 int64, creationTimestamp 8 Time, deletionTimestamp 9 Time, deletionGracePeriodSeconds 10 int64?, labels 11 map, annotations 12 map, ownerReferences 13 OwnerReference*, finalizers 14 string*
OwnerReference: kind 1 string, name 3 string, uid 4 string, apiVersion 5 string, controller 6 bool?, blockOwnerDeletion 7 bool?
Time: seconds 1 int64, nanos 2 int32
Duration: duration 1 int64
Quantity: string 1 string
NodeSpec: podCIDR 1 string, providerID 3 string, unschedulable 4 bool, taints 5 Taint*, podCIDRs 7 string*
Taint: key 1 string, value 2 string, effect 3 string, timeAdded 4 Time
NodeStatus: capacity 1 map, allocatable 2 map, phase 3 string, conditions 4 NodeCondition*, addresses 5 NodeAddress*, daemonEndpoints 6 NodeDaemonEndpoints, nodeInfo 7 NodeSystemInfo, images 8 ContainerImage*, volumesInUse 9 string*, volumesAttached 10 AttachedVolume*, runtimeHandlers 12 NodeRuntimeHandler*, features 13 NodeFeatures, declaredFeatures 14 string*
NodeCondition: type 1 string, status 2 string, lastHeartbeatTime 3 Time, lastTransitionTime 4 Time, reason 5 string, message 6 string
NodeAddress: type 1 string, address 2 string
NodeDaemonEndpoints: kubeletEndpoint 1 DaemonEndpoint
DaemonEndpoint: Port 1 int32
NodeSystemInfo: machineID 1 string, systemUUID 2 string, bootID 3 string, kernelVersion 4 string, osImage 5 string, containerRuntimeVersion 6 string, kubeletVersion 7 string, kubeProxyVersion 8 string, operatingSystem 9 string, architecture 10 string, swap 11 NodeSwapStatus
NodeSwapStatus: capacity 1 int64?
ContainerImage: names 1 string*, sizeBytes 2 int64
AttachedVolume: name 1 string, devicePath 2 string
NodeRuntimeHandler: name 1 string, features 2 NodeRuntimeHandlerFeatures
NodeRuntimeHandlerFeatures: recursiveReadOnlyMounts 1 bool?, userNamespaces 2 bool?
NodeFeatures: supplementalGroupsPolicy 1 bool?
Pod: metadata 1 ObjectMeta, spec 2 PodSpec
PodSpec: containers 2 Container*, initContainers 20 Container*, overhead 32 map, resources 40 ResourceRequirements
Container: name 1 string, resources 8 ResourceRequirements, restartPolicy 24 string
ResourceRequirements: limits 1 map, requests 2 map
Unknown: typeMeta 1 TypeMeta, raw 2 bytes, contentEncoding 3 string, contentType 4 string
TypeMeta: apiVersion 1 string, kind 2 string
"""  # noqa: E501

HEALTH = """
HealthCheckRequest: service 1 string
HealthCheckResponse: status 1 ServingStatus
"""

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def messages(file: Any) -> Iterator[str]:
    """A line for each message, as in the tables."""
    for message in file.message_types_by_name.values():
        fields = [f"{f.name} {f.number} {type_of(f)}" for f in message.fields]
        yield f"{message.name}: {', '.join(fields)}".strip()


def type_of(field: Any) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "map"
    named = field.message_type or field.enum_type
    name: str = named.name if named else SCALARS[field.type]
    # The compiler puts an `optional` field into a oneof of its own.
    optional = field.containing_oneof is not None and field.containing_oneof.name.startswith("_")
    return f"{name}{'*' if field.is_repeated else '?' if optional else ''}"


def test_each_field_has_its_number_and_its_type() -> None:
    tables = {pb: EXTERNALGRPC, k8s: KUBERNETES, health_pb2: HEALTH}
    for module, table in tables.items():
        assert list(messages(module.DESCRIPTOR)) == table.strip().splitlines()


def test_each_call_has_its_name_its_request_and_its_response() -> None:
    (service,) = pb.DESCRIPTOR.services_by_name.values()
    assert service.full_name == f"{PACKAGE}.CloudProvider"
    calls = {m.name: (m.input_type.name, m.output_type.name) for m in service.methods}
    names = {name: OF_ANOTHER_NAME.get(name, name) for name in CALLS.split()}
    assert calls == {name: (f"{of}Request", f"{of}Response") for name, of in names.items()}
    assert not any(m.client_streaming or m.server_streaming for m in service.methods)


def test_health_has_the_name_that_clients_know() -> None:
    (health,) = health_pb2.DESCRIPTOR.services_by_name.values()
    assert health.full_name == "grpc.health.v1.Health"
    assert [m.name for m in health.methods] == ["Check"]


def test_the_states_of_instances_and_of_health_have_their_numbers() -> None:
    assert dict(pb.InstanceStatus.InstanceState.items()) == {
        "unspecified": 0,
        "instanceRunning": 1,
        "instanceCreating": 2,
        "instanceDeleting": 3,
    }
    assert dict(health_pb2.HealthCheckResponse.ServingStatus.items()) == {
        "UNKNOWN": 0,
        "SERVING": 1,
        "NOT_SERVING": 2,
        "SERVICE_UNKNOWN": 3,
    }


def test_an_empty_text_that_kubernetes_writes_means_nothing() -> None:
    taint = k8s.Taint.FromString(b"\x0a\x01k\x12\x00\x1a\x0aNoSchedule")
    assert taint == k8s.Taint(key="k", effect="NoSchedule")


def test_a_pointer_to_false_or_zero_is_not_the_same_as_none() -> None:
    owner = k8s.OwnerReference.FromString(b"\x30\x00")
    assert owner.HasField("controller")
    assert not owner.HasField("blockOwnerDeletion")


def test_a_field_of_a_newer_kubernetes_is_no_error() -> None:
    assert k8s.Node.FromString(b"\x0a\x03\x0a\x01n\xfa\x07\x01x").metadata.name == "n"
