"""kopf: tells us about groups, and nothing else.

One event handler, which can't fail and does no work: it hands the object on and the group is
looked at. No other kind of handler is registered, so kopf adds no finalizers and writes no
annotations. Nodes are not watched through kopf at all: at thousands of objects its memory and its
queues don't hold.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import kopf

from kwok_operator import constants
from kwok_operator.kube.session import Session

logger = logging.getLogger(__name__)

Seen = Callable[[Mapping[str, Any], bool], None]
"""Called with a group's object, and whether that object is gone."""
Login = Callable[[], Awaitable[tuple[str, Session]]]
"""Gives the server's URL and a session that is logged in there."""


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
    """kopf's settings: no Events of its own, no peering, quick to give up on silent connections."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.server_timeout = 600
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.execution.max_workers = 2
    settings.queueing.idle_timeout = 1.0
    return settings
