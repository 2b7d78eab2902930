"""A client with a rate limit, pages and retries, to read a whole cluster or to replay a trace into
it.

    kubeconfig  --open_cluster-->  ClusterClient  --get, pages, watch, send-->  dicts, or Unreadable

ClusterClient adds to `KubeClient` what a program that runs once needs. Objects stay plain JSON.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from kwok_operator.errors import (
    ApiError,
    ApiUnreachableError,
    DecodeError,
    GoneError,
    KwokOperatorError,
    one_line,
)
from kwok_operator.formats.untyped import as_map
from kwok_operator.kube.answers import error_of
from kwok_operator.kube.client import JSON, KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.kube.retry import ACCIDENTS, retry_delay

DEFAULT_REQUESTS_PER_SECOND: Final = 10.0
PAGE: Final = 500
ATTEMPTS: Final = 7
"""How often a request is tried: for half a minute in all, unless the API server sets the delays."""
_BEGINNINGS: Final = 4
"""How often a list may be started again. Without this limit, a list that always expires before its
last page would never end.
"""
_TIMEOUT: Final = 120.0
_WATCH_SECONDS: Final = 300
_SILENCE: Final = 420.0

Sleep = Callable[[float], Awaitable[object]]
Log = Callable[[str], None]


class Unreadable(KwokOperatorError):
    """A request failed. `reason` says why, and what to do about it.

    `status` is the HTTP status of the API server's answer, 0 without an answer. 404 means that the
    API server doesn't serve the kind.
    """

    def __init__(self, path: str, reason: str, *, status: int = 0) -> None:
        self.path = path
        self.reason = one_line(reason)
        self.status = status
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Page(list[Any]):
    """The items of one page of a list, and the list's resourceVersion, from which a watch can go
    on.

    `first` marks the first page, also when a list is started again.
    """

    version: str = ""
    first: bool = False


class ClusterClient:
    """Sends requests, at most `requests_per_second` of them in a second; 0 means no limit."""

    def __init__(
        self,
        client: KubeClient,
        *,
        requests_per_second: float,
        sleep: Sleep = asyncio.sleep,
        log: Log = lambda _: None,
    ) -> None:
        self._client = client
        self._interval = 1 / requests_per_second if requests_per_second > 0 else 0.0
        self._sleep = sleep
        self._log = log
        self._next = 0.0
        self._answers = True

    @property
    def description(self) -> str:
        """Describes the connection: `context prod at https://...`."""
        return self._client.connection.description

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Returns the object at a path. Raises Unreadable."""
        try:
            return await self._request("GET", path, params)
        except KwokOperatorError as error:
            raise _unreadable(path, error, verb="get") from error

    async def pages(
        self, path: str, limit: int = PAGE, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[Page]:
        """Yields all objects of a kind, page by page. Raises Unreadable, perhaps after some pages.

        If the list expires in the API server before its last page, it is started again: then some
        objects come twice.
        """
        token, begun = "", 1
        while True:
            query = {**(params or {}), "limit": str(limit)} | ({"continue": token} if token else {})
            try:
                answer = await self._request("GET", path, query)
            except GoneError as error:
                if begun == _BEGINNINGS:
                    raise _unreadable(path, error, verb="list") from error
                token, begun = "", begun + 1
                continue
            except KwokOperatorError as error:
                raise _unreadable(path, error, verb="list") from error
            page, following = _page(path, answer)
            page.first = not token
            yield page
            if not following:
                return
            if following == token:
                raise Unreadable(path, "the API server gives the same page again and again")
            token = following

    async def watch(
        self, path: str, resource_version: str, *, opened: Callable[[], None] = lambda: None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yields the watch events after a resourceVersion, with bookmarks, until the API server
        ends it.

        `opened` is called when the API server accepts the watch, perhaps long before the first
        event. Raises Unreadable: with status 410 the list has to be read again.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        await self._turn()
        lines = self._client.lines(
            path,
            params,
            inactivity=_SILENCE,
            silence_ends=False,
            on_open=opened,
            gather_for=lambda: 0.0,
        )
        try:
            async with aclosing(lines):
                async for line in lines:
                    yield _event(line, path=path)
        except KwokOperatorError as error:
            raise _unreadable(path, error, verb="watch") from error

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = JSON,
        *,
        attempts: int = ATTEMPTS,
    ) -> tuple[int, dict[str, Any]]:
        """Sends a write. Returns the status and the answer, even if it is a refusal. Raises
        Unreadable if there is no answer.

        A POST that is repeated may have been carried out the first time; then its answer is 409.
        """
        try:
            return 200, await self._request(
                method, path, body=body, content_type=content_type, attempts=attempts
            )
        except ApiError as error:
            return error.status, {"message": error.message, "reason": error.reason}
        except KwokOperatorError as error:
            raise _unreadable(path, error, verb=method.lower()) from error

    async def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
    ) -> dict[str, Any]:
        attempt = 0
        while True:
            await self._turn()
            try:
                answer = _object(
                    await self._client.request(
                        method,
                        path,
                        params=params,
                        body=body,
                        content_type=content_type,
                        timeout=_TIMEOUT,
                        resend=False,
                    ),
                    request=f"{method} {path}",
                )
            except (*ACCIDENTS, DecodeError) as error:
                # After the API server hasn't answered once, each further request is tried only
                # once.
                if attempt + 1 >= (attempts if self._answers else 1):
                    self._answers = not isinstance(error, ApiUnreachableError)
                    raise
                delay = retry_delay(attempt, error, draw=random.random)
                if delay > 5:
                    self._log(f"{error}; asking again in {delay:.0f} s")
            else:
                self._answers = True
                return answer
            attempt += 1
            await self._sleep(delay)

    async def _turn(self) -> None:
        """Waits until the rate limit allows the next request. Unused time isn't saved for later."""
        now = time.monotonic()
        turn = max(self._next, now)
        self._next = turn + self._interval
        if turn > now:
            await asyncio.sleep(turn - now)


@asynccontextmanager
async def open_cluster(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    requests_per_second: float = DEFAULT_REQUESTS_PER_SECOND,
    sleep: Sleep = asyncio.sleep,
    log: Log = lambda _: None,
) -> AsyncIterator[ClusterClient]:
    """Opens a client for the cluster of a context, without sending a request. Raises
    ConnectionConfigError.
    """
    connection = await load_connection(kubeconfig=kubeconfig, context=context)
    # Reading may go over the internet, where bytes cost more than the API server's gzip.
    async with KubeClient(connection=connection, max_connections=100, compressed=True) as client:
        yield ClusterClient(client, requests_per_second=requests_per_second, sleep=sleep, log=log)


def _object(content: bytes, *, request: str) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"{request}: the answer is no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise DecodeError(f"{request}: the answer is no JSON object")
    return answer


def _page(path: str, answer: Mapping[str, Any]) -> tuple[Page, str]:
    """Returns the page, and the token of the next page."""
    items = answer.get("items")
    if items is not None and not isinstance(items, list):
        raise Unreadable(path, "the answer is no list: its items are none")
    metadata = as_map(answer.get("metadata"))
    page = Page(items or [])
    page.version = str(metadata.get("resourceVersion") or "")
    return page, str(metadata.get("continue") or "")


def _event(line: bytes, *, path: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"watching {path}: an event is no JSON: {error}") from error
    if not isinstance(event, dict):
        raise DecodeError(f"watching {path}: an event is no object")
    if event.get("type") == "ERROR":
        status = as_map(event.get("object"))
        code = status.get("code")
        raise error_of(
            status, status=code if isinstance(code, int) else 500, method="WATCH", path=path
        )
    return event


def _unreadable(path: str, error: KwokOperatorError, *, verb: str) -> Unreadable:
    status = error.status if isinstance(error, ApiError) else 0
    match status:
        case 401:
            reason = f"the API server doesn't know who asks: log in again ({error})"
        case 403:
            resource = path.rstrip("/").rpartition("/")[2]
            role = "the ClusterRole kwok-operator-import (docs/import.md)"
            reason = f"{error}; the right to {verb} {resource} is in {role}"
        case 404:
            reason = "the cluster doesn't serve it"
        case _:
            reason = str(error)
    return Unreadable(path, reason, status=status)
