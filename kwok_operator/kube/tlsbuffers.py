"""How much memory a TLS connection takes, where the loop is asyncio's own.

Each has a buffer to read into, all of which is touched when it is made: 256 KiB, by a constant of
asyncio for which there is no other switch. With 64 connections that is a fifth of what the operator
has, for answers of 2 KiB.
"""

from asyncio import sslproto
from typing import Final

READ_BUFFER: Final = 2**15


def make_small() -> None:
    """For connections that are opened from now on, in this process."""
    sslproto.SSLProtocol.max_size = READ_BUFFER
