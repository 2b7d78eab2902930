"""kopf: tells us about groups, and nothing else.

One event handler, which can't fail and does no work: it hands the object on and the group is
looked at. No other kind of handler is registered, so kopf adds no finalizers and writes no
annotations. Nodes are not watched through kopf at all: at thousands of objects its memory and its
queues don't hold.

kopf ends where a watch tells an error that it doesn't know, and may stop watching groups without a
word, as after a CRD that was deleted and installed again. So it is run here as a guest: it is ended
where it has stopped, and whoever runs `watch_groups` begins it anew.

kopf is imported here and nowhere else, and without the clients for Kubernetes that it would take in
if they are installed, for logins and models that are never used: 35 MB.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, cast

from kwok_operator import constants
from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.kube.session import Session
from kwok_operator.operator.absent import absent

with absent("kubernetes", "kubernetes_asyncio", "pykube"):
    import kopf

logger = logging.getLogger(__name__)

WATCH_CHECK_INTERVAL = 5.0
WATCH_CHECKS = 4
"""So many in a row find no watch, and a server that serves groups: then kopf has stopped. That is
longer than it waits before it tries again."""
ENDS_WITHIN = 20.0
FIRST_BACKOFFS = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0)
LAST_BACKOFF = 10.0

Seen = Callable[[Mapping[str, Any], bool], None]
"""Called with a group's object, and whether that object is gone."""
Served = Callable[[], Awaitable[bool]]
"""Says whether the API server serves groups; raises KwokOperatorError where it can't be asked."""
Login = Callable[[], Awaitable[tuple[str, Session]]]
"""Gives the server's URL and a session that is logged in there."""


async def watch_groups(
    *,
    registry: kopf.OperatorRegistry,
    begun: Callable[[], None],
    watching: Callable[[], bool],
    served: Served,
) -> None:
    """kopf, from its start to its end, which is a KwokOperatorError.

    `begun` is called once kopf has taken the signals; `watching` says whether it lists or watches
    groups at this moment.
    """
    asyncio.get_running_loop().set_exception_handler(log_forgotten)
    # Not kopf.operator(), which in the end cancels every task that is younger than kopf.
    tasks = {
        *await kopf.spawn_tasks(
            registry=registry,
            settings=make_settings(),
            clusterwide=True,
            standalone=True,
            # Only peers would see it. kopf would take the user's name, and that of a container has
            # none.
            identity=cast(Any, constants.PLURAL),
        )
    }
    begun()
    silence = asyncio.create_task(_until_silent(watching, served), name="watch the watch")
    try:
        done, _ = await asyncio.wait({silence, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end({silence, *tasks})
    if silence in done:
        raise KwokOperatorError("groups are served, and not watched any more")
    errors = [
        error.__cause__ or error
        for task in done
        if not task.cancelled() and (error := task.exception())
    ]
    raise KwokOperatorError(f"kopf has ended: {one_line(repr(errors), limit=300)}")


async def _until_silent(watching: Callable[[], bool], served: Served) -> None:
    """Returns once groups could be watched, and are not.

    An idle cluster has nothing to tell for hours, so what counts is whether kopf still asks.
    """
    found = 0
    while found < WATCH_CHECKS:
        await asyncio.sleep(WATCH_CHECK_INTERVAL)
        try:
            missed = not watching() and await served() and not watching()
        except KwokOperatorError as error:
            logger.debug("groups can't be looked for: error=%s", error)
            missed = False
        found = found + 1 if missed else 0


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """kopf's parts end each other's parts when they are cancelled, and close what they opened."""
    for task in tasks:
        task.cancel()
    _, late = await asyncio.wait(tasks, timeout=ENDS_WITHIN)
    for task in late:
        logger.warning("a part of kopf does not end: %s", task.get_name())
        task.cancel()


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


def make_registry(*, seen: Seen, login: Login) -> kopf.OperatorRegistry:
    """Handlers that pass groups on to `seen`."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        server, session = await login()
        return kopf.AiohttpSession(server=server, aiohttp_session=session)

    @kopf.on.event(constants.API_GROUP, constants.API_VERSION, constants.PLURAL, registry=registry)
    async def on_group(event: kopf.RawEvent, **_: Any) -> None:
        seen(event["object"], event["type"] == "DELETED")

    return registry


def make_settings() -> kopf.OperatorSettings:
    """kopf's settings: no Events of its own, no peering, quick to give up on silent connections.

    It never gives up on the API server: a request of its own that fails for good ends kopf.
    """
    settings = kopf.OperatorSettings()
    # It would kill the program ten minutes after it was ended.
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.server_timeout = 600
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.execution.max_workers = 2
    settings.queueing.idle_timeout = 1.0
    return settings


class Backoffs:
    """Seconds between two attempts of one request of kopf's, without an end."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(FIRST_BACKOFFS, itertools.repeat(LAST_BACKOFF))
