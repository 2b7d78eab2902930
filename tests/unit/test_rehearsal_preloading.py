"""Commands of kwok-operator that a preloaded process forks: as if each had a process of its own."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.controlplane import ClusterError
from kwok_operator.rehearsal.preloading import Preloaded
from kwok_operator.rehearsal.programs import Program, says
from tests.fakes.kubeconfigs import kubeconfig


@asynccontextmanager
async def preloaded() -> AsyncIterator[Preloaded]:
    commands = Preloaded()
    await commands.start()
    try:
        yield commands
    finally:
        await commands.stop()


async def test_commands_have_their_own_logs_folders_variables_and_ends(tmp_path: Path) -> None:
    config = Path(kubeconfig(tmp_path / "kubeconfig", server="http://127.0.0.1:9"))
    shim = [
        "shim",
        f"--listen=unix:{tmp_path}/shim.sock",
        "--metrics-listen=0",
        f"--kubeconfig={config.name}",
    ]
    lives, ends, fails = (Program(n, log=tmp_path / n) for n in ("lives", "ends", "fails"))
    async with preloaded() as commands:
        env = {**os.environ, "KWOK_OPERATOR_LOG_FORMAT": "json"}
        given: Any = {"env": env, "cwd": tmp_path, "launch": commands.launch}
        await lives.start(shim, **given)
        await ends.start(["cloud-config", "--listen=unix:/far.sock"], **given)
        await fails.start(["run", "--no-such-flag"], **given)
        assert (await ends.wait(), await fails.wait()) == (0, 2)
        assert "/far.sock" in ends.log.read_text() and "--no-such-flag" in fails.last_words()
        # It gets ready, or says that it can't read groups: in JSON, as its variable wants.
        await lives.wait_until_ready(says(lives.log, r'^\{.*"'), within=60)
        await lives.stop()
        assert lives.status == 0
        for each in (ends, fails):
            await each.stop()


async def test_once_it_was_killed_it_says_so_and_is_started_again(tmp_path: Path) -> None:
    program = Program("far", log=tmp_path / "log")
    async with preloaded() as commands:
        given: Any = {"env": os.environ, "cwd": tmp_path, "launch": commands.launch}
        command = ["cloud-config", "--listen=unix:/far.sock"]
        assert commands.pid is not None
        os.kill(commands.pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match="the process that starts commands has ended"):
            while True:
                await program.start(command, **given)
                await program.wait()
        await commands.start()
        await program.start(command, **given)
        assert await program.wait() == 0
