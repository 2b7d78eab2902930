"""The lock that lets one run at a time build."""

import errno
import io
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kwok_operator.controlplane.lock import exclusive, hold
from kwok_operator.controlplane.tools import Tools, find_tools
from kwok_operator.reporter import Reporter

from .controlplane_fakes import go, quiet, settings_for

ROOT = Path(__file__).parents[2]


class Heard(io.StringIO):
    """A stream that tells when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.something = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        self.something.set()
        return count


def test_who_waits_says_for_whom(tmp_path: Path) -> None:
    heard = Heard()
    order = []

    def second() -> None:
        with exclusive(tmp_path / "lock", purpose="second", reporter=Reporter(heard)):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(tmp_path / "lock", purpose="which does the first", reporter=quiet()[0]):
        thread.start()
        assert heard.something.wait(timeout=60)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert "which does the first" in heard.getvalue()
    assert "waiting for process " in heard.getvalue()
    assert "second" not in (tmp_path / "lock").read_text(encoding="utf-8")


def test_a_full_disk_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_: Path, __: str, **___: str) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(Path, "write_text", write)
    with exclusive(tmp_path / "lock", purpose="which makes room", reporter=quiet()[0]):
        pass
    with hold(tmp_path / "lock"):
        pass


def test_the_second_run_uses_what_the_first_built(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, go(tmp_path / "go").parent)
    heard = Heard()
    found: list[Tools] = []
    thread = threading.Thread(
        target=lambda: found.append(find_tools(settings, reporter=Reporter(heard)))
    )
    lock = settings.cache / "tools.lock"
    with exclusive(lock, purpose="which builds", reporter=quiet()[0]):
        thread.start()
        assert heard.something.wait(timeout=60)
        other = settings_for(tmp_path, tmp_path / "go", environ={"HOME": str(tmp_path)})
        _build_without_lock(tmp_path, other.cache)
    thread.join()
    assert found
    assert "building" not in heard.getvalue()


def _build_without_lock(tmp_path: Path, cache: Path) -> None:
    """Do what the holder of the lock does, in a cache that is then moved into place."""
    settings = settings_for(
        tmp_path, tmp_path / "go", environ={"KWOK_OPERATOR_CACHE": str(tmp_path / "elsewhere")}
    )
    find_tools(settings, reporter=quiet()[0])
    (settings.cache / "tools").rename(cache / "tools")


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    code = """\
import sys, pathlib
from kwok_operator.controlplane.lock import exclusive
from kwok_operator.reporter import Reporter
with exclusive(pathlib.Path(sys.argv[1]), purpose="held", reporter=Reporter(sys.stderr)):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    reporter, said = quiet()
    with exclusive(tmp_path / "lock", purpose="after", reporter=reporter):
        assert said.getvalue() == ""
