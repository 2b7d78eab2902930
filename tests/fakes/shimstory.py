"""A group on a fake API server, a shim that drives it, and an operator to be played by a test."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import CloudProvider
from kwok_operator.shim.writer import TargetWriter
from tests.fakes.apiserver import GROUPS, FakeApiServer
from tests.fakes.protobuf import put
from tests.fakes.shimcalls import NOW, STATES, called
from tests.fakes.shimstore import node_of, pending, store_of

REASON = "k8s.io/cluster-autoscaler/fake-node-reason"


class Story:
    """A group `web` on an API server, an operator to be played, and a shim."""

    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.nodes: set[int] = set()
        body = {
            "apiVersion": "kwok-operator.io/v1alpha1",
            "kind": "KwokNodeGroup",
            "metadata": {"name": "web"},
            "spec": {"targetSize": 0, "autoscaling": {"minSize": 0, "maxSize": 100}},
        }
        server.create(GROUPS, body)
        self.start_shim()

    def start_shim(self) -> None:
        """Another one, that has listed everything."""
        # The moment at which what is `pending` was asked for.
        self.store = store_of(clock=lambda: NOW)
        writer = TargetWriter(
            client=self.client,
            store=self.store,
            clock=asyncio.get_running_loop().time,
            patience=60,
        )
        self.calls = CloudProvider(store=self.store, writer=writer).handlers()
        self.news()
        self.come(*self.nodes)

    @property
    def spec(self) -> Any:
        return self.server.objects(GROUPS)["web"]["spec"]

    @property
    def group(self) -> Group:
        found = self.store.served("web")
        assert found is not None
        return found

    def news(self) -> None:
        """As the watch would tell of the group."""
        self.store.put_group(Group.parse(self.server.objects(GROUPS)["web"]))

    def change(self, **spec: Any) -> None:
        """Somebody else does."""
        self.server.patch(GROUPS, "web", {"spec": spec})
        self.news()

    def give_out(self, first: int, last: int, **status: Any) -> None:
        """The operator writes down which serials it is about to create."""
        status |= {"pending": [pending(first, last)], "nextSerial": last + 1}
        self.server.patch(GROUPS, "web", {"status": status}, subresource="status")
        self.news()

    def come(self, *serials: int) -> None:
        for serial in serials:
            self.nodes.add(serial)
            self.store.put_node(node_of(self.group, serial))

    def go(self, *serials: int) -> None:
        for serial in serials:
            self.nodes.remove(serial)
            self.store.drop_node(node_of(self.group, serial))

    async def raw(self, name: str, request: bytes) -> bytes:
        return await called(self.calls, name, request)

    async def increase(self, delta: int) -> None:
        await self.raw("NodeGroupIncreaseSize", put(1, delta) + put(2, "web"))

    async def decrease(self, delta: int) -> None:
        await self.raw("NodeGroupDecreaseTargetSize", put(1, delta) + put(2, "web"))

    async def delete(self, *serials: int) -> None:
        """Registered nodes."""
        nodes = b"".join(
            put(1, put(1, f"kwok:{name}") + put(2, name)) for name in self.names(*serials)
        )
        await self.raw("NodeGroupDeleteNodes", nodes + put(2, "web"))

    async def give_back(self, *serials: int, reason: str) -> None:
        """Placeholders of instances that have no Node."""
        why = put(4, put(1, REASON) + put(2, reason))
        nodes = b"".join(
            put(1, put(1, f"kwok:{name}") + put(2, f"kwok:{name}") + why)
            for name in self.names(*serials)
        )
        await self.raw("NodeGroupDeleteNodes", nodes + put(2, "web"))

    async def target(self) -> int:
        answer = await self.raw("NodeGroupTargetSize", put(1, "web"))
        return pb.NodeGroupTargetSizeResponse.FromString(answer).targetSize

    async def instances(self) -> dict[int | None, str]:
        """States by serial."""
        answer = await self.raw("NodeGroupNodes", put(1, "web"))
        return {
            self.group.names.serial(i.id.removeprefix("kwok:")): STATES[i.status.instanceState]
            for i in pb.NodeGroupNodesResponse.FromString(answer).instances
        }

    def names(self, *serials: int) -> list[str]:
        return [self.group.names.name(serial) for serial in serials]

    def named(self) -> list[str]:
        found: list[str] = self.spec.get("scaleDown", {}).get("nodesToDelete", [])
        return found


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    async with FakeApiServer() as server, KubeClient(connection=server.connection()) as client:
        yield Story(server, client)
