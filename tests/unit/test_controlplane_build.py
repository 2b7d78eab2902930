"""Builds, with a Go toolchain that writes scripts."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwok_operator.controlplane.errors import BuildError, ToolchainError
from kwok_operator.controlplane.golang import find_go
from kwok_operator.controlplane.settings import Settings
from kwok_operator.controlplane.tools import find_tools
from kwok_operator.reporter import Reporter

from .controlplane_fakes import SETS, TOOLS, all_tools, go, quiet, script, settings_for

ROOT = Path(__file__).parents[2]


def test_everything_is_built(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, go(tmp_path / "go").parent)
    reporter, said = quiet()
    tools = find_tools(settings, reporter=reporter)
    assert list(tools.paths) == TOOLS
    assert all(path.is_relative_to(settings.cache / "tools") for path in tools.paths.values())
    assert not list(settings.cache.rglob(".tmp-*"))
    assert [line for line in said.getvalue().splitlines() if line.startswith("built")] == [
        "built kwok in 0s",
        "built etcd in 0s",
        "built kubernetes-1.36 in 0s",
    ]


def test_only_what_is_missing_is_built(tmp_path: Path) -> None:
    path = all_tools(tmp_path / "path", leave_out=["kube-scheduler"])
    settings = settings_for(tmp_path, path, go(tmp_path / "go").parent)
    reporter, said = quiet()
    tools = find_tools(settings, reporter=reporter)
    assert tools["kube-apiserver"] == path / "kube-apiserver"
    assert tools["kube-scheduler"].is_relative_to(settings.cache)
    assert "built etcd" not in said.getvalue()


def test_go_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = go(tmp_path / "old", version="1.20.1")
    new = go(tmp_path / "new", version="1.26.0")
    settings = Settings(cache=tmp_path / "cache", search_path=(old.parent, new.parent))
    reporter, said = quiet()
    assert find_go(minimum=(1, 26, 0), settings=settings, reporter=reporter) == new
    assert f"not using {old}: it is Go 1.20.1, not 1.26.0" in said.getvalue()


def test_go_from_pypi_that_was_installed_before(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path / "cache")
    venv = settings.cache / "go" / "1.26"
    installed = go(venv / "lib/python3.99/site-packages/go/bin")
    (venv / "complete").touch()
    assert find_go(minimum=(1, 26, 0), settings=settings, reporter=quiet()[0]) == installed


@pytest.mark.parametrize("half_made", [True, False])
def test_neither_go_nor_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half_made: bool
) -> None:
    settings = Settings(cache=tmp_path / "cache")
    if half_made:
        go(settings.cache / "go/1.26/lib/python3.99/site-packages/go/bin")
    python = script(tmp_path / "python3", "echo No module named venv >&2; exit 1")
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ToolchainError, match=r"could not be installed(.|\n)*No module named venv"):
        find_go(minimum=(1, 26, 0), settings=settings, reporter=quiet()[0])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("echo cannot compile this; exit 1", r"failed\n  cannot compile", id="error"),
        pytest.param(
            "echo a.go: No space left on device >&2; echo goroutine 1 >&2; exit 1",
            r"\(the disk is full\)\n  a.go: No space left on device\n  the",
            id="disk full",
        ),
        pytest.param(
            'cd "$out"; printf "#!/bin/sh\\necho v0.0.0-master" >kwokctl; chmod +x kwokctl; exit',
            "kwokctl reports version 0.0.0",
            id="no version",
        ),
    ],
)
def test_a_failed_build(tmp_path: Path, command: str, message: str) -> None:
    settings = settings_for(tmp_path, go(tmp_path / "go", before_build=command).parent)
    with pytest.raises(BuildError, match=message):
        find_tools(settings, reporter=quiet()[0])
    assert [path for path in settings.cache.rglob("tools/**/*") if path.is_file()] == []


def test_the_log_is_named_and_kept(tmp_path: Path) -> None:
    command = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do echo line $i.; done; exit 1"
    settings = settings_for(tmp_path, go(tmp_path / "go", before_build=command).parent)
    with pytest.raises(BuildError) as caught:
        find_tools(settings, reporter=quiet()[0])
    message = str(caught.value)
    assert "line 2." not in message
    assert "line 17." in message
    log = settings.cache / "logs" / "build-kwok.log"
    assert message.endswith(f"the whole log: {log}")
    assert "line 1." in log.read_text(encoding="utf-8")


def test_variables_of_other_builds_are_left_out(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    fake = go(tmp_path / "go", before_build=f"env >> {seen}")
    foreign = {"GOOS": "plan9", "GOROOT": "/nowhere", "GOWORK": "/nowhere/go.work"}
    settings = settings_for(tmp_path, fake.parent, environ={**foreign, "GOPROXY": "http://mine"})
    find_tools(settings, reporter=quiet()[0])
    lines = seen.read_text(encoding="utf-8").splitlines()
    assert {"GOWORK=off", "CGO_ENABLED=0", "GOPROXY=http://mine"} <= set(lines)
    assert not [line for line in lines if "plan9" in line or "nowhere" in line]


class Clock:
    """A clock by which every question is ten seconds later."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


class Findings(io.StringIO):
    """A stream that lets the build go on when progress was told."""

    def __init__(self, *, then: Path) -> None:
        super().__init__()
        self._then = then

    def write(self, text: str) -> int:
        if "packages" in text and "packages" not in self.getvalue():
            self._then.write_text("go on\n", encoding="ascii")
        return super().write(text)


def test_progress_names_the_packages(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    fake = go(tmp_path / "go", before_build=f"echo first package >&2; read line <{go_on}")
    path = all_tools(tmp_path / "path", leave_out=["etcd"])
    told = Findings(then=go_on)
    reporter = Reporter(told, clock=Clock())
    find_tools(settings_for(tmp_path, path, fake.parent), reporter=reporter)
    assert "etcd: 1 of up to 2 packages, 0s\n" in told.getvalue()


@pytest.fixture
def takes_signals() -> Iterator[None]:
    """A shell has what it runs in the background ignore SIGINT, and what that starts likewise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_build_that_is_ended(tmp_path: Path, number: signal.Signals, takes_signals: None) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    fake = go(
        tmp_path / "go", before_build=f'echo half >"$out/kwok"; echo $$ >{started}; exec sleep 60'
    )
    settings = settings_for(tmp_path, fake.parent)
    run = subprocess.Popen(
        [sys.executable, "-m", "kwok_operator.controlplane", "tools"],
        cwd=ROOT,
        env=settings.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    builder = int(started.read_text(encoding="ascii"))
    run.send_signal(number)
    output = run.communicate()[0]
    if number == signal.SIGKILL:
        os.kill(builder, signal.SIGKILL)
    else:
        assert run.returncode == 130, output
        assert output.endswith("interrupted\n")
        with pytest.raises(ProcessLookupError):
            os.kill(builder, 0)
        assert not list(settings.cache.rglob(".tmp-*"))
    target = settings.tool_directory(set_name="kwok", version=SETS["kwok"].version)
    assert not list(target.glob("kwok*"))

    go(tmp_path / "go")
    reporter, said = quiet()
    assert find_tools(settings, reporter=reporter)["kwok"] == target / "kwok"
    assert "waiting" not in said.getvalue()
    assert not list(settings.cache.rglob(".tmp-*"))
