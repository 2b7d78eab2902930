"""Files that users name are read where they have an end, wherever they are named; nothing waits.

- a FIFO, a device, an endless file, a folder, one that is too large: one sentence each
- whatever reads such files: validate, scenarios, prices, tables, traces, kubeconfigs
"""

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
    for odd in (tmp_path / "fifo", tmp_path, "/dev/zero"):
        with pytest.raises(OSError, match="no ordinary file"):
            read_bytes(odd)


PROGRAMS = {
    "validate": "from kwok_operator.cli.validate import read_texts; read_texts([path])",
    "scenario": "from kwok_operator.rehearsal.surroundings import read_text; read_text(path)",
    "prices": "from kwok_operator.importing.importer import _prices; _prices(path)",
    "table": "from kwok_operator.importing.anonymizing import read_table; read_table(path)",
    "kubeconfig": "from kwok_operator.kube.kubeconfig import read_kubeconfig;"
    " read_kubeconfig(path)",
    "trouble": "from kwok_operator.shim.troublefile import read_plan; read_plan(path)",
    "trace": "from kwok_operator.importing.traces.files import *;"
    " list(read_trace(path, clean=None, told=Told()))",
    "apply": "from kwok_operator.rehearsal.surroundings import LocalSurroundings as L;"
    " L(path.parent / 's').material('/proc/kmsg')",
}


@pytest.mark.parametrize("reader", PROGRAMS)
def test_nobody_waits_for_a_fifo(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "s").touch()
    code = f"import sys; from pathlib import Path; path = Path(sys.argv[1])\n{PROGRAMS[reader]}"
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "fifo"],
        timeout=30,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ordinary file" in ran.stderr or "file nor a folder" in ran.stderr, ran.stderr
