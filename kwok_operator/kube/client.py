"""HTTP with one API server: requests, and the lines of a watch.

    request() ──> concurrency.py: one of few at a time ──> kept-alive session ──> bytes, or an error
    lines()   ──> a session of its own, so that watches and requests never wait for each other
              ──> complete lines, whatever the chunks

Owns sessions, time-outs, one new login after a 401, and one repetition if the server closed a
kept-alive connection before it answered. It handles paths and bytes, not kinds: answers.py and
decode.py interpret answers, retry.py decides on retries.

Every request has a time-out. Answers are requested uncompressed: within a cluster the API server
needs more time to gzip 200 MB of nodes in one list than the network saves.
"""

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from kwok_operator import __version__
from kwok_operator.errors import ApiUnreachableError, ConnectionConfigError
from kwok_operator.kube.answers import check_status, describe_failure
from kwok_operator.kube.concurrency import RequestPlaces
from kwok_operator.kube.connection import ApiConnection
from kwok_operator.kube.fence import FencedBody, WriteCheck, check
from kwok_operator.kube.gathering import GATHER, gather
from kwok_operator.kube.retry import call_with_retries
from kwok_operator.kube.serverclock import ServerClock

logger = logging.getLogger(__name__)

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
ACCEPT_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The Accept header for metadata only: for single objects, and for a watch, which refuses the List
form (PartialObjectMetadataList)."""
ACCEPT_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

USER_AGENT: Final = f"kwok-operator/{__version__}"
CONNECT_TIMEOUT: Final = 10.0
KEEPALIVE: Final = 60.0
"""Seconds for which idle connections are kept: less than the 90 s after which an API server closes
them."""
READ_BUFFER: Final = 2**18

Observer = Callable[[str, str, int, float], None]
"""A function that is called after each request: method, path, status (0 if there was no answer),
seconds."""


class LineSplitter:
    """Cuts a stream into lines. A line may span any number of chunks; the cost is linear."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Takes a chunk; returns the lines that it completes, without line ends, none empty."""
        *complete, rest = chunk.split(b"\n")
        if complete and self._parts:
            complete[0] = b"".join((*self._parts, complete[0]))
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        return [line for line in complete if line]


class KubeClient:
    """Sends requests to one API server, as one identity. A `fence` can forbid its writes
    (fence.py).

    With `compressed` it requests gzipped answers, for slow networks.
    """

    def __init__(
        self,
        *,
        connection: ApiConnection,
        max_connections: int = 64,
        compressed: bool = False,
        observe: Observer | None = None,
        fence: WriteCheck | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.connection = connection
        self._places = RequestPlaces(max_connections)
        self._encoding = "gzip" if compressed else "identity"
        self._observe = observe
        self._fence = fence
        self._sleep = sleep
        self._draw = draw
        self._clock = clock
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self.server_clock = ServerClock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections. The client opens new ones if it is used again."""
        sessions, self._requests, self._watches = (self._requests, self._watches), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | list[Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float = 30.0,  # noqa: ASYNC109 - each attempt's, handed on to aiohttp
        retries: int = 0,
        resend: bool = True,
    ) -> bytes:
        """Sends a request, and returns the body of a successful answer.

        It makes up to `retries` more attempts if retry.py says that this makes sense. Without
        `resend`, a PATCH whose connection was closed before the answer is not sent again. That is
        for patches with a test: if the first one was carried out, the second would fail.
        """
        data = body if body is None or isinstance(body, bytes) else encode(body)
        if data is not None and content_type == APPLY:
            data = _as_yaml(data)
        headers = {"Accept": accept}
        if data is not None:
            headers["Content-Type"] = content_type

        async def attempt() -> bytes:
            return await self._attempt(
                method=method,
                path=path,
                params=params,
                data=data,
                headers=headers,
                timeout=timeout,
                resend=resend,
            )

        if not retries:
            return await attempt()
        return await call_with_retries(attempt, retries=retries, draw=self._draw, sleep=self._sleep)

    async def get_json(
        self, path: str, params: Mapping[str, str] | None = None, *, retries: int = 0
    ) -> Any:
        """Sends a GET; returns plain dicts and lists. For small answers: decoding blocks the
        event loop."""
        return json.loads(await self.request("GET", path, params=params, retries=retries))

    async def lines(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - of the whole stream
        inactivity: float = 70.0,
        silence_ends: bool = True,
        on_open: Callable[[], None] | None = None,
        gather_for: Callable[[], float] = lambda: GATHER,
    ) -> AsyncGenerator[bytes, None]:
        """Yields the complete lines of a watch, until the server ends it or is silent for too long.

        After each read, further events are gathered for `gather_for()` seconds (gathering.py). An
        API server usually sends a bookmark each minute, so after 70 s of silence the connection may
        be dead.

        Raises ApiError if the watch is refused, ApiUnreachableError if it can't be opened, is cut
        or, without `silence_ends`, is silent for `inactivity` seconds. A line that was cut off is
        dropped. Close the iterator (`contextlib.aclosing`) when leaving it early.
        """
        limits = aiohttp.ClientTimeout(
            total=timeout, sock_connect=CONNECT_TIMEOUT, sock_read=inactivity
        )
        splitter = LineSplitter()
        opened = False
        try:
            response = await self._open_watch(path, params, limits=limits)
            async with response:
                opened = True
                if on_open is not None:
                    on_open()
                connection = response.connection  # None once all is read
                async for chunk in response.content.iter_any():
                    for line in splitter.feed(chunk):
                        yield line
                    await gather(connection.transport if connection else None, gather_for())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if opened and silence_ends and isinstance(error, TimeoutError):
                return
            raise self._unreachable(error, method="WATCH", path=path) from error

    async def _open_watch(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        if self._watches is None:
            self._watches = self._new_session()
        for login in (1, 2):
            status, started = 0, self._clock()
            try:
                response = await self._send(
                    self._watches,
                    method="GET",
                    path=path,
                    params=params,
                    headers={"Accept": JSON},
                    limits=limits,
                )
                status = response.status
            finally:
                self._note("WATCH", path, status, started)
            if response.status == 200:
                return response
            async with response:
                answer = await response.read()
            if response.status != 401 or login == 2 or not await self._login_again():
                check_status(response.status, response.headers, answer, method="WATCH", path=path)
        raise AssertionError("unreachable: the second login returns or raises")

    async def _attempt(
        self,
        *,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: float,  # noqa: ASYNC109
        resend: bool,
    ) -> bytes:
        """Makes one request, with a second login after a 401."""
        if self._requests is None:
            self._requests = self._new_session()
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        logged_in_again, resent = False, not resend
        while True:
            status, started = 0, self._clock()
            try:
                async with (
                    self._places.one(),
                    await self._send(
                        self._requests,
                        method=method,
                        path=path,
                        params=params,
                        data=data,
                        headers=headers,
                        limits=limits,
                    ) as response,
                ):
                    self.server_clock.heard(response.headers.get("Date", ""))
                    answer = await response.read()
                    status = response.status
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                check(self._fence, method=method, path=path)
                # aiohttp repeats the idempotent methods itself. PATCH isn't among them, but our
                # patches are idempotent or guarded by a test. A POST may have created something.
                if method == "PATCH" and not resent and _closed_unanswered(error):
                    resent = True
                    continue
                raise self._unreachable(error, method=method, path=path, timeout=timeout) from error
            finally:
                self._note(method, path, status, started)
            if status == 401 and not logged_in_again and await self._login_again():
                logged_in_again = True
                continue
            check_status(status, response.headers, answer, method=method, path=path)
            return answer

    async def _send(
        self,
        session: aiohttp.ClientSession,
        *,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        data: bytes | None = None,
    ) -> aiohttp.ClientResponse:
        connection = self.connection
        login = await connection.auth_headers()
        allow = partial(check, self._fence, method=method, path=path)
        allow()
        return await session.request(
            method,
            connection.server + path,
            params=params,
            data=FencedBody(data, allow=allow) if self._fence and data else data,
            headers={**headers, **login},
            # Given with each request, because a new login can bring a new client certificate.
            ssl=connection.ssl or True,
            server_hostname=connection.tls_server_name,
            proxy=connection.proxy,
            timeout=limits,
            allow_redirects=False,  # the token must not reach another server
        )

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": self._encoding},
            read_bufsize=READ_BUFFER,
        )

    async def _login_again(self) -> bool:
        try:
            await self.connection.reload()
        except ConnectionConfigError as error:
            logger.warning("logging in again failed: error=%s", error)
            return False
        return True

    def _note(self, method: str, path: str, status: int, started: float) -> None:
        if self._observe is not None:
            self._observe(method, path, status, self._clock() - started)

    def _unreachable(
        self, error: Exception, *, method: str, path: str, timeout: float | None = None
    ) -> ApiUnreachableError:
        return ApiUnreachableError(
            server=self.connection.server,
            cause=describe_failure(error, timeout=timeout),
            method=method,
            path=path,
        )


def encode(body: Mapping[str, Any] | list[Any]) -> bytes:
    """Returns the body as JSON bytes to send."""
    return json.dumps(body, separators=(",", ":")).encode()


_PAIR: Final = re.compile(rb"(?<!\\)((?:\\\\)*)(\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})")


def _as_yaml(data: bytes) -> bytes:
    """Rewrites JSON so that a reader of YAML understands it: such a reader doesn't know JSON's
    escapes for characters beyond U+FFFF."""
    return _PAIR.sub(lambda pair: pair[1] + json.loads(b'"%b"' % pair[2]).encode(), data)


def _closed_unanswered(error: Exception) -> bool:
    if isinstance(error, aiohttp.ClientConnectorError):
        return False
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
