"""How many nodes of a group were Ready at the worst moment, told by a watch: no moment is missed.

with watched(cluster, group) as seen: ...; seen.fewest
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.controlplane import Cluster
from tests.e2e.api import NODES, Api
from tests.e2e.groups import is_ready
from tests.e2e.watching import Watch


class Availability:
    """The fewest Ready nodes that there were at a time, told event by event."""

    def __init__(self) -> None:
        self._ready: set[str] = set()
        self.fewest: int | None = None

    def listed(self, items: Sequence[dict[str, Any]]) -> None:
        assert self.fewest is None, "the watch has a gap"
        self._ready = {item["metadata"]["name"] for item in items if is_ready(item)}
        self.fewest = len(self._ready)

    def seen(self, event: str, item: dict[str, Any]) -> None:
        meta = item["metadata"]
        if event != "DELETED" and "deletionTimestamp" not in meta and is_ready(item):
            self._ready.add(meta["name"])
        else:
            self._ready.discard(meta["name"])
        self.fewest = min(self.fewest or 0, len(self._ready))


@contextmanager
def watched(cluster: Cluster, name: str) -> Iterator[Availability]:
    """Watches a group's nodes."""
    seen, api = Availability(), Api(cluster.kubeconfig)
    selector = f"{NODE_GROUP_LABEL}={name}"
    with Watch(api, NODES, listed=seen.listed, seen=seen.seen, selector=selector):
        yield seen
