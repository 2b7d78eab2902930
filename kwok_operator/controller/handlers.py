"""kopf: tells us about groups, and nothing else.

One event handler, which can't fail and does no work: it hands the object on and the group is
looked at. No other kind of handler is registered, so kopf adds no finalizers and writes no
annotations. Nodes are not watched through kopf at all: at thousands of objects its memory and its
queues don't hold.

kopf is imported here and nowhere else, and without the clients for Kubernetes that it would take in
if they are installed, for logins and models that are never used: 35 MB.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any

from kwok_operator import constants
from kwok_operator.controller.absent import absent
from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube.session import Session

with absent("kubernetes", "kubernetes_asyncio", "pykube"):
    import kopf
    from kopf._cogs.structs.references import Insights, Resource
    from kopf._core.engines.peering import Identity

logger = logging.getLogger(__name__)

WATCH_CHECK_INTERVAL = 5.0
FIRST_BACKOFFS = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0)
LAST_BACKOFF = 10.0

Seen = Callable[[Mapping[str, Any], bool], None]
"""Called with a group's object, and whether that object is gone."""
Served = Callable[[], Awaitable[bool]]
"""Says whether the API server serves groups; raises KwokOperatorError where it can't be asked."""
Login = Callable[[], Awaitable[tuple[str, Session]]]
"""Gives the server's URL and a session that is logged in there."""


def watch_groups(
    *, seen: Seen, login: Login, insights: Insights, ready: asyncio.Event
) -> Coroutine[Any, Any, None]:
    """kopf, from its start to its end; `ready` is set once it is up."""
    return kopf.operator(
        registry=make_registry(seen=seen, login=login),
        settings=make_settings(),
        clusterwide=True,
        standalone=True,
        insights=insights,
        ready_flag=ready,
        # Only peers would see it. kopf would take the user's name, and a container's user has none.
        identity=Identity(constants.PLURAL),
    )


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

    It never gives up on the API server: a request of its own that fails for good ends the program.
    """
    settings = kopf.OperatorSettings()
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


def make_insights() -> Insights:
    """What kopf knows of the resources that are served, empty at first."""
    return Insights()


async def keep_watching(insights: Insights, *, served: Served) -> None:
    """Has kopf watch groups whenever the API server serves them, for ever.

    kopf looks which resources there are when a CRD changes, once for each change. Where discovery
    is a moment behind, it misses a CRD that was deleted and installed again, and would never look
    again. There is no public way to tell it; `insights` is what `kopf.operator` takes and works by.
    """
    groups = Resource(
        group=constants.API_GROUP,
        version=constants.API_VERSION,
        plural=constants.PLURAL,
        kind=constants.KIND,
        namespaced=False,
        verbs=frozenset({"list", "watch"}),
    )
    while True:
        await asyncio.sleep(WATCH_CHECK_INTERVAL)
        try:
            missed = groups not in insights.watched_resources and await served()
        except KwokOperatorError as error:
            logger.debug("groups can't be looked for: error=%s", error)
            continue
        if missed:
            logger.info("the CRD is back: groups are watched again")
            async with insights.revised:
                insights.watched_resources.add(groups)
                insights.revised.notify_all()
