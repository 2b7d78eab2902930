"""The pods of deleted nodes: removed at once, where that is allowed."""

import pytest

from kwok_operator.errors import ServerError
from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.podwriter import PODS_PATH, PodRemover
from tests.fakes.apiserver import FakeApiServer

NAMESPACED = "/api/v1/namespaces/default/pods"


class World:
    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.told: list[tuple[str, str]] = []
        self.spent = 0
        self.remover = PodRemover(client=client, count_request=self._spend, refused=self._refused)

    def _spend(self) -> None:
        self.spent += 1

    def _refused(self, group: str, sentence: str) -> None:
        self.told.append((group, sentence))

    def pod(self, name: str) -> None:
        """Known under both paths, as the fake knows collections by their paths."""
        pod = {"metadata": {"name": name, "namespace": "default"}}
        uid = self.server.create(PODS_PATH, pod)["metadata"]["uid"]
        self.server.create(NAMESPACED, {"metadata": {**pod["metadata"], "uid": uid}})


@pytest.fixture
def world(server: FakeApiServer, client: KubeClient) -> World:
    for path in (PODS_PATH, NAMESPACED):
        server.serve(path, kind="Pod")
    return World(server, client)


async def test_the_pods_of_a_node_go(world: World) -> None:
    for name in ("a", "b"):
        world.pod(name)
    await world.remover.remove("web-1", group="web")
    listed = next(seen for seen in world.server.seen if seen.verb == "list")
    assert listed.query["fieldSelector"] == "spec.nodeName=web-1"
    assert world.server.calls["delete", "pods"] == 2
    assert world.spent == 3
    assert world.told == []


async def test_a_pod_that_is_gone_is_no_error(world: World) -> None:
    world.server.create(PODS_PATH, {"metadata": {"name": "a", "namespace": "default"}})
    await world.remover.remove("web-1", group="web")
    assert world.told == []


async def test_another_pod_that_took_the_name_stays(world: World) -> None:
    for path in (PODS_PATH, NAMESPACED):
        world.server.create(path, {"metadata": {"name": "a", "namespace": "default", "uid": path}})
    await world.remover.remove("web-1", group="web")
    assert "a" in world.server.objects(NAMESPACED)
    assert world.told == []


@pytest.mark.parametrize("verb", ["list", "delete"])
async def test_a_refusal_is_told_once_for_each_group(world: World, verb: str) -> None:
    world.pod("a")
    world.server.fail(403, times=10, verb=verb, resource="pods", message="pods is forbidden")
    for group in ("web", "web", "batch"):
        await world.remover.remove(f"{group}-1", group=group)
    assert [group for group, _ in world.told] == ["web", "batch"]
    assert world.told[0][1] == (
        "scaleDown.pods is Delete, but pods of deleted nodes stay, because the operator may not "
        "delete them: pods is forbidden. To allow it: kubectl apply -f "
        "deploy/components/delete-pods/rbac.yaml"
    )


async def test_what_can_pass_is_an_error(world: World) -> None:
    world.server.fail(500, resource="pods")
    with pytest.raises(ServerError):
        await world.remover.remove("web-1", group="web")
    assert world.told == []
