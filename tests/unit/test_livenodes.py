"""Real nodes are followed.

How another cluster is reached is in test_remotelink.py.
"""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.errors import ApiUnreachableError
from kwok_operator.kube.client import KubeClient
from kwok_operator.sources import livenodes as module
from kwok_operator.sources.livenodes import PATIENCE, LiveNodes, NodeLink
from kwok_operator.sources.nodechoice import live_node
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.following import News, following, hurry, lasting, names, node, synced
from tests.fakes.recording import Clock
from tests.fakes.waiting import until

Json = dict[str, Any]
FAKE = {"kwok.x-k8s.io/node": "fake"}


def leftover(name: str) -> Json:
    return node(name, annotations={**FAKE, "cluster-autoscaler.kwok.nodegroup/name": "m5"})


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


class TestLiveNodes:
    @pytest.fixture
    def known(self, news: News) -> LiveNodes:
        known = LiveNodes(place="here", changed=news)
        known.replace([live_node(node("a"))], 1)
        news.told.clear()
        return known

    async def test_are_synced_by_the_first_listing(self, news: News) -> None:
        known = LiveNodes(place="here", changed=news)
        assert not await known.wait_synced()
        known.replace([live_node(node("a")), live_node(leftover("x"))], 1)
        assert await known.wait_synced()
        assert (names(known), len(known), news.told) == ({"a"}, 1, [()])

    def test_a_listing_is_the_whole_truth(self, known: LiveNodes) -> None:
        known.upsert(live_node(leftover("x")))
        known.replace([live_node(node("b"))], 2)
        assert (names(known), known.leftovers) == ({"b"}, [])

    def test_leftovers_are_known_by_name(self, known: LiveNodes) -> None:
        for name in "zyx":
            known.upsert(live_node(leftover(name)))
        assert [node.name for node in known.leftovers] == ["x", "y", "z"]
        known.remove(live_node(leftover("y")))
        assert [node.name for node in known.leftovers] == ["x", "z"]

    def test_other_fake_nodes_are_nobody(self, known: LiveNodes, news: News) -> None:
        known.upsert(live_node(node("f", annotations=FAKE)))
        known.remove(live_node(node("f", annotations=FAKE)))
        assert (names(known), known.leftovers, news.told) == ({"a"}, [], [])

    @pytest.mark.parametrize(
        "later",
        [
            node("a", cpu="16"),
            node("a", ready="False"),
            node("a", labels={"pool": "web"}),
            node("a", annotations={"team": "ads"}),
            {"metadata": {"uid": "another"}, **node("a")} | {"spec": {"unschedulable": True}},
        ],
        ids=["capacity", "readiness", "labels", "annotations", "cordon"],
    )
    def test_what_is_news(self, known: LiveNodes, news: News, later: Json) -> None:
        known.upsert(live_node(later))
        assert news.told == [("a", "a")], "as it was, and as it is"

    def test_a_heartbeat_is_no_news(self, known: LiveNodes, news: News) -> None:
        later = node("a")
        later["metadata"]["resourceVersion"] = "9"
        later["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-05T00:00:00Z"
        later["status"]["images"] = [{"names": ["app"]}]
        known.upsert(live_node(later))
        assert news.told == []

    def test_coming_and_going_is(self, known: LiveNodes, news: News) -> None:
        known.upsert(live_node(node("b")))
        known.remove(live_node(node("b")))
        known.remove(live_node(node("b")))
        assert news.told == [("b",), ("b",)]

    def test_one_that_turns_out_to_be_fake_has_gone(self, known: LiveNodes, news: News) -> None:
        known.upsert(live_node(node("a", annotations=FAKE)))
        assert (names(known), news.told) == (set(), [("a",)])


@pytest.fixture
async def link(client: KubeClient, news: News, clock: Clock) -> AsyncIterator[NodeLink]:
    link = NodeLink(client=client, place="this cluster", changed=news, clock=clock)
    yield link
    await link.close()
    assert following() == []


class TestThisCluster:
    async def test_is_followed(self, link: NodeLink, server: FakeApiServer) -> None:
        server.create(NODES, node("a"))
        server.create(NODES, node("ours", labels={"kwok-operator.io/node-group": "web"}))
        server.create(NODES, leftover("x"))
        await synced(link, server)
        assert (names(link.nodes), link.problem) == ({"a"}, None)
        assert [node.name for node in link.nodes.leftovers] == ["x"]
        server.create(NODES, node("b"))
        server.delete(NODES, "a")
        await until(lambda: names(link.nodes) == {"b"})

    async def test_skips_our_own_nodes(self, link: NodeLink, server: FakeApiServer) -> None:
        await synced(link, server)
        asked = {seen.query["labelSelector"] for seen in server.seen}
        assert asked == {"!kwok-operator.io/node-group"}

    async def test_is_listed_once(self, link: NodeLink, server: FakeApiServer) -> None:
        link.start()
        await synced(link, server)
        assert server.calls["list", "nodes"] == server.calls["watch", "nodes"] == 1

    async def test_goes_on_after_what_nobody_expected(
        self, link: NodeLink, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await synced(link, server)
        with monkeypatch.context() as broken:
            broken.setattr(link.nodes, "upsert", None)
            server.create(NODES, node("b"))
            await until(lambda: not following())
        link.start()
        await until(lambda: names(link.nodes) == {"b"})

    async def test_is_listed_when_needed(self, link: NodeLink, server: FakeApiServer) -> None:
        assert (following(), server.seen, link.problem) == ([], [], None)

    async def test_gives_a_node_whole(self, link: NodeLink, server: FakeApiServer) -> None:
        server.create(NODES, node("a"))
        found = await link.get(f"{NODES}/a")
        assert found is not None and found["status"]["capacity"]["cpu"] == "8"
        assert await link.get(f"{NODES}/b") is None

    async def test_can_be_out_of_reach(self, link: NodeLink, server: FakeApiServer) -> None:
        server.cut(times=20, verb="get")
        with pytest.raises(ApiUnreachableError):
            await link.get(f"{NODES}/a")

    async def test_a_trouble_before_the_first_listing_is_a_problem_at_once(
        self, link: NodeLink, server: FakeApiServer
    ) -> None:
        server.fail(403, times=1_000, verb="list", message="nodes is forbidden")
        link.start()
        await until(lambda: link.problem)
        assert "403: nodes is forbidden" in str(link.problem)
        assert "grant the verbs list and watch on nodes" in str(link.problem)

    async def test_a_later_one_is_when_it_has_lasted(
        self, link: NodeLink, server: FakeApiServer, clock: Clock, news: News
    ) -> None:
        server.create(NODES, node("a"))
        await synced(link, server)
        news.told.clear()
        server.fail(500, times=1_000, verb="watch", message="etcd is away")
        server.cut_watches()
        await until(lambda: server.calls["watch", "nodes"] > 3)
        assert link.problem is None
        clock.now += PATIENCE - 1
        assert link.problem is None
        clock.now += 1
        assert "etcd is away" in str(link.problem)
        assert names(link.nodes) == {"a"}, "what was known stays"
        assert set(news.told) == {()}, "any group may be affected"

    async def test_one_trouble_after_the_other_is_one_that_lasts(
        self, link: NodeLink, server: FakeApiServer, clock: Clock
    ) -> None:
        await synced(link, server)
        server.fail(500, times=3, verb="watch")
        server.fail(403, times=1_000, verb="watch", message="no more")
        server.cut_watches()
        await until(lambda: server.calls["watch", "nodes"] > 1)
        clock.now += PATIENCE
        await until(lambda: "no more" in str(link.problem))

    async def test_is_reported_when_it_begins_to_count(
        self, client: KubeClient, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PATIENCE", 0.05)
        told: list[str | None] = []
        link: NodeLink
        link = NodeLink(
            client=client,
            place="here",
            changed=lambda _: told.append(link.problem),
            clock=time.monotonic,
        )
        await synced(link, server)
        server.fail(500, times=10_000, verb="watch", message="etcd is away")
        server.cut_watches()
        await until(lambda: "etcd is away" in str(told[-1]))
        await link.close()

    async def test_is_reported_when_it_is_over(
        self, link: NodeLink, server: FakeApiServer, clock: Clock, news: News
    ) -> None:
        await synced(link, server)
        released = server.hold(verb="watch")
        server.cut_watches()
        await until(lambda: server.calls["watch", "nodes"] > 1)
        clock.now += PATIENCE
        assert link.problem is not None
        news.told.clear()
        released.set()
        await until(lambda: link.problem is None)
        assert news.told == [()]

    async def test_nodes_stay_while_it_is_away_and_are_right_after(
        self, link: NodeLink, server: FakeApiServer, clock: Clock
    ) -> None:
        server.create(NODES, node("a"))
        await synced(link, server)
        await server.stop()
        server.store.compact()
        server.create(NODES, node("b"))
        server.delete(NODES, "a")
        await lasting(link, clock, "refused")
        assert names(link.nodes) == {"a"}
        await server.start()
        await until(lambda: link.problem is None and names(link.nodes) == {"b"})

    async def test_can_be_closed_after_it_has_ended_by_a_mistake_of_ours(
        self, link: NodeLink, caplog: pytest.LogCaptureFixture
    ) -> None:
        link.nodes.replace = None  # type: ignore[assignment, method-assign]
        link.start()
        await until(lambda: following() == [])
        await link.close()
        assert "follow this cluster has ended" in caplog.text

    async def test_closing_twice_or_before_the_start_is_fine(self, link: NodeLink) -> None:
        await link.close()
        link.start()
        await link.close()
        await link.close()
