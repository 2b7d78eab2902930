"""Starts the parts in order, ends the program if one of them ends, and stops them in order.

Start: permissions, CRDs, a first list of nodes; with --leader-elect, the Lease; then all other
lists, and only then work on groups. A standby waits for the Lease and writes nothing. Stop: nothing
new is started, pending writes end, the nodes stay, the Lease is released.

If a part that must run for ever ends, the program ends with an error: a restart costs little, and
an operator of which only half runs misleads. The leadership and kopf (handlers.py) are such parts,
too.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from kwok_operator import __version__
from kwok_operator.companions.step import with_empty_csi_node
from kwok_operator.errors import KwokOperatorError, PreflightError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.connection import ApiConnection
from kwok_operator.kube.session import KopfSessions
from kwok_operator.observability.health import HealthServer
from kwok_operator.observability.looplag import watch_lag
from kwok_operator.observability.metrics import Metrics
from kwok_operator.operator import preflight
from kwok_operator.operator.assembly import Assembly
from kwok_operator.operator.leadership import Elector, LeadershipLostError
from kwok_operator.operator.restarting import keep_running
from kwok_operator.settings import RunSettings

logger = logging.getLogger(__name__)

SHUTDOWN_GRACE = 5.0
HANDOVER_GRACE = 0.5
"""Seconds for pending writes if another replica waits to take over."""
LAST_EVENTS_WITHIN = 0.5
WATCH_SILENCE = 300.0
QUIET = 0.2
"""Seconds without an event after which a restarted watch counts as up to date."""


class Operator:
    """One run of the operator, with its `parts`. With an `elector` it works only while the elector
    leads.

    `client` is for requests that every replica makes, also a standby.
    """

    def __init__(
        self,
        settings: RunSettings,
        connection: ApiConnection,
        metrics: Metrics,
        *,
        client: KubeClient,
        parts: Assembly,
        elector: Elector | None,
    ) -> None:
        self._settings = settings
        self.connection = connection
        self.parts = parts
        self.sessions = KopfSessions(
            connection,
            observe=metrics.request,
            restarted=metrics.watch_restarted,
            listed=parts.kopf_listed,
        )
        parts.list_followed_anew = self.sessions.list_anew
        self.ended: asyncio.Future[KwokOperatorError | None]
        self.ended = asyncio.get_running_loop().create_future()
        """Done when the program is to end. The result is the error that is the reason, or None
        after a signal."""
        self.healthy = self.problem
        self._stopping: asyncio.Task[None] | None = None
        self._client = client
        self._elector = elector
        self._metrics = metrics
        self._ready = False
        self._next_login = 0.0
        self._background: list[asyncio.Task[None]] = []
        metrics.watch_leader(self._leads)
        self._health = HealthServer(
            registry=metrics.registry,
            healthy=lambda: self.healthy(),
            ready=self._unready,
            remarks=self._remarks,
        )

    async def start(self) -> None:
        """Starts all parts, and returns once groups are worked on. If that fails, it stops all
        parts again."""
        try:
            logger.info("kwok-operator %s: %s", __version__, self.connection.description)
            if self._settings.listen:
                await self._health.start(*self._settings.listen)
            await self._start()
        except BaseException as error:
            await self.stop()
            if isinstance(error, KwokOperatorError | asyncio.CancelledError):
                raise
            raise KwokOperatorError(f"starting failed: {error!r}") from error

    def end(self, error: KwokOperatorError | None = None) -> None:
        """Ends the program: with an error, or without one if a signal ended it."""
        self.parts.reconciler.close()
        if not self.ended.done():
            self.ended.set_result(error)

    async def wait_for_login(self, pause: float) -> None:
        """Waits until kopf may log in: `pause` seconds after its login before, if any."""
        wait = self._next_login - time.monotonic()
        self._next_login = time.monotonic() + max(wait, 0.0) + pause
        await asyncio.sleep(wait)

    async def _keeps_csi_nodes(self) -> bool:
        if self._settings.csi_nodes is not None:
            return self._settings.csi_nodes
        return self.parts.mirror is not None and await preflight.may_keep_csi_nodes(self._client)

    async def _start(self) -> None:
        self._spawn("watch the event loop", watch_lag(self._metrics.loop_lag))
        parts, playing = self.parts, self.parts.playing
        await preflight.check_permissions(
            self._client,
            namespace=parts.configmaps.namespace,
            lease=self._elector.lease if self._elector else None,
            more=preflight.needed_for_emulation(playing.api_group) if playing is not None else (),
        )
        if await self._keeps_csi_nodes():
            parts.store.complete = with_empty_csi_node
        await preflight.wait_for_crds(self._client)
        if playing is not None:
            await playing.consent.check()
            self._spawn("consent to emulation", playing.consent.keep())
            for name, part in playing.watches:
                self._keep(name, part)
        watch = self._spawn("watch nodes", parts.node_reflector.run())
        await parts.node_reflector.synced.wait()
        if self._elector is not None:
            self._ready = True
            await self._elector.acquire()
            self._spawn("lead", self._elector.keep())
            await self._catch_up(watch)
        await parts.take_over()
        parts.begin(await parts.unmarked())
        self._ready = True
        logger.info("ready: groups=%d nodes=%d", len(parts.store), len(parts.cache))
        self._keep("post events", parts.recorder.run)
        self._keep("resync", parts.resync)
        self._keep("list what kopf follows", parts.list_after_kopf)
        self._keep("look for names that are free again", parts.recheck)
        self._keep("status of pools", parts.pools.run)
        self._keep("provider config", parts.provider.run)
        if missing := await preflight.missing_crds(self._client):
            self._spawn("CRDs that were missing", preflight.end_once_served(self._client, missing))
        self._keep("pod profiles", parts.profiles.run)
        if playing is not None:
            await playing.begin()
        if parts.mirror is not None:
            self._keep("read Cluster API", parts.mirror.follow)
            self._keep("groups of Cluster API", parts.mirror.run)

    async def _catch_up(self, watch: asyncio.Task[None]) -> None:
        """Waits until the cache has the nodes' current state.

        A standby's watch may lag behind, wait for a retry, or be cut unnoticed. So it is restarted
        from its last version, and first replays what has happened since. It has caught up when it
        reaches the latest resourceVersion. As that version may belong to an object of another kind,
        it has also caught up when no event comes any more.
        """
        now = await self.parts.nodes_version()
        watch.remove_done_callback(self._part_ended)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        begun, reflector = time.monotonic(), self.parts.node_reflector
        self._spawn("watch nodes", reflector.run())
        while True:
            await asyncio.sleep(QUIET / 10)
            heard, version = reflector.last_contact, reflector.version
            quiet = heard > begun and time.monotonic() - heard >= QUIET
            if version and (quiet or version >= now):  # version is 0 while nodes are listed again
                return

    async def stop(self) -> None:
        """Stops all parts: first the work on groups, then the parts that it needs for its last
        writes."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        logger.info("stopping: what is in flight ends, the nodes stay")
        self.parts.reconciler.close()
        grace = SHUTDOWN_GRACE
        if self._elector is not None:
            grace = HANDOVER_GRACE if self._elector.leading else 0.0
        if self.parts.playing is not None:
            await self.parts.playing.close()
        self.parts.companions.close()
        queues = self.parts.queue, self.parts.companion_queue
        await asyncio.gather(*(queue.close(grace=grace) for queue in queues))
        await self.parts.companions.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.parts.sources.close()
        await self.sessions.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.parts.recorder.flush(), LAST_EVENTS_WITHIN)
        if self._elector is not None:
            await self._elector.release()
        await self._health.close()
        logger.info("stopped")

    def _keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Starts a part as a task, which runs the part again after errors."""
        self._spawn(name, keep_running(name, part))

    def _spawn(self, name: str, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(part, name=name)
        task.add_done_callback(self._part_ended)
        self._background.append(task)
        return task

    def _part_ended(self, part: asyncio.Task[None]) -> None:
        if part.cancelled() and self._stopping is not None:
            return
        error = None if part.cancelled() else part.exception()
        if not isinstance(error, LeadershipLostError | PreflightError):
            error = KwokOperatorError(f"{part.get_name()} has ended: {error!r}")
        self.end(error)

    def _leads(self) -> bool:
        return self.parts.queue.is_open and (self._elector is None or self._elector.leading)

    def problem(self) -> str | None:
        """Returns why the process should be restarted, or None."""
        silence = time.monotonic() - self.parts.node_reflector.last_contact
        if self._ready and silence > WATCH_SILENCE:
            return f"the watch on nodes has heard nothing for {silence:.0f} s"
        return None

    def _unready(self) -> str | None:
        return None if self._ready else "waiting for the CRD, or for the first list of nodes"

    def _remarks(self) -> list[str]:
        """Returns lines for /readyz that are worth reading, but don't make the program unready."""
        remarks = []
        if self._elector is not None and not self._elector.leading:
            remarks.append(f"standby: {self._elector.holder or 'nobody'} leads")
        if self.parts.kwok.problem is not None:
            remarks.append(self.parts.kwok.problem)
        return remarks
