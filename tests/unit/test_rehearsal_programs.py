"""Programs beside a rehearsal: waited for, and gone when it ends, however it ends."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kwok_operator.rehearsal import programs
from kwok_operator.rehearsal.programs import KEEPER, Program, ProgramError, answers, listens, says

_STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(600)
"""
_OURS = """
import asyncio, os, sys
from pathlib import Path
from kwok_operator.rehearsal.programs import Program

async def main():
    program = Program("stubborn", log=Path(sys.argv[1]))
    command = [sys.executable, "-c", sys.argv[2]]
    await program.start(command, env=os.environ, cwd=Path("/"), grace=0.2)
    await asyncio.sleep(600)

asyncio.run(main())
"""

_ASKS = """
import asyncio, sys
from pathlib import Path
from kwok_operator.rehearsal.programs import says

print(asyncio.run(says(Path(sys.argv[1]), sys.argv[2])()))
"""


def _pids(log: Path) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = log.read_text() if log.exists() else ""
        if text.startswith("pids") and text.endswith("\n"):
            return [int(pid) for pid in text.split()[1:]]
        time.sleep(0.02)
    raise AssertionError("it has not started")


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < deadline, "still running"
        time.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def _start(program: Program, code: str, *, grace: float = 0.2) -> None:
    await program.start([sys.executable, "-c", code], env=os.environ, cwd=Path("/"), grace=grace)


@pytest.mark.parametrize("killed", [False, True])
async def test_what_does_not_end_is_ended_with_its_children(tmp_path: Path, killed: bool) -> None:
    program = Program("stubborn", log=tmp_path / "log")
    await _start(program, _STUBBORN, grace=600 if killed else 0.2)
    pids = await asyncio.to_thread(_pids, program.log)
    if killed:
        program.kill()
    await asyncio.wait_for(program.stop(), 60)
    _wait_until_gone(pids)


async def test_sigterm_ends_what_does_nothing_about_signals(tmp_path: Path) -> None:
    program = Program("plain", log=tmp_path / "log")
    await _start(program, "import time; print('up', flush=True); time.sleep(600)", grace=600)
    await program.wait_until_ready(says(program.log, "up"), within=60)
    await asyncio.wait_for(program.stop(), 60)
    assert program.status == 128 + signal.SIGTERM


def test_a_program_does_not_outlive_its_keeper() -> None:
    keeper = subprocess.Popen(
        [*KEEPER, "600", "sh", "-c", "echo $$; exec sleep 600"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert keeper.stdin and keeper.stdout
    pid = int(keeper.stdout.readline())
    keeper.kill()
    keeper.wait()
    _wait_until_gone([pid])
    keeper.stdin.close()
    keeper.stdout.close()


async def test_a_log_keeps_its_beginning_and_its_end_and_fills_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = "from kwok_operator.rehearsal import keeper; keeper.MOST_BYTES = 1 << 21;"
    kept = (sys.executable, "-c", f"import sys; {small} sys.exit(keeper.main(sys.argv[1:]))")
    monkeypatch.setattr(programs, "KEEPER", kept)
    program = Program("talker", log=tmp_path / "log")
    await program.start(
        ["sh", "-c", "echo first; yes again | head -c 9000000; echo last; sleep 600"],
        env=os.environ,
        cwd=tmp_path,
    )
    try:
        await program.wait_until_ready(says(program.log, "^last$"), within=120)

        async def is_short() -> bool:
            return program.log.stat().st_size < 5 << 20

        await program.wait_until_ready(is_short, within=60)
        text = program.log.read_text()
    finally:
        await program.stop()
    assert text.startswith("first\n") and text.endswith("last\n") and "is gone" in text


async def test_an_answer_that_dribbles_in_is_none_and_keeps_nobody() -> None:
    left_alone = asyncio.Event()

    async def dribble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        left_alone.set()

    server = await asyncio.start_server(dribble, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert not await asyncio.wait_for(answers(f"http://127.0.0.1:{port}/")(), 60)
        await asyncio.wait_for(left_alone.wait(), 60)


def test_nothing_outlives_us_if_we_are_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ours = subprocess.Popen([sys.executable, "-c", _OURS, str(log), _STUBBORN])
    pids = _pids(log)
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    _wait_until_gone(pids)


async def test_ready_by_a_line_a_port_and_an_answer(tmp_path: Path) -> None:
    program = Program("server", log=tmp_path / "log")
    await _start(
        program,
        "import http.server, sys; s = http.server.HTTPServer(('127.0.0.1', 0),"
        " http.server.SimpleHTTPRequestHandler); print('port', s.server_port, flush=True);"
        " s.serve_forever()",
    )
    try:
        await program.wait_until_ready(says(program.log, r"^port \d+$"), within=60)
        port = int(program.log.read_text().split()[1])
        await program.wait_until_ready(listens("127.0.0.1", port), within=60)
        await program.wait_until_ready(answers(f"http://127.0.0.1:{port}/"), within=60)
        assert not await answers(f"http://127.0.0.1:{port}/none")()
        with pytest.raises(ProgramError, match=r"server is not ready after 0.1 s: .*none"):
            await program.wait_until_ready(says(program.log, "never"), within=0.1)
    finally:
        await program.stop()
    assert not await listens("127.0.0.1", port)()


def test_a_pattern_that_tries_every_way_keeps_nobody(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a" * 40 + "!\nup\n")
    # In a process of its own: nothing else could end it.
    asked = [sys.executable, "-c", _ASKS, str(log)]
    found = [
        subprocess.check_output([*asked, pattern], text=True, timeout=60).strip()
        for pattern in ("^(a+)+$", "^((a+)+|up)$")
    ]
    assert found == ["False", "True"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("F0101 no cloud", "F0101 no cloud"),
        ('{"level": "error", "msg": "ended", "error": "no port", "stack": "a"}', "ended (no port)"),
    ],
)
async def test_one_that_ends_early_says_why(tmp_path: Path, line: str, said: str) -> None:
    program = Program("short", log=tmp_path / "log")
    await _start(program, f"import sys; print({line!r}); print('usage'); sys.exit(3)")
    message = f"short has ended with exit status 3 before it was ready: {said} (its log"
    with pytest.raises(ProgramError, match=re.escape(message)):
        await program.wait_until_ready(says(program.log, "never"), within=60)
    assert await program.wait() == 3
    await program.stop()


async def test_one_that_is_no_program_says_so(tmp_path: Path) -> None:
    program = Program("none", log=tmp_path / "log")
    await program.start(["/no/such"], env={}, cwd=Path("/"))
    assert await program.wait() == 127
    assert "/no/such: No such file or directory" in program.last_words()
    await program.stop()


async def test_one_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    program = Program("odd", log=tmp_path / "log")
    with pytest.raises(ProgramError, match=r"odd can't be started: .*null byte"):
        await program.start(["true", "a\0b"], env={}, cwd=Path("/"))
    await program.stop()
