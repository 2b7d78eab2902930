"""Wait for what other tasks and sockets bring about, without guessing how long it takes."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, seconds: float = 90.0) -> None:
    """Let others run until the condition holds; a TimeoutError if it doesn't come to that.

    The limit is for what never comes; a busy machine must not reach it.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of any kind, nobody signals them
            await asyncio.sleep(0.001)
