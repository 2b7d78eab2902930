"""cluster-autoscaler as the e2e tests play it: its calls, over its protocol, and its placeholders.

`Shim` runs `kwok-operator shim` as its service account, over a socket file. `Autoscaler` is a
client of it that does what cluster-autoscaler does in a loop: what is asked, in which order, with
which nodes, is taken from how it behaves, not from how the shim is made.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.e2e.groups import nodes_of
from tests.e2e.kubectl import PATIENCE, Kubectl, eventually
from tests.e2e.operator import PROGRAM
from tests.e2e.rights import kubeconfig_of

ACCOUNT = "kwok-operator-shim"
SERVICE = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/"
FAKE_NODE_REASON = "k8s.io/cluster-autoscaler/fake-node-reason"
STATES = {1: "Running", 2: "Creating", 3: "Deleting"}


class Shim:
    """Runs of the shim, one at a time."""

    def __init__(self, *, kubeconfig: Path, directory: Path) -> None:
        self.kubeconfig = kubeconfig
        self.socket = directory / "shim.sock"
        self._directory = directory
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self._directory / "shim.log").read_text()

    def start(self, *flags: str) -> None:
        self.stop()
        with (self._directory / "shim.log").open("ab") as output:
            self._popen = subprocess.Popen(
                [
                    str(PROGRAM),
                    "shim",
                    f"--kubeconfig={self.kubeconfig}",
                    f"--listen=unix:{self.socket}",
                    "--metrics-listen=0",
                    *flags,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._popen is None:
            return 0
        self._popen.send_signal(signal.SIGTERM)
        code = self._popen.wait(PATIENCE)
        self._popen = None
        return code


class Autoscaler:
    """The calls of cluster-autoscaler, to a socket file or to an address as cloud-config has it."""

    def __init__(self, shim: Path | str) -> None:
        self._channel = grpc.insecure_channel(f"unix:{shim}" if isinstance(shim, Path) else shim)

    def close(self) -> None:
        self._channel.close()

    def call(self, name: str, request: Any, answer: Any) -> Any:
        method = self._channel.unary_unary(
            f"{SERVICE}{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return method(request, timeout=PATIENCE)

    def serves(self) -> bool:
        """What a probe is told."""
        check = self._channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
        return bool(check(b"", timeout=PATIENCE) == b"\x08\x01")

    def refresh(self) -> None:
        self.call("Refresh", pb.RefreshRequest(), pb.RefreshResponse)

    def groups(self) -> dict[str, tuple[int, int]]:
        found = self.call("NodeGroups", pb.NodeGroupsRequest(), pb.NodeGroupsResponse)
        return {group.id: (group.minSize, group.maxSize) for group in found.nodeGroups}

    def loop(self) -> dict[str, tuple[int, int]]:
        """The start of a loop."""
        self.refresh()
        return self.groups()

    def target(self, group: str) -> int:
        request = pb.NodeGroupTargetSizeRequest(id=group)
        answer = self.call("NodeGroupTargetSize", request, pb.NodeGroupTargetSizeResponse)
        return int(answer.targetSize)

    def instances(self, group: str) -> dict[str, str]:
        request = pb.NodeGroupNodesRequest(id=group)
        answer = self.call("NodeGroupNodes", request, pb.NodeGroupNodesResponse)
        return {i.id: STATES[i.status.instanceState] for i in answer.instances}

    def failures(self, group: str) -> dict[str, str]:
        """Why instances failed, by id."""
        request = pb.NodeGroupNodesRequest(id=group)
        answer = self.call("NodeGroupNodes", request, pb.NodeGroupNodesResponse)
        return {
            i.id: i.status.errorInfo.errorMessage
            for i in answer.instances
            if i.status.errorInfo.errorCode and i.status.instanceState == 2
        }

    def increase(self, group: str, delta: int) -> None:
        request = pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta)
        self.call("NodeGroupIncreaseSize", request, pb.NodeGroupIncreaseSizeResponse)

    def decrease(self, group: str, delta: int) -> None:
        request = pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta)
        self.call("NodeGroupDecreaseTargetSize", request, pb.NodeGroupDecreaseTargetSizeResponse)

    def delete(self, group: str, *nodes: pb.ExternalGrpcNode) -> None:
        request = pb.NodeGroupDeleteNodesRequest(id=group, nodes=nodes)
        self.call("NodeGroupDeleteNodes", request, pb.NodeGroupDeleteNodesResponse)

    def group_of(self, node: pb.ExternalGrpcNode) -> str:
        request = pb.NodeGroupForNodeRequest(node=node)
        answer = self.call("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
        return str(answer.nodeGroup.id)

    def template(self, group: str) -> bytes:
        request = pb.NodeGroupTemplateNodeInfoRequest(id=group)
        answer = self.call(
            "NodeGroupTemplateNodeInfo", request, pb.NodeGroupTemplateNodeInfoResponse
        )
        return bytes(answer.nodeBytes)

    def knows(self, group: str) -> bool:
        """Whether the shim serves the group and has heard of its template, by a watch of its own:
        what the API server says of the group it may hear a moment later."""
        too_early = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)
        try:
            return group in self.loop() and bool(self.template(group))
        except grpc.RpcError as error:
            assert error.code() in too_early, error
            return False


def as_node(node: dict[str, Any]) -> pb.ExternalGrpcNode:
    """A Node as cluster-autoscaler sends it."""
    metadata = node["metadata"]
    return pb.ExternalGrpcNode(
        providerID=node["spec"].get("providerID", ""),
        name=metadata["name"],
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
    )


def placeholder(provider_id: str, reason: str = "unregistered") -> pb.ExternalGrpcNode:
    """What stands for an instance without a Node."""
    return pb.ExternalGrpcNode(
        providerID=provider_id, name=provider_id, annotations={FAKE_NODE_REASON: reason}
    )


def code_of(call: Any, *arguments: Any) -> tuple[str, str]:
    """The status code and the sentence of a call that fails."""
    with pytest.raises(grpc.RpcError) as failed:
        call(*arguments)
    error: Any = failed.value
    return error.code().name, error.details()


def registered(kubectl: Kubectl, group: str) -> list[pb.ExternalGrpcNode]:
    return [as_node(node) for node in nodes_of(kubectl, group)]


@pytest.fixture(scope="package")
def shim_kubeconfig(
    kubectl: Kubectl,
    crds: None,
    operator_kubeconfig: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The kubeconfig of the shim's service account."""
    file = tmp_path_factory.mktemp("shim") / "kubeconfig"
    file.write_text(kubeconfig_of(kubectl, ACCOUNT))
    return file


@pytest.fixture(scope="module")
def shim(
    shim_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory, crds: None
) -> Iterator[Shim]:
    """The shim runs: one for all tests of a file."""
    shim = Shim(kubeconfig=shim_kubeconfig, directory=tmp_path_factory.mktemp("shim"))
    shim.start()
    yield shim
    shim.stop()


@pytest.fixture(scope="module")
def autoscaler(shim: Shim) -> Iterator[Autoscaler]:
    """A client whose first loop has gone through."""
    client = Autoscaler(shim.socket)

    def ready() -> bool:
        try:
            client.refresh()
        except grpc.RpcError as error:
            raise AssertionError(f"{error}\n{shim.log}") from error
        return True

    eventually(ready, describe="the shim is ready")
    yield client
    client.close()
