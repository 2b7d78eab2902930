"""Runs many small API calls at once, no more than the API server likes.

All groups share the slots. Each plan brings as many workers as there are slots and every worker
asks for a slot per call; slots are given in the order of asking, so a group of ten nodes gets its
turn between the calls of a group of ten thousand.

A plan can be stopped between two calls: then nothing new is started and what is in flight is
awaited, so that afterwards nobody has to guess what is still under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class Executor:
    """`concurrency` calls in flight at most, over all plans."""

    def __init__(self, *, concurrency: int) -> None:
        self.concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)

    async def run(
        self,
        jobs: Iterable[T],
        call: Callable[[T], Awaitable[None]],
        *,
        stop: Callable[[], bool],
    ) -> None:
        """Awaits `call(job)` for each job until there are none left or `stop()` is true.

        The first error stops the plan and is raised once nothing is in flight any more.
        """
        queue = iter(jobs)
        errors: list[BaseException] = []

        async def work() -> None:
            for job in queue:
                async with self._slots:
                    if errors or stop():
                        return
                    try:
                        await call(job)
                    except Exception as error:
                        errors.append(error)
                        return

        await asyncio.gather(*(work() for _ in range(self.concurrency)))
        if errors:
            raise errors[0]
