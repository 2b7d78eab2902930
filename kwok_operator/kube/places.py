"""How many requests of a client may be under way: few, but none waits long for others that hang.

An admission webhook may keep a write for 30 s. Were all connections taken by such writes of some
groups, no other group would get anything through. So a request that takes long gives up its place.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

SLOW: Final = 1.0
"""Seconds after which others don't wait for the end of a request any more."""
CEILING: Final = 8
"""So many times as many requests are under way at most, with those that hang."""


class RequestPlaces:
    """So many requests at once, besides those that hang."""

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number)
        self._all = asyncio.Semaphore(CEILING * number)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Waits for a place, and has it until the end of the block, or until that takes long."""
        async with self._all:
            await self._free.acquire()
            given_up = asyncio.Event()

            def give_up() -> None:
                given_up.set()
                self._free.release()

            timer = asyncio.get_running_loop().call_later(SLOW, give_up)
            try:
                yield
            finally:
                timer.cancel()
                if not given_up.is_set():
                    self._free.release()
