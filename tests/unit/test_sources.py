"""What `template.from` names is found, and followed.

Other clusters are in test_sources_remote.py.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.companions.copying import read_companions
from kwok_operator.companions.desired import CompanionKind, Trouble
from kwok_operator.companions.livecompanions import CopiedCompanions
from kwok_operator.nodegroups.templates import Missing, SourceMissingError
from kwok_operator.sources.api.source import NodesSource, RemoteCluster
from kwok_operator.sources.nodechoice import live_node
from tests.fakes.apiserver import NODES
from tests.fakes.finding import BATCH, BIG, REMOTE, World, a_world, group
from tests.fakes.following import hurry
from tests.fakes.following import node as real_node
from tests.fakes.waiting import until

Json = dict[str, Any]
CSI_NODES = CompanionKind.CSI_NODE.path
SLICES = CompanionKind.RESOURCE_SLICE.path
TEMPLATES = """
{apiVersion: v1, kind: Node, metadata: {name: big}}
---
{apiVersion: v1, kind: Node, metadata: {name: small}}
"""


def node(name: str, *, pool: str = "batch", **fields: Any) -> Json:
    return real_node(name, labels={"pool": pool}, **fields)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    hurry(monkeypatch)
    async with a_world() as world:
        yield world


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

    async def test_its_version_is_the_nodes_not_its_neighbours(self, world: World) -> None:
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
    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ({"nodes": {"selector": {"matchLabels": {"pool": "gpu"}}}}, "no node of this cluster"),
            ({"nodes": {"name": "web-1"}}, "node web-1 of this cluster fits, but isn't Ready"),
            (BATCH, "2 nodes of this cluster are labelled pool=batch, but none is Ready"),
        ],
    )
    async def test_no_usable_node_fits(self, world: World, source: Json, words: str) -> None:
        world.server.create(NODES, node("web-1", ready="False"))
        world.server.create(NODES, node("web-2", ready="Unknown"))
        missing = await world.missing(source)
        assert missing.reason == "NodeNotFound" and missing.message.startswith(words)

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

    async def test_the_configmap_is_not_there(self, world: World) -> None:
        world.have({"name": "others", "data": {}})
        assert (await world.missing(BIG)).reason == "ConfigMapNotFound"

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

    async def test_by_anything_wakes_all_groups_of_the_cluster(self, world: World) -> None:
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


class TestCompanions:
    SOURCE = NodesSource.model_validate({"name": "web-1", "companions": True})

    async def test_they_are_read_and_cleaned(self, world: World) -> None:
        world.server.create(NODES, node("web-1"))
        await world.find(BATCH)
        assert await read_companions(world.sources, self.SOURCE) == CopiedCompanions()
        world.server.serve(CSI_NODES, kind="CSINode")
        world.server.serve(SLICES, kind="ResourceSlice")
        csi_node = {"metadata": {"name": "web-1"}, "spec": {"drivers": [{"name": "a.b"}]}}
        world.server.create(CSI_NODES, csi_node)
        for name in ("web-1", "web-2"):
            pool = {"name": name, "generation": 3, "resourceSliceCount": 1}
            spec = {"driver": "a.b", "nodeName": name, "pool": pool, "devices": [{"name": "d"}]}
            world.server.create(SLICES, {"metadata": {"name": name}, "spec": spec})
        found = await read_companions(world.sources, self.SOURCE)
        assert isinstance(found, CopiedCompanions)
        assert [each["name"] for each in found.csi_drivers or ()] == ["a.b"]
        assert [each.name for each in found.pools] == ["{node}"]

    async def test_a_failure_to_read_them_is_reported(self, world: World) -> None:
        world.server.create(NODES, node("web-1"))
        await world.find(BATCH)
        world.server.serve(CSI_NODES, kind="CSINode")
        reasons = []
        for status, times in ((403, 1), (500, 3)):
            world.server.fail(status, times=times, resource="csinodes")
            found = await read_companions(world.sources, self.SOURCE)
            assert isinstance(found, Trouble)
            reasons.append(found.reason)
        another = NodesSource.model_validate({"name": "web-2", "companions": True})
        found = await read_companions(world.sources, another)
        assert isinstance(found, Trouble)
        assert [*reasons, found.reason] == ["NotAllowed", "SourceUnreachable", "NodeNotFound"]
