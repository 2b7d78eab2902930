"""The flags of `kwok-operator run` that are about Cluster API."""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.clusterapi.discovery import Discovery
from kwok_operator.clusterapi.machines import FailureStyle
from kwok_operator.clusterapi.management import management_connection
from kwok_operator.clusterapi.settings import (
    ClusterApiSettings,
    Mode,
    Replicas,
    add_clusterapi_flags,
    clusterapi_settings,
)
from kwok_operator.errors import ConnectionConfigError, SettingsError
from kwok_operator.kube.config import load_connection
from tests.fakes.certificates import Certificates
from tests.fakes.kubeconfigs import kubeconfig

MIRROR, EMULATE = "--clusterapi=mirror", "--clusterapi=emulate"
CLOUD_CONFIG, AUTHORITATIVE = "--cloud-config", "--clusterapi-cloud-config-authoritative"
DISCOVERY = "--node-group-auto-discovery"


def parse(*arguments: str, **environ: str) -> ClusterApiSettings | None:
    parser = argparse.ArgumentParser()
    add_clusterapi_flags(parser)
    return clusterapi_settings(parser.parse_args(arguments), environ)


def on(*arguments: str, **environ: str) -> ClusterApiSettings:
    settings = parse(*arguments, **environ)
    assert settings is not None
    return settings


def test_it_is_off_by_default() -> None:
    assert parse() is parse("--clusterapi=off") is parse(CAPI_GROUP="x", CAPI_VERSION="!") is None


def test_defaults_are_those_of_cluster_autoscaler() -> None:
    settings = on(MIRROR)
    assert (settings.keys.group, settings.version) == ("cluster.x-k8s.io", "")
    assert (settings.default_arch, settings.discoveries) == ("amd64", ())
    assert (settings.cloud_config, settings.authoritative) == (None, False)
    assert (settings.replicas, settings.failures) == (Replicas.FOLLOW, FailureStyle.V1BETA2)


# Flag, mode, two texts with the values they mean, and the setting.
GOOD: list[tuple[str, str, tuple[str, Any], tuple[str, Any], Callable[[Any], Any]]] = [
    ("cloud-config", "mirror", ("/a", "/a"), ("b", "b"), lambda s: s.cloud_config),
    (
        "clusterapi-cloud-config-authoritative",
        "mirror",
        ("true", True),
        ("False", False),
        lambda s: s.authoritative,
    ),
    (
        "clusterapi-replicas",
        "mirror",
        ("once", Replicas.ONCE),
        ("follow", Replicas.FOLLOW),
        lambda s: s.replicas,
    ),
    (
        "clusterapi-failures",
        "emulate",
        ("v1beta1", FailureStyle.V1BETA1),
        ("v1beta2", FailureStyle.V1BETA2),
        lambda s: s.failures,
    ),
    (
        "node-group-auto-discovery",
        "mirror",
        ("clusterapi:namespace=a,team=b", (Discovery(namespace="a", labels={"team": "b"}),)),
        ("clusterapi:", (Discovery(),)),
        lambda s: s.discoveries,
    ),
]


@pytest.mark.parametrize(("flag", "mode", "first", "second", "read"), GOOD)
def test_a_flag_and_its_variable_set_one_setting(
    flag: str, mode: str, first: Any, second: Any, read: Callable[[Any], Any]
) -> None:
    asked, variable = f"--clusterapi={mode}", f"KWOK_OPERATOR_{flag.replace('-', '_').upper()}"
    for text, value in (first, second):
        assert read(on(asked, f"--{flag}={text}")) == value
        assert read(on(asked, **{variable: text})) == value
    assert read(on(asked, f"--{flag}={first[0]}", **{variable: second[0]})) == first[1]
    assert on(KWOK_OPERATOR_CLUSTERAPI=mode).mode is Mode(mode)


def test_several_discoveries_are_flags_or_words_of_the_variable() -> None:
    texts = ("clusterapi:clusterName=a", "clusterapi:x=y")
    flags = [f"{DISCOVERY}={text}" for text in texts]
    of_flags = on(MIRROR, *flags).discoveries
    assert of_flags == (Discovery(cluster_name="a"), Discovery(labels={"x": "y"}))
    variable = {"KWOK_OPERATOR_NODE_GROUP_AUTO_DISCOVERY": "  ".join(texts)}
    assert on(MIRROR, **variable).discoveries == of_flags


def test_the_bare_flag_means_yes_as_with_cluster_autoscaler() -> None:
    assert on(MIRROR, AUTHORITATIVE).authoritative


def test_variables_of_cluster_autoscaler() -> None:
    settings = on(
        MIRROR, CAPI_GROUP="test.k8s.io", CAPI_VERSION="v1", CAPI_SCALE_ZERO_DEFAULT_ARCH="arm64"
    )
    assert settings.keys.min_size.startswith("test.k8s.io/")
    assert (settings.version, settings.default_arch) == ("v1", "arm64")
    assert on(MIRROR, CAPI_SCALE_ZERO_DEFAULT_ARCH="vax").default_arch == "amd64"


@pytest.mark.parametrize(
    ("name", "arguments", "environ"),
    [
        ("--clusterapi", ["--clusterapi=both"], {}),
        ("KWOK_OPERATOR_CLUSTERAPI", [], {"KWOK_OPERATOR_CLUSTERAPI": "yes"}),
        ("CAPI_GROUP", [MIRROR], {"CAPI_GROUP": "Cluster"}),
        ("CAPI_GROUP", [MIRROR], {"CAPI_GROUP": "../pods"}),
        ("CAPI_VERSION", [MIRROR], {"CAPI_VERSION": "v1/../../v1"}),
        (DISCOVERY, [MIRROR, f"{DISCOVERY}=kwok:a=b"], {}),
        (DISCOVERY, [MIRROR, f"{DISCOVERY}=clusterapi:a"], {}),
        (DISCOVERY, [MIRROR, f"{DISCOVERY}=clusterapi:a=b=c"], {}),
        ("--clusterapi-replicas", [MIRROR, "--clusterapi-replicas=twice"], {}),
        (AUTHORITATIVE, [MIRROR, f"{AUTHORITATIVE}=perhaps"], {}),
        # What doesn't go together.
        (CLOUD_CONFIG, [f"{CLOUD_CONFIG}=a"], {}),
        (DISCOVERY, [f"{DISCOVERY}=clusterapi:"], {}),
        (AUTHORITATIVE, [AUTHORITATIVE, "--clusterapi=off"], {}),
        ("--clusterapi-failures", [MIRROR, "--clusterapi-failures=v1beta1"], {}),
        ("--clusterapi-replicas", [EMULATE, "--clusterapi-replicas=once"], {}),
        (CLOUD_CONFIG, [EMULATE, f"{CLOUD_CONFIG}=a"], {}),
        (AUTHORITATIVE, [EMULATE, AUTHORITATIVE], {}),
    ],
)
def test_unusable_settings_are_one_line_that_names_them(
    name: str, arguments: list[str], environ: dict[str, str]
) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(*arguments, **environ)
    assert str(refused.value).startswith(f"{name}: ")
    assert str(refused.value).isprintable()


@pytest.fixture
def pod(tmp_path: Path, certificates: Certificates) -> Path:
    """A service account's directory."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "ca.crt").write_text(certificates.text("ca.crt"))
    (directory / "token").write_text("pod-token\n")
    return directory


HERE = "https://10.96.0.1:443"
TOPOLOGIES: list[tuple[list[str], bool, str, str]] = [
    ([], False, HERE, HERE),
    ([f"{CLOUD_CONFIG}=management"], False, "http://management:80", HERE),
    ([AUTHORITATIVE], True, HERE, "http://workload:80"),
    ([f"{CLOUD_CONFIG}=management"], True, "http://management:80", "http://workload:80"),
    ([], True, "http://workload:80", "http://workload:80"),
    # A file that is named is the management cluster's, whatever is authoritative.
    (
        [f"{CLOUD_CONFIG}=management", AUTHORITATIVE],
        True,
        "http://management:80",
        "http://workload:80",
    ),
]


@pytest.mark.parametrize(("flags", "kubeconfig_given", "management", "workload"), TOPOLOGIES)
async def test_topologies(
    flags: list[str],
    kubeconfig_given: bool,
    management: str,
    workload: str,
    pod: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("management", "workload"):
        kubeconfig(tmp_path / name, server=f"http://{name}:80")
    load = functools.partial(
        load_connection,
        environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
        service_account=pod,
    )
    own = await load(kubeconfig="workload" if kubeconfig_given else None)
    found = await management_connection(on(MIRROR, *flags), workload=own, load=load)
    assert (found.server, own.server) == (management, workload)


@pytest.mark.parametrize(("flag", "value"), [(CLOUD_CONFIG, "=nowhere"), (AUTHORITATIVE, "")])
async def test_a_missing_management_cluster_is_reported_with_its_flag(
    flag: str, value: str, tmp_path: Path
) -> None:
    load = functools.partial(load_connection, environ={}, service_account=tmp_path)
    workload = await load(kubeconfig=kubeconfig(tmp_path / "workload"))
    with pytest.raises(ConnectionConfigError) as refused:
        await management_connection(on(MIRROR, flag + value), workload=workload, load=load)
    assert f"management cluster ({flag})" in str(refused.value)
    assert "--kubeconfig" not in str(refused.value)
