"""The sources of an operator, with the API server of its cluster; ConfigMaps are told by hand."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.templates import Found, Missing
from kwok_operator.sources.configmaps import ConfigMap, ConfigMaps
from kwok_operator.sources.livenodes import NodeLink
from kwok_operator.sources.references import Sources
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.following import following
from tests.fakes.recording import Clock, RecordedEvents
from tests.fakes.reflecting import Naps
from tests.fakes.sources import body_of
from tests.fakes.store import Json

SECRETS = "/api/v1/namespaces/ops/secrets"
BATCH: Json = {"nodes": {"selector": {"matchLabels": {"pool": "batch"}}}}
BIG: Json = {"configMap": {"name": "templates", "node": "big"}}
REMOTE: Json = {"nodes": {"name": "far", "cluster": {"secretName": "prod"}}}


def group(name: str = "web", source: Json | None = None) -> Group:
    metadata = {"name": name, "uid": f"uid-of-{name}", "generation": 1, "resourceVersion": "1"}
    return Group.parse({"metadata": metadata, "spec": {"template": {"from": source}}})


class World:
    """This cluster's API server, and the sources of an operator there."""

    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.woken: list[str] = []
        self._version = 0
        self.configmaps = ConfigMaps(
            namespace="ops",
            recorder=RecordedEvents().as_recorder(),
            changed=lambda name: self.sources.configmap_changed(name),
        )
        self.local = NodeLink(
            client=client,
            place="this cluster",
            changed=lambda nodes: self.sources.nodes_changed(None, nodes),
            clock=Clock(),
        )
        self.sources = Sources(
            configmaps=self.configmaps,
            local=self.local,
            secrets=client,
            namespace="ops",
            wake=self.woken.append,
            fleet_changed=lambda: self.woken.append("provider config"),
            clock=Clock(),
        )

    def have(self, *configmaps: Json) -> None:
        """Exactly these ConfigMaps are known, given as name and data."""
        self._version += 1
        items = [
            ConfigMap("ops", item["name"], "u", self._version, item["data"]) for item in configmaps
        ]
        self.configmaps.objects.listed(list(map(body_of, items)), self._version)

    async def find(self, source: Json | None, *, name: str = "web") -> Found:
        """What is found once nothing is being listed any more."""
        async with asyncio.timeout(60):
            while True:
                found = await self.sources.find(group(name, source))
                if found.missing is None or "still being listed" not in found.missing.message:
                    return found

    async def missing(self, source: Json) -> Missing:
        found = await self.find(source)
        assert found.missing is not None
        assert (found.version, await found.load()) == ("", ())
        return found.missing

    def secret(self, **data: str | bytes) -> None:
        texts = {k: v.encode() if isinstance(v, str) else v for k, v in data.items()}
        encoded = {key: base64.b64encode(text).decode() for key, text in texts.items()}
        self.server.create(SECRETS, {"metadata": {"name": "prod"}, "data": encoded})


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    """Ends it, and sees that nothing is left."""
    async with FakeApiServer() as server:
        server.serve(SECRETS, kind="Secret")
        async with KubeClient(connection=server.connection(), sleep=Naps()) as client:
            world = World(server, client)
            yield world
            await world.sources.close()
    assert following() == []
