"""Wait for what other tasks and sockets bring about, without guessing how long it takes."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Let others run until the condition holds; a TimeoutError if it doesn't come to that."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of any kind, nobody signals them
            await asyncio.sleep(0.001)
