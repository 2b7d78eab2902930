"""The command line of the control plane."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwok_operator.controlplane import Settings
from kwok_operator.controlplane.__main__ import main
from kwok_operator.controlplane.lifecycle import get, names

from .controlplane_fakes import TOOLS, machine


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    settings = machine(tmp_path)
    for name, value in settings.environ.items():
        monkeypatch.setenv(name, value)
    handler = signal.getsignal(signal.SIGTERM)
    yield settings
    main(["down", "--all"])
    signal.signal(signal.SIGTERM, handler)


def test_up_says_how_to_use_it(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--name", "one"]) == 0
    output = capsys.readouterr().out
    assert "cluster one is ready, Kubernetes 1.36" in output
    assert f"export KUBECONFIG={get('one', settings=settings).kubeconfig}\n" in output
    assert "export PATH" not in output, "kubectl is on PATH"
    assert "down --name one" in output


@pytest.mark.parametrize(
    ("arguments", "same"), [([], True), (["--fresh"], False), (["--built-in-stages"], False)]
)
def test_up_again(settings: Settings, arguments: list[str], same: bool) -> None:
    main(["up"])
    pid = get(settings=settings).pid("etcd")
    main(["up", *arguments])
    assert (get(settings=settings).pid("etcd") == pid) is same


def test_kubeconfig(tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    main(["up", "--name", "one"])
    capsys.readouterr()
    assert main(["kubeconfig", "--name", "one"]) == 0
    assert capsys.readouterr().out == f"{get('one', settings=settings).kubeconfig}\n"
    (tmp_path / "silent").touch()
    assert main(["kubeconfig", "--name", "one"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: reaching cluster one: it does not answer")


@pytest.mark.parametrize(
    ("arguments", "left"), [(["--name", "one"], ["two"]), (["--all"], [])], ids=["one", "all"]
)
def test_down(settings: Settings, arguments: list[str], left: list[str]) -> None:
    main(["up", "--name", "one"])
    main(["up", "--name", "two"])
    assert main(["down", *arguments]) == 0
    assert names(settings=settings) == left


def test_tools(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == TOOLS
    assert all(os.access(line.split()[1], os.X_OK) for line in lines)


def test_tools_for_a_borrowed_cluster(
    tmp_path: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KWOK_OPERATOR_TEST_KUBECONFIG", str(tmp_path / "theirs"))
    (tmp_path / "path" / "etcd").unlink()
    assert main(["tools"]) == 0
    assert capsys.readouterr().out.split() == ["kubectl", str(tmp_path / "path" / "kubectl")]


def test_an_error_is_one_line(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES_VERSION", "1.12")
    assert main(["up"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: choosing a Kubernetes version: '1.12' is not known")
    assert output.err.count("\n") == 1


def test_help_names_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("tools", "up", "down", "kubeconfig", "KUBERNETES_VERSION", "KWOK_OPERATOR_CACHE"):
        assert word in text
