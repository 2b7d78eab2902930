"""The operator as kopf sees it: its start, its end, and what follows from each event.

    kopf ──> login, startup, cleanup ──> Operator (process.py): what is started when, and stopped
      └────> events of groups, pools, profiles, ConfigMaps ──> Assembly: who has to look at it

Handlers of events only enter what they are shown and put names into a queue; the work is done by
passes, which compare what there should be with what there is. For such handlers kopf writes no
annotation and no finalizer. Nodes are too many for it, and have a watch of their own.

Where kopf ends, the process ends with an error, and whoever runs it starts it again: all state is
in the API server. So it ends where a watch reports an error that kopf does not know, and where a
CRD that it follows is gone.

kopf is imported here and nowhere else, and without the clients for Kubernetes that it would take in
if they are installed, for logins and models that are never used: 35 MB.
"""

import asyncio
import logging
import signal
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from kwok_operator.constants import API_GROUP, API_VERSION, PLURAL, POOL_PLURAL, PROFILE_PLURAL
from kwok_operator.errors import ConnectionConfigError, KwokOperatorError, one_line
from kwok_operator.operator.absent import absent
from kwok_operator.operator.process import Operator

with absent("kubernetes", "kubernetes_asyncio", "pykube"):
    import kopf

logger = logging.getLogger(__name__)

BACKOFFS = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0, *[10.0] * 10_000)
"""Seconds between two attempts of one request: for a day, as an API server may be away for long."""
LOGIN_PAUSE = 5.0
"""Seconds between two logins: kopf asks for one after each 401, and that may be at once again."""
PAGE: Final = 20
"""A ConfigMap may have 1 MiB, and a page is decoded at once."""


CLEANUP_TASK: Final = "startup/cleanup activities"
WATCH_TASK: Final = "watcher for "
CANCEL_AGAIN_AFTER: Final = 0.5


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Sets kopf up, and starts everything else; kopf lists and watches nothing before."""
    configure(settings)
    await _operator(memo).start()


@kopf.on.cleanup(errors=kopf.ErrorsMode.PERMANENT)
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Ends what is in flight, and releases the Lease."""
    await _operator(memo).stop()


@kopf.on.login()
async def log_in(memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """A session that logs in by the same connection as everything else, with what is valid now."""
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
    """Why the process should be started anew, if it should. /healthz asks this: kopf's own endpoint
    answers only after the start, and a standby waits in there."""
    return _operator(memo).problem()


@kopf.on.event(API_GROUP, API_VERSION, PLURAL)
async def on_group(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """The group is entered in the store, and its name is put into the queue: a pass looks at it."""
    _operator(memo).parts.group_seen(*_seen(event))


@kopf.on.event(API_GROUP, API_VERSION, POOL_PLURAL)
async def on_pool(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """The groups that name the pool are looked at, and its status is written soon."""
    _operator(memo).parts.pools.objects.seen(*_seen(event))


@kopf.on.event(API_GROUP, API_VERSION, PROFILE_PLURAL)
async def on_profile(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """All profiles are compiled anew, and kwok's Stages are kept as they say."""
    _operator(memo).parts.profiles.objects.seen(*_seen(event))


@kopf.on.event("v1", "configmaps")
async def on_configmap(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """The groups that copy from it are looked at, and so is the provider config that it may be."""
    _operator(memo).parts.configmaps.objects.seen(*_seen(event))


def configure(settings: kopf.OperatorSettings) -> None:
    """No Events of kopf's own, no peering, no watch on CRDs: one that is gone ends kopf."""
    # It would kill the program ten minutes after it was ended.
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = 600
    settings.watching.chunk_size = PAGE
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = BACKOFFS
    settings.execution.max_workers = 2
    settings.queueing.idle_timeout = 1.0
    # Ours are none, and that of another operator on kopf, on a ConfigMap, is not ours to take off.
    settings.persistence.finalizer = f"{API_GROUP}/none"
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=API_GROUP)


async def run_until_ended(operator: Operator) -> None:
    """kopf, from its start to its end; raises KwokOperatorError unless a signal has ended it."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_forgotten)
    memo = kopf.Memo(operator=operator)
    operator.healthy = cast(Any, partial(problem, memo=memo))
    tasks = await kopf.spawn_tasks(
        memo=memo,
        # Of ConfigMaps; all else that is followed is in no namespace.
        namespaces=[operator.parts.configmaps.namespace],
        standalone=True,
        stop_flag=operator.ended,
        # Only peers would see it. kopf would take the user's name, and that of a container has
        # none.
        identity=cast(Any, PLURAL),
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # kopf's own handlers can't take two
        loop.add_signal_handler(number, operator.end)
    # Not kopf.run_tasks(), which in the end cancels every task that is younger than kopf.
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(set(tasks))
    if operator.ended.done() and (reason := operator.ended.result()) is not None:
        raise reason
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            cause = error.__cause__
            if isinstance(cause, KwokOperatorError):  # of a handler
                raise cause
            raise KwokOperatorError(
                f"kopf has ended: {one_line(repr(error), limit=300)}"
            ) from error


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancels kopf's tasks, and the watches that it leaves where one of them has failed.

    A watch that is about to begin anew overhears that, so it is repeated, but not to the task that
    waits for the others and calls `stop`.
    """
    cleanup = {task for task in tasks if task.get_name() == CLEANUP_TASK}
    watches = {task for task in asyncio.all_tasks() if task.get_name().startswith(WATCH_TASK)}
    others = tasks - cleanup | watches
    for task in cleanup:
        task.cancel()
    while others:
        for task in others:
            task.cancel()
        _, others = await asyncio.wait(others, timeout=CANCEL_AGAIN_AFTER)
    await asyncio.wait(cleanup)


def log_forgotten(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs what no task was left to hear of; without a traceback where it is a failed request.

    kopf asks for several things at once, ends with the first error, and forgets the others.
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
    """The object, and whether it is gone."""
    return event["object"], event["type"] == "DELETED"
