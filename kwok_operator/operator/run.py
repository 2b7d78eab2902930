"""`kwok-operator run`: what is started when, what ends it, and in which order it stops.

Start: connection, permissions, CRD, a first listing of nodes; with --leader-elect, the Lease; then
the groups, and only then work. A standby has come as far as the Lease and writes nothing. Stop on
SIGTERM or SIGINT: nothing new is started, what is in flight ends, the nodes stay, the Lease is
released. If a part that must run for ever ends, the program ends with an error: a restart costs
little, an operator that is only half alive is a lie. The end of a lead is one of these.

The parts themselves are put together in assembly.py.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

from kwok_operator import __version__, constants
from kwok_operator.clusterapi.discovery import namespace_watched
from kwok_operator.clusterapi.management import management_connection
from kwok_operator.clusterapi.settings import ClusterApiSettings, Mode
from kwok_operator.companions.step import with_empty_csi_node
from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube import tlsbuffers
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection, own_namespace
from kwok_operator.kube.connection import ApiConnection
from kwok_operator.kube.session import Following, Session, open_session
from kwok_operator.observability.health import HealthServer
from kwok_operator.observability.looplag import watch_lag
from kwok_operator.observability.metrics import Metrics
from kwok_operator.operator import handlers, preflight
from kwok_operator.operator.assembly import Assembly
from kwok_operator.operator.election import LeaseTerms
from kwok_operator.operator.keeping import keep_running
from kwok_operator.operator.leadership import (
    Elector,
    Fence,
    LeadershipLostError,
    make_identity,
)
from kwok_operator.operator.login import KopfLogin
from kwok_operator.settings import RunSettings

logger = logging.getLogger(__name__)

CONNECTIONS = 32
"""Of a client, besides those for writes of nodes, behind which nothing else is to wait."""
SHUTDOWN_GRACE = 5.0
HANDOVER_GRACE = 0.5
"""Seconds for what is in flight, where another replica waits to go on."""
LAST_EVENTS_WITHIN = 0.5
WATCH_SILENCE = 300.0
QUIET = 0.2
"""Seconds without news after which a watch that was begun anew has told what it had missed."""


async def run(settings: RunSettings, clusterapi: ClusterApiSettings | None = None) -> None:
    """Runs until a signal; raises KwokOperatorError where it can't start or go on."""
    tlsbuffers.make_small()
    connection = await load_connection(kubeconfig=settings.kubeconfig, context=settings.context)
    namespace = settings.namespace or own_namespace(connection)
    metrics = Metrics()
    fence = Fence()
    check = fence.check if settings.leader_elect else None
    async with AsyncExitStack() as stack:
        # The third is fenced by nobody, and waits behind nobody for a connection.
        groups, nodes, own = [
            await stack.enter_async_context(
                KubeClient(
                    connection=connection, observe=metrics.request, fence=each, max_connections=most
                )
            )
            for each, most in (
                (check, CONNECTIONS),
                (check, CONNECTIONS + settings.node_concurrency),
                (None, CONNECTIONS),
            )
        ]
        parts = Assembly(settings, metrics, namespace=namespace, groups=groups, nodes=nodes)
        if clusterapi is not None:
            management = await management_connection(clusterapi, workload=connection)
            client = await stack.enter_async_context(
                KubeClient(connection=management, observe=metrics.request)
            )
            parts.set_up_clusterapi(clusterapi, client)
            if clusterapi.mode is Mode.MIRROR:
                place = namespace_watched(clusterapi.discoveries)
                group = clusterapi.keys.group
                await preflight.check_reading(client, group=group, namespace=place)
        elector = None
        if settings.leader_elect:
            elector = _make_elector(settings, client=own, namespace=namespace, fence=fence)
        operator = Operator(settings, connection, metrics, client=own, parts=parts, elector=elector)
        await operator.run()


def _make_elector(
    settings: RunSettings, *, client: KubeClient, namespace: str, fence: Fence
) -> Elector:
    return Elector(
        client=client,
        namespace=settings.leader_elect_resource_namespace or namespace,
        name=settings.leader_elect_resource_name,
        identity=make_identity(),
        terms=LeaseTerms(
            lease_duration=settings.leader_elect_lease_duration,
            renew_deadline=settings.leader_elect_renew_deadline,
            retry_period=settings.leader_elect_retry_period,
        ),
        fence=fence,
    )


class Operator:
    """A run of the operator, of `parts`. With an `elector` it works only while that leads.

    `client` is for what every replica does.
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
        self._connection = connection
        self._client = client
        self._parts = parts
        self._elector = elector
        self._metrics = metrics
        self._ready = False
        self._signalled = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        self._ended: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()
        metrics.watch_leader(self._leads)
        self._health = HealthServer(
            registry=metrics.registry,
            healthy=self._unhealthy,
            ready=self._unready,
            remarks=self._remarks,
        )

    async def run(self) -> None:
        """Everything, from the first request to the last; returns after SIGTERM or SIGINT."""
        logger.info("kwok-operator %s: %s", __version__, self._connection.description)
        if self._settings.listen:
            await self._health.start(*self._settings.listen)
        self._take_signals()
        signalled = asyncio.create_task(self._signalled.wait(), name="wait for signals")
        main = asyncio.create_task(self._main(), name="main")
        try:
            await asyncio.wait((signalled, main), return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                await main
        finally:
            await self._stop([signalled, main])

    async def _main(self) -> None:
        """Starts all parts; raises where one of them can't run, or ends."""
        start = asyncio.create_task(self._start(), name="start")
        try:
            await asyncio.wait((start, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                await start
            part = await self._ended
            error = None if part.cancelled() else part.exception()
            if isinstance(error, LeadershipLostError):
                raise error
            raise KwokOperatorError(f"{part.get_name()} has ended: {error!r}") from error
        finally:
            start.cancel()

    async def _keeps_csi_nodes(self) -> bool:
        if self._settings.csi_nodes is not None:
            return self._settings.csi_nodes
        return self._parts.mirror is not None and await preflight.may_keep_csi_nodes(self._client)

    async def _start(self) -> None:
        """All parts in order."""
        self._spawn("watch the event loop", watch_lag(self._metrics.loop_lag))
        parts, playing = self._parts, self._parts.playing
        await preflight.check_permissions(
            self._client,
            namespace=parts.configmaps.namespace,
            lease=self._elector.lease if self._elector else None,
            more=preflight.needed_for_emulation(playing.api_group) if playing is not None else (),
        )
        if await self._keeps_csi_nodes():
            parts.store.complete = with_empty_csi_node
        await preflight.wait_for_crd(parts.status)
        if playing is not None:
            await playing.consent.check()
            self._spawn("consent to emulation", playing.consent.keep())
            for name, part in playing.watches:
                self._keep(name, part)
        watch = self._spawn("watch nodes", parts.node_reflector.run())
        self._spawn("watch configmaps", parts.configmap_reflector.run())
        self._spawn("watch pools", parts.pool_reflector.run())
        await parts.node_reflector.synced.wait()
        if self._elector is not None:
            self._ready = True
            await self._elector.acquire()
            self._spawn("lead", self._elector.keep())
            await self._catch_up(watch)
        await parts.pools.synced.wait()
        await parts.intake.take_over()
        parts.begin(await parts.unmarked())
        self._ready = True
        logger.info("ready: groups=%d nodes=%d", len(parts.store), len(parts.cache))
        self._keep("post events", parts.recorder.run)
        self._keep("resync", parts.resync)
        self._keep("look for names that are free again", parts.recheck)
        self._keep("tell of pools", parts.pools.run)
        self._keep("provider config", parts.provider.run)
        # Only now: by an old list newer profiles' Stages would pass for leftovers.
        self._spawn("watch pod profiles", parts.profile_reflector.run())
        self._keep("pod profiles", parts.profiles.run)
        if playing is not None:
            await playing.begin()
        if parts.mirror is not None:
            self._keep("read Cluster API", parts.mirror.follow)
            self._keep("groups of Cluster API", parts.mirror.run)
        self._watch_groups()

    async def _catch_up(self, watch: asyncio.Task[None]) -> None:
        """Returns once the nodes are known as they are by now.

        What a standby knows may be old: its watch may be slow, or wait before it is tried again, or
        be cut without a sign. So it is begun anew, from where it was, and then what has happened
        since comes first. The last of it is no node's, perhaps: then nothing comes any more.
        """
        now = await self._parts.nodes_version()
        watch.remove_done_callback(self._part_ended)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        begun, reflector = time.monotonic(), self._parts.node_reflector
        self._spawn("watch nodes", reflector.run())
        while True:
            await asyncio.sleep(QUIET / 10)
            heard, version = reflector.last_contact, reflector.version
            quiet = heard > begun and time.monotonic() - heard >= QUIET
            if version and (quiet or version >= now):  # without one, all is being listed anew
                return

    def _watch_groups(self) -> None:
        parts = self._parts
        following = Following(constants.GROUPS_PATH, listed_anew=parts.resync_soon)
        registry = handlers.make_registry(
            seen=parts.group_seen,
            login=KopfLogin(self._connection, open_session=lambda: self._open_session(following)),
        )

        async def watch() -> None:
            await handlers.watch_groups(
                registry=registry,
                begun=self._take_signals,
                watching=lambda: following.under_way,
                served=parts.status.served,
            )

        self._keep("watch groups", watch)

    async def _stop(self, main: list[asyncio.Task[Any]]) -> None:
        """Our own work ends first, and whatever it writes is told by what is still there."""
        logger.info("stopping: what is in flight ends, the nodes stay")
        self._parts.reconciler.close()
        grace = SHUTDOWN_GRACE
        if self._elector is not None:
            grace = HANDOVER_GRACE if self._elector.leading else 0.0
        if self._parts.playing is not None:
            await self._parts.playing.close()
        self._parts.companions.close()
        queues = self._parts.queue, self._parts.companion_queue
        await asyncio.gather(*(queue.close(grace=grace) for queue in queues))
        await self._parts.companions.stop()
        tasks = [*main, *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._parts.sources.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._parts.recorder.flush(), LAST_EVENTS_WITHIN)
        if self._elector is not None:
            await self._elector.release()
        await self._health.close()
        logger.info("stopped")

    def _keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Of what may fail now and then."""
        self._spawn(name, keep_running(name, part))

    def _spawn(self, name: str, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(part, name=name)
        task.add_done_callback(self._part_ended)
        self._background.append(task)
        return task

    def _part_ended(self, part: asyncio.Task[None]) -> None:
        if not self._ended.done():
            self._ended.set_result(part)

    def _take_signals(self) -> None:
        """Also from kopf, which takes them when it begins, and would take five seconds to end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled.set)

    def _open_session(self, following: Following) -> Session:
        return open_session(
            self._connection,
            following=following,
            observe=self._metrics.request,
            on_restart=self._metrics.watch_restarted,
        )

    def _leads(self) -> bool:
        return self._parts.begun and (self._elector is None or self._elector.leading)

    def _unhealthy(self) -> str | None:
        silence = time.monotonic() - self._parts.node_reflector.last_contact
        if self._ready and silence > WATCH_SILENCE:
            return f"the watch on nodes has heard nothing for {silence:.0f} s"
        return None

    def _unready(self) -> str | None:
        return None if self._ready else "waiting for the CRD, or for the first list of nodes"

    def _remarks(self) -> list[str]:
        """What is no reason to be unready, and worth a line."""
        remarks = []
        if self._elector is not None and not self._elector.leading:
            remarks.append(f"standby: {self._elector.holder or 'nobody'} leads")
        if self._parts.kwok.silent is not None:
            remarks.append(self._parts.kwok.silent)
        return remarks
