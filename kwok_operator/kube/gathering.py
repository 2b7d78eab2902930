"""Has the kernel gather what a watch brings, for a moment, so that one look takes in many events.

    a look ──> some time in which the socket is not readable ──> the next look ──> ...

An API server sends each event by itself. To be woken for each costs more than to decode it: at 400
nodes a second a third of the operator's time, taken from the API server where both share a machine.
The first event after a quiet time is still seen at once. How long is gathered is for those to say
who know what the events are good for.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

GATHER: Final = 0.05
"""Seconds. What is wanted of other objects does not come this way, and is not delayed."""
GATHER_AT_REST: Final = 0.5
"""Seconds, where nothing is under way: then most events are heartbeats, which change nothing."""
_ENOUGH: Final = 2**17
"""Bytes that wake us all the same; the kernel takes less where its buffer is smaller."""


async def gather(transport: asyncio.BaseTransport | None, seconds: float) -> None:
    """Returns after `seconds`; what arrives meanwhile is readable then, unless it is a lot."""
    sock: Any = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        return
    # Closed meanwhile, or of an operating system that has no such option: then each event wakes.
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _ENOUGH)
    try:
        await asyncio.sleep(seconds)
    finally:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
