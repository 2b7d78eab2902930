"""Limits a client's concurrent requests, so that hanging ones don't block others for long.

An admission webhook may delay a write for 30 s. If such writes of some groups took all connections,
no other group could send anything. So a request that takes long gives up its place.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

SLOW: Final = 1.0
"""Seconds after which a request gives up its place to others."""
CEILING: Final = 8
"""The most concurrent requests with those that hang, as a multiple of the places."""


class RequestPlaces:
    """Gives out places for concurrent requests; those that hang don't count."""

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number)
        self._all = asyncio.Semaphore(CEILING * number)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Waits for a place, and keeps it until the block ends, or for SLOW seconds."""
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
