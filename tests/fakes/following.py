"""What tests of followed nodes put around them: nodes, who is told, no waits."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kwok_operator.kube import reflector
from kwok_operator.sources import livenodes
from kwok_operator.sources.livenodes import LiveNodes, NodeLink, RemoteLink
from kwok_operator.sources.nodechoice import LiveNode
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.recording import Clock
from tests.fakes.store import Json
from tests.fakes.waiting import until


def node(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    cpu: str = "8",
    ready: str = "True",
) -> Json:
    """A real node that can be copied, unless said otherwise."""
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "status": {
            "capacity": {"cpu": cpu, "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


class News:
    """What is told, as names; an empty tuple is "anything"."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def __call__(self, nodes: Sequence[LiveNode]) -> None:
        self.told.append(tuple(node.name for node in nodes))


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long: to ask an API server or for a Secret again, for a first listing."""
    monkeypatch.setattr(reflector, "retry_delay", lambda *_, **__: 0.002)
    monkeypatch.setattr(livenodes, "SECRET_RETRY_INTERVAL", 0.01)
    monkeypatch.setattr(livenodes, "SYNC_WITHIN", 0.02)


def names(nodes: LiveNodes) -> set[str]:
    return {node.name for node in nodes}


def following() -> list[str]:
    """The tasks that follow or reach a cluster."""
    tasks: set[asyncio.Task[Any]] = asyncio.all_tasks()
    return [task.get_name() for task in tasks if task.get_name().startswith(("follow", "reach"))]


async def lasting(link: NodeLink | RemoteLink, clock: Clock, words: str) -> None:
    """Until there is a trouble of these words, whenever it begins, and it has lasted."""

    def lasted() -> bool:
        clock.now += livenodes.PATIENCE
        return words in str(link.problem)

    await until(lasted)


async def synced(link: NodeLink | RemoteLink, server: FakeApiServer) -> None:
    """Starts a link, and waits until it watches."""
    link.start()
    await until(lambda: link.nodes.synced.is_set() and server.watchers)
