"""The generated messages belong to the .proto files beside them."""

import shutil
from pathlib import Path

import pytest

from hack.protos import DIRECTORY, ROOT, main


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Another place with the same files."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / DIRECTORY, tmp_path / DIRECTORY, ignore=ignored)
    return tmp_path


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / DIRECTORY).iterdir() if path.is_file()}


def test_what_is_committed_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_stale_files_are_renewed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed = contents(checkout)
    directory = checkout / DIRECTORY
    (directory / "health_pb2.py").unlink()
    (directory / "kubernetes_pb2.pyi").write_text("# edited\n")
    (directory / "gone_pb2.py").write_text("# its .proto file is no more\n")
    before = contents(checkout)
    assert main(["--check"], root=checkout) == 1
    told = capsys.readouterr().err
    assert "gone_pb2.py, health_pb2.py, kubernetes_pb2.pyi; run `python -m hack.protos`" in told
    assert contents(checkout) == before
    assert main([], root=checkout) == 0
    assert contents(checkout) == committed


def test_a_new_field_makes_the_files_stale(checkout: Path) -> None:
    proto = checkout / DIRECTORY / "health.proto"
    proto.write_text(proto.read_text().replace("service = 1;", "service = 1;\n  string more = 2;"))
    assert main(["--check"], root=checkout) == 1


def test_a_mistake_writes_nothing(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (checkout / DIRECTORY / "health.proto").write_text("syntax = 'proto3'; message {}")
    before = contents(checkout)
    assert main([], root=checkout) == 1
    told = capfd.readouterr().err
    assert "health.proto:1:" in told
    assert "its message is above" in told
    assert contents(checkout) == before
