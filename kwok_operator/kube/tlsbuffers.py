"""Reduces the memory that TLS connections take with asyncio's own event loop.

asyncio gives each connection a read buffer of 256 KiB and fills it at once; the size is a constant
without a setting. With 64 connections that is a fifth of the operator's memory, for answers of 2
KiB. But asyncio empties the buffer in the same step in which it fills it, so all connections of a
thread can have the same buffer.
"""

import threading
from asyncio import sslproto
from typing import Any, Final

READ_BUFFER: Final = 2**15


class _Shared(threading.local):
    """A read buffer per thread, which all TLS connections of the thread share."""

    def __init__(self) -> None:
        self.buffer = bytearray(READ_BUFFER)


_SHARED: Final = _Shared()


class _SmallProtocol(sslproto.SSLProtocol):
    max_size = READ_BUFFER

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._ssl_buffer = _SHARED.buffer
        self._ssl_buffer_view = memoryview(self._ssl_buffer)


def make_small() -> None:
    """Makes connections that this process opens from now on share a small buffer."""
    sslproto.SSLProtocol = _SmallProtocol  # type: ignore[misc]
