"""`kwok-operator run`: where the objects are put together, and taken apart again.

    kopf (groups) ──┐                       ┌──> reconciler ──> nodes, status, Events
    reflector ──────┼──> store, cache ──> queue
    resync ─────────┤
    sources ────────┘ <── ConfigMaps, real nodes ──> provider config ──> groups

Start: connection, permissions, CRD, a first listing of groups and nodes, and only then work. Stop
on SIGTERM or SIGINT: nothing new is started, what is in flight ends, the nodes stay. If a part
that must run for ever ends, the program ends with an error: a restart costs little, an operator
that is only half alive is a lie.
"""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from kwok_operator import __version__, constants
from kwok_operator.controller import handlers, preflight
from kwok_operator.controller.budget import NodeBudget
from kwok_operator.controller.cache import RECORDS, NodeCache
from kwok_operator.controller.configmaps import CONFIGMAPS, ConfigMaps
from kwok_operator.controller.executor import Executor
from kwok_operator.controller.groups import Group, GroupStore
from kwok_operator.controller.groupwriter import GroupWriter
from kwok_operator.controller.kwok import KwokLink
from kwok_operator.controller.livenodes import NodeLink
from kwok_operator.controller.nodes import NodeWriter
from kwok_operator.controller.pacing import Pace
from kwok_operator.controller.provider import Provider
from kwok_operator.controller.queue import WorkQueue
from kwok_operator.controller.reconciler import Clock, Parts, Reconciler
from kwok_operator.controller.recorder import Recorder
from kwok_operator.controller.sources import Sources
from kwok_operator.controller.statuswriter import StatusWriter
from kwok_operator.controller.templates import Templates
from kwok_operator.core.livenodes import LiveNode
from kwok_operator.errors import DecodeError, KwokOperatorError, NotFoundError
from kwok_operator.health import HealthServer
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection, own_namespace
from kwok_operator.kube.connection import Connection
from kwok_operator.kube.gathering import GATHER, GATHER_AT_REST
from kwok_operator.kube.reflector import Reflector
from kwok_operator.kube.session import Session, open_session
from kwok_operator.looplag import watch_turns
from kwok_operator.metrics import Metrics
from kwok_operator.settings import RunSettings

logger = logging.getLogger(__name__)

SHUTDOWN_GRACE = 5.0
WAKE_COALESCING = 0.05
"""Seconds in which several changes of a group's nodes make one pass."""
WATCH_SILENCE = 300.0
CONFIGMAPS_PAGE = 20
"""A ConfigMap may have 1 MiB, and a page is decoded at once."""


async def run(settings: RunSettings) -> None:
    """Runs until a signal; raises KwokOperatorError where it can't start or go on."""
    connection = await load_connection(kubeconfig=settings.kubeconfig, context=settings.context)
    metrics = Metrics()
    watch_turns(asyncio.get_running_loop(), metrics.loop_turn)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                KubeClient(connection=connection, observe=metrics.request)
            )
            for _ in ("groups", "nodes")
        ]
        operator = Operator(settings, connection, metrics, groups=clients[0], nodes=clients[1])
        await operator.run()


class Operator:
    """The parts of a running operator. Groups and nodes have a client each."""

    def __init__(
        self,
        settings: RunSettings,
        connection: Connection,
        metrics: Metrics,
        *,
        groups: KubeClient,
        nodes: KubeClient,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._groups = groups
        clock = Clock(time.monotonic, lambda: datetime.now(UTC))
        self._started = False
        self._signalled = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        self._store = GroupStore(clock=time.monotonic)
        kwok = KwokLink(client=nodes, clock=clock.monotonic, wall=clock.wall)
        self._cache = NodeCache(changed=self._nodes_changed, initialised=kwok.initialised)
        pace = Pace(most=settings.node_concurrency, qps=settings.max_qps)
        executor = Executor(pace, metrics=metrics)
        writer = NodeWriter(client=nodes, cache=self._cache, spend=executor.spend)
        self._recorder = Recorder(client=groups, wall=clock.wall)
        self._set_up_sources(nodes=nodes, metrics=metrics, clock=clock)
        self._status = StatusWriter(client=groups)
        self._budget = NodeBudget(limit=settings.max_total_nodes, freed=self._wake)
        prefix = settings.provider_id_prefix
        parts = Parts(
            store=self._store,
            cache=self._cache,
            writer=writer,
            templates=Templates(writer=writer, sources=self._sources, provider_id_prefix=prefix),
            kwok=kwok,
            recorder=self._recorder,
            executor=executor,
            budget=self._budget,
            status=self._status,
            metrics=metrics,
            clock=clock,
            provider_id_prefix=prefix,
        )
        self._reconciler = Reconciler(parts, wake=self._wake)
        self._templates = parts.templates
        self._queue = WorkQueue(self._reconciler.reconcile, draw=random.random)
        metrics.watch_queue(lambda: self._queue.depth)
        self._reflector = Reflector(
            client=nodes,
            path=constants.NODES_PATH,
            decoder=RECORDS,
            params={"labelSelector": constants.NODE_GROUP_LABEL},
            sink=self._cache,
            on_page=self._cache.page,
            gather_for=lambda: GATHER if self._queue.depth else GATHER_AT_REST,
        )
        self._health = HealthServer(
            registry=metrics.registry, healthy=self._unhealthy, ready=self._unready
        )

    def _set_up_sources(self, *, nodes: KubeClient, metrics: Metrics, clock: Clock) -> None:
        """What templates are copied from, and the provider config that names it."""
        settings, groups = self._settings, self._groups
        own = settings.namespace or own_namespace(self._connection)
        self._configmaps = ConfigMaps(
            namespace=settings.provider_config_namespace or own,
            recorder=self._recorder,
            changed=self._configmap_changed,
        )
        link = NodeLink(
            client=nodes,
            place="this cluster",
            changed=self._live_nodes_changed,
            clock=clock.monotonic,
        )
        self._sources = Sources(
            configmaps=self._configmaps,
            local=link,
            secrets=groups,
            namespace=own,
            wake=self._wake,
            clock=clock.monotonic,
        )
        self._provider = Provider(
            name=settings.provider_config,
            configmaps=self._configmaps,
            link=link,
            groups=self._store,
            writer=GroupWriter(client=groups),
            recorder=self._recorder,
            metrics=metrics,
            now=clock.now,
            draw=random.random,
        )
        self._configmap_reflector = Reflector(
            client=groups,
            path=f"/api/v1/namespaces/{self._configmaps.namespace}/configmaps",
            decoder=CONFIGMAPS,
            sink=self._configmaps,
            page_size=CONFIGMAPS_PAGE,
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
        """Starts all parts in order; raises where one of them can't run, or ends."""
        await preflight.check_permissions(self._groups, namespace=self._configmaps.namespace)
        await preflight.wait_for_crd(self._status)
        self._spawn("watch nodes", self._reflector.run())
        self._spawn("watch configmaps", self._configmap_reflector.run())
        await self._reflector.synced.wait()
        await self._list_groups()
        self._started = True
        for name in self._store.names():
            self._wake(name)
        logger.info("ready: groups=%d nodes=%d", len(self._store), len(self._cache))
        self._spawn("post events", self._recorder.run())
        self._spawn("resync", self._resync())
        self._spawn("provider config", self._provider.run())
        kopf_is_up, insights = asyncio.Event(), handlers.make_insights()
        watch = handlers.watch_groups(
            seen=self._group_seen, login=self._log_in, insights=insights, ready=kopf_is_up
        )
        self._spawn("watch groups", watch)
        self._spawn("watch the watch", handlers.keep_watching(insights, served=self._status.served))
        self._spawn("take signals", self._take_signals_back(kopf_is_up))
        done, _ = await asyncio.wait(self._background, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            raise KwokOperatorError(f"{task.get_name()} has ended: {error!r}") from error

    async def _stop(self, main: list[asyncio.Task[Any]]) -> None:
        """Our own work ends first: kopf cancels every task that is younger than itself."""
        logger.info("stopping: what is in flight ends, the nodes stay")
        self._reconciler.close()
        await self._queue.close(grace=SHUTDOWN_GRACE)
        tasks = [*main, *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sources.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._recorder.flush(), 1.0)
        await self._health.close()
        logger.info("stopped")

    def _spawn(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        self._background.append(asyncio.create_task(part, name=name))

    def _take_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled.set)

    async def _take_signals_back(self, kopf_is_up: asyncio.Event) -> None:
        """kopf takes the signals when it starts, and then waits five seconds before it ends."""
        await kopf_is_up.wait()
        self._take_signals()
        await asyncio.Event().wait()

    async def _log_in(self) -> tuple[str, Session]:
        await self._connection.reload()
        return self._connection.server, open_session(self._connection)

    async def _list_groups(self) -> None:
        """Takes over all groups, with what was granted to them before."""
        try:
            bodies, _ = await self._status.groups()
        except DecodeError as error:
            logger.error("not all groups are known yet: %s", error)
            return
        for body in bodies:
            group = self._parse(body)
            if group is not None:
                self._store.put(group)
                held = max(group.status.target_size or 0, self._cache.count(group.name))
                self._budget.grant(group.name, held, wants_more=False)

    async def _resync(self) -> None:
        """Looks at every group now and then, in case a watch or somebody's memory failed."""
        while True:
            await asyncio.sleep(self._settings.resync_interval * random.uniform(0.8, 1.2))
            try:
                bodies, version = await self._status.groups()
            except NotFoundError:
                continue  # the CRD is gone; the garbage collector sees to the nodes
            except KwokOperatorError as error:
                logger.warning("resync failed: error=%s", error)
                continue
            groups = [group for group in map(self._parse, bodies) if group is not None]
            if len(groups) < len(bodies):
                continue  # what can't be read must not count as gone
            gone = self._store.replace(groups, version=version)
            for name in gone | set(self._store.names()):
                self._templates.forget(name)
                await self._reconciler.recheck_taken(name)
                self._wake(name)
            await self._sources.keep_only(self._store.names())
            self._provider.recheck()

    def _group_seen(self, body: Mapping[str, Any], gone: bool) -> None:
        name = body["metadata"]["name"]
        if gone:
            self._store.remove(name=name, uid=body["metadata"]["uid"])
        else:
            group = self._parse(body)
            if group is None or not self._store.put(group):
                return
        self._wake(name)
        self._provider.group_changed(name)

    def _configmap_changed(self, name: str) -> None:
        self._sources.configmap_changed(name)
        self._provider.configmap_changed(name)

    def _live_nodes_changed(self, nodes: Sequence[LiveNode]) -> None:
        self._sources.nodes_changed(None, nodes)
        self._provider.changed()

    @staticmethod
    def _parse(body: Mapping[str, Any]) -> Group | None:
        try:
            return Group.parse(body)
        except (ValidationError, KeyError, ValueError) as error:
            name = body.get("metadata", {}).get("name")
            logger.error("unreadable group, does the CRD fit? group=%s error=%s", name, error)
            return None

    def _nodes_changed(self, group: str) -> None:
        if self._started:
            self._wake(group, WAKE_COALESCING)

    def _wake(self, name: str, delay: float = 0.0) -> None:
        self._queue.add(name, delay=delay)

    def _unhealthy(self) -> str | None:
        silence = time.monotonic() - self._reflector.last_contact
        if self._started and silence > WATCH_SILENCE:
            return f"the watch on nodes has heard nothing for {silence:.0f} s"
        return None

    def _unready(self) -> str | None:
        return None if self._started else "waiting for the CRD, or for the first list of nodes"
