"""One cluster, asked politely. kubernetes_asyncio logs in and sends; what comes back stays JSON.

    kubeconfig  --open_cluster-->  ClusterClient  --get, pages, watch, send-->  dicts, or Unreadable

Owns the pace, what is asked again, and paging. What the objects mean is not known here. The typed
models of kubernetes_asyncio are left aside: they take milliseconds for each pod, and drop fields
that they don't know. It is imported when a cluster is opened, as it costs 35 MB.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from kwok_operator.errors import (
    ApiError,
    ApiUnreachableError,
    DecodeError,
    GoneError,
    KwokOperatorError,
    UnauthorizedError,
    one_line,
)
from kwok_operator.importing.login import Login
from kwok_operator.kube.answers import check_status, describe_failure, error_of
from kwok_operator.kube.retry import ACCIDENTS, retry_delay

DEFAULT_REQUESTS_PER_SECOND: Final = 10.0
PAGE: Final = 500
ATTEMPTS: Final = 7
"""Half a minute altogether, if the API server doesn't name a time itself."""
_BEGINNINGS: Final = 4
"""A list that is read slower than the API server forgets would be begun again for ever."""
_LOGIN_HOLDS: Final = 60.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=120, sock_connect=15)
_WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=420)
_WATCH_SECONDS: Final = 300
_JSON: Final = "application/json"

Sleep = Callable[[float], Awaitable[object]]
Tell = Callable[[str], None]


class Unreadable(KwokOperatorError):
    """Something of a cluster could not be had. `reason` says why, and what to do about it.

    `status` is the API server's, 0 where it gave none; 404 means that it doesn't serve the kind.
    """

    def __init__(self, path: str, reason: str, *, status: int = 0) -> None:
        self.path = path
        self.reason = one_line(reason)
        self.status = status
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Page(list[Any]):
    """Items of a list, and the version of that list, from which a watch can go on.

    `first` is the first page, and again the first one of a list that is begun again.
    """

    version: str = ""
    first: bool = False


class ClusterClient:
    """See the module. Made by `open_cluster`."""

    def __init__(
        self,
        login: Login,
        *,
        requests_per_second: float,
        sleep: Sleep = asyncio.sleep,
        tell: Tell = lambda _: None,
    ) -> None:
        self._login = login
        self._interval = 1 / requests_per_second if requests_per_second > 0 else 0.0
        self._sleep = sleep
        self._tell = tell
        self._next = 0.0
        self._logged_in = 0.0
        self._client: Any = None
        self._answers = True

    @property
    def description(self) -> str:
        """`context prod at https://...`"""
        return self._login.description

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What stands at a path; raises Unreadable."""
        try:
            return await self._patiently("GET", path, params or {})
        except KwokOperatorError as error:
            raise _unreadable(path, error, verb="get") from error

    async def pages(
        self, path: str, limit: int = PAGE, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[Page]:
        """All objects of a kind; raises Unreadable, also after some pages.

        Where the API server forgets the list meanwhile, it is begun again: objects may come twice.
        """
        asked = {**(params or {}), "limit": str(limit)}
        token, begun = "", 1
        while True:
            try:
                more = {"continue": token} if token else {}
                answer = await self._patiently("GET", path, {**asked, **more})
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
        self, path: str, resource_version: str, *, opened: Callable[[], object] = lambda: None
    ) -> AsyncIterator[dict[str, Any]]:
        """What happens from a version on, until the API server ends it, which it does; bookmarks
        too. `opened` is called when it begins, perhaps long before there is anything to tell.
        Raises Unreadable: with status 410 the list has to be read anew.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        try:
            async with self._opened("GET", path, params, limits=_WATCH_TIMEOUT) as answer:
                await _check(answer, "GET", path)
                opened()
                async for line in _lines(answer):
                    yield _event(line, path=path)
        except KwokOperatorError as error:
            raise _unreadable(path, error, verb="watch") from error

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = _JSON,
        *,
        attempts: int = ATTEMPTS,
    ) -> tuple[int, dict[str, Any]]:
        """The status of a write, and the answer, whatever it says; Unreadable without an answer.

        What is sent again may have been carried out before: a POST is then answered with 409.
        """
        how: dict[str, Any] = {"body": body, "content_type": content_type, "attempts": attempts}
        try:
            return 200, await self._patiently(method, path, {}, **how)
        except ApiError as error:
            return error.status, {"message": error.message, "reason": error.reason}
        except KwokOperatorError as error:
            raise _unreadable(path, error, verb=method.lower()) from error

    async def log_in(self) -> None:
        """Raises ConnectionConfigError."""
        self._client = await self._login.client()
        self._logged_in = time.monotonic()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _patiently(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        *,
        attempts: int = ATTEMPTS,
        **how: Any,
    ) -> dict[str, Any]:
        attempt = 0
        while True:
            try:
                answer = await self._once(method, path, params, **how)
            except UnauthorizedError:
                if time.monotonic() - self._logged_in < _LOGIN_HOLDS:
                    raise
                await self.close()  # a token may have expired: log in again
                continue
            except (*ACCIDENTS, DecodeError) as error:
                # Who hasn't answered one question, however often, is asked the others once each.
                if attempt + 1 >= (attempts if self._answers else 1):
                    self._answers = not isinstance(error, ApiUnreachableError)
                    raise
                delay = retry_delay(attempt, error, draw=random.random)
                if delay > 5:
                    self._tell(f"{error}; asking again in {delay:.0f} s")
            else:
                self._answers = True
                return answer
            attempt += 1
            await self._sleep(delay)

    async def _once(
        self, method: str, path: str, params: Mapping[str, str], **how: Any
    ) -> dict[str, Any]:
        async with self._opened(method, path, params, **how) as answer:
            await _check(answer, method, path)
            content = await answer.read()
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"{method} {path}: the answer is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise DecodeError(f"{method} {path}: the answer is no JSON object")
        return found

    @asynccontextmanager
    async def _opened(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        *,
        body: Any = None,
        content_type: str = _JSON,
        limits: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        await self._turn()
        if self._client is None:
            await self.log_in()
        try:
            answer = await self._client.call_api(
                path,
                method,
                query_params=dict(params),
                header_params={"Accept": _JSON, "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=limits,
            )
            async with answer:
                yield answer
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            cause = describe_failure(error, timeout=limits.total)
            server = self._login.server
            raise ApiUnreachableError(
                server=server, cause=cause, method=method, path=path
            ) from error

    async def _turn(self) -> None:
        """One request after the other, at the pace: what was not used up is not made up for."""
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
    tell: Tell = lambda _: None,
) -> AsyncIterator[ClusterClient]:
    """The cluster of a context; 0 requests a second mean as many as there are.

    Raises ConnectionConfigError. Whether anybody answers shows with the first request.
    """
    login = Login.find(kubeconfig=kubeconfig, context=context)
    cluster = ClusterClient(login, requests_per_second=requests_per_second, sleep=sleep, tell=tell)
    await cluster.log_in()
    try:
        yield cluster
    finally:
        await cluster.close()


def _page(path: str, answer: Mapping[str, Any]) -> tuple[Page, str]:
    items = answer.get("items")
    if items is not None and not isinstance(items, list):
        raise Unreadable(path, "the answer is no list: its items are none")
    metadata = answer.get("metadata")
    told = metadata if isinstance(metadata, dict) else {}
    page = Page(items or [])
    page.version = str(told.get("resourceVersion") or "")
    return page, str(told.get("continue") or "")


async def _check(answer: aiohttp.ClientResponse, method: str, path: str) -> None:
    """Raises ApiError for an answer that is no success."""
    if answer.status >= 300:
        check_status(answer.status, answer.headers, await answer.read(), method=method, path=path)


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


def _event(line: bytes, *, path: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"watching {path}: an event is no JSON: {error}") from error
    if not isinstance(event, dict):
        raise DecodeError(f"watching {path}: an event is no object")
    if event.get("type") == "ERROR":
        said = event.get("object")
        said = said if isinstance(said, dict) else {}
        code = said.get("code")
        status = code if isinstance(code, int) else 500
        raise error_of(said, status=status, method="WATCH", path=path)
    return event


def _unreadable(path: str, error: KwokOperatorError, *, verb: str) -> Unreadable:
    if isinstance(error, Unreadable):
        return error
    status = error.status if isinstance(error, ApiError) else 0
    match status:
        case 401:
            reason = f"the API server doesn't know who asks: log in again ({error})"
        case 403:
            reason = f"{error}; {_remedy(verb, path)}"
        case 404:
            reason = "the cluster doesn't serve it"
        case _:
            reason = str(error)
    return Unreadable(path, reason, status=status)


def _remedy(verb: str, path: str) -> str:
    resource = path.rstrip("/").rpartition("/")[2]
    role = "the ClusterRole kwok-operator-import (docs/import.md)"
    return f"the right to {verb} {resource} is in {role}"
