"""The management cluster, read from an API server in the same process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kwok_operator.clusterapi.derive import CapiTemplates
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.management import Management
from kwok_operator.clusterapi.scalable import Kind
from kwok_operator.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clusterapi import GROUP, ROOT, serve
from tests.fakes.waiting import until

INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
TEMPLATES = f"/apis/{INFRASTRUCTURE}/v1/dockermachinetemplates"


def deployment(name: str, **reference: str) -> dict[str, Any]:
    ref = {"apiGroup": INFRASTRUCTURE, "kind": "DockerMachineTemplate", "name": "small"}
    machine = {"infrastructureRef": ref | reference}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 0, "template": {"spec": machine}},
    }


class Reading:
    """A Management that runs."""

    def __init__(self, client: KubeClient, **options: Any) -> None:
        self.news = 0
        self.naps: list[float] = []
        options = {"keys": Keys(), "version": "", "namespace": "", **options}
        self.of = Management(client=client, changed=self._changed, sleep=self._sleep, **options)

    def _changed(self) -> None:
        self.news += 1

    async def _sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await asyncio.sleep(0.005)

    @property
    def names(self) -> set[str]:
        return {each.id for each in self.of.scalables()}

    def templates(self) -> CapiTemplates | None:
        return self.of.templates(self.of.scalables())

    def trouble(self) -> str:
        found = self.templates()
        return next(iter(found.trouble.values()), "") if found is not None else ""


Start = Callable[..., Reading]


@pytest.fixture
async def read(server: FakeApiServer) -> AsyncIterator[Start]:
    async with reading(server) as start:
        yield start


@asynccontextmanager
async def reading(server: FakeApiServer) -> AsyncIterator[Start]:
    tasks: list[asyncio.Task[None]] = []
    async with KubeClient(connection=server.connection()) as client:

        def start(**options: Any) -> Reading:
            found = Reading(client, **options)
            tasks.append(asyncio.create_task(found.of.run()))
            return found

        yield start
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends


class TestScalables:
    async def test_all_kinds_that_are_served_are_read(
        self, server: FakeApiServer, read: Start
    ) -> None:
        serve(server, GROUP, ["v1beta2", "v1beta1"], "MachineDeployment", "MachineSet", "Machine")
        server.create(f"{ROOT}/machinedeployments", deployment("a"))
        server.create(f"{ROOT}/machinesets", deployment("b"))
        found = read()
        await until(lambda: found.of.complete)
        assert found.names == {"MachineDeployment/default/a", "MachineSet/default/b"}
        assert found.of.kinds == {Kind.MACHINE_DEPLOYMENT, Kind.MACHINE_SET}
        news = found.news
        server.delete(f"{ROOT}/machinesets", "b")
        await until(lambda: found.news > news)
        assert found.names == {"MachineDeployment/default/a"}

    async def test_a_kind_that_comes_later_is_read_then(
        self, server: FakeApiServer, read: Start
    ) -> None:
        serve(server, GROUP, ["v1beta2"], "MachineDeployment", "MachineSet")
        found = read()
        await until(lambda: found.of.complete)
        serve(server, GROUP, ["v1beta2"], "MachineDeployment", "MachineSet", "MachinePool")
        server.create(f"{ROOT}/machinepools", deployment("c"))
        await until(lambda: found.names == {"MachinePool/default/c"})

    @pytest.mark.parametrize(("version", "namespace"), [("", ""), ("v1beta1", "prod")])
    async def test_where_they_are_read(
        self, server: FakeApiServer, read: Start, version: str, namespace: str
    ) -> None:
        serve(server, GROUP, ["v1beta2", "v1beta1"], "MachineDeployment")
        root = f"/apis/{GROUP}/{version or 'v1beta2'}"
        place = f"{root}/namespaces/{namespace}" if namespace else root
        if namespace:
            server.serve(f"{place}/machinedeployments", kind="MachineDeployment")
        server.create(f"{place}/machinedeployments", deployment("a"))
        found = read(version=version, namespace=namespace)
        await until(lambda: found.names)

    @pytest.mark.parametrize(
        ("before", "version"), [([], ""), (["v1beta1"], "v1beta2")], ids=["group", "version"]
    )
    async def test_an_api_that_is_not_served_yet_is_logged_once(
        self,
        server: FakeApiServer,
        read: Start,
        before: list[str],
        version: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.WARNING, "kwok_operator")
        if before:
            serve(server, GROUP, before, "MachineDeployment")
        found = read(version=version)
        await until(lambda: len(found.naps) > 3)
        assert not found.of.complete
        (told,) = [record.getMessage() for record in caplog.records]
        assert GROUP in told
        serve(server, GROUP, ["v1beta2", *before], "MachineDeployment")
        await until(lambda: found.of.complete)

    async def test_a_cut_loses_nothing(self, server: FakeApiServer, read: Start) -> None:
        serve(server, GROUP, ["v1beta2"], "MachineDeployment")
        server.create(f"{ROOT}/machinedeployments", deployment("a"))
        found = read()
        await until(lambda: found.names and server.watchers)
        server.fail(404, times=3)
        server.cut_watches()
        await until(lambda: server.calls["list", "machinedeployments"] > 1)
        assert found.names and found.of.complete


class TestTemplates:
    @pytest.fixture(autouse=True)
    def scalables(self, server: FakeApiServer) -> None:
        serve(server, GROUP, ["v1beta2"], "MachineDeployment")
        server.create(f"{ROOT}/machinedeployments", deployment("a"))

    def provide(self, server: FakeApiServer, *versions: str) -> None:
        serve(server, INFRASTRUCTURE, list(versions or ("v1",)), "DockerMachineTemplate")
        path = f"/apis/{INFRASTRUCTURE}/{versions[0] if versions else 'v1'}/dockermachinetemplates"
        status = {"capacity": {"cpu": "2"}, "other": "x"}
        body = {"metadata": {"name": "small", "namespace": "default"}, "status": status}
        server.create(path, body)

    def known(self, found: Reading) -> dict[str, Any]:
        templates = found.templates()
        bodies = list(templates.readable.values()) if templates is not None else []
        return dict(bodies[0]["status"]) if bodies else {}

    async def test_are_looked_up(self, server: FakeApiServer, read: Start) -> None:
        self.provide(server)
        found = read()
        await until(lambda: self.known(found))
        assert self.known(found) == {"capacity": {"cpu": "2"}, "nodeInfo": None}
        news = found.news
        server.patch(TEMPLATES, "small", {"status": {"other": "y"}}, subresource="status")
        server.patch(
            TEMPLATES, "small", {"status": {"capacity": {"cpu": "4"}}}, subresource="status"
        )
        await until(lambda: found.news > news)
        assert found.news == news + 1, "what isn't read is no news"
        assert self.known(found)["capacity"] == {"cpu": "4"}

    async def test_that_are_not_served_are_a_sentence_until_they_are(
        self, server: FakeApiServer, read: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "kwok_operator")
        found = read()
        await until(found.trouble)
        assert f"dockermachinetemplates.{INFRASTRUCTURE}" in found.trouble()
        naps = len(found.naps)
        await until(lambda: len(found.naps) > naps + 2)
        assert len(caplog.records) == 1, "it is told once"
        self.provide(server)
        await until(lambda: self.known(found))
        assert found.trouble() == ""

    async def test_whose_reference_is_no_name_are_a_sentence_for_that_object_alone(
        self, server: FakeApiServer, read: Start
    ) -> None:
        self.provide(server)
        for name, group in (("odd", "../api/v1"), ("versioned", f"{GROUP}/v1beta2")):
            server.create(f"{ROOT}/machinedeployments", deployment(name, apiGroup=group))
        found = read()
        await until(lambda: found.templates() is not None and self.known(found))
        told = found.templates()
        assert told is not None
        assert {ref.group for ref in told.trouble} == {"../api/v1", f"{GROUP}/v1beta2"}
        assert "/api/v1" not in {seen.resource for seen in server.seen}

    async def test_that_may_not_be_read_are_a_sentence_until_they_may(
        self, server: FakeApiServer, read: Start
    ) -> None:
        self.provide(server)
        server.fail(403, times=50, verb="list", resource="dockermachinetemplates")
        found = read()
        await until(found.trouble)
        assert "grant" in found.trouble()
        await until(lambda: self.known(found))

    async def test_of_a_busy_server_are_waited_for(
        self, server: FakeApiServer, read: Start
    ) -> None:
        """For a while: an empty answer would change nodes that are there."""
        self.provide(server)
        released = server.hold(verb="list", resource="dockermachinetemplates")
        server.cut(times=9, verb="list", resource="dockermachinetemplates")
        found = read()
        await until(lambda: found.of.complete)
        assert found.templates() is None
        released.set()
        await until(lambda: found.templates() is not None)
        assert self.known(found) and not found.trouble()

    async def test_once_known_stay_known(self, server: FakeApiServer, read: Start) -> None:
        self.provide(server)
        found = read()
        await until(lambda: self.known(found) and len(server.watchers) == 2)
        asked = server.calls["list", "dockermachinetemplates"]
        server.fail(403, times=4, resource="dockermachinetemplates")
        server.cut_watches()
        await until(lambda: server.calls["list", "dockermachinetemplates"] > asked)
        assert self.known(found) and not found.trouble()
