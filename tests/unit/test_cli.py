"""The command line: --version, --help, and what a wrong flag or variable ends with."""

import sys
from pathlib import Path

import pytest

from kwok_operator import __version__, controlplane
from kwok_operator.__main__ import start
from kwok_operator.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--version"], f"kwok-operator {__version__}\n"),
        (["--help"], "run the operator"),
        (["run", "--help"], "KWOK_OPERATOR_MAX_TOTAL_NODES"),
    ],
)
def test_what_is_asked_for_is_printed(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run", "x"], ["compare", "a", "--x", "b"]])
def test_what_is_no_command_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_wrong_setting_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWOK_OPERATOR_LISTEN", "8080")
    for arguments, name in ((["--listen=x"], "--listen"), ([], "KWOK_OPERATOR_LISTEN")):
        assert main(["run", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"kwok-operator: {name}: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["shim", "--listen=unix:/tmp/unused.sock"],
        ["install", "--apply"],
        ["uninstall", "--apply"],
        ["import", "--output=/tmp/unused"],
        ["record", "--output=/tmp/unused"],
        ["replay", "--clean"],
        ["rehearse", "--clear"],
        ["explain-pod", "default/web"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_kubeconfig_is_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--kubeconfig=/nowhere"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "kwok-operator: there is no kubeconfig at /nowhere: check --kubeconfig"


def test_a_cache_that_can_not_be_cleared_is_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWOK_OPERATOR_CACHE", str(tmp_path))
    (tmp_path / "clusters" / "rehearsals-1.used").mkdir(parents=True)
    assert main(["rehearse", "--clear", "--reuse"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "rehearsals-1.used" in line


def test_clusters_in_use_are_not_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWOK_OPERATOR_CACHE", str(tmp_path))
    with controlplane.free_name("rehearsals", settings=controlplane.Settings(cache=tmp_path)):
        assert main(["rehearse", "--clear", "--reuse"]) == 1
    assert capsys.readouterr().err == "cluster rehearsals-1 stays, as another process is using it\n"
    assert main(["rehearse", "--clear", "--reuse"]) == 0


@pytest.mark.parametrize("arguments", [["rehearse", "--reuse"], ["shrink"]])
def test_what_needs_linux_is_refused_elsewhere(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlplane, "CAN_REWIND", False)
    assert main([*arguments, "deploy/scenarios/smoke.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "works on Linux only" in line


def test_an_interrupt_during_imports_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "kwok_operator.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "kwok_operator.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert start() == 130
