"""Events: what `kubectl describe` shows of the life of a group, or of a ConfigMap.

One Event per transition, never one per node. They are posted in the background and may be lost: an
Event is a courtesy, the conditions are the record.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, Protocol

from kwok_operator.errors import KwokOperatorError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, KubeClient

logger = logging.getLogger(__name__)

NAMESPACE = "default"
"""Where Events about cluster-scoped objects go; others go where their object is."""
_MAX_MESSAGE = 1024
_MAX_WAITING = 500
_REPORTER = "kwok-operator"

EventType = Literal["Normal", "Warning"]


class Subject(Protocol):
    """What an Event can be about."""

    @property
    def name(self) -> str: ...

    @property
    def reference(self) -> dict[str, str]:
        """apiVersion, kind, name, uid, and the namespace where there is one."""


class Recorder:
    """Posts Events one after the other; `run()` does the posting. `wall` gives the time of day."""

    def __init__(self, *, client: KubeClient, wall: Callable[[], datetime]) -> None:
        self._client = client
        self._wall = wall
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MAX_WAITING)

    def emit(self, subject: Subject, kind: EventType, reason: str, message: str) -> None:
        """Says something about a group or a ConfigMap, and logs it."""
        level, reference = logging.WARNING if kind == "Warning" else logging.INFO, subject.reference
        what = "configmap" if reference["kind"] == "ConfigMap" else "group"
        logger.log(level, "%s: %s=%s %s", reason, what, subject.name, message)
        now = self._wall()
        unique = f"{int(now.timestamp() * 1e6):x}.{self._waiting.qsize():x}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{subject.name[:200]}.{unique}",
                "namespace": reference.get("namespace", NAMESPACE),
            },
            "involvedObject": reference,
            "type": kind,
            "reason": reason,
            "message": message[:_MAX_MESSAGE],
            "source": {"component": _REPORTER},
            "reportingComponent": _REPORTER,
            "firstTimestamp": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "lastTimestamp": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "count": 1,
        }
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            logger.debug("event dropped: %s=%s reason=%s", what, subject.name, reason)

    async def run(self) -> None:
        """Posts Events until cancelled."""
        while True:
            await self._post(await self._waiting.get())

    async def flush(self) -> None:
        """Posts what waits."""
        while not self._waiting.empty():
            await self._post(self._waiting.get_nowait())

    async def _post(self, event: dict[str, Any]) -> None:
        namespace = event["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/events"
        try:
            await self._client.request("POST", path, body=event, accept=ACCEPT_METADATA, retries=1)
        except NotFoundError:
            logger.debug("event dropped: namespace %s does not exist", namespace)
        except KwokOperatorError as error:
            logger.debug("event dropped: reason=%s error=%s", event["reason"], error)
