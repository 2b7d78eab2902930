"""Lets a fence forbid any write up to the moment at which it is sent.

    request() ──(fence)──> waits for a token, a connection ──> body ──(fence again)──> socket

A fence is a function that refuses writes of a replica that may have lost the lead. Between the
decision to write and the first byte on the wire a request may wait long: for its turn among others,
for a login, or because the whole process was stopped. So the fence is called when a request is
started, and once more when its body is written; the headers wait in a buffer until then. For a
write without a body the fence is called once, for reads never.

The fence itself (operator/leadership.py) decides which writes it allows.
"""

from collections.abc import Callable
from typing import Any, Final

import aiohttp

WriteCheck = Callable[[str, str], None]
"""Called with method and path of a write; raises an error to forbid it."""

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def check(fence: WriteCheck | None, *, method: str, path: str) -> None:
    """Raises the fence's error if it forbids this write."""
    if fence is not None and method in _WRITES:
        fence(method, path)


class FencedBody(aiohttp.BytesPayload):
    """A body that calls the fence before it is written.

    aiohttp turns the fence's errors into connection errors. So after a connection error the client
    calls the fence once more, which then raises its own error.
    """

    def __init__(self, data: bytes, *, allow: Callable[[], None]) -> None:
        super().__init__(data)
        self._allow = allow

    async def write(self, writer: Any) -> None:
        self._allow()
        await super().write(writer)

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        self._allow()
        await super().write_with_length(writer, content_length)
