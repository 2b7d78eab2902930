"""cluster-autoscaler's calls that only read, on a store to put things into."""

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from kwok_operator.nodegroups.client import Group
from kwok_operator.shim.grpcwire import Handler, RpcError
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import SERVICE, CloudProvider
from tests.fakes import recording
from tests.fakes.shimstore import group_of, store_of

TEMPLATE = {
    "metadata": {"labels": {"a.b/gpu": "h100", "kubernetes.io/arch": "amd64"}},
    "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}},
}
NOW = 1_767_323_045.0
"""Where its clock stands at first, in epoch seconds."""
STATES = {1: "Running", 2: "Creating", 3: "Deleting"}


class Clock(recording.Clock):
    """Stands still at NOW until it is set."""

    def __init__(self) -> None:
        super().__init__(NOW)


class Shim:
    """A store to put things into, and the calls on it."""

    def __init__(
        self,
        *groups: Group,
        synced: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store_of(*groups, synced=synced, clock=clock)
        writer: Any = None
        self.provider = CloudProvider(store=self.store, writer=writer)
        self.calls = self.provider.handlers()

    def raw(self, name: str, request: bytes) -> bytes:
        answer: Any = self.calls[f"{SERVICE}{name}"](request)
        return answer if isinstance(answer, bytes) else result_of(answer)

    def ask(self, name: str, request: Any, answer: Any) -> Any:
        return answer.FromString(self.raw(name, request.SerializeToString()))

    def groups(self) -> dict[str, tuple[int, int]]:
        found = self.ask("NodeGroups", pb.NodeGroupsRequest(), pb.NodeGroupsResponse).nodeGroups
        return {group.id: (group.minSize, group.maxSize) for group in found}

    def loop(self) -> dict[str, tuple[int, int]]:
        assert self.raw("Refresh", b"") == b""
        return self.groups()

    def group_of(self, **node: Any) -> str:
        request = pb.NodeGroupForNodeRequest(node=pb.ExternalGrpcNode(**node))
        found = self.ask("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
        return str(found.nodeGroup.id)

    def instances(self, group: str = "web") -> dict[str, str]:
        request = pb.NodeGroupNodesRequest(id=group)
        found = self.ask("NodeGroupNodes", request, pb.NodeGroupNodesResponse).instances
        return {i.id: STATES[i.status.instanceState] for i in found}

    def template(self, group: str = "web") -> pb.NodeGroupTemplateNodeInfoResponse:
        request = pb.NodeGroupTemplateNodeInfoRequest(id=group)
        found = self.ask("NodeGroupTemplateNodeInfo", request, pb.NodeGroupTemplateNodeInfoResponse)
        assert isinstance(found, pb.NodeGroupTemplateNodeInfoResponse)
        return found

    def label(self) -> str:
        return str(self.ask("GPULabel", pb.GPULabelRequest(), pb.GPULabelResponse).label)


def result_of(call: Coroutine[None, None, bytes]) -> bytes:
    """Of a call that waits for nothing but its turn."""
    while True:
        try:
            call.send(None)
        except StopIteration as end:
            answer: bytes = end.value
            return answer


async def called(handlers: Mapping[str, Handler], name: str, request: bytes) -> bytes:
    """The answer of an RPC's handler, whether it waits or not."""
    answer = handlers[f"{SERVICE}{name}"](request)
    return answer if isinstance(answer, bytes) else await answer


def options_are_given(shim: Shim, name: str = "web") -> bool:
    """Whether the group's options are told, or cluster-autoscaler's flags hold for a moment."""
    request = pb.NodeGroupAutoscalingOptionsRequest(id=name)
    request.defaults.MaxNodeProvisionDuration.FromSeconds(900)
    try:
        shim.ask("NodeGroupGetOptions", request, pb.NodeGroupAutoscalingOptionsResponse)
    except RpcError as error:
        assert (error.code.name, error.message) == (
            "UNIMPLEMENTED",
            "a node of the group is still starting",
        )
        return False
    return True


def code_of(call: Any, *arguments: Any, **named: Any) -> tuple[str, str]:
    with pytest.raises(RpcError) as refused:
        call(*arguments, **named)
    assert "\n" not in refused.value.message
    return refused.value.code.name, refused.value.message


def with_template(hash_: str, **more: Any) -> Group:
    status = {"resolvedTemplate": TEMPLATE, "templateHash": hash_, **more.pop("status", {})}
    return group_of(status=status, **more)
