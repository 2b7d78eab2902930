"""Another cluster's nodes are followed, as its Secret says."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kwok_operator.errors import ConnectionConfigError, ManifestError
from kwok_operator.kube.connection import Endpoint
from kwok_operator.sources import livenodes as module
from kwok_operator.sources.livenodes import PATIENCE, NodeLink, RemoteLink
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.following import News, following, hurry, lasting, names, node, synced
from tests.fakes.recording import Clock
from tests.fakes.waiting import until


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(module, "SECRET_CHECK_INTERVAL", 0.01)


class Secret:
    """A Secret whose text is `URL TOKEN`, and what reads it."""

    def __init__(self, text: str) -> None:
        self.text: str | None = text
        self.reads = 0

    async def read(self) -> str:
        self.reads += 1
        if self.text is None:
            raise ManifestError("Secret ops/prod does not exist")
        return self.text

    @staticmethod
    def parse(text: str) -> Endpoint:
        server, _, token = text.partition(" ")
        if not server.startswith("http"):
            raise ConnectionConfigError("Secret prod is no kubeconfig")
        return Endpoint(server=server, token=token or None)


@pytest.fixture
def secret(server: FakeApiServer) -> Secret:
    return Secret(f"{server.url} one")


@pytest.fixture
async def remote(secret: Secret, news: News, clock: Clock) -> AsyncIterator[RemoteLink]:
    link = RemoteLink(name="prod", read=secret.read, parse=secret.parse, changed=news, clock=clock)
    yield link
    await link.close()
    assert following() == []


class TestAnotherCluster:
    async def test_is_followed(self, remote: RemoteLink, server: FakeApiServer) -> None:
        server.tokens = {"one"}
        server.create(NODES, node("a"))
        assert await remote.get(f"{NODES}/a") is None, "it is not connected yet"
        await synced(remote, server)
        assert (names(remote.nodes), remote.problem) == ({"a"}, None)
        assert remote.place == "the cluster of Secret prod"
        assert await remote.get(f"{NODES}/a") == server.objects(NODES)["a"]

    async def test_is_reached_once_while_its_secret_says_the_same(
        self, remote: RemoteLink, server: FakeApiServer, secret: Secret
    ) -> None:
        remote.start()
        await synced(remote, server)
        await until(lambda: secret.reads > 5)
        assert server.calls["list", "nodes"] == server.calls["watch", "nodes"] == 1

    async def test_is_followed_again_after_what_nobody_expected(
        self, remote: RemoteLink, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await synced(remote, server)
        with monkeypatch.context() as broken:
            broken.setattr(remote.nodes, "upsert", None)
            server.create(NODES, node("a"))
            await until(lambda: server.calls["watch", "nodes"] > 1)
        await until(lambda: names(remote.nodes) == {"a"})

    async def test_without_its_secret_is_a_problem_until_there_is_one(
        self, remote: RemoteLink, server: FakeApiServer, secret: Secret, news: News
    ) -> None:
        text, secret.text = secret.text, None
        remote.start()
        await until(lambda: secret.reads > 3)
        assert remote.problem == "Secret ops/prod does not exist"
        assert news.told == [()], "told once"
        secret.text = text
        await synced(remote, server)
        await until(lambda: remote.problem is None)

    async def test_goes_on_while_its_secret_is_missing_or_wrong(
        self, remote: RemoteLink, server: FakeApiServer, secret: Secret
    ) -> None:
        server.create(NODES, node("a"))
        await synced(remote, server)
        text = secret.text
        secret.text = "nonsense"
        await until(lambda: remote.problem == "Secret prod is no kubeconfig")
        secret.text = None
        await until(lambda: remote.problem == "Secret ops/prod does not exist")
        server.create(NODES, node("b"))
        await until(lambda: names(remote.nodes) == {"a", "b"})
        secret.text = text
        await until(lambda: remote.problem is None)
        assert server.calls["list", "nodes"] == 1

    async def test_is_another_one_when_its_secret_says_so(
        self, remote: RemoteLink, server: FakeApiServer, secret: Secret
    ) -> None:
        server.create(NODES, node("a"))
        await synced(remote, server)
        async with FakeApiServer() as other:
            other.create(NODES, node("b"))
            secret.text = other.url
            await until(lambda: names(remote.nodes) == {"b"})
            server.create(NODES, node("late"))
            other.create(NODES, node("c"))
            await until(lambda: names(remote.nodes) == {"b", "c"})
            await remote.close()

    async def test_takes_the_new_token_with_the_first_401(
        self, remote: RemoteLink, server: FakeApiServer, secret: Secret, clock: Clock
    ) -> None:
        server.tokens = {"one"}
        await synced(remote, server)
        server.tokens, secret.text = {"two"}, f"{server.url} two"
        server.cut_watches()
        await until(lambda: server.calls["watch", "nodes"] >= 2 and server.watchers)
        clock.now += PATIENCE
        await until(lambda: remote.problem is None)
        assert server.seen[-1].headers["Authorization"] == "Bearer two"

    async def test_a_bad_token_is_a_problem(
        self, remote: RemoteLink, server: FakeApiServer
    ) -> None:
        server.tokens = {"another"}
        remote.start()
        await until(lambda: remote.problem)
        assert "401" in str(remote.problem) and "renew the credentials" in str(remote.problem)

    async def test_out_of_reach_its_nodes_stay_and_the_problem_waits(
        self, remote: RemoteLink, server: FakeApiServer, clock: Clock
    ) -> None:
        server.create(NODES, node("a"))
        await synced(remote, server)
        await server.stop()
        assert remote.problem is None
        await lasting(remote, clock, "connection refused")
        assert names(remote.nodes) == {"a"}
        await server.start()
        await until(lambda: remote.problem is None)

    async def test_goes_on_whatever_it_sends(
        self, remote: RemoteLink, server: FakeApiServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        await synced(remote, server)
        odds: list[object] = [["a"], "text", {"name": ["a"]}, {"name": "../secrets"}, {"name": "b"}]
        for odd in odds:
            server.watchers[0].send("ADDED", {**node("x"), "metadata": odd})
        await until(lambda: names(remote.nodes) == {"b"})
        assert following() != []
        assert [r.getMessage() for r in caplog.records if "skipped" in r.getMessage()] == [
            "skipped a node that has no name: cluster=the cluster of Secret prod"
        ]

    async def test_ends_when_it_is_closed(self, remote: RemoteLink, server: FakeApiServer) -> None:
        await synced(remote, server)
        await remote.close()
        assert following() == []
        assert await remote.get(f"{NODES}/a") is None

    async def test_ends_when_it_is_closed_while_it_connects_anew(
        self,
        remote: RemoteLink,
        server: FakeApiServer,
        secret: Secret,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        await synced(remote, server)
        closing = asyncio.Event()
        close = NodeLink.close

        async def close_slowly(link: NodeLink) -> None:
            closing.set()
            await close(link)

        monkeypatch.setattr(NodeLink, "close", close_slowly)
        secret.text = f"{server.url} two"
        await closing.wait()
        async with asyncio.timeout(60):
            await remote.close()
        assert following() == []
