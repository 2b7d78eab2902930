"""Serves /healthz, /readyz and /metrics on one port.

/healthz  200 while the event loop runs and the watches hear from the API server
/readyz   200 once groups and nodes are known, with remarks if any; 503 says what is missing
/metrics  Prometheus text
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kwok_operator.errors import SettingsError

Probe = Callable[[], str | None]
"""A function that returns None if all is well, else a sentence that says what is wrong."""


class HealthServer:
    """Serves the health endpoints from `start()` until it is closed."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        healthy: Probe,
        ready: Probe,
        remarks: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Takes the probes, which return what is wrong, or None. `remarks` returns lines that
        /readyz adds to its answer without changing its status."""
        self._registry = registry
        app = web.Application()
        app.router.add_get("/healthz", self._answer(healthy))
        app.router.add_get("/readyz", self._answer(ready, remarks))
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int) -> None:
        """Listens and serves. Raises SettingsError if the address can't be used."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            raise SettingsError(
                f"--listen {host}:{port}: {error.strerror or error}; "
                "give another address, or 0 for none"
            ) from error

    async def close(self) -> None:
        await self._runner.cleanup()

    @staticmethod
    def _answer(
        probe: Probe, remarks: Callable[[], Sequence[str]] = tuple
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_: web.Request) -> web.StreamResponse:
            problem = probe()
            lines = [problem] if problem else ["ok", *remarks()]
            return web.Response(text="\n".join([*lines, ""]), status=503 if problem else 200)

        return answer

    async def _metrics(self, _: web.Request) -> web.Response:
        # In a thread: with a thousand groups it takes a tenth of a second, which would block the
        # event loop.
        body = await asyncio.to_thread(generate_latest, self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
