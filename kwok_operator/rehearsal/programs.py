"""Programs that run beside a rehearsal: started, waited for, ended with all that they started.

    Program ── pipe ──> keeper.py ──> the program ──> its log, a file

The pipe closes when the rehearsal's process ends, even if it is killed; then the keeper ends the
program.
"""

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from kwok_operator.errors import KwokOperatorError
from kwok_operator.rehearsal.judge.logged import read_zap
from kwok_operator.rehearsal.scenario.linepattern import LinePattern

GRACE: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""
KEEPER: Final = (sys.executable, "-P", "-m", "kwok_operator.rehearsal.keeper")
"""The command of the keeper. The grace in seconds and the program's command are appended."""
_POLL_SECONDS: Final = 0.1
_TAIL_BYTES: Final = 16_384
_REFUSED: Final = 400
_ANSWERS_WITHIN: Final = 5.0
"""Seconds for a whole answer, even if it comes in small pieces."""
_FATAL: Final = re.compile(r"\bF\d{4} |unknown flag|panic:|Error:|Traceback")

Ready = Callable[[], Awaitable[bool]]


class ProgramError(KwokOperatorError):
    """A program didn't start, didn't get ready, or ended when it should not have."""


class Launched(Protocol):
    """A keeper's process, which ends when the program that it keeps has ended."""

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a program and its keeper. `stdin` is the standard input of the keeper; `grace`
    is in seconds.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    grace: float
    stdin: int
    log: int


async def launched(wanted: Launch) -> Launched:
    """Starts a new keeper, which starts the program."""
    return await asyncio.create_subprocess_exec(
        *KEEPER,
        str(wanted.grace),
        *wanted.command,
        cwd=wanted.cwd,
        env=dict(wanted.env),
        stdin=wanted.stdin,
        stdout=wanted.log,
        stderr=wanted.log,
        # Ctrl-C must reach only this process.
        start_new_session=True,
    )


class Program:
    """A program beside the rehearsal. `name` is its name in messages."""

    def __init__(self, name: str, *, log: Path) -> None:
        self.name = name
        self.log = log
        self._keeper: Launched | None = None
        self._pipe = -1

    async def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        grace: float = GRACE,
        launch: Callable[[Launch], Awaitable[Launched]] = launched,
    ) -> None:
        """Starts the program, with an empty log. Raises ProgramError."""
        read, write = os.pipe()
        try:
            with self.log.open("a+b") as log:
                log.truncate(0)
                wanted = Launch(
                    command=command, env=env, cwd=cwd, grace=grace, stdin=read, log=log.fileno()
                )
                self._keeper = await launch(wanted)
        except BaseException as error:
            os.close(write)
            if isinstance(error, OSError | ValueError):
                reason = getattr(error, "strerror", None) or error
                raise ProgramError(f"{self.name} can't be started: {reason}") from error
            raise
        finally:
            os.close(read)
        self._pipe = write

    @property
    def status(self) -> int | None:
        """The exit status; None while the program runs, or before it was started."""
        return None if self._keeper is None else self._keeper.returncode

    async def wait(self) -> int:
        """Waits until the program has ended, and returns its exit status."""
        if self._keeper is None:
            raise ProgramError(f"{self.name} was not started")
        return await self._keeper.wait()

    async def wait_until_ready(self, ready: Ready, *, within: float) -> None:
        """Waits until the program is ready. Raises ProgramError if it ends first, or isn't ready
        after `within` seconds.
        """
        deadline = time.monotonic() + within
        while not await ready():
            if self.status is not None:
                raise ProgramError(
                    f"{self.name} has ended with exit status {self.status} before it was ready:"
                    f" {self.last_words()} (its log: {self.log})"
                )
            if time.monotonic() > deadline:
                raise ProgramError(
                    f"{self.name} is not ready after {within:g} s: {self.last_words()}"
                    f" (its log: {self.log})"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self) -> None:
        """Ends the program and all that it has started. Does nothing if it has ended, or was never
        started.
        """
        if self._keeper is None:
            return
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        await self._keeper.wait()

    async def leave(self, *, while_there: Path) -> None:
        """Lets the program run on after this process has ended, as long as a file exists. The path
        must be absolute.
        """
        if self._pipe >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, os.fsencode(while_there))
            os.close(self._pipe)
            self._pipe = -1

    def kill(self) -> None:
        """Kills the program without a warning, as an outage would."""
        if self._pipe >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, b"k")

    def last_words(self) -> str:
        """Returns the line of the log that most likely says why the program ended."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL_BYTES, 0))
            lines = [line.strip() for line in file.read().splitlines() if line.strip()]
            # Of a line of JSON, with its stack, only the message is shown.
            errors = [error for line in lines if (error := read_zap(line).warning)]
            texts = [line.decode("utf-8", "replace")[:300] for line in lines]
            # Go programs print more after the fatal line: stacks, or all their flags.
            fatal = [text for text in texts if _FATAL.search(text) and not text.startswith("{")]
            if texts:
                return (fatal or errors or texts)[-1][:300]
        return "it said nothing"


def answers(url: str) -> Ready:
    """Returns a check that succeeds once an HTTP GET is answered with a status below 400."""

    # Without urllib: it would use a proxy from the environment, and leave threads that wait.
    target = urlsplit(url)
    secure = target.scheme == "https"
    path = urlunsplit(("", "", target.path or "/", target.query, ""))
    request = f"GET {path} HTTP/1.1\r\nHost: {target.netloc}\r\nConnection: close\r\n\r\n"

    async def ready() -> bool:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN):
                reader, writer = await asyncio.open_connection(
                    target.hostname, target.port or (443 if secure else 80), ssl=secure or None
                )
                try:
                    writer.write(request.encode())
                    protocol, status = (await reader.readline()).split()[:2]
                    return protocol.startswith(b"HTTP/") and int(status) < _REFUSED
                finally:
                    writer.close()
        except (OSError, ValueError):
            return False

    return ready


def listens(host: str, port: int) -> Ready:
    """Returns a check that succeeds once something accepts connections at this address."""

    async def ready() -> bool:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    return ready


def says(log: Path, pattern: str) -> Ready:
    """Returns a check that succeeds once a line of the log matches."""
    wanted = LinePattern(pattern)

    def said() -> bool:
        try:
            with log.open(encoding="utf-8", errors="replace") as lines:
                # A very long line is read in pieces.
                pieces = iter(lambda: lines.readline(_TAIL_BYTES), "")
                return any(wanted.is_in(piece.rstrip("\n")) for piece in pieces)
        except OSError:
            return False

    async def ready() -> bool:
        return await asyncio.to_thread(said)

    return ready
