"""Commands of a rehearsal: what they say is bounded, and nothing of them outlives them."""

import asyncio
import contextlib
import os
import sys
import time
import tracemalloc
from typing import Any

import pytest

from kwok_operator.rehearsal.kubectl import CommandError, run

_LEAVES = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                        start_new_session=True)
print(left.pid, flush=True)
"""


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.02)
        raise AssertionError("still running")


async def said(*command: str, within: float = 60.0, **rest: Any) -> str:
    ended = await run(list(command), environment=os.environ, within=within, **rest)
    return ended.check()


@pytest.mark.parametrize("kept", [False, True])
async def test_one_that_never_stops_talking_is_ended_in_time(kept: bool) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CommandError, match=r"has not ended in 0.5 s"):
            await said("yes", within=0.5, kept=kept)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


async def test_what_it_leaves_behind_is_ended() -> None:
    pid = int(await said(sys.executable, "-c", _LEAVES, kept=True))
    await asyncio.to_thread(_wait_until_gone, pid)


async def test_input_is_read_and_what_cannot_be_started_says_so() -> None:
    text = "a" * 300_000
    assert await said("cat", stdin=text) == text
    assert await said("true", stdin=text) == ""
    for command, reason in ((["/none"], "No such file"), (["true", "\0"], "null")):
        for kept in (False, True):
            with pytest.raises(CommandError, match=reason):
                await said(*command, kept=kept)
