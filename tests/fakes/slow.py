"""A handler of gRPC that answers when it is told to, for who stops, cancels or goes away."""

import asyncio


class Slow:
    """Echoes once it is let go on, and knows whether it was asked and cancelled."""

    def __init__(self) -> None:
        self.started, self.go_on = asyncio.Event(), asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, message: bytes) -> bytes:
        self.started.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return message
