"""Another cluster as a source of templates."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from kwok_operator.sources.api.source import RemoteCluster
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.certificates import Certificates
from tests.fakes.finding import BATCH, REMOTE, World, a_world
from tests.fakes.following import following, hurry, node
from tests.fakes.waiting import until

Json = dict[str, Any]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    hurry(monkeypatch)
    async with a_world() as world:
        yield world


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
        assert missing.message.endswith(
            "Secret ops/prod may not be read (403: secrets is forbidden); to allow it: kubectl "
            "apply -f deploy/components/remote-templates/rbac.yaml"
        )

    async def test_wakes_the_groups_that_copy_from_it(
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

    async def test_is_followed_for_the_provider_config(
        self, world: World, far: FakeApiServer, kubeconfig: str
    ) -> None:
        world.secret(kubeconfig=kubeconfig)
        prod = RemoteCluster(secret_name="prod")
        link = world.sources.fleet(prod)
        await until(lambda: [node.name for node in link.nodes] == ["far"])
        await world.sources.keep_only([])
        assert world.sources.fleet(prod) is link
        world.woken.clear()
        far.create(NODES, node("further"))
        await until(lambda: world.woken)
        assert world.woken == ["provider config"]
        world.sources.fleet(None)
        await world.sources.keep_only([])
        assert following() == ["follow this cluster"]

    async def test_closing_ends_it_all(self, world: World, kubeconfig: str) -> None:
        world.secret(kubeconfig=kubeconfig)
        await world.find(REMOTE, name="a")
        await world.find(BATCH, name="b")
        world.sources.fleet(RemoteCluster(secret_name="prod"))
        assert following()
        await world.sources.close()
        assert following() == []
