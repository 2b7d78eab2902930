"""Lets the kernel gather a watch's events for a moment, so that one wake-up handles many.

    a read ──> some time in which the socket is not readable ──> the next read ──> ...

An API server sends each event by itself, and waking up for each costs more than decoding it: at 400
nodes a second this took a third of the operator's time, which the API server lacks if both share a
machine. The first event after a quiet time is still seen at once. The watch's owner decides how
long to gather.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

GATHER: Final = 0.05
"""Seconds for which events are gathered while there is work. Changes of other kinds, such as
groups, are not delayed by this."""
GATHER_AT_REST: Final = 0.5
"""Seconds for which events are gathered while there is no work. Most events are heartbeats then,
which change nothing."""
_ENOUGH: Final = 2**17
"""So many bytes wake the program early; fewer do if the kernel's buffer is smaller."""


async def gather(transport: asyncio.BaseTransport | None, seconds: float) -> None:
    """Waits for `seconds`. Data that arrives meanwhile wakes the program only afterwards, unless
    there is much of it."""
    sock: Any = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        return
    # The socket is closed, or the operating system lacks this option: then each event wakes us.
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _ENOUGH)
    try:
        await asyncio.sleep(seconds)
    finally:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
