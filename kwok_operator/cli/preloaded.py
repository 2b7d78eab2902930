"""Starts `kwok-operator run` and `shim` again and again, without their imports, which take 2 s.

    python -m kwok_operator.cli.preloaded, its standard input is a socket:
      imports once --> each message: fork --> keeper.py: fork --> the command

A message is a JSON object: the command's arguments, its folder, what differs in its environment,
and its grace: the seconds that it has to end after SIGTERM. The keeper (rehearsal/keeper.py) is the
command's parent, and ends the command when the keeper's standard input is closed. With a message
come three file descriptors: that standard input, the log, and one for the exit status as text.
Forked commands share nothing that changes: no thread, no connection and no event loop exists before
the fork. This process ends when the socket is closed.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

from kwok_operator.cli.main import main, preload
from kwok_operator.rehearsal import keeper

_LONGEST: Final = 1 << 20
_FDS: Final = 3


class _Forked:
    """A process, forked from this one, that calls `become` and ends. It has the methods that
    keeper.py needs of a process."""

    def __init__(self, become: Callable[[], int]) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            _exit_as(become)

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _exit_as(become: Callable[[], int]) -> NoReturn:
    """Calls `become`, and ends this process as Python would if `become` were its whole program."""
    status = 1
    try:
        status = become()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _command(arguments: Sequence[str], status: int) -> int:
    """Turns this process into the command, which starts as a new program would: with the default
    signals and no input.
    """
    os.setsid()
    os.close(status)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ctypes.CDLL(None).prctl(keeper.DEATH_SIGNAL, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    return main(arguments)


def _keeper(asked: dict[str, Any], stdin: int, log: int, status: int) -> int:
    """Turns this process into the command's keeper (its parent, which ends it when `stdin` is
    closed), and writes the command's exit status to `status`."""
    os.setsid()
    for fd, number in ((stdin, 0), (log, 1), (log, 2)):
        os.dup2(fd, number)
    os.close(stdin)
    os.close(log)
    os.chdir(asked["cwd"])
    os.environ.update(asked["env"])
    arguments, grace = asked["arguments"], asked["grace"]
    ended = keeper.keep(lambda: _Forked(lambda: _command(arguments, status)), grace)
    os.write(status, str(ended).encode())
    return 0


def serve(asking: socket.socket) -> None:
    """Starts each command that a message through the socket requests, until the other end of the
    socket is closed.
    """
    while True:
        message, fds, *_ = socket.recv_fds(asking, _LONGEST, _FDS)
        if not message:
            return
        if not os.fork():
            asking.close()
            _exit_as(partial(_keeper, json.loads(message), *fds))
        for fd in fds:
            os.close(fd)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    preload()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as requests:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        serve(requests)
