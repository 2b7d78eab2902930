"""Limits a client's concurrent requests, so that hanging requests don't block others for long.

An admission webhook may delay a write for 30 s. If such writes of some groups took all connections,
no other group could send anything. So a request that takes long no longer counts against the limit.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

SLOW: Final = 1.0
"""Seconds after which a request no longer counts against the limit."""
CEILING: Final = 8
"""The most concurrent requests, hanging ones included, as a multiple of the limit."""


class RequestPlaces:
    """Admits a limited number of concurrent requests; hanging requests don't count."""

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number)
        self._all = asyncio.Semaphore(CEILING * number)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Waits until a request may begin, and counts it as running until the block ends, but for
        at most SLOW seconds."""
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
