"""Files that users name are read where they have an end, wherever they are named; nothing waits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kwok_operator.userfiles import read_bytes


def test_a_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_bytes(file, limit=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bytes(file, limit=4)
    # It says that it is empty.
    assert read_bytes("/proc/self/status")


def test_what_has_no_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for odd, words in (
        (tmp_path / "fifo", "no ordinary file"),
        (tmp_path, "is a directory"),
        ("/dev/zero", "no ordinary file"),
    ):
        with pytest.raises(OSError, match=words):
            read_bytes(odd)
    assert read_bytes("/dev/null") == b""


def test_a_pipe_of_the_command_line_is_read_up_to_the_limit() -> None:
    code = "from kwok_operator.userfiles import *; print(len(read_bytes({}, limit=9, given=True)))"
    for path, said in (("'/dev/stdin'", "5"), ("'/dev/zero'", "has more than 9 bytes")):
        ran = _run(code.format(path), stdin="12345")
        assert said in ran.stdout + ran.stderr


PROGRAMS = {
    "table": "from kwok_operator.importing.anonymizing import read_table; read_table(path)",
    "token": "from kwok_operator.kube.connection import read_token; read_token(str(path))",
    "trace": "from kwok_operator.rehearsal.surroundings import LocalSurroundings as L;"
    " L(path.parent / 's').check_trace('fifo')",
    "apply": "from kwok_operator.rehearsal.surroundings import LocalSurroundings as L;"
    " L(path.parent / 's').material('/proc/kmsg')",
    "digest": "from kwok_operator.comparison.loading import _content;"
    " _content([path, Path('/proc/kmsg')]); exit('ordinary file')",
}


@pytest.mark.parametrize("reader", PROGRAMS)
def test_a_fifo_is_not_waited_for(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "s").touch()
    code = f"import sys; from pathlib import Path; path = Path(sys.argv[1])\n{PROGRAMS[reader]}"
    ran = _run(code, str(tmp_path / "fifo"))
    assert "ordinary file" in ran.stderr or "file nor a folder" in ran.stderr, ran.stderr


def _run(code: str, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        input=stdin,
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
