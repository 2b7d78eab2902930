"""The tool sets of a cluster."""

import re
from pathlib import Path

import pytest

from hack.tools import METRICS_SERVER, PROMETHEUS
from kwok_operator.controlplane.errors import UnknownVersion
from kwok_operator.controlplane.settings import DEFAULT_KUBERNETES_VERSION, SETS_DIRECTORY
from kwok_operator.controlplane.toolsets import known_versions, load, parse, read

from .controlplane_fakes import SETS

ALL_SETS = sorted(path.parent for path in SETS_DIRECTORY.glob("*/go.mod"))


@pytest.mark.parametrize("directory", [*ALL_SETS, METRICS_SERVER, PROMETHEUS])
def test_every_set_can_be_read(directory: Path) -> None:
    toolset = read(directory)
    assert toolset.go >= (1, 25)
    assert (directory / "go.sum").stat().st_size > 0
    text = (directory / "go.mod").read_text(encoding="utf-8")
    packages = re.findall(rf"^(?:tool|\t)\s*({toolset.family.module}\S*)$", text, re.MULTILINE)
    programs = [package.rpartition("/cmd/")[2] for package in packages]
    wanted = [toolset.family.module] if toolset.family.built_as else toolset.tools
    assert sorted(programs) == sorted(wanted)


@pytest.mark.parametrize("minor", known_versions(SETS_DIRECTORY))
def test_one_kubernetes_release_per_set(minor: str) -> None:
    directory = SETS_DIRECTORY / f"kubernetes-{minor}"
    toolset = read(directory)
    assert toolset.version.startswith(f"{minor}.")
    text = (directory / "go.mod").read_text(encoding="utf-8")
    staged = re.findall(r"=> k8s\.io/\S+ v(\S+)$", text, re.MULTILINE)
    assert len(staged) > 30
    assert set(staged) == {f"0.{toolset.version.partition('.')[2]}"}


def test_the_default_version_and_another_are_known() -> None:
    known = known_versions(SETS_DIRECTORY)
    assert DEFAULT_KUBERNETES_VERSION in known
    assert len(known) > 1


def test_versions_are_sorted_as_numbers(tmp_path: Path) -> None:
    for name in ("kubernetes-1.9", "kubernetes-1.10", "etcd"):
        (tmp_path / name).mkdir()
    assert known_versions(tmp_path) == ["1.9", "1.10"]


@pytest.mark.parametrize("version", ["1.36", "v1.36"])
def test_kwok_comes_first(version: str) -> None:
    sets = load(sets_directory=SETS_DIRECTORY, kubernetes_version=version)
    assert [toolset.name for toolset in sets] == ["kwok", "etcd", "kubernetes-1.36"]


@pytest.mark.parametrize("version", ["1.12", "latest", "", "1.36/../etcd"])
def test_an_unknown_version_names_the_known(version: str) -> None:
    with pytest.raises(UnknownVersion, match=r"'.*' is not known; .* 1\.35 or 1\.36"):
        load(sets_directory=SETS_DIRECTORY, kubernetes_version=version)


@pytest.mark.parametrize(
    ("family", "change", "accepted"),
    [
        ("kwok", (0, 0, 0), True),
        ("kwok", (0, 0, 1), False),
        ("etcd", (0, 0, 1), True),
        ("etcd", (0, 1, 0), False),
        ("kubernetes", (0, 0, 1), True),
        ("kubernetes", (0, -1, 0), False),
    ],
)
def test_which_versions_are_accepted(family: str, change: tuple[int, ...], accepted: bool) -> None:
    version = tuple(a + b for a, b in zip(parse(SETS[family].version), change, strict=True))
    assert SETS[family].accepts(version) is accepted
    assert not SETS[family].accepts(())


def test_what_is_built_reports_its_version() -> None:
    toolset = SETS["kubernetes"]
    assert f"component-base/version.gitVersion=v{toolset.version}" in toolset.ldflags
    assert "-X" not in SETS["etcd"].ldflags


def test_prometheus_is_called_as_it_is_released() -> None:
    toolset = read(PROMETHEUS)
    text = (toolset.directory / "go.mod").read_text(encoding="utf-8")
    major, minor, patch = parse(toolset.version)
    assert f"github.com/prometheus/prometheus v0.{major}{minor:02}.{patch}" in text
    assert toolset.ldflags.endswith(f"version.Version={toolset.version}")


def test_any_prometheus_that_is_not_too_old_will_do() -> None:
    toolset = read(PROMETHEUS)
    accepted = {(2, 39, 9): False, (2, 40, 0): True, (3, 99, 0): True, (): False}
    assert {version: toolset.accepts(version) for version in accepted} == accepted
    assert toolset.wanted == "2.40.0 or newer"
