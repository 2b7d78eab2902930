"""`kwok-operator install` and `uninstall`: flags, what is printed, and what an API server is asked.

- one of --dry-run and --apply has to be said; values that can't be used are told with a remedy
- --dry-run prints all objects of an overlay, the CRDs too, with namespace and image as wanted
- what comes along is of this version, and its CRDs are those of crds/
- apply: created, unchanged, configured; other people's namespaces and fields are left; a kind that
  the cluster doesn't have is told before anything is written
- remove: what was applied, the CRDs first and the namespace last, nothing else
"""

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from kwok_operator import __version__
from kwok_operator.cli.install import all_manifests, manifests
from kwok_operator.cli.install_settings import (
    DEFAULT_OVERLAY,
    InstallSettings,
    add_install_flags,
    install_settings,
    overlays,
)
from kwok_operator.cli.installer import MANAGER, Installer, InstallError
from kwok_operator.cli.main import main as cli
from kwok_operator.constants import INSTALL_IMAGE
from kwok_operator.core.manifests import Manifest, image_name, reference
from kwok_operator.errors import SettingsError
from kwok_operator.kube.client import KubeClient
from kwok_operator.models.crd import custom_resource_definition, pool_definition
from tests.fakes.apiserver import NODES
from tests.fakes.applying import ACCOUNTS, CRDS, DEPLOYMENTS, NAMESPACES, ApplyingApiServer
from tests.fakes.rows import each_row

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


async def removed(server: ApplyingApiServer, *, really: bool = True) -> Said:
    said = Said()
    async with KubeClient(connection=server.connection()) as client:
        await said.installer(client).remove(WANTED, really=really)
    return said


def writes(server: ApplyingApiServer) -> list[tuple[str, str]]:
    return [(s.verb, s.name) for s in server.seen if s.verb not in ("get", "list")]


@pytest.mark.parametrize("arguments", [[], ["--dry-run", "--apply"]], ids=["neither", "both"])
def test_what_to_do_has_to_be_said(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("install", "uninstall"):
        assert cli([command, *arguments]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert "--dry-run" in told.err and "--apply" in told.err
        assert len(told.err.splitlines()) == 1


@each_row(
    "flag value",
    [
        ("overlay", "nothing"),
        ("overlay", "crds"),
        ("overlay", "../overlays/default"),
        ("namespace", "Ops"),
        ("namespace", "a/b"),
        ("image", ""),
        ("image", "a b"),
        ("image", "https://a"),
        ("timeout", "0"),
        ("timeout", "2m"),
        ("timeout", "9" * 5000),
    ],
)
def test_a_value_that_is_none_is_told_with_its_flag_or_variable(flag: str, value: str) -> None:
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


def printed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[Manifest]:
    assert cli(["install", "--dry-run", *arguments]) == 0
    return list(yaml.load_all(capsys.readouterr().out, Loader=yaml.CSafeLoader))


def test_a_dry_run_prints_what_can_be_applied(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys=capsys)
    kinds = [item["kind"] for item in found]
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-1] == "Deployment"
    assert found == manifests(settings("--dry-run"))


def test_a_dry_run_has_the_namespace_and_the_image(capsys: pytest.CaptureFixture[str]) -> None:
    image = "registry.example.com/fakes/operator:2"
    found = printed("--namespace=fakes", f"--image={image}", capsys=capsys)
    assert found[0]["metadata"]["name"] == "fakes"
    assert "kwok-operator" not in {item["metadata"].get("namespace") for item in found}
    assert found[-1]["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_the_default_overlay_is_there() -> None:
    assert DEFAULT_OVERLAY in overlays()


def test_help_says_what_each_overlay_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli(["install", "--help"])
    told = capsys.readouterr().out.partition("overlays:\n")[2].splitlines()
    found = dict(line.split(maxsplit=1) for line in told)
    assert list(found) == overlays()
    assert found["default"] == "The operator alone."


@each_row("overlay", overlays())
def test_what_comes_along_is_of_this_version(overlay: str) -> None:
    found = manifests(settings("--dry-run", f"--overlay={overlay}"))
    pods = [m["spec"]["template"]["spec"] for m in found if m["kind"] == "Deployment"]
    containers = [
        c for pod in pods for k in ("containers", "initContainers") for c in pod.get(k, ())
    ]
    ours = {c["image"] for c in containers if image_name(c["image"]) == INSTALL_IMAGE}
    assert ours == {f"{INSTALL_IMAGE}:{__version__}"}
    crds = [m for m in found if m["kind"] == "CustomResourceDefinition"]
    originals = [pool_definition(), custom_resource_definition()]
    assert [(crd["spec"], crd["metadata"]["name"]) for crd in crds] == [
        (crd["spec"], crd["metadata"]["name"]) for crd in originals
    ]


def test_what_is_removed_is_of_all_overlays() -> None:
    everything = {reference(manifest) for manifest in all_manifests(settings("--apply"))}
    for overlay in overlays():
        found = manifests(settings("--apply", f"--overlay={overlay}"))
        assert {reference(manifest) for manifest in found} <= everything


async def test_apply_creates_and_then_changes_nothing() -> None:
    async with ApplyingApiServer("ops") as server:
        assert await applied(server) == [f"{name} created" for name in NAMES]
        assert await applied(server) == [f"{name} unchanged" for name in NAMES]
        assert {seen.query["fieldManager"] for seen in server.seen if seen.verb == "patch"} == {
            MANAGER
        }


async def test_apply_says_what_it_has_changed() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server)
        server.patch(DEPLOYMENTS.format("ops"), "it", {"spec": {"replicas": 3}})
        assert (await applied(server))[-1] == f"{NAMES[-1]} configured"
        assert server.objects(DEPLOYMENTS.format("ops"))["it"]["spec"]["replicas"] == 1


async def test_a_namespace_that_was_there_is_somebody_elses() -> None:
    async with ApplyingApiServer("ops") as server:
        server.create(NAMESPACES, {"metadata": {"name": "ops", "labels": {"theirs": "yes"}}})
        before = dict(server.objects(NAMESPACES)["ops"])
        assert (await applied(server))[0] == "namespace/ops left as it is: it was there before"
        said = await removed(server)
        assert "namespace/ops left" in said[-1]
        assert server.objects(NAMESPACES)["ops"] == before


async def test_a_kind_that_the_cluster_does_not_have_is_told_before_anything_is_written() -> None:
    monitor = object_of("ServiceMonitor", "monitoring.coreos.com/v1", "it", "ops")
    async with ApplyingApiServer("ops") as server:
        with pytest.raises(InstallError) as told:
            await applied(server, [*WANTED, monitor])
        assert writes(server) == []
    assert "servicemonitor.monitoring.coreos.com/it" in str(told.value)
    assert "ServiceMonitor (monitoring.coreos.com/v1)" in str(told.value)
    assert "--overlay" in str(told.value)


async def test_other_peoples_fields_are_left_unless_forced() -> None:
    async with ApplyingApiServer("ops") as server:
        server.others = {"it": "kubectl-edit"}
        with pytest.raises(InstallError) as told:
            await applied(server)
        assert f"applying {NAMES[2]} in ops" in str(told.value)
        assert '"kubectl-edit"' in str(told.value)
        assert "--force-conflicts" in str(told.value)
        assert (await applied(server, force=True))[-1] == f"{NAMES[-1]} created"


async def test_who_may_not_is_told_what_and_what_to_do() -> None:
    async with ApplyingApiServer("ops") as server:
        server.fail(403, verb="patch", reason="Forbidden", message="you may not")
        with pytest.raises(InstallError, match=f"applying {NAMES[0]}: you may not; use an account"):
            await applied(server)


async def test_a_namespace_that_is_missing_is_told() -> None:
    async with ApplyingApiServer() as server:
        server.fail(404, verb="patch", resource="serviceaccounts", reason="NotFound")
        server.serve(ACCOUNTS.format("ops"), kind="ServiceAccount")
        with pytest.raises(InstallError, match="there is no namespace ops; create it"):
            await applied(server)


async def test_a_crd_that_is_not_served_in_time_is_told() -> None:
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


async def test_remove_deletes_the_crds_first_and_the_namespace_last() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server)
        said = await removed(server)
        order = [NAMES[1], NAMES[3], NAMES[2], NAMES[0]]
        assert said == [f"{name} deleted" for name in order]
        for path in (NAMESPACES, CRDS, ACCOUNTS.format("ops"), DEPLOYMENTS.format("ops")):
            assert server.objects(path) == {}
        assert await removed(server) == [], "there is nothing left to say"


async def test_a_kind_is_read_before_its_crd_is_deleted() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server)
        server.seen.clear()
        await removed(server)
        asked = [(seen.verb, seen.resource) for seen in server.seen]
        read = asked.index(("list", "kwoknodegroups"))
        assert read < asked.index(("delete", "customresourcedefinitions"))


async def test_without_really_nothing_is_deleted() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server)
        server.seen.clear()
        assert sorted(await removed(server, really=False)) == sorted(
            f"{name} would be deleted" for name in NAMES
        )
        assert writes(server) == []


async def test_what_others_applied_is_not_removed() -> None:
    async with ApplyingApiServer("ops") as server:
        server.create(ACCOUNTS.format("ops"), {"metadata": {"name": "it"}})
        assert await removed(server) == [
            f"{NAMES[2]} left as it is: `kwok-operator install` did not apply it"
        ]
        assert writes(server) == []


async def test_remove_waits_for_the_nodes_but_not_for_ever() -> None:
    async with ApplyingApiServer("ops") as server:
        await applied(server)
        label = {"kwok-operator.io/node-group": "g"}
        server.create(NODES, {"metadata": {"name": "g-1", "labels": label}})
        said = await removed(server)
        assert said[1:3] == [
            "waiting until the nodes of the groups are gone",
            "nodes are still there: the cluster's garbage collector goes on",
        ]
        assert said[-1] == f"{NAMES[0]} deleted"
