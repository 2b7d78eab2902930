"""Runs kubectl and other commands for a rehearsal, as people would type them, with a time limit."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.rehearsal.programs import KEEPER

LONGEST: Final = 60.0
_MOST_TEXT: Final = 1 << 20
_CHUNK: Final = 1 << 16
_GONE_WITHIN: Final = 5.0


class CommandError(KwokOperatorError):
    """A command failed or took too long. The message has the command and its output."""


@dataclass(frozen=True, slots=True)
class AsyncKubectl:
    """kubectl for one cluster. All commands of the rehearsal run in `environment`."""

    program: Path
    environment: Mapping[str, str]
    context: str | None = None

    async def __call__(
        self,
        *arguments: str,
        stdin: str = "",
        within: float = LONGEST,
        cwd: Path | None = None,
        whole: bool = False,
        kept: bool = False,
    ) -> str:
        """Runs kubectl and returns its output; with `whole`, all of it. Raises CommandError.

        With `kept`, for commands that take long, kubectl ends even if this process is killed.
        """
        context = [f"--context={self.context}"] if self.context else []
        command = [str(self.program), *context, *arguments]
        ended = await run(
            command,
            environment=self.environment,
            stdin=stdin,
            within=within,
            cwd=cwd,
            most=None if whole else _MOST_TEXT,
            kept=kept,
        )
        return ended.check()


class Ended(NamedTuple):
    """The result of a command that has ended."""

    command: str
    status: int
    out: str
    err: str

    def check(self) -> str:
        """Returns what the command has printed. Raises CommandError if it has failed."""
        if self.status:
            printed = one_line(self.err.strip() or self.out.strip(), limit=500)
            raise CommandError(f"{self.command}: exit status {self.status}: {printed}")
        return self.out


async def run(
    command: list[str],
    *,
    environment: Mapping[str, str],
    within: float,
    stdin: str = "",
    cwd: Path | None = None,
    most: int | None = _MOST_TEXT,
    kept: bool = False,
) -> Ended:
    """Runs a program until it ends, then ends all that it has started. Raises CommandError if it
    can't be started, or doesn't end in time.

    With `kept` it gets no input, and ends even if this process is killed (keeper.py).
    """
    shown = one_line(" ".join([Path(command[0]).name, *command[1:]]), limit=200)
    if kept:
        command = [*KEEPER, "0", *command]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CommandError(f"{shown}: {getattr(error, 'strerror', None) or error}") from error
    assert process.stdin and process.stdout and process.stderr
    try:
        async with asyncio.timeout(within):
            out, err, _ = await asyncio.gather(
                _text(process.stdout, most),
                _text(process.stderr, most),
                asyncio.sleep(0) if kept else _feed(process.stdin, stdin.encode()),
            )
            await process.wait()
    except TimeoutError as error:
        raise CommandError(f"{shown}: it has not ended in {within:g} s") from error
    finally:
        # Its children are killed with it, even if it has ended by itself.
        process.stdin.close()
        if not kept:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # A pipe that nobody empties keeps wait() from returning.
        rest = _text(process.stdout, 0), _text(process.stderr, 0), process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*rest), _GONE_WITHIN)
    assert process.returncode is not None
    texts = (each.decode("utf-8", "replace") for each in (out, err))
    return Ended(shown, process.returncode, *texts)


async def _text(stream: asyncio.StreamReader, most: int | None) -> bytes:
    """Reads a stream to its end, and returns at most the first `most` bytes."""
    content = bytearray()
    while chunk := await stream.read(_CHUNK):
        content += chunk if most is None else chunk[: max(most - len(content), 0)]
    return bytes(content)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()
