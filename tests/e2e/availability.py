"""How many nodes of a group were Ready at the worst moment, told by a watch: no moment is missed.

with watched(cluster, group) as seen: ...; seen.fewest
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hack.controlplane import Cluster
from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.kube.decode import NODES, NodeView
from kwok_operator.kube.reflector import Reflector


class Availability:
    """The fewest Ready nodes that there were at a time, told event by event."""

    def __init__(self) -> None:
        self._ready: dict[str, bool] = {}
        self.fewest: int | None = None

    def replace(self, items: Sequence[NodeView], resource_version: int) -> None:
        assert self.fewest is None, "the watch has a gap"
        self._ready = {item.name: item.ready for item in items}
        self._count()

    def upsert(self, item: NodeView) -> None:
        self._ready[item.name] = item.ready and not item.deleting
        self._count()

    def remove(self, item: NodeView) -> None:
        self._ready.pop(item.name, None)
        self._count()

    def _count(self) -> None:
        ready = sum(self._ready.values())
        self.fewest = ready if self.fewest is None else min(self.fewest, ready)


@contextmanager
def watched(cluster: Cluster, name: str) -> Iterator[Availability]:
    """Watches a group's nodes in a thread."""
    seen, loop = Availability(), asyncio.new_event_loop()
    stop, synced = asyncio.Event(), threading.Event()

    async def watch() -> None:
        connection = await load_connection(kubeconfig=str(cluster.kubeconfig))
        async with KubeClient(connection=connection) as client:
            params = {"labelSelector": f"{NODE_GROUP_LABEL}={name}"}
            reflector = Reflector(
                client=client, path="/api/v1/nodes", params=params, decoder=NODES, sink=seen
            )
            task = asyncio.create_task(reflector.run())
            await reflector.synced.wait()
            synced.set()
            await stop.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.3)  # for TLS to say good-bye, which nobody can wait for

    thread = threading.Thread(target=lambda: loop.run_until_complete(watch()))
    thread.start()
    try:
        assert synced.wait(30)
        yield seen
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
