"""Processes: runs one while reporting its progress, and finds those that kwokctl started.

kwokctl writes a pid file for each component and trusts it. But after a reboot the number may be
that of another program, and a killed component looks alive until its parent collects it. So here a
process belongs to a cluster only while its command line starts with a path in the cluster's
directory. A zombie has no command line, and counts as gone. On a busy machine a new process has no
command line for some milliseconds either, so it is read again until it has one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kwok_operator.controlplane.stopping import go_on

_PROC = Path("/proc")
_POLL_SECONDS = 0.2
_END_SECONDS = 60.0
"""A killed process ends only when what it has sent to a slow disk is written."""
_STARTING_SECONDS = 1.0


def watch(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: Path,
    stderr: Path,
    tick: Callable[[float], None],
) -> int:
    """Run a command with its output in files, and return its exit status. Meanwhile, call `tick`
    with the seconds since the start.

    Whatever ends this call early (an interrupt, an error) also ends the command and its children.
    """
    started = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    with stdout.open("ab") as out, stderr.open("ab") as err:
        try:
            with interrupts_deferred():
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=_POLL_SECONDS)
                go_on()
                tick(time.monotonic() - started)
        finally:
            if process is not None and process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Delay interrupts to the end of the block, for example while a process is started whose id is
    not known yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {each: signal.signal(each, lambda n, _: pending.append(n)) for each in numbers}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in pending:
            signal.raise_signal(number)


def command_lines() -> Iterator[tuple[int, str]]:
    """Yield the pid and the command line of each process of this machine."""
    if not _PROC.joinpath("self", "cmdline").exists():
        listing = subprocess.run(
            ["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True
        )
        for line in listing.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command.strip()
        return
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                raw = _command_line(entry)
                yield int(entry.name), raw.replace(b"\0", b" ").decode(errors="replace")


def _command_line(entry: Path) -> bytes:
    """Read the command line of a process, and wait until it has one.

    For a new process, the kernel shows the program (`exe`) before the arguments (`cmdline`).
    Zombies and threads of the kernel have neither: reading their program raises an OSError, as does
    that of other users' processes.
    """
    deadline = time.monotonic() + _STARTING_SECONDS
    while not (raw := (entry / "cmdline").read_bytes()) and time.monotonic() < deadline:
        (entry / "exe").readlink()
        time.sleep(0.001)
    return raw


def running(*directories: Path) -> dict[int, str]:
    """Return the command lines, by pid, of processes whose program is below one of these
    directories.
    """
    prefixes = tuple(f"{directory}{os.sep}" for directory in directories)
    return {pid: line for pid, line in command_lines() if line.startswith(prefixes)}


def recorded(directory: Path) -> dict[str, int]:
    """Return the process ids in the pid files of a kwokctl cluster, by component."""
    pids = {}
    for path in sorted((directory / "pids").glob("*.pid")):
        with contextlib.suppress(ValueError, OSError):
            pids[path.stem] = int(path.read_text(encoding="ascii"))
    return pids


def dead(directory: Path) -> list[str]:
    """Return the names of components that have a pid file, but no running process."""
    # Pid files are read first, so a component that is started in between can't seem dead.
    pids = recorded(directory)
    alive = running(directory)
    return [name for name, pid in pids.items() if pid not in alive]


def forget_the_dead(directory: Path) -> list[str]:
    """Remove the pid files of components that don't run any more, and return their names."""
    gone = dead(directory)
    for name in gone:
        (directory / "pids" / f"{name}.pid").unlink(missing_ok=True)
    return gone


def kill_all(*directories: Path) -> None:
    """Kill the processes whose program is below one of these directories; wait until they
    are gone.
    """
    deadline, pause = time.monotonic() + _END_SECONDS, 0.02
    while pids := running(*directories):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"ending processes {sorted(pids)}: they are still there")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
