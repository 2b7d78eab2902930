"""Runs `kwok-operator shim`: creates its objects, connects them, and closes them at the end.

    reflectors ──> Store ──> CloudProvider ──> GrpcServer <── cluster-autoscaler
                    ^             │
                    └─ TargetWriter┘

It listens from the start, and answers UNAVAILABLE until groups and nodes are listed. While the API
server can't be reached, reads are answered from memory and writes fail. On SIGTERM, calls under way
end first.
"""

import asyncio
import logging
import signal
import time
from contextlib import AsyncExitStack
from typing import Final

from kwok_operator import __version__, constants
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.kube import tlsbuffers
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.kube.decode import NODES
from kwok_operator.kube.reflector import Reflector
from kwok_operator.nodegroups.client import GROUPS
from kwok_operator.observability.health import HealthServer
from kwok_operator.shim.callslog import CallsLog
from kwok_operator.shim.grpcserver import GrpcServer
from kwok_operator.shim.health import health_handlers
from kwok_operator.shim.metrics import ShimMetrics
from kwok_operator.shim.service import CloudProvider
from kwok_operator.shim.settings import ShimSettings
from kwok_operator.shim.store import Store
from kwok_operator.shim.tls import Tls
from kwok_operator.shim.trouble import ApiTrouble
from kwok_operator.shim.writer import TargetWriter

logger = logging.getLogger(__name__)

STOP_GRACE: Final = 5.0


async def run(settings: ShimSettings) -> None:
    """Runs the shim until a signal; raises KwokOperatorError where it can't start or go on."""
    tlsbuffers.make_small()
    connection = await load_connection(kubeconfig=settings.kubeconfig, context=settings.context)
    metrics = ShimMetrics()
    store = Store(selector=settings.selector, provider_id_prefix=settings.provider_id_prefix)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            KubeClient(connection=connection, observe=metrics.request)
        )
        metrics.watch_store(sizes=lambda: store.sizes, synced=lambda: store.synced)
        writer = TargetWriter(client=client, store=store, clock=time.monotonic)
        provider = CloudProvider(store=store, writer=writer)
        calls, trouble = provider.handlers(), _trouble(settings, store, metrics)
        if trouble is not None:
            calls = trouble.wrap(calls)
        if settings.calls_log:
            log = _calls_log(settings.calls_log)
            stack.callback(log.close)
            calls = log.wrap(calls)
        served = {**calls, **health_handlers(lambda: store.synced)}
        server = GrpcServer(served, observe=metrics.call)
        health = HealthServer(
            registry=metrics.registry, healthy=lambda: None, ready=lambda: _unready(store)
        )
        logger.info("kwok-operator shim %s: %s", __version__, connection.description)
        if settings.metrics_listen:
            await health.start(*settings.metrics_listen)
        stack.push_async_callback(health.close)
        tls = Tls(settings.certificates) if settings.certificates else None
        await _listen(server, settings, tls)
        stack.push_async_callback(server.stop, STOP_GRACE)
        if trouble is not None:
            stack.callback(trouble.stop)
        await _work(client, store, tls, metrics)
        logger.info("stopping: calls under way end, nodes and groups stay")


async def _work(client: KubeClient, store: Store, tls: Tls | None, metrics: ShimMetrics) -> None:
    """Follows groups and nodes until a signal."""
    groups = Reflector(
        client=client,
        path=constants.GROUPS_PATH,
        decoder=GROUPS,
        sink=store.groups,
        page_size=100,
        on_restart=metrics.watch_restarted,
        on_restored=store.forget_versions,
    )
    nodes = Reflector(
        client=client,
        path=constants.NODES_PATH,
        decoder=NODES,
        params={"labelSelector": constants.NODE_GROUP_LABEL},
        sink=store.nodes,
        on_restart=metrics.watch_restarted,
    )
    metrics.watch_contact(constants.GROUPS_PATH, lambda: groups.last_contact)
    metrics.watch_contact(constants.NODES_PATH, lambda: nodes.last_contact)
    signalled = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    parts = [groups.run(), nodes.run(), _log_ready(store)]
    if tls is not None:
        parts.append(tls.keep_reloading())
    tasks = [asyncio.create_task(part) for part in parts]
    waiting = asyncio.create_task(signalled.wait())
    try:
        done, _ = await asyncio.wait((*tasks, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiting}:
            raise KwokOperatorError(f"a part has ended: {task.exception()!r}")
    finally:
        for each in (*tasks, waiting):
            each.cancel()
        await asyncio.gather(*tasks, waiting, return_exceptions=True)


def _trouble(settings: ShimSettings, store: Store, metrics: ShimMetrics) -> ApiTrouble | None:
    plan = settings.api_trouble
    if plan is None:
        return None
    logger.info(
        "trouble of the cloud's API is made up for groups with spec.cloud.apiTrouble: calls=%s",
        ",".join(dict.fromkeys(rule.name for rule in plan.rpcs)),
    )
    return ApiTrouble(plan, store=store, count=metrics.trouble)


def _calls_log(path: str) -> CallsLog:
    try:
        return CallsLog(path)
    except OSError as error:
        raise SettingsError(
            f"--calls-log {path}: {error.strerror or error}; name a file that can be written"
        ) from error


async def _listen(server: GrpcServer, settings: ShimSettings, tls: Tls | None) -> None:
    where = settings.listen
    try:
        if where.path:
            await server.listen_unix(where.path)
        else:
            await server.listen_tcp(where.host, where.port, ssl=tls.context if tls else None)
    except OSError as error:
        raise SettingsError(
            f"--listen {where}: {error.strerror or error}; give another address"
        ) from error
    logger.info("listening: address=%s tls=%s", where, tls is not None)


async def _log_ready(store: Store) -> None:
    await store.groups.synced.wait()
    await store.nodes.synced.wait()
    names = [group.name for group in store.all_served()]
    logger.info("ready: groups=%d", len(names))
    await asyncio.Event().wait()


def _unready(store: Store) -> str | None:
    return None if store.synced else "groups and nodes are still being listed"
