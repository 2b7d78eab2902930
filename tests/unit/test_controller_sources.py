"""What `template.from` names is found, and followed.

- a node of this cluster, a Node of a ConfigMap, or both, the ConfigMap's over the other; the
  version changes with what is found, the origin says in words what it is
- where there is nothing, a reason and a sentence say why
- a group is woken when something changes that it copies from, and by nothing else
- another cluster is reached by the kubeconfig in a Secret, under the key that is named or the usual
  ones; it is followed once for all groups, and no longer than one of them needs it
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from kwok_operator.controller import configmaps as configmaps_module
from kwok_operator.controller import livenodes as livenodes_module
from kwok_operator.controller.configmaps import ConfigMap, ConfigMaps
from kwok_operator.controller.groups import Group
from kwok_operator.controller.livenodes import NodeLink
from kwok_operator.controller.sources import Found, Missing, SourceMissingError, Sources
from kwok_operator.core.livenodes import live_node
from kwok_operator.kube import reflector
from kwok_operator.kube.client import KubeClient
from kwok_operator.models.source import RemoteCluster
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.certificates import Certificates, make_certificates
from tests.fakes.recording import Clock, RecordedEvents
from tests.fakes.reflecting import Naps
from tests.fakes.waiting import until

Json = dict[str, Any]
SECRETS = "/api/v1/namespaces/ops/secrets"
BATCH: Json = {"nodes": {"selector": {"matchLabels": {"pool": "batch"}}}}
BIG: Json = {"configMap": {"name": "templates", "node": "big"}}
REMOTE: Json = {"nodes": {"name": "far", "cluster": {"secretName": "prod"}}}
TEMPLATES = """
{apiVersion: v1, kind: Node, metadata: {name: big}}
---
{apiVersion: v1, kind: Node, metadata: {name: small}}
"""


def group(name: str = "web", source: Json | None = None) -> Group:
    metadata = {"name": name, "uid": f"uid-of-{name}", "generation": 1, "resourceVersion": "1"}
    return Group.parse({"metadata": metadata, "spec": {"template": {"from": source}}})


def node(name: str, *, pool: str = "batch", cpu: str = "8", ready: str = "True") -> Json:
    return {
        "metadata": {"name": name, "labels": {"pool": pool}},
        "status": {
            "capacity": {"cpu": cpu, "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


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
            clock=Clock(),
        )

    def have(self, *configmaps: Json) -> None:
        """Exactly these ConfigMaps are known, given as name and data."""
        self._version += 1
        items = [
            ConfigMap("ops", item["name"], "u", self._version, item["data"]) for item in configmaps
        ]
        self.configmaps.replace(items, self._version)

    async def find(self, source: Json | None, *, name: str = "web") -> Found:
        """What is found once nothing is being listed any more."""
        async with asyncio.timeout(5):
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


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for wait in ("retry_delay", "backoff"):
        monkeypatch.setattr(reflector, wait, lambda *_, **__: 0.002)
    monkeypatch.setattr(livenodes_module, "SYNC_WITHIN", 0.02)
    monkeypatch.setattr(configmaps_module, "SYNC_WITHIN", 0.02)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApiServer() as server:
        server.serve(SECRETS, kind="Secret")
        async with KubeClient(connection=server.connection(), sleep=Naps()) as client:
            world = World(server, client)
            yield world
            await world.sources.close()
    assert following() == []


def following() -> list[str]:
    tasks = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in tasks if name.startswith(("follow", "reach"))]


class TestFound:
    async def test_nothing_where_nothing_is_named(self, world: World) -> None:
        found = await world.find(None)
        assert (found.version, found.origin, found.missing) == ("", "", None)
        assert await found.load() == ()
        assert world.server.seen == []

    async def test_a_node_of_this_cluster(self, world: World) -> None:
        world.server.create(NODES, node("web-1"))
        found = await world.find(BATCH)
        assert (found.origin, found.missing) == ("node web-1 of this cluster", None)
        (loaded,) = await found.load()
        assert (loaded.field, loaded.node) == ("Node web-1", world.server.objects(NODES)["web-1"])

    async def test_its_version_is_that_of_what_it_is_like(self, world: World) -> None:
        world.server.create(NODES, node("web-1"))
        first = await world.find(BATCH)
        world.server.create(NODES, node("web-0"))
        await until(lambda: len(world.local.nodes) == 2)
        alike = await world.find(BATCH)
        assert (alike.version, alike.origin) == (first.version, "node web-0 of this cluster")
        world.server.patch(NODES, "web-0", node("web-0", cpu="16"), subresource="status")
        await until(lambda: len({node.digest for node in world.local.nodes}) == 2)
        assert (await world.find(BATCH)).version != first.version

    async def test_a_node_of_a_configmap(self, world: World) -> None:
        world.have({"name": "templates", "data": {"nodes": TEMPLATES}})
        found = await world.find(BIG)
        assert found.origin == "Node big of ConfigMap ops/templates"
        (loaded,) = await found.load()
        assert loaded.field == "ConfigMap ops/templates, Node big"
        assert loaded.node["metadata"]["name"] == "big"

    async def test_its_version_is_that_of_the_node_and_not_of_its_neighbours(
        self, world: World
    ) -> None:
        labelled = "{name: %s, labels: {a: b}}"
        changed = {
            name: TEMPLATES.replace(f"{{name: {name}}}", labelled % name)
            for name in ("big", "small")
        }
        versions = []
        for text in (TEMPLATES, changed["small"], changed["big"]):
            world.have({"name": "templates", "data": {"nodes": text}})
            versions.append((await world.find(BIG)).version)
        assert versions[0] == versions[1] != versions[2]

    async def test_both_the_configmaps_over_the_other(self, world: World) -> None:
        world.server.create(NODES, node("web-1"))
        world.have({"name": "templates", "data": {"nodes": TEMPLATES}})
        live, static = await world.find(BATCH), await world.find(BIG)
        both = await world.find(BATCH | BIG)
        assert both.version == f"{live.version}+{static.version}"
        assert both.origin == f"{live.origin} and {static.origin}"
        assert [part.field for part in await both.load()] == [
            "Node web-1",
            "ConfigMap ops/templates, Node big",
        ]

    @pytest.mark.parametrize("metadata", ["", "metadata: {name: ''}", "metadata: odd"])
    async def test_a_node_without_a_name(self, world: World, metadata: str) -> None:
        text = f"apiVersion: v1\nkind: Node\n{metadata}"
        world.have({"name": "templates", "data": {"nodes": text}})
        found = await world.find({"configMap": {"name": "templates"}})
        assert found.origin == "Node without a name of ConfigMap ops/templates"


class TestMissing:
    async def test_no_node_fits(self, world: World) -> None:
        world.server.create(NODES, node("web-1", pool="web"))
        assert await world.missing(BATCH) == Missing(
            "NodeNotFound",
            "no node of this cluster is labelled pool=batch (fake nodes don't count)",
        )

    async def test_none_that_fits_is_an_example(self, world: World) -> None:
        world.server.create(NODES, node("web-1", ready="False"))
        world.server.create(NODES, node("web-2", ready="Unknown"))
        assert await world.missing(BATCH) == Missing(
            "NodeNotFound",
            "2 nodes of this cluster are labelled pool=batch, but none is Ready, schedulable and "
            "states its capacity",
        )

    async def test_the_node_goes_before_it_is_read(self, world: World) -> None:
        world.server.create(NODES, node("web-1"))
        found = await world.find(BATCH)
        world.server.delete(NODES, "web-1")
        with pytest.raises(SourceMissingError) as caught:
            await found.load()
        assert caught.value.missing == Missing(
            "NodeNotFound", "node web-1 of this cluster has gone"
        )

    async def test_nodes_can_not_be_listed(self, world: World) -> None:
        world.server.fail(403, times=1_000, verb="list", message="nodes is forbidden")
        missing = await world.missing(BATCH)
        assert missing.reason == "SourceUnreachable"
        assert missing.message.startswith("the nodes of this cluster: ")
        assert "nodes is forbidden; grant the verbs list and watch on nodes" in missing.message

    async def test_nodes_are_still_being_listed(self, world: World) -> None:
        released = world.server.hold(verb="list")
        found = await world.sources.find(group(source=BATCH))
        assert found.missing == Missing("SourceUnreachable", "this cluster is still being listed")
        released.set()

    async def test_configmaps_have_not_been_read(self, world: World) -> None:
        assert await world.missing(BIG) == Missing(
            "SourceUnreachable", "ConfigMap ops/templates has not been read yet"
        )

    async def test_there_is_no_such_configmap(self, world: World) -> None:
        world.have({"name": "others", "data": {}})
        assert await world.missing(BIG) == Missing(
            "ConfigMapNotFound", "ConfigMap ops/templates does not exist"
        )

    @pytest.mark.parametrize(
        ("data", "source", "words"),
        [
            ({}, {}, "is empty"),
            ({"a": "", "b": ""}, {}, "which key is meant?"),
            ({"a": ""}, {"key": "b"}, "has no key b, only: a"),
            ({"a": "{"}, {}, "key a, line "),
            ({"a": "kind: Pod"}, {}, "has no Node"),
            ({"a": TEMPLATES}, {}, "has 2 Nodes"),
            ({"a": TEMPLATES}, {"node": "huge"}, "has no Node 'huge'; there is big, small"),
        ],
        ids=str,
    )
    async def test_the_configmap_is_not_right(
        self, world: World, data: Json, source: Json, words: str
    ) -> None:
        world.have({"name": "templates", "data": data})
        missing = await world.missing({"configMap": {"name": "templates", **source}})
        assert missing.reason == "ConfigMapInvalid"
        assert "ConfigMap ops/templates" in missing.message and words in missing.message

    async def test_one_of_two_is_missing(self, world: World) -> None:
        world.server.create(NODES, node("web-1"))
        world.have()
        assert (await world.missing(BATCH | BIG)).reason == "ConfigMapNotFound"


class TestWaking:
    async def test_by_a_configmap(self, world: World) -> None:
        world.have({"name": "templates", "data": {"nodes": TEMPLATES}})
        await world.find(BIG, name="copies")
        await world.find({"configMap": {"name": "others"}}, name="copies-another")
        await world.find(None, name="has-its-own")
        world.sources.configmap_changed("templates")
        assert world.woken == ["copies"]

    async def test_by_one_that_does_not_exist_yet(self, world: World) -> None:
        world.have()
        assert await world.missing(BIG)
        world.have({"name": "templates", "data": {"nodes": TEMPLATES}})
        assert world.woken == ["web"]

    async def test_by_nodes(self, world: World) -> None:
        await world.find(BATCH, name="batch")
        await world.find({"nodes": {"name": "web-1"}}, name="one")
        await world.find({"nodes": {"selector": {}}}, name="any")
        world.woken.clear()
        world.sources.nodes_changed(None, [live_node(node("web-1", pool="web"))])
        assert world.woken == ["one", "any"]
        world.woken.clear()
        was, now = live_node(node("b")), live_node(node("b", pool="web"))
        world.sources.nodes_changed(None, [was, now])
        assert world.woken == ["batch", "any"], "what does not fit any more has fitted"

    async def test_by_anything_wakes_all_who_follow_the_cluster(self, world: World) -> None:
        await world.find(BATCH, name="here")
        await world.find(REMOTE, name="there")
        await world.find(BIG, name="configmap")
        world.woken.clear()
        world.sources.nodes_changed(None, [])
        assert world.woken == ["here"]
        world.woken.clear()
        world.sources.nodes_changed(RemoteCluster(secret_name="prod"), [])
        assert world.woken == ["there"]

    async def test_by_what_happens_in_the_cluster(self, world: World) -> None:
        assert (await world.missing(BATCH)).reason == "NodeNotFound"
        world.woken.clear()
        world.server.create(NODES, node("web-1"))
        await until(lambda: world.woken)
        assert world.woken == ["web"]
        assert (await world.find(BATCH)).missing is None

    async def test_by_what_it_followed_before_no_more(self, world: World) -> None:
        world.have()
        await world.find(BIG)
        await world.find(None)
        world.sources.configmap_changed("templates")
        assert world.woken == []

    async def test_of_groups_that_are_gone_no_more(self, world: World) -> None:
        world.have()
        await world.find(BIG, name="gone")
        await world.find(BIG, name="stays")
        await world.sources.keep_only(["stays"])
        world.sources.configmap_changed("templates")
        assert world.woken == ["stays"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def far(certificates: Certificates) -> AsyncIterator[FakeApiServer]:
    """Another cluster, with the node `far`, that knows the token `t`."""
    async with FakeApiServer(tls=certificates.server_context()) as server:
        server.tokens = {"t"}
        server.create(NODES, node("far"))
        yield server


@pytest.fixture
def kubeconfig(far: FakeApiServer, certificates: Certificates) -> str:
    cluster = {
        "server": far.url,
        "tls-server-name": "k8s.test",
        "certificate-authority-data": certificates.data("ca.crt"),
    }
    return yaml.safe_dump(
        {
            "current-context": "far",
            "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
            "clusters": [{"name": "far", "cluster": cluster}],
            "users": [{"name": "far", "user": {"token": "t"}}],
        }
    )


class TestAnotherCluster:
    async def test_is_reached_by_its_secret(
        self, world: World, far: FakeApiServer, kubeconfig: str
    ) -> None:
        world.secret(kubeconfig=kubeconfig)
        found = await world.find(REMOTE)
        assert (found.missing, found.origin) == (None, "node far of the cluster of Secret prod")
        (loaded,) = await found.load()
        assert loaded.node == far.objects(NODES)["far"]
        assert world.server.calls["list", "nodes"] == 0, "this one is not followed for it"

    @pytest.mark.parametrize(
        ("right", "wrong", "key"),
        [
            ("value", "other", None),
            ("kubeconfig", "value", None),
            ("other", "kubeconfig", "other"),
        ],
    )
    async def test_under_the_usual_keys_or_the_one_that_is_named(
        self, world: World, kubeconfig: str, right: str, wrong: str, key: str | None
    ) -> None:
        world.secret(**{right: kubeconfig, wrong: "wrong"})
        source = {"nodes": {"name": "far", "cluster": {"secretName": "prod", "key": key}}}
        assert (await world.find(source)).missing is None

    @pytest.mark.parametrize(
        ("data", "key", "words"),
        [
            (None, None, "Secret ops/prod does not exist"),
            ({}, None, "Secret ops/prod has no key kubeconfig nor value, only: none"),
            ({"b": "", "a": ""}, "c", "Secret ops/prod has no key c, only: a, b"),
            ({"value": b"\xff"}, None, "Secret ops/prod, key value, is not text"),
            ({"value": "x"}, None, "Secret prod is not a kubeconfig"),
            ({"value": "{}"}, None, "Secret prod: no current-context is set"),
        ],
        ids=str,
    )
    async def test_says_what_is_wrong_with_its_secret(
        self, world: World, data: Json | None, key: str | None, words: str
    ) -> None:
        if data is not None:
            world.secret(**data)
        source = {"nodes": {"name": "far", "cluster": {"secretName": "prod", "key": key}}}
        missing = await world.missing(source)
        assert missing.reason == "SourceUnreachable"
        assert missing.message.startswith("the nodes of the cluster of Secret prod: ")
        assert words in missing.message

    async def test_says_that_its_secret_may_not_be_read(self, world: World) -> None:
        world.server.fail(403, times=100, resource="secrets", message="secrets is forbidden")
        missing = await world.missing(REMOTE)
        assert "403: secrets is forbidden" in missing.message

    async def test_wakes_those_who_copy_from_it(
        self, world: World, far: FakeApiServer, kubeconfig: str
    ) -> None:
        world.secret(kubeconfig=kubeconfig)
        await world.find(REMOTE, name="there")
        await world.find({"nodes": {"name": "far"}}, name="here")
        world.woken.clear()
        far.delete(NODES, "far")
        await until(lambda: world.woken)
        assert world.woken == ["there"]
        assert (await world.missing(REMOTE)).reason == "NodeNotFound"

    async def test_is_followed_once_and_no_longer_than_needed(
        self, world: World, far: FakeApiServer, kubeconfig: str
    ) -> None:
        world.secret(kubeconfig=kubeconfig)
        world.server.create(NODES, node("web-1"))
        await world.find(REMOTE, name="a")
        await world.find(REMOTE, name="b")
        await world.find(BATCH, name="c")
        await world.sources.keep_only(["b", "c"])
        assert "reach the cluster of Secret prod" in following()
        assert far.calls["list", "nodes"] == 1
        await world.sources.keep_only(["c"])
        assert following() == ["follow this cluster"]
        assert (await world.find(REMOTE, name="d")).missing is None
        assert far.calls["list", "nodes"] == 2

    async def test_closing_ends_it_all(self, world: World, kubeconfig: str) -> None:
        world.secret(kubeconfig=kubeconfig)
        await world.find(REMOTE, name="a")
        await world.find(BATCH, name="b")
        assert following()
        await world.sources.close()
        assert following() == []
