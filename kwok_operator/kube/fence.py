"""A say in every write, up to the moment in which it goes out.

    request() ──(asked)──> waits for a token, a connection ──> body ──(asked again)──> socket

Between the decision to write and the first byte on the wire a request may wait long: for its turn
among others, for a login, or because the whole process was stopped. So the fence is asked when a
request is begun, each time it is begun, and once more when its body is written; what heads a body
waits in a buffer until then. A write without a body is asked about once.

What is asked, and why, is the fence's affair. Reads pass unasked.
"""

from collections.abc import Callable
from typing import Any, Final

import aiohttp

WriteCheck = Callable[[str, str], None]
"""Given method and path of a write; raises to forbid it."""

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def check(fence: WriteCheck | None, *, method: str, path: str) -> None:
    """Raises what the fence raises where it forbids this write."""
    if fence is not None and method in _WRITES:
        fence(method, path)


class FencedBody(aiohttp.BytesPayload):
    """A body that asks before it is written.

    aiohttp makes a connection error of what is raised here, so after such an error the client asks
    the fence again.
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
