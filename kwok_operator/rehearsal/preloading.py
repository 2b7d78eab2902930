"""Starts kwok-operator's own commands in a process that has imported them already.

    Preloaded ── a socket ──> cli/preloaded.py ── fork ──> keeper.py ──> `kwok-operator run`, `shim`

A shrinking starts them for each try. A start takes 2 s less than in a new process. Linux only.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Final

from kwok_operator.controlplane import ClusterError
from kwok_operator.rehearsal.programs import Launch, Launched

_SERVER: Final = (sys.executable, "-P", "-m", "kwok_operator.cli.preloaded")
_UNKNOWN: Final = 255
"""The exit status of a command whose keeper was killed."""


class Preloaded:
    """Starts commands of kwok-operator, between the calls of `start` and `stop`."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._environment: Mapping[str, str] = {}

    async def start(self) -> None:
        """Starts the process that forks the commands, unless it runs."""
        if self._process is not None and self._process.returncode is None:
            return
        await self.stop()
        self._environment = dict(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *_SERVER,
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                env=self._environment,
                # Ctrl-C must reach only this process.
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The PID of the process; None before its start."""
        return self._process.pid if self._process is not None else None

    async def stop(self) -> None:
        """Ends the process. Commands that it has started go on until their keepers end them."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            await self._process.wait()

    async def launch(self, wanted: Launch) -> Launched:
        """Starts a command of kwok-operator, given by its arguments. Raises ClusterError."""
        before = self._environment
        message = {
            "arguments": [*wanted.command],
            "cwd": str(wanted.cwd),
            "env": {name: text for name, text in wanted.env.items() if before.get(name) != text},
            "grace": wanted.grace,
        }
        read, write = os.pipe()
        try:
            assert self._socket is not None
            fds = [wanted.stdin, wanted.log, write]
            socket.send_fds(self._socket, [json.dumps(message).encode()], fds)
        except OSError as error:
            os.close(read)
            await self.stop()
            raise ClusterError(f"the process that starts commands has ended: {error}") from error
        finally:
            os.close(write)
        return _Forked(read)


class _Forked:
    """A command that another process forked. Its keeper writes the exit status into a pipe."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._ended = asyncio.Event()
        self.returncode: int | None = None
        asyncio.get_running_loop().add_reader(status, self._on_status)

    def _on_status(self) -> None:
        text = os.read(self._status, 16)
        asyncio.get_running_loop().remove_reader(self._status)
        os.close(self._status)
        self.returncode = int(text) if text else _UNKNOWN
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode
