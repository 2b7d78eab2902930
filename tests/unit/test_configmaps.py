"""The ConfigMaps of a namespace, and the Nodes that are written in them."""

import asyncio
import threading
from typing import Any

import pytest

from kwok_operator.errors import ManifestError
from kwok_operator.formats.documents import NodeDocuments, read_nodes
from kwok_operator.kube.client import KubeClient
from kwok_operator.sources import configmaps as module
from kwok_operator.sources.configmaps import ConfigMap, ConfigMaps, only_key
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.feed import feeding
from tests.fakes.recording import RecordedEvents, Said
from tests.fakes.sources import body_of
from tests.fakes.waiting import until

PATH = "/api/v1/namespaces/ops/configmaps"
NODE = "{apiVersion: v1, kind: Node, metadata: {name: big}}"
MIXED = f"""
{NODE}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: web}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: other}}}}
"""


def configmap(
    name: str = "templates", *, version: int = 1, uid: str = "u", **data: str
) -> ConfigMap:
    return ConfigMap("ops", name, uid, version, data)


@pytest.fixture
def news() -> list[str]:
    return []


@pytest.fixture
def known(events: RecordedEvents, news: list[str]) -> ConfigMaps:
    return ConfigMaps(namespace="ops", recorder=events.as_recorder(), changed=news.append)


class Parsing:
    """Notes in which threads texts are parsed."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def __call__(self, text: str, *, where: str) -> NodeDocuments:
        self.threads.append(threading.current_thread())
        return read_nodes(text, where=where)


@pytest.fixture
def parsing(monkeypatch: pytest.MonkeyPatch) -> Parsing:
    parsing = Parsing()
    monkeypatch.setattr(module, "read_nodes", parsing)
    return parsing


class TestNodes:
    async def test_are_parsed_once_in_a_thread(self, known: ConfigMaps, parsing: Parsing) -> None:
        one = configmap(nodes=NODE)
        first, second = await asyncio.gather(known.nodes(one, "nodes"), known.nodes(one, "nodes"))
        assert await known.nodes(one, "nodes") is first is second
        assert [node["metadata"]["name"] for node in first.nodes] == ["big"]
        (thread,) = parsing.threads
        assert thread is not threading.main_thread()

    async def test_are_parsed_again_if_changed(self, known: ConfigMaps, parsing: Parsing) -> None:
        """In a new version, under another key, in a ConfigMap that was made again."""
        one = configmap(nodes=NODE)
        known.objects.seen(body_of(one), gone=False)
        await known.nodes(one, "nodes")
        await known.nodes(configmap(nodes=NODE, more=NODE), "more")
        again = await known.nodes(configmap(nodes=NODE.replace("big", "small"), version=2), "nodes")
        assert again.nodes[0]["metadata"]["name"] == "small"
        known.objects.seen(body_of(one), gone=True)
        await known.nodes(configmap(nodes=NODE, uid="other"), "nodes")
        assert len(parsing.threads) == 4

    async def test_a_cancelled_caller_is_alone(self, known: ConfigMaps, parsing: Parsing) -> None:
        one = configmap(nodes=NODE)
        impatient = asyncio.create_task(known.nodes(one, "nodes"))
        patient = asyncio.create_task(known.nodes(one, "nodes"))
        await asyncio.sleep(0)
        impatient.cancel()
        assert len((await patient).nodes) == 1
        assert len(parsing.threads) == 1

    async def test_a_mistake_names_its_place_each_time_and_is_looked_for_once(
        self, known: ConfigMaps, parsing: Parsing
    ) -> None:
        for _ in range(2):
            with pytest.raises(ManifestError, match=r"ConfigMap ops/templates, key nodes, line \d"):
                await known.nodes(configmap(nodes="{"), "nodes")
        assert len(parsing.threads) == 1


async def test_an_object_that_is_no_node_is_reported_once_a_version(
    known: ConfigMaps, events: RecordedEvents
) -> None:
    await known.nodes(configmap(nodes=NODE, version=9), "nodes")
    for version in (1, 1, 2):
        await known.nodes(configmap(nodes=MIXED, version=version), "nodes")
    message = "key nodes holds what is no Node, and is left out: Pod web, ConfigMap other."
    assert events.said == [Said("templates", "Warning", "NotANode", message)] * 2
    pods = [f"---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{n:02}}}}}" for n in range(15)]
    await known.nodes(configmap(nodes="\n".join([NODE, *pods]), version=3), "nodes")
    assert events.said[2].message.endswith("Pod p08, Pod p09 and 5 more.")


class TestNews:
    def test_is_what_one_says_and_not_its_version(self, known: ConfigMaps, news: list[str]) -> None:
        one = configmap(a="1")
        for later, is_news in [
            (configmap(a="1", version=2), False),
            (configmap(a="2", version=2), True),
            (configmap(a="1", b="1", version=2), True),
            (configmap(version=2), True),
            (configmap(a="1", version=2, uid="another"), True),
        ]:
            known.objects.seen(body_of(one), gone=False)
            assert news == ["templates"], "a new one"
            known.objects.seen(body_of(later), gone=False)
            assert news == ["templates"] * (1 + is_news), later
            assert known.get("templates") == later, "an Event is about the newest in any case"
            news.clear()
            for _ in range(2):
                known.objects.seen(body_of(later), gone=True)
            assert (news, known.get("templates")) == (["templates"], None)
            news.clear()

    def test_is_the_difference_of_a_listing(self, known: ConfigMaps, news: list[str]) -> None:
        for name in ("same", "other", "gone"):
            known.objects.seen(body_of(configmap(name, a="1")), gone=False)
        news.clear()
        listed = [configmap("same", a="1"), configmap("other", a="2"), configmap("new")]
        known.objects.listed(list(map(body_of, listed)), 7)
        assert sorted(news) == ["gone", "new", "other"]
        assert known.get("gone") is None


async def test_they_are_followed(known: ConfigMaps, news: list[str]) -> None:
    async with FakeApiServer() as server:
        server.serve(PATH, kind="ConfigMap")
        metadata = {"name": "templates", "namespace": "ops"}
        server.create(PATH, {"metadata": metadata, "data": {"nodes": NODE}})
        server.create(PATH, {"metadata": {**metadata, "name": "binary"}, "binaryData": {"x": ""}})
        async with KubeClient(connection=server.connection()) as client:
            reflector = feeding(known.objects, client=client, path=PATH)
            following = asyncio.create_task(reflector.run())
            await until(lambda: server.watchers)
            found, binary = known.get("templates"), known.get("binary")
            assert found is not None and binary is not None
            assert (dict(found.data), dict(binary.data)) == ({"nodes": NODE}, {})
            assert found.reference == {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "templates",
                "namespace": "ops",
                "uid": server.objects(PATH)["templates"]["metadata"]["uid"],
            }
            server.patch(PATH, "templates", {"data": {"nodes": "other"}})
            server.delete(PATH, "binary")
            await until(lambda: len(news) == 4)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    assert sorted(news[:2]) == ["binary", "templates"]
    assert news[2:] == ["templates", "binary"]


class TestOnlyKey:
    def test_that_is_named_or_the_only_one(self) -> None:
        assert only_key(configmap(a="", b=""), "b") == "b"
        assert only_key(configmap(a=""), None) == "a"

    @pytest.mark.parametrize(
        ("data", "key", "words"),
        [
            ({"b": "", "a": ""}, None, "which key is meant?"),
            ({"b": "", "a": ""}, "c", "has no key c, only: a, b"),
            ({}, "c", "has no key c, only: none"),
        ],
    )
    def test_else_the_sentence_names_those_there_are(
        self, data: dict[str, Any], key: str | None, words: str
    ) -> None:
        with pytest.raises(ManifestError, match=r"^ConfigMap ops/templates") as caught:
            only_key(configmap(**data), key)
        assert words in str(caught.value)

    def test_an_empty_one_is_called_empty(self) -> None:
        with pytest.raises(
            ManifestError, match=r"^ConfigMap ops/templates is empty; put the Nodes"
        ):
            only_key(configmap(), None)

    def test_many_are_not_all_named(self) -> None:
        data: dict[str, Any] = {f"k{n:02}": "" for n in range(30)}
        with pytest.raises(ManifestError) as caught:
            only_key(configmap(**data), None)
        assert "k09" in str(caught.value) and "k10" not in str(caught.value)
