"""Groups of Cluster API's objects are kept as cluster-autoscaler would see them.

Both clusters are one API server in the same process. Who owns which field, and the first size, are
for a real one: tests/e2e/test_clusterapi_mirror.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kwok_operator import constants
from kwok_operator.clusterapi import management
from kwok_operator.clusterapi.discovery import Discovery
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.machines import FailureStyle
from kwok_operator.clusterapi.mirror import Mirror
from kwok_operator.clusterapi.settings import ClusterApiSettings, Mode, Replicas
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.reflector import Reflector
from kwok_operator.nodegroups.client import GROUPS as GROUP_DECODER
from kwok_operator.nodegroups.client import Group, UnreadableGroup
from kwok_operator.nodegroups.groupstore import GroupStore
from tests.fakes.apiserver import GROUPS, FakeApiServer, Seen
from tests.fakes.clusterapi import GROUP, ROOT, serve
from tests.fakes.recording import Clock, RecordedEvents
from tests.fakes.store import Collection, Json, merge_patch
from tests.fakes.waiting import until

DEPLOYMENTS = f"{ROOT}/machinedeployments"
KEYS = Keys()


class GroupFeed:
    """In the place of kopf: hands groups on to the store, and wakes them."""

    def __init__(self, store: GroupStore, wake: Callable[[str], None]) -> None:
        self._store = store
        self._wake = wake
        self._restored = False

    def replace(self, items: Sequence[Group | UnreadableGroup], resource_version: int) -> None:
        gone = self._store.replace(items, version=resource_version, restored=self._restored)
        self._restored = False
        for name in gone | set(self._store.names()):
            self._wake(name)

    def upsert(self, item: Group | UnreadableGroup) -> None:
        if self._store.put(item):
            self._wake(item.name)

    def remove(self, item: Group | UnreadableGroup) -> None:
        self._store.remove(name=item.name, uid=item.uid, version=item.resource_version)
        self._wake(item.name)

    def restored(self) -> None:
        self._restored = True


class Server(FakeApiServer):
    """Server-side apply is here as far as one manager needs it: what it left out is gone."""

    def _serve_object(self, seen: Seen, collection: Collection, subresource: str) -> Json:
        if seen.headers.get("Content-Type") != "application/apply-patch+yaml":
            return super()._serve_object(seen, collection, subresource)
        body = json.loads(seen.body)
        if seen.name not in collection.objects:
            body["metadata"].pop("uid", None)
            return self.store.create(collection, body)
        old = self.store.get(collection, seen.name)
        kept = {key: old["spec"][key] for key in ("targetSize",) if key in old["spec"]}
        new = {**old, "metadata": merge_patch(old["metadata"], body["metadata"])}
        return self.store.update(collection, seen.name, new | {"spec": body["spec"] | kept})


class World:
    """A mirror that runs, and somebody who writes MachineDeployments."""

    def __init__(self, server: Server, client: KubeClient, **options: Any) -> None:
        self.server = server
        self.events = RecordedEvents()
        self.store = GroupStore(clock=Clock())
        fields: dict[str, Any] = {
            "mode": Mode.MIRROR,
            "keys": KEYS,
            "version": "",
            "default_arch": "amd64",
            "discoveries": (),
            "cloud_config": None,
            "authoritative": False,
            "replicas": Replicas.FOLLOW,
            "failures": FailureStyle.V1BETA2,
        }
        self.mirror = Mirror(
            ClusterApiSettings(**fields | options),
            management=client,
            groups=self.store,
            client=client,
            recorder=self.events.as_recorder(),
            sleep=lambda _: asyncio.sleep(0),
        )
        feed = GroupFeed(self.store, self.mirror.group_changed)
        self.reflector = Reflector(
            client=client,
            path=GROUPS,
            decoder=GROUP_DECODER,
            sink=feed,
            on_restored=feed.restored,
        )

    def missed(self) -> bool:
        """Whether all watches know that the server is away."""
        return not (self.reflector.version or self.mirror._management.kinds)

    def deploy(self, name: str, *, replicas: int | None = 0, cpu: str = "4", **fields: Any) -> None:
        annotations = {
            KEYS.max_size: "9",
            "capacity.cluster-autoscaler.kubernetes.io/cpu": cpu,
            "capacity.cluster-autoscaler.kubernetes.io/memory": "8Gi",
        }
        spec = {} if replicas is None else {"replicas": replicas}
        metadata = {"name": name, "namespace": "default", "annotations": annotations}
        body = merge_patch({"metadata": metadata, "spec": spec}, {"metadata": fields})
        if name in self.server.objects(DEPLOYMENTS):
            self.server.patch(DEPLOYMENTS, name, body)
        else:
            self.server.create(DEPLOYMENTS, body)

    def group(self, name: str) -> Json:
        """As it is stored; empty where there is none."""
        return self.server.objects(GROUPS).get(f"default.{name}", {})

    def target(self, name: str) -> int | None:
        found: int | None = self.group(name).get("spec", {}).get("targetSize")
        return found

    def offered(self, name: str) -> bool:
        return "autoscaling" in self.group(name)["spec"]

    def scale(self, name: str, size: int) -> None:
        """The shim does."""
        self.server.patch(GROUPS, f"default.{name}", {"spec": {"targetSize": size}})

    async def seen(self) -> None:
        """All that happened so far has been looked at."""
        self.deploy("last", replicas=(self.target("last") or 0) + 1)
        wanted = self.server.objects(DEPLOYMENTS)["last"]["spec"]["replicas"]
        await until(lambda: self.target("last") == wanted)
        self.mirror.recheck()
        await self.quiet()

    async def quiet(self) -> None:
        async def calls() -> int:
            for _ in range(20):
                await asyncio.sleep(0.002)
            return self.server.calls.total()

        before = -1
        while (now := await calls()) != before:
            before = now


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as server:
        serve(server, GROUP, ["v1beta2"], "MachineDeployment", "MachineSet")
        yield server


@asynccontextmanager
async def mirror(server: Server, **options: Any) -> AsyncIterator[World]:
    async with KubeClient(connection=server.connection()) as client:
        world = World(server, client, **options)
        parts = (world.reflector.run, world.mirror.follow, world.mirror.run)
        tasks = [asyncio.create_task(part()) for part in parts]
        await until(world.reflector.synced.is_set)
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with mirror(server) as world:
        yield world


class TestReplicas:
    async def test_are_followed_whenever_they_change_there(self, world: World) -> None:
        world.deploy("a", replicas=2)
        await until(lambda: world.target("a") == 2)
        world.scale("a", 5)
        await world.seen()
        assert world.target("a") == 5, "who scales the group keeps it"
        world.deploy("a", replicas=2, cpu="8")
        await until(lambda: world.group("a")["spec"]["template"]["shape"]["cpu"] == "8")
        await world.seen()
        assert world.target("a") == 5, "another change is none of replicas"
        world.deploy("a", replicas=3)
        await until(lambda: world.target("a") == 3)

    async def test_that_were_followed_are_remembered(self, server: Server) -> None:
        async with mirror(server) as world:
            world.deploy("a", replicas=2)
            await until(lambda: world.target("a") == 2)
            world.scale("a", 5)
        async with mirror(server) as world:
            await world.seen()
            assert world.target("a") == 5
        server.patch(DEPLOYMENTS, "a", {"spec": {"replicas": 1}})
        async with mirror(server) as world:
            await until(lambda: world.target("a") == 1)

    async def test_beyond_the_bounds_are_the_size_all_the_same(self, world: World) -> None:
        world.deploy("a", replicas=20)
        await until(lambda: world.target("a") == 20)
        assert world.group("a")["spec"]["autoscaling"]["maxSize"] == 20

    async def test_that_are_not_set_give_no_target(self, world: World) -> None:
        world.deploy("a", replicas=None)
        await until(lambda: world.group("a"))
        await world.seen()
        assert world.target("a") is None


class TestConsent:
    async def test_one_bad_annotation_hides_all(self, world: World) -> None:
        for name in ("a", "b"):
            world.deploy(name, replicas=1)
        await until(lambda: all(world.group(n) and world.offered(n) for n in ("a", "b")))
        world.deploy("b", replicas=1, annotations={KEYS.max_size: "many"})
        await until(lambda: not world.offered("a") and not world.offered("b"))
        assert (world.target("a"), world.target("b")) == (1, 1), "nodes stay"
        await until(lambda: {"Hidden", "InvalidBounds"} <= set(world.events.reasons))
        about = {event.reason: event.about for event in world.events.said}
        assert about == {"Hidden": "default.a", "InvalidBounds": "default.b"}
        world.deploy("b", replicas=1, annotations={KEYS.max_size: "3"})
        await until(lambda: world.offered("a") and world.offered("b"))

    async def test_depends_on_the_size_that_the_group_has(self, server: Server) -> None:
        flags = (Discovery(labels={"team": "a"}),)
        async with mirror(server, discoveries=flags) as world:
            world.deploy("a", labels={"team": "a"})
            await until(lambda: world.target("a") == 0 and world.offered("a"))
            world.scale("a", 1)
            await until(lambda: not world.offered("a"))
            world.scale("a", 0)
            await until(lambda: world.offered("a"))

    async def test_of_objects_no_longer_selected_is_withdrawn(self, server: Server) -> None:
        flags = (Discovery(labels={"team": "a"}),)
        async with mirror(server, discoveries=flags) as world:
            world.deploy("a", replicas=0, labels={"team": "a"})
            await until(lambda: world.group("a") and world.offered("a"))
            uid = world.group("a")["metadata"]["uid"]
            world.deploy("a", replicas=0, labels={"team": "b"})
            await until(lambda: not world.offered("a"))
            world.deploy("other", replicas=0, labels={"team": "b"})
            world.deploy("a", replicas=0, labels={"team": "a"})
            await until(lambda: world.offered("a"))
            assert world.group("a")["metadata"]["uid"] == uid
            assert not world.group("other")

    async def test_a_note_is_no_warning(self, world: World) -> None:
        world.deploy("a", annotations={"cluster.x-k8s.io/paused": ""})
        await until(lambda: world.events.said)
        (told,) = world.events.said
        assert (told.kind, told.reason) == ("Normal", "Paused")


class TestRetiring:
    async def test_a_group_goes_with_its_object(self, world: World) -> None:
        world.deploy("a")
        world.deploy("b")
        await until(lambda: world.group("a") and world.group("b"))
        world.server.delete(DEPLOYMENTS, "a")
        await until(lambda: not world.group("a"))
        await world.seen()
        assert world.group("b")

    @pytest.mark.parametrize(
        "of",
        [
            "MachinePool/default/p",
            "MachineDeployment/elsewhere/p",
            "MachineDeployment/default/there",
            "",
        ],
        ids=["kind not served", "another namespace", "another cluster", "somebody else's"],
    )
    async def test_a_group_of_which_nothing_is_known_stays(self, server: Server, of: str) -> None:
        server.store.collections.pop(DEPLOYMENTS)
        place = f"{ROOT}/namespaces/default/machinedeployments"
        for path in (place, place.replace("deployments", "sets")):
            server.serve(path, kind="Machine")
        source = constants.CAPI_SOURCE_ANNOTATION
        here = f"{GROUP} of {server.url}"
        there = {source: "elsewhere" if of.endswith("there") else here}
        annotations = {constants.CAPI_ANNOTATION: of, **there} if of else {}
        name = "elsewhere.p" if "elsewhere" in of else "default.p"
        server.create(GROUPS, {"metadata": {"name": name, "annotations": annotations}, "spec": {}})
        gone = {constants.CAPI_ANNOTATION: "MachineDeployment/default/gone", source: here}
        server.create(
            GROUPS, {"metadata": {"name": "default.gone", "annotations": gone}, "spec": {}}
        )
        async with mirror(server, discoveries=(Discovery(namespace="default"),)) as world:
            await until(lambda: not world.group("gone"))
            await world.quiet()
            assert name in server.objects(GROUPS)

    async def test_a_kind_that_turns_up_while_groups_are_written_takes_none_away(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(management, "KINDS_AGAIN", 0.01)
        pools = f"{ROOT}/machinepools"
        source = {constants.CAPI_SOURCE_ANNOTATION: f"{GROUP} of {server.url}"}
        annotations = {constants.CAPI_ANNOTATION: "MachinePool/default/p", **source}
        server.create(
            GROUPS, {"metadata": {"name": "default.p", "annotations": annotations}, "spec": {}}
        )
        async with mirror(server) as world:
            await until(lambda: world.store.get("default.p"))
            go_on = server.hold(verb="get", resource=constants.PLURAL)
            world.deploy("a")
            await until(lambda: server.calls["get", constants.PLURAL])
            serve(server, GROUP, ["v1beta2"], "MachineDeployment", "MachineSet", "MachinePool")
            server.create(pools, {"metadata": {"name": "p", "namespace": "default"}, "spec": {}})
            await until(lambda: server.calls["watch", "machinepools"])
            go_on.set()
            await until(lambda: world.target("a") == 0)
            world.deploy("b")
            await until(lambda: world.target("b") == 0)
            assert not server.calls["delete", constants.PLURAL]

    async def test_groups_that_a_restore_brings_back_stay_with_their_objects(
        self, server: Server
    ) -> None:
        async with mirror(server) as world:
            world.deploy("a")
            await until(lambda: world.target("a") == 0)
            saved = server.snapshot()
            server.delete(DEPLOYMENTS, "a")
            await until(lambda: not world.group("a"))
            known = server.hold(verb="list", resource="machinedeployments")
            await server.restore(saved, missed=world.missed)
            await until(lambda: world.store.get("default.a"))
            world.mirror.recheck()
            await world.quiet()
            known.set()
            await world.seen()
            assert world.group("a") == saved.collections[GROUPS].objects["default.a"]

    async def test_nothing_goes_before_everything_is_known(self, server: Server) -> None:
        async with mirror(server) as world:
            world.deploy("a")
            await until(lambda: world.group("a"))
        server.store.collections.pop(f"{ROOT}/machinesets")
        server.store.collections.pop(DEPLOYMENTS)
        async with mirror(server) as world:
            await until(
                lambda: server.calls["list", DEPLOYMENTS] or server.calls["get", DEPLOYMENTS]
            )
            await world.quiet()
            assert world.group("a")

    async def test_a_name_that_is_taken_is_left_alone(self, world: World) -> None:
        world.server.create(GROUPS, {"metadata": {"name": "default.a"}, "spec": {"targetSize": 3}})
        world.deploy("a", replicas=1)
        await until(lambda: "NameTaken" in world.events.reasons)
        assert world.group("a")["spec"] == {"targetSize": 3}
        world.server.delete(GROUPS, "default.a")
        await until(lambda: world.target("a") == 1)


async def test_an_unchanged_group_costs_no_request(world: World) -> None:
    world.deploy("a", replicas=1)
    world.deploy("b", replicas=1)
    await until(lambda: world.target("a") == 1 and world.target("b") == 1)
    await world.quiet()
    asked = [seen.verb for seen in world.server.seen if seen.name == "default.a"]
    assert asked == ["get", "patch", "patch"], "read, applied, and its target set"
    writes = world.server.calls["patch", constants.PLURAL]
    world.scale("a", 2)
    world.deploy("c", annotations={KEYS.max_size: "0"})
    await until(lambda: world.target("c") == 0)
    await world.quiet()
    applied = [seen.name for seen in world.server.seen if seen.verb == "patch"][writes:]
    assert set(applied) == {"default.c"}
