"""`kwok-operator install` and `uninstall`: flags, output, and requests to the API server."""

import argparse
import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
import yaml

from kwok_operator import __version__
from kwok_operator.cli import install
from kwok_operator.cli.install import (
    MANAGER,
    Installer,
    InstallError,
    all_manifests,
    as_yaml,
    manifests,
)
from kwok_operator.cli.install_settings import (
    InstallSettings,
    add_install_flags,
    install_settings,
    overlays,
)
from kwok_operator.cli.main import main as cli
from kwok_operator.clusterapi.crds import emulated_crds
from kwok_operator.constants import INSTALL_IMAGE
from kwok_operator.errors import SettingsError
from kwok_operator.formats.manifests import Manifest, image_name, reference
from kwok_operator.kube.client import KubeClient
from kwok_operator.schema.definitions import definitions
from tests.fakes.apiserver import NODES
from tests.fakes.applying import ACCOUNTS, CRDS, DEPLOYMENTS, NAMESPACES, ApplyingApiServer

CRD_NAME = "kwoknodegroups.kwok-operator.io"


def settings(*arguments: str, **environ: str) -> InstallSettings:
    parser = argparse.ArgumentParser()
    add_install_flags(parser)
    parser.set_defaults(command="install")
    return install_settings(parser.parse_args(arguments), environ)


def object_of(kind: str, version: str, name: str, namespace: str = "", **rest: Any) -> Manifest:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


KIND_OF_CRD = {
    "group": "kwok-operator.io",
    "names": {"plural": "kwoknodegroups"},
    "versions": [{"name": "v1alpha1"}],
}
WANTED = [
    object_of("Namespace", "v1", "ops"),
    object_of("CustomResourceDefinition", "apiextensions.k8s.io/v1", CRD_NAME, spec=KIND_OF_CRD),
    object_of("ServiceAccount", "v1", "it", "ops"),
    object_of("Deployment", "apps/v1", "it", "ops", spec={"replicas": 1}),
]
NAMES = [reference(manifest) for manifest in WANTED]


class Said(list[str]):
    """The lines, and an installer that says them; it waits without taking time."""

    def installer(self, client: KubeClient, *, force: bool = False) -> Installer:
        async def sleep(_: float) -> None:
            await asyncio.sleep(0)

        return Installer(client=client, say=self.append, timeout=2, force=force, sleep=sleep)


async def applied(
    server: ApplyingApiServer, wanted: Sequence[Manifest] = WANTED, *, force: bool = False
) -> Said:
    said = Said()
    async with KubeClient(connection=server.connection()) as client:
        await said.installer(client, force=force).apply(wanted)
    return said


async def removed(server: ApplyingApiServer) -> Said:
    said = Said()
    async with KubeClient(connection=server.connection()) as client:
        await said.installer(client).remove(WANTED)
    return said


def writes(server: ApplyingApiServer) -> list[tuple[str, str]]:
    return [(s.verb, s.name) for s in server.seen if s.verb not in ("get", "list")]


@pytest.mark.parametrize(
    "arguments",
    [["install"], ["install", "--dry-run", "--apply"], ["uninstall"]],
    ids=["neither", "both", "uninstall"],
)
def test_one_action_is_needed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "--apply" in told.err
    assert len(told.err.splitlines()) == 1


def test_a_value_that_is_none_is_reported_with_its_flag_or_variable() -> None:
    for flag, values in {
        "overlay": ("nothing", "crds", "../overlays/default"),
        "image": ("", "a b", "https://a"),
        "timeout": ("0", "2m", "9" * 5000),
    }.items():
        for value in values:
            with pytest.raises(SettingsError, match=f"--{flag}: '"):
                settings("--apply", f"--{flag}={value}")
            if value:
                variable = f"KWOK_OPERATOR_{flag.upper()}"
                with pytest.raises(SettingsError, match=f"{variable}: '"):
                    settings("--apply", **{variable: value})


def test_flags_win_over_variables() -> None:
    given = settings("--apply", "--image=mine:1", KWOK_OPERATOR_IMAGE="theirs:1")
    assert given.image == "mine:1"
    assert settings("--apply", KWOK_OPERATOR_IMAGE="theirs:1").image == "theirs:1"
    assert settings("--apply").image is None


def test_a_dry_run_prints_what_can_be_applied(capsys: pytest.CaptureFixture[str]) -> None:
    image = "registry.example.com/fakes/operator:2"
    assert cli(["install", "--dry-run", f"--image={image}"]) == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert found == manifests("default", image=image)
    kinds = [item["kind"] for item in found]
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-1] == "Deployment"
    assert found[-1]["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_help_says_what_each_overlay_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli(["install", "--help"])
    told = capsys.readouterr().out.partition("overlays:\n")[2].splitlines()
    found = dict(line.split(maxsplit=1) for line in told)
    assert list(found) == overlays()
    assert found["default"] == "The operator alone."


def test_what_comes_along_is_of_this_version_and_can_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(install, "_packaged", lru_cache(install._packaged))
    packaged = all_manifests()
    assert list(yaml.safe_load_all(as_yaml(packaged))) == packaged
    everything = {reference(manifest) for manifest in packaged}
    for overlay in overlays():
        found = manifests(overlay)
        pods = [m["spec"]["template"]["spec"] for m in found if m["kind"] == "Deployment"]
        containers = [
            c for pod in pods for k in ("containers", "initContainers") for c in pod.get(k, ())
        ]
        ours = {c["image"] for c in containers if image_name(c["image"]) == INSTALL_IMAGE}
        assert ours == {f"{INSTALL_IMAGE}:{__version__}"}, overlay
        crds = [m for m in found if m["kind"] == "CustomResourceDefinition"]
        assert [(crd["spec"], crd["metadata"]["name"]) for crd in crds] == [
            (crd["spec"], crd["metadata"]["name"]) for crd in definitions()
        ], overlay
        assert {reference(manifest) for manifest in found} <= everything, overlay


async def test_what_is_applied_is_removed_the_crds_first_and_the_namespace_last() -> None:
    async with ApplyingApiServer("ops") as server:
        assert await applied(server) == [f"{name} applied" for name in NAMES]
        assert {seen.query["fieldManager"] for seen in server.seen if seen.verb == "patch"} == {
            MANAGER
        }
        server.seen.clear()
        order = [NAMES[1], NAMES[3], NAMES[2], NAMES[0]]
        assert await removed(server) == [f"{name} deleted" for name in order]
        for path in (NAMESPACES, CRDS, ACCOUNTS.format("ops"), DEPLOYMENTS.format("ops")):
            assert server.objects(path) == {}
        # A kind is read before its CRD goes.
        asked = [(seen.verb, seen.resource) for seen in server.seen]
        read = asked.index(("list", "kwoknodegroups"))
        assert read < asked.index(("delete", "customresourcedefinitions"))
        assert await removed(server) == [], "there is nothing left to say"


async def test_a_namespace_that_was_there_is_somebody_elses() -> None:
    async with ApplyingApiServer("ops") as server:
        server.create(NAMESPACES, {"metadata": {"name": "ops", "labels": {"theirs": "yes"}}})
        before = dict(server.objects(NAMESPACES)["ops"])
        assert (await applied(server))[0] == "namespace/ops left as it is: it was there before"
        said = await removed(server)
        assert "namespace/ops left" in said[-1]
        assert server.objects(NAMESPACES)["ops"] == before


async def test_a_kind_that_the_cluster_lacks_is_reported_before_any_write() -> None:
    monitor = object_of("ServiceMonitor", "monitoring.coreos.com/v1", "it", "ops")
    async with ApplyingApiServer("ops") as server:
        with pytest.raises(InstallError) as told:
            await applied(server, [*WANTED, monitor])
        assert writes(server) == []
    assert "servicemonitor.monitoring.coreos.com/it" in str(told.value)
    assert "ServiceMonitor (monitoring.coreos.com/v1)" in str(told.value)
    assert "--overlay" in str(told.value)


async def test_what_is_refused_is_reported_with_a_remedy() -> None:
    async with ApplyingApiServer("ops") as server:
        server.others = {"it": "kubectl-edit"}
        with pytest.raises(InstallError, match=f"applying {NAMES[2]} in ops: .*kubectl-edit") as no:
            await applied(server)
        assert "--force-conflicts" in str(no.value)
        assert await applied(server, force=True) == [f"{name} applied" for name in NAMES]
        server.fail(403, verb="patch", reason="Forbidden", message="you may not")
        with pytest.raises(InstallError, match=f"applying {NAMES[0]}: you may not; use an account"):
            await applied(server)
        server.fail(404, verb="patch", resource="serviceaccounts", reason="NotFound")
        with pytest.raises(InstallError, match="there is no namespace ops; create it"):
            await applied(server)


async def test_a_crd_that_is_not_served_in_time_is_reported() -> None:
    async with ApplyingApiServer("ops") as server:
        server.established = False
        with pytest.raises(InstallError, match=f"{NAMES[1]} is not served after 2 s"):
            await applied(server)


async def test_wait_ends_when_the_deployment_is_there_or_too_late() -> None:
    async with (
        ApplyingApiServer("ops") as server,
        KubeClient(connection=server.connection()) as client,
    ):
        said = Said()
        installer = said.installer(client)
        await installer.apply(WANTED)
        with pytest.raises(
            InstallError, match=r"deployment\.apps/it is not available after 2 s; `kub"
        ):
            await installer.wait_until_available(WANTED)
        counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 1)
        status = {"status": {**counts, "observedGeneration": 9}}
        server.patch(DEPLOYMENTS.format("ops"), "it", status, subresource="status")
        await installer.wait_until_available(WANTED)
        assert said[-1] == "deployment.apps/it available"


async def test_what_others_applied_is_not_removed() -> None:
    async with ApplyingApiServer("ops") as server:
        server.create(ACCOUNTS.format("ops"), {"metadata": {"name": "it"}})
        assert await removed(server) == [
            f"{NAMES[2]} left as it is: `kwok-operator install` did not apply it"
        ]
        assert writes(server) == []


def node_of(owner: str, name: str, *finalizers: str) -> Manifest:
    owners = [{"apiVersion": "kwok-operator.io/v1alpha1", "kind": owner, "name": "g", "uid": "u"}]
    labels = {"kwok-operator.io/node-group": "g"}
    metadata = {"name": name, "labels": labels, "finalizers": [*finalizers]}
    return {"metadata": metadata | ({"ownerReferences": owners} if owner else {})}


async def test_remove_deletes_the_nodes_of_groups_and_no_others() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server)
        for name, owner in (("g-1", "KwokNodeGroup"), ("kept", ""), ("theirs", "Other")):
            server.create(NODES, node_of(owner, name))
        said = await removed(server)
        assert said[1] == "deleting the nodes of the groups"
        assert server.objects(NODES).keys() == {"kept", "theirs"}
        assert said[-1] == f"{NAMES[0]} deleted"


async def test_remove_waits_for_a_node_that_is_kept_but_not_for_ever() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server)
        server.create(NODES, node_of("KwokNodeGroup", "g-1", "example.com/kept"))
        said = await removed(server)
        assert "nodes are still there: something keeps them, such as a finalizer" in said
        assert said[-1] == f"{NAMES[0]} deleted"


async def test_nodes_stay_where_only_the_crds_of_cluster_api_go() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server, emulated_crds())
        server.create(NODES, node_of("KwokNodeGroup", "g-1"))
        said = Said()
        async with KubeClient(connection=server.connection()) as client:
            await said.installer(client).remove(emulated_crds())
        assert server.objects(NODES).keys() == {"g-1"}


def test_the_crds_of_cluster_api_come_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["install", "--dry-run", "--clusterapi-crds=capi.example.com"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == emulated_crds("capi.example.com")
    assert settings("--apply", "--clusterapi-crds").clusterapi_group == "cluster.x-k8s.io"
    for bad in ("", "nodot", "Upper.case"):
        with pytest.raises(SettingsError, match="--clusterapi-crds"):
            settings("--apply", f"--clusterapi-crds={bad}")


async def test_crds_of_a_real_cluster_api_are_not_overwritten_even_by_force() -> None:
    async with ApplyingApiServer() as server:
        crds = emulated_crds()
        await applied(server, crds)
        await applied(server, crds)
        real = server.store.collections[CRDS].objects["machines.cluster.x-k8s.io"]
        del real["metadata"]["annotations"]
        before = len(writes(server))
        with pytest.raises(InstallError, match=r"machines\.cluster\.x-k8s\.io"):
            await applied(server, crds, force=True)
        assert len(writes(server)) == before
