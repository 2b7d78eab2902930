"""The files of a rehearsal, however they are written."""

import gzip
import json
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kwok_operator.cli.main import main
from kwok_operator.rehearsal import outputs
from tests.fakes.rehearsed import content, random_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / outputs.RECORDING).write_bytes(content(random_run(8)))
    return tmp_path


def test_two_writers_leave_whole_files(folder: Path) -> None:
    found = outputs.judge(folder)

    def slow() -> Iterator[bytes]:
        outputs.write(found, folder)
        yield from found.trace

    written = outputs.write(replace(found, trace=slow()), folder)
    assert json.loads(gzip.decompress((folder / outputs.TRACE).read_bytes()))
    assert sorted(folder.iterdir()) == sorted([*written, folder / outputs.RECORDING])


def test_where_there_is_no_room_all_files_stay_as_they_were(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / outputs.VERDICT).write_text("old")
    before = sorted(folder.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))  # the page is larger
    try:
        assert main(["report", str(folder)]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "give --output a folder with more room" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before
    assert (folder / outputs.VERDICT).read_text() == "old"


def test_no_report_is_written_beside_a_rehearsal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = folder / f".{outputs.TRACE}.0.new"
    half.touch()
    with outputs.begun(folder):
        assert not half.exists()
        (folder / outputs.RECORDING).write_bytes(content(random_run(8)))
        assert main(["report", str(folder)]) == 2
        assert "another rehearsal" in capsys.readouterr().err
        assert [path.name for path in folder.iterdir()] == [outputs.RECORDING]
    assert main(["report", str(folder)]) < 2
