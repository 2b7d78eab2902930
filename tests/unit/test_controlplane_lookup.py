"""Where a tool is taken from, with programs that do nothing but report a version."""

from pathlib import Path

import pytest

from hack.tools import METRICS_SERVER, PROMETHEUS
from kwok_operator.controlplane.errors import ControlPlaneError
from kwok_operator.controlplane.locate import reported_version
from kwok_operator.controlplane.settings import Settings
from kwok_operator.controlplane.tools import find_kubectl, find_set, find_tools
from kwok_operator.controlplane.toolsets import read

from .controlplane_fakes import (
    KUBERNETES,
    SETS,
    TOOLS,
    all_tools,
    quiet,
    script,
    settings_for,
    tool,
)


def fill_cache(settings: Settings) -> None:
    """Tools that fail when they are started: a complete cache is trusted."""
    for toolset in SETS.values():
        for name in toolset.tools:
            directory = settings.tool_directory(set_name=toolset.name, version=toolset.version)
            script(directory / name, "exit 1")


def test_the_cache_comes_first(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, all_tools(tmp_path / "path"))
    fill_cache(settings)
    reporter, said = quiet()
    tools = find_tools(settings, reporter=reporter)
    assert list(tools.paths) == TOOLS
    assert all(path.is_relative_to(settings.cache) for path in tools.paths.values())
    assert said.getvalue() == ""


def test_assets_come_before_path(tmp_path: Path) -> None:
    assets = all_tools(tmp_path / "assets", leave_out=["kwok"])
    path = all_tools(tmp_path / "path")
    settings = settings_for(tmp_path, path, environ={"KUBEBUILDER_ASSETS": str(assets)})
    tools = find_tools(settings, reporter=quiet()[0])
    assert tools["etcd"] == assets / "etcd"
    assert tools["kwok"] == path / "kwok"
    assert tools.versions["kubernetes"] == SETS["kubernetes"].version


def test_wrong_versions_are_refused(tmp_path: Path) -> None:
    for name in TOOLS:
        tool(tmp_path / "old", name, "0.1.2")
    good = all_tools(tmp_path / "good")
    reporter, said = quiet()
    tools = find_tools(settings_for(tmp_path, tmp_path / "old", good), reporter=reporter)
    for name in TOOLS:
        assert tools[name] == good / name
        assert f"not using {tmp_path / 'old' / name}: its version is 0.1.2" in said.getvalue()


def test_the_same_refused_program_is_asked_once(tmp_path: Path) -> None:
    old = tool(tmp_path / "old", "etcd", "0.1.2")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "etcd").symlink_to(old)
    settings = settings_for(tmp_path, old.parent, tmp_path / "again", all_tools(tmp_path / "good"))
    reporter, said = quiet()
    find_tools(settings, reporter=reporter)
    assert said.getvalue().count("not using") == 1


def test_a_program_without_a_version(tmp_path: Path) -> None:
    for body in ("exit 0", "echo v1.36.3; exit 1", "echo version one"):
        assert reported_version(script(tmp_path / "etcd", body)) == (), body
    (tmp_path / "etcd").write_bytes(b"\x7fELF of another machine")
    assert reported_version(tmp_path / "etcd") == ()


def test_a_file_that_is_not_executable_is_no_tool(tmp_path: Path) -> None:
    tool(tmp_path / "path", "etcd", SETS["etcd"].version).chmod(0o644)
    settings = settings_for(tmp_path, tmp_path / "path", all_tools(tmp_path / "good"))
    reporter, said = quiet()
    assert find_tools(settings, reporter=reporter)["etcd"] == tmp_path / "good" / "etcd"
    assert said.getvalue() == ""


def test_any_kubectl_does_for_a_borrowed_cluster(tmp_path: Path) -> None:
    path = tool(tmp_path / "path", "kubectl", "1.2.3")
    assert find_kubectl(settings_for(tmp_path, path.parent)) == path


def test_kubectl_from_the_cache_does_too(tmp_path: Path) -> None:
    cached = tool(tmp_path / f"cache/tools/kubernetes-{KUBERNETES}/v1.36.9", "kubectl", "1.36.9")
    settings = Settings(cache=tmp_path / "cache", search_path=(tmp_path / "empty",))
    assert find_kubectl(settings) == cached


def test_no_kubectl_at_all(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="not on PATH"):
        find_kubectl(Settings(cache=tmp_path))


def test_prometheus_is_found_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "path"
    for name in ("prometheus", "promtool"):
        tool(path, name, "2.42.0")
    settings = settings_for(tmp_path, path)
    tools = find_set(PROMETHEUS, settings=settings, reporter=quiet()[0])
    assert dict(tools.paths) == {name: path / name for name in ("prometheus", "promtool")}


def test_a_directory_that_is_no_set(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    (tmp_path / "etcd" / "go.mod").touch()
    for name in ("prometheus", "unknown", "etcd"):
        with pytest.raises(ControlPlaneError, match=f"reading .*{name}: it is no directory with"):
            find_set(tmp_path / name, settings=settings_for(tmp_path), reporter=quiet()[0])


def test_so_is_metrics_server(tmp_path: Path) -> None:
    version = read(METRICS_SERVER).version
    path = tool(tmp_path / "path", "metrics-server", version)
    settings = settings_for(tmp_path, path.parent)
    tools = find_set(METRICS_SERVER, settings=settings, reporter=quiet()[0])
    assert (dict(tools.paths), dict(tools.versions)) == (
        {"metrics-server": path},
        {"metrics-server": version},
    )
