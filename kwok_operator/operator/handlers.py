"""The operator's handlers for kopf: its start, its end, and its reaction to each event.

    kopf ──> login, startup, cleanup ──> Operator (process.py): starts and stops the parts
      ├────> events of groups ──> GroupStore, and the queue of passes
      └────> events of pools, profiles, ConfigMaps ──> Assembly: wakes the groups concerned

Handlers of events only store the object and put names into a queue; passes do the work, comparing
the desired state with the observed one. For such handlers kopf writes no annotation and no
finalizer. kopf does not watch nodes, which are too many for it: kube/reflector.py does.

If kopf ends, the process ends with an error, and its supervisor restarts it: all state is in the
API server. kopf ends if a watch reports an error that it does not know, or if a CRD that it watches
is deleted.

kopf is imported here and nowhere else, while the Kubernetes clients are hidden from it. If they are
installed, kopf would import them for logins and models that are not used here, which takes 35 MB.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from kwok_operator.constants import API_GROUP, API_VERSION, PLURAL, POOL_PLURAL, PROFILE_PLURAL
from kwok_operator.errors import ConnectionConfigError, KwokOperatorError, one_line
from kwok_operator.operator.assembly import CONFIGMAPS_PAGE
from kwok_operator.operator.hiddenimports import hidden_imports
from kwok_operator.operator.process import Operator

with hidden_imports("kubernetes", "kubernetes_asyncio", "pykube"):
    import kopf

# kopf's own default registry looks for those clients, to log in by them.
kopf.set_default_registry(kopf.OperatorRegistry())

logger = logging.getLogger(__name__)

BACKOFFS = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0, *[10.0] * 10_000)
"""Seconds between attempts of one request. They last for a day, as an API server may be away for
long."""
LOGIN_PAUSE = 5.0
"""The least seconds between two logins. kopf requests one after each 401, and the next 401 may come
at once."""
CLEANUP_TASK: Final = "startup/cleanup activities"
WATCH_TASK: Final = "watcher for "
CANCEL_AGAIN_AFTER: Final = 0.5
ENDS_WITHIN: Final = 20.0
"""Seconds after which tasks of kopf that have not ended are left to the end of the process."""


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Configures kopf, and starts everything else. Before this returns, kopf lists and watches
    nothing."""
    configure(settings)
    await _operator(memo).start()


@kopf.on.cleanup(errors=kopf.ErrorsMode.PERMANENT)
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stops the operator: waits for pending writes, and releases the Lease."""
    await _operator(memo).stop()


@kopf.on.login()
async def log_in(memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """Returns a session with the operator's own connection and its current credentials."""
    operator = _operator(memo)
    await operator.wait_for_login(LOGIN_PAUSE)
    try:
        await operator.connection.reload()
    except ConnectionConfigError as error:
        logger.warning("logging in again failed, keeping the old: error=%s", error)
    server = operator.connection.server
    return kopf.AiohttpSession(server=server, aiohttp_session=operator.sessions.open())


@kopf.on.probe()
def problem(memo: kopf.Memo, **_: Any) -> str | None:
    """Returns why the process should be restarted, or None. /healthz calls this. kopf's own health
    endpoint works only after the start, during which a standby waits."""
    return _operator(memo).problem()


@kopf.on.event(API_GROUP, API_VERSION, PLURAL)
async def on_group(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Stores the group and puts its name into the queue: a pass looks at it."""
    parts = _operator(memo).parts
    body, gone = _seen(event)
    if parts.store.seen(body, gone):
        parts.queue.add(body["metadata"]["name"])


@kopf.on.event(API_GROUP, API_VERSION, POOL_PLURAL)
async def on_pool(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Stores the pool. Passes over the groups that name it are scheduled, and its status is written
    later."""
    _operator(memo).parts.pools.objects.seen(*_seen(event))


@kopf.on.event(API_GROUP, API_VERSION, PROFILE_PLURAL)
async def on_profile(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Stores the profile. All profiles are then compiled again, and kwok's Stages updated."""
    _operator(memo).parts.profiles.objects.seen(*_seen(event))


@kopf.on.event("v1", "configmaps")
async def on_configmap(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Stores the ConfigMap. Passes over the groups that copy from it are scheduled; if it has the
    provider config (of cluster-autoscaler's kwok provider), that is read again."""
    _operator(memo).parts.configmaps.objects.seen(*_seen(event))


def configure(settings: kopf.OperatorSettings) -> None:
    """Configures kopf without Events of its own, without peering (kopf's leader election) and
    without a watch on CRDs."""
    # kopf's default kills the program ten minutes after a signal.
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = 600
    settings.watching.chunk_size = CONFIGMAPS_PAGE
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = BACKOFFS
    settings.execution.max_workers = 2
    settings.queueing.idle_timeout = 1.0
    # kopf removes its finalizer from objects. We set none; the default name could be another kopf
    # operator's, on a ConfigMap.
    settings.persistence.finalizer = f"{API_GROUP}/none"
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=API_GROUP)


async def run_until_ended(operator: Operator) -> None:
    """Runs kopf from its start to its end; raises KwokOperatorError unless a signal has ended
    it."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_forgotten)
    memo = kopf.Memo(operator=operator)
    operator.healthy = cast(Any, partial(problem, memo=memo))
    tasks = await kopf.spawn_tasks(
        memo=memo,
        # The namespace of the ConfigMaps; all other kinds that kopf watches are cluster-scoped.
        namespaces=[operator.parts.configmaps.namespace],
        standalone=True,
        stop_flag=operator.ended,
        # Only kopf's peers would see it. By default kopf takes the user's name, which a container
        # lacks.
        identity=cast(Any, PLURAL),
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # kopf's own handlers fail at a second one
        loop.add_signal_handler(number, operator.end)
    # Instead of kopf.run_tasks(), which at its end cancels every task that was started after kopf.
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(set(tasks))
        await operator.stop()
    if operator.ended.done() and (reason := operator.ended.result()) is not None:
        raise reason
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            cause = error.__cause__
            if isinstance(cause, KwokOperatorError):  # raised by one of our handlers
                raise cause
            raise KwokOperatorError(
                f"kopf has ended: {one_line(repr(error), limit=300)}"
            ) from error


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancels kopf's tasks, and the watches that it leaves running if one of its tasks failed.

    A watch that is just restarting misses a cancellation, so all are cancelled again and again,
    except the task that waits for all other tasks and calls `stop`.
    """
    cleanup = {task for task in tasks if task.get_name() == CLEANUP_TASK}
    watches = {task for task in asyncio.all_tasks() if task.get_name().startswith(WATCH_TASK)}
    others = tasks - cleanup | watches
    for task in cleanup:
        task.cancel()
    deadline = time.monotonic() + ENDS_WITHIN
    while others and time.monotonic() < deadline:
        for task in others:
            task.cancel()
        _, others = await asyncio.wait(others, timeout=CANCEL_AGAIN_AFTER)
    for task in others:
        logger.warning("a part of kopf does not end: %s", task.get_name())
    if not others and cleanup:
        await asyncio.wait(cleanup)


def log_forgotten(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs errors of tasks that nobody awaited; a failed request without its traceback.

    kopf makes several requests at once, ends with the first error, and drops the other errors.
    """
    error = context.get("exception")
    of_request = type(error).__module__.startswith(("kopf.", "aiohttp."))
    if of_request or isinstance(error, OSError):
        logger.debug("a request of kopf's failed: error=%s", one_line(repr(error), limit=300))
    else:
        loop.default_exception_handler(context)


def _operator(memo: kopf.Memo) -> Operator:
    return cast(Operator, memo.operator)


def _seen(event: kopf.RawEvent) -> tuple[Mapping[str, Any], bool]:
    """Returns the object of an event, and whether it was deleted."""
    return event["object"], event["type"] == "DELETED"
