"""A watch that misses nothing: a list, and every event since, told as it comes.

    with Watch(api, NODES, listed=print, seen=print): ...

It goes on where it was after a cut, and lists anew only where history is lost, which `lists`
counts. What is told is told in the client's thread.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Self

import aiohttp

from tests.e2e.api import METADATA, Api, ApiError, Refused, Unreachable, loop
from tests.e2e.kubectl import PATIENCE

_AGAIN_AFTER: Final = 0.3
_LIMITS: Final = aiohttp.ClientTimeout(connect=30, sock_read=75)  # a bookmark comes each minute


class Watch:
    """Tells `listed` what there is, and `seen` of each event its type and its object."""

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        listed: Callable[[Sequence[Any]], object],
        seen: Callable[[str, Any], object],
        selector: str = "",
        metadata: bool = False,
    ) -> None:
        self.lists = 0
        self._api = api
        self._path = path
        self._listed = listed
        self._seen = seen
        self._selector = selector
        self._metadata = metadata
        self._version = ""
        self._forgotten = False
        self._synced = threading.Event()
        self._task: Future[None] | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.run_coroutine_threadsafe(self._run(), loop())
        self._task.add_done_callback(lambda _: self._synced.set())
        assert self._synced.wait(PATIENCE), "the watch has begun"
        self.check()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self.check()
        self._task.cancel()

    def check(self) -> None:
        """Raises what has ended the watch, if anything has."""
        if self._task is not None and self._task.done():
            self._task.result()

    def forget(self) -> None:
        """Lists anew, after a cut that the caller brings about; what has come until then is told
        all the same.
        """
        self._forgotten = True

    async def _run(self) -> None:
        while True:
            try:
                if self._forgotten or not self._version:
                    await self._list()
                await self._watch()
            except Refused as error:
                if error.status == 410:
                    self._version = ""
            except ApiError:
                pass
            await asyncio.sleep(_AGAIN_AFTER)

    async def _list(self) -> None:
        self._forgotten, self._version = False, ""
        items, version = await self._api.listed(
            self._path, selector=self._selector, metadata=self._metadata
        )
        self.lists += 1
        self._listed(items)
        self._version = version
        self._synced.set()

    async def _watch(self) -> None:
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": "3600",
        }
        if self._selector:
            params["labelSelector"] = self._selector
        accept = METADATA if self._metadata else "application/json"
        how: dict[str, Any] = {"params": params, "accept": accept, "limits": _LIMITS}
        async with self._api.opened("GET", self._path, **how) as answer:
            async for line in answer.content:
                kind, found = _read(line)
                if kind == "ERROR":
                    raise Refused(found.get("code") or 500, str(found.get("message")))
                if kind != "BOOKMARK":
                    self._seen(kind, found)
                self._version = found["metadata"]["resourceVersion"]


def _read(line: bytes) -> tuple[str, Any]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise Unreachable(f"half an event: {line!r}") from error
    return event["type"], event["object"]


def each(seen: Callable[[str, Any], object]) -> Callable[[Sequence[Any]], None]:
    """For those who take what is listed as they take what is seen."""

    def listed(items: Sequence[Any]) -> None:
        for item in items:
            seen("ADDED", item)

    return listed
