"""The shim while the API server is away, and with as many nodes as there can be."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import NODES as NODE_DECODER
from kwok_operator.kube.reflector import Reflector
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.autoscalable import MAX_ANSWER
from kwok_operator.nodegroups.client import GROUPS as GROUP_DECODER
from kwok_operator.shim.grpcwire import RpcError, StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import CloudProvider
from kwok_operator.shim.writer import TargetWriter
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.reflecting import Naps
from tests.fakes.shimcalls import called
from tests.fakes.shimstore import node_of, store_of
from tests.fakes.waiting import until


class World:
    def __init__(self, client: KubeClient) -> None:
        self.naps = Naps()
        self.store = store_of(synced=False)
        writer = TargetWriter(client=client, store=self.store, clock=time.monotonic, patience=60)
        self._handlers = CloudProvider(store=self.store, writer=writer).handlers()

    async def call(self, name: str, request: Any) -> bytes:
        return await called(self._handlers, name, request.SerializeToString())

    async def target(self, group: str) -> int:
        request = pb.NodeGroupTargetSizeRequest(id=group)
        answer = await self.call("NodeGroupTargetSize", request)
        return pb.NodeGroupTargetSizeResponse.FromString(answer).targetSize

    def spec(self, group: str) -> KwokNodeGroupSpec:
        served = self.store.served(group)
        assert served is not None
        return served.spec

    async def increase(self, group: str, delta: int) -> None:
        request = pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta)
        await self.call("NodeGroupIncreaseSize", request)


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {"name": name},
        "spec": {"autoscaling": {"minSize": 0}, **spec},
    }


@asynccontextmanager
async def following(server: FakeApiServer, client: KubeClient) -> AsyncIterator[World]:
    world = World(client)
    options: dict[str, Any] = {"client": client, "sleep": world.naps, "draw": lambda: 0.5}
    parts = [
        Reflector(
            path=GROUPS,
            decoder=GROUP_DECODER,
            sink=world.store.groups,
            on_restored=world.store.forget_versions,
            **options,
        ).run(),
        Reflector(path=NODES, decoder=NODE_DECODER, sink=world.store.nodes, **options).run(),
    ]
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await until(lambda: world.store.synced)
        yield world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_api_server_that_is_away_and_comes_back() -> None:
    async with FakeApiServer() as server, KubeClient(connection=server.connection()) as client:
        server.create(GROUPS, group("web", targetSize=3))
        async with following(server, client) as world:
            await world.increase("web", 1)
            port = int(server.url.rpartition(":")[2])
            await server.stop()
            assert await world.target("web") == 4
            with pytest.raises(RpcError) as failed:
                await world.increase("web", 1)
            assert failed.value.code is StatusCode.UNAVAILABLE
            assert "no answer from" in failed.value.message
            assert await world.target("web") == 4
            await server.start(port)
            server.create(GROUPS, group("other", targetSize=1))
            await until(lambda: world.store.served("other") is not None)
            await world.increase("web", 1)
            assert await world.target("web") == 5


NESTED: Any = 1
for _ in range(300):
    NESTED = {"a": NESTED}

ODD = {
    "nests-deep": {"template": {"node": {"metadata": NESTED}}},
    "of-a-newer-crd": {"scaleDown": {"pods": "Teleport"}},
}


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD)
async def test_an_odd_group_hides_no_other(spec: dict[str, Any]) -> None:
    async with FakeApiServer() as server, KubeClient(connection=server.connection()) as client:
        server.create(GROUPS, group("before", targetSize=1))
        server.create(GROUPS, group("odd", **spec))
        async with following(server, client) as world:
            assert await world.target("before") == 1
            server.patch(GROUPS, "odd", {"spec": {"targetSize": 1}})
            server.create(GROUPS, group("other", targetSize=2))
            await until(lambda: world.store.served("other") is not None)
            await world.increase("before", 1)
            server.delete(GROUPS, "odd")
            server.delete(GROUPS, "other")
            await until(lambda: world.store.served("other") is None)
            assert world.store.known("odd") is None
            assert await world.target("before") == 2


async def test_what_was_stored_before_is_put_back() -> None:
    async with FakeApiServer() as server, KubeClient(connection=server.connection()) as client:
        server.create(GROUPS, group("web", targetSize=3))
        async with following(server, client) as world:
            saved = server.snapshot()
            await world.increase("web", 5)
            server.create(GROUPS, group("since", targetSize=1))
            await until(lambda: world.store.served("since") is not None)
            await server.restore(saved, missed=lambda: len(world.naps.slept) > 4)
            await until(lambda: world.store.served("since") is None)
            await world.increase("web", 1)
            assert await world.target("web") == 4
            server.patch(GROUPS, "web", {"spec": {"targetSize": 60}})
            await until(lambda: world.spec("web").target_size == 60)


async def test_fifty_thousand_instances() -> None:
    async with FakeApiServer() as server, KubeClient(connection=server.connection()) as client:
        name = "a" * 50
        server.create(GROUPS, group(name, targetSize=50_000))
        async with following(server, client) as world:
            served = world.store.served(name)
            assert served is not None
            names = [served.names.name(serial) for serial in range(50_000)]
            for serial in range(50_000):
                world.store.put_node(node_of(served, serial))
            request = pb.NodeGroupNodesRequest(id=name)
            answer = await world.call("NodeGroupNodes", request)
            assert len(pb.NodeGroupNodesResponse.FromString(answer).instances) == 50_000
            assert len(answer) < MAX_ANSWER
            for serial in range(50_000, 60_000):
                world.store.put_node(node_of(served, serial))
            with pytest.raises(RpcError, match="split the group") as too_large:
                await world.call("NodeGroupNodes", request)
            assert too_large.value.code is StatusCode.RESOURCE_EXHAUSTED
            victims = [pb.ExternalGrpcNode(name=n, providerID=f"kwok:{n}") for n in names[:10_000]]
            asked = pb.NodeGroupDeleteNodesRequest(id=name, nodes=victims)
            await world.call("NodeGroupDeleteNodes", asked)
            assert await world.target(name) == 40_000
            assert server.calls["patch", "kwoknodegroups"] == 1
