"""An API server's bad days: a proxy that ends TLS, hands requests on, and does harm to some.

    operator ── TLS, certificate of ours ──> Proxy ── TLS, the token as it came ──> API server

What it does is a list of `Fault`s, which can be changed at any time; each request meets the first
that hits it. `WATCH` is the verb of a watch. Which requests are hit is drawn from the seed.
"""

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import aiohttp
from aiohttp import web

from tests.fakes.wire import line, status_of

CHUNK: Final = 2**16
HOP_BY_HOP: Final = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}

REASONS: Final = {404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}

Kind = Literal["late", "refused", "lost", "half", "history-gone"]
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
READS: Final = frozenset({"GET"})
WATCHES: Final = frozenset({"WATCH"})
ALL: Final = WRITES | READS | WATCHES


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a `share` of the requests with these verbs whose path ends so, and is not
    below what is spared.

    late: the answer comes `seconds` later. refused: `status` is the answer, with Retry-After where
    `retry_after` says so. lost: the API server does what it is asked, and its answer never comes.
    half: half of the answer comes. history-gone: a watch opens, and says 410.
    """

    kind: Kind
    verbs: frozenset[str] = ALL
    share: float = 1.0
    seconds: float = 0.0
    status: int = 0
    retry_after: int | None = None
    path: str = ""
    spared: str | None = None

    @property
    def name(self) -> str:
        """What it is counted under."""
        wait = "" if self.retry_after is None else " with Retry-After"
        return f"{self.status}{self.path}{wait}" if self.kind == "refused" else self.kind


class Proxy:
    """Belongs to one event loop. `port` is where it listens, from `start` on."""

    def __init__(
        self, *, server: str, trust: ssl.SSLContext, tls: ssl.SSLContext, draw: random.Random
    ) -> None:
        self.port = 0
        self.faults: Sequence[Fault] = ()
        self.hits: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self._server = server
        self._trust = trust
        self._tls = tls
        self._draw = draw
        self._watches: set[asyncio.Transport] = set()
        self._client: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        self._client = aiohttp.ClientSession(
            self._server,
            connector=aiohttp.TCPConnector(limit=0, ssl=self._trust),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None and self._client is not None
        await self.cut_watches()
        await self._runner.cleanup()
        await self._client.close()

    async def cut_watches(self) -> int:
        """Ends all watches without a word; returns how many there were."""
        watches = tuple(self._watches)
        for transport in watches:
            transport.abort()
        return len(watches)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        verb = "WATCH" if request.query.get("watch") in ("true", "1") else request.method
        self.requests[verb] += 1
        fault = self._drawn(verb, request.path)
        if fault is not None:
            self.hits[fault.name] += 1
            if fault.kind == "late":
                await asyncio.sleep(fault.seconds)
            elif fault.kind == "refused":
                return _refusal(fault)
            elif fault.kind == "history-gone" and verb == "WATCH":
                return await _history_gone(request)
        try:
            if verb == "WATCH":
                return await self._watch(request)
            return await self._exchange(request, fault)
        except (aiohttp.ClientError, OSError):
            # The API server is away, or the operator: both are cut, as without a proxy.
            _abort(request)
            return web.Response()

    def _drawn(self, verb: str, path: str) -> Fault | None:
        for fault in self.faults:
            hits = verb in fault.verbs and path.endswith(fault.path)
            if fault.spared is not None and path.startswith(fault.spared):
                continue
            if hits and self._draw.random() < fault.share:
                return fault
        return None

    def _ask(
        self, request: web.Request, body: bytes | None
    ) -> "aiohttp.client._RequestContextManager":
        assert self._client is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        return self._client.request(
            request.method, request.rel_url, headers=headers, data=body, allow_redirects=False
        )

    async def _exchange(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        async with self._ask(request, await request.read() or None) as answer:
            body = await answer.read()
        if fault is not None and fault.kind == "lost":
            _abort(request)
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        if fault is None or fault.kind != "half":
            return web.Response(status=answer.status, body=body, headers=headers)
        half = web.StreamResponse(status=answer.status, headers=headers)
        half.content_length = len(body)
        await half.prepare(request)
        await half.write(body[: len(body) // 2])
        _abort(request)
        return half

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        async with self._ask(request, None) as answer:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
            stream = web.StreamResponse(status=answer.status, headers=headers)
            await stream.prepare(request)
            self._watches.add(transport)
            try:
                async for chunk in answer.content.iter_any():
                    await stream.write(chunk)
                await stream.write_eof()
            finally:
                self._watches.discard(transport)
            return stream


def _refusal(fault: Fault) -> web.Response:
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    reason = REASONS.get(fault.status, "InternalError")
    body = status_of(fault.status, reason, "a fault of the test")
    return web.json_response(body, status=fault.status, headers=headers)


async def _history_gone(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    gone = status_of(410, "Expired", "too old resource version: 1 (2)")
    await stream.write(line("ERROR", gone))
    await stream.write_eof()
    return stream


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
