"""Runs a program until the keeper's standard input ends; then ends it and all that it has started.

    python -m kwok_operator.rehearsal.keeper GRACE_SECONDS PROGRAM [ARGUMENT...]

The process at the other end of the pipe may be killed at any time: then the pipe closes, so nothing
is left running. A byte through the pipe kills the program at once, and so does the end of the
keeper itself. A path through the pipe lets the program run until that file is gone. If the output
is a file that is opened for reading and appending, its middle is cut out when it gets too large.
This module imports nothing of rehearsals.
"""

import contextlib
import ctypes
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

_CHILD_SUBREAPER: Final = 36
"""prctl(2): orphans of our descendants become our children, even if they left the process group."""
DEATH_SIGNAL: Final = 1
"""prctl(2): the signal that the program gets when the keeper, its parent, ends."""
MOST_BYTES: Final = 64 << 20
"""The most bytes of output that are kept."""
BEGINNING: Final = 0.5
"""The share of MOST_BYTES for the beginning of the output; the rest is for its newest part."""
_TAIL_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.05
_LOG_SECONDS: Final = 0.2
_NOT_STARTED: Final = 127
_LONGEST_PATH: Final = 4096


class KeptProgram(Protocol):
    """The part of the interface of a started process that the keeper uses."""

    pid: int
    returncode: int | None

    def wait(self) -> int: ...


def main(argv: list[str]) -> int:
    """Runs the program. Returns its exit status, or 128 plus the signal that killed it."""
    command = argv[1:]
    # Looked up before the fork: the child does no more than it has to.
    prctl = _prctl()

    def start() -> KeptProgram:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            restore_signals=True,
            preexec_fn=lambda: prctl(DEATH_SIGNAL, signal.SIGKILL),
        )

    try:
        return keep(start, float(argv[0]))
    except OSError as error:
        print(f"{command[0]}: {error.strerror or error}", file=sys.stderr)
        return _NOT_STARTED


def _prctl() -> Callable[..., object]:
    return ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: 0


def keep(start: Callable[[], KeptProgram], grace: float) -> int:
    """Starts a program in a session of its own, and keeps it. Returns its exit status, or 128 plus
    the signal that killed it. Raises OSError if it can't be started.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Otherwise the program would inherit SIG_IGN, and ignore SIGTERM.
        signal.signal(number, lambda *_: None)
    _prctl()(_CHILD_SUBREAPER, 1)
    program = start()
    ender = threading.Thread(target=_end, args=(program, grace), daemon=True)
    ender.start()
    if stat.S_ISREG(os.fstat(1).st_mode):
        threading.Thread(target=_bound_output, daemon=True).start()
    status = program.wait()
    _kill_the_rest(program.pid)
    return status if status >= 0 else 128 - status


def _end(program: KeptProgram, grace: float) -> None:
    word = os.read(0, _LONGEST_PATH)
    at_once = bool(word)
    if word.startswith(b"/"):
        while os.path.exists(word):
            time.sleep(_LOG_SECONDS)
        at_once = False
    deadline = time.monotonic() + grace
    if not at_once:
        _signal(program.pid, signal.SIGTERM)
    while not at_once and program.returncode is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    _signal(program.pid, signal.SIGKILL)


def _bound_output() -> None:
    while True:
        time.sleep(_LOG_SECONDS)
        size = os.fstat(1).st_size
        if size > MOST_BYTES:
            newest = os.pread(1, _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
            os.ftruncate(1, int(MOST_BYTES * BEGINNING))
            said = f"\n... what stood here is gone: a log has at most {MOST_BYTES:,} bytes ...\n"
            os.write(1, said.encode() + newest)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_the_rest(group: int) -> None:
    _signal(group, signal.SIGKILL)
    own = Path(f"/proc/{os.getpid()}/task/{threading.main_thread().native_id}/children")
    while own.exists() and (children := own.read_text(encoding="ascii").split()):
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
