"""Follows real nodes of this cluster and of others, so that templates can be copied from them.

    NodeLink (this cluster), RemoteLink (another, by a Secret) ──> LiveNodes

Only a few fields of each node are kept. A node is fetched when it is chosen.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from sys import intern
from typing import Any

from kwok_operator import constants
from kwok_operator.constants import NODES_PATH
from kwok_operator.errors import ConnectionConfigError, KwokOperatorError, NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.connection import ApiConnection, Endpoint
from kwok_operator.kube.decode import OBJECTS, decode_dict
from kwok_operator.kube.reflector import Reflector
from kwok_operator.sources.nodechoice import LiveNode, is_leftover, live_node

logger = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds for which a watch may fail before that is reported. A watch that is only cut is open
again at once."""
SECRET_CHECK_INTERVAL = 10.0
SECRET_RETRY_INTERVAL = 5.0
PAGE_SIZE = 100
"""The nodes in one page of a list: a page is decoded in one go, which must not block the event loop
for long."""


def _kept(raw: Mapping[str, Any]) -> LiveNode:
    """Reads a node, and shares equal texts between nodes to save memory: most keys and values are
    the same."""
    node = live_node(raw)
    return replace(node, labels=_shared(node.labels), annotations=_shared(node.annotations))


def _shared(texts: Mapping[str, str]) -> dict[str, str]:
    return {intern(key): intern(text) for key, text in texts.items()}


_LIVE_NODES = OBJECTS.then(_kept)
_NOT_OURS = f"!{constants.NODE_GROUP_LABEL}"

Changed = Callable[[Sequence[LiveNode]], None]
"""A function that is called with the old and the new state of a changed node, or with nothing if
any node may have changed."""
SYNC_WITHIN = 5.0
"""Seconds that a pass waits for the first list of nodes."""


class LiveNodes:
    """The real nodes of one cluster. Fake nodes that cluster-autoscaler's kwok provider made are
    not among them, but in `leftovers`.

    `synced` is set once all have been listed.
    """

    def __init__(self, *, place: str, changed: Changed) -> None:
        self.synced = asyncio.Event()
        self._place = place
        self._nameless_seen = False
        self._changed = changed
        self._nodes: dict[str, LiveNode] = {}
        self._leftovers: dict[str, LiveNode] = {}

    async def wait_synced(self) -> bool:
        """Waits up to SYNC_WITHIN seconds for the first list; returns whether it has come."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.synced.wait(), SYNC_WITHIN)
        return self.synced.is_set()

    def __iter__(self) -> Iterator[LiveNode]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def leftovers(self) -> list[LiveNode]:
        """Returns the fake nodes that cluster-autoscaler's kwok provider made, sorted by name."""
        return sorted(self._leftovers.values(), key=lambda node: node.name)

    def replace(self, items: Sequence[LiveNode], resource_version: int) -> None:
        """Replaces all nodes by a full list, and reports that any of them may have changed."""
        listed = {item.name for item in items}
        for known in (self._nodes, self._leftovers):
            for name in known.keys() - listed:
                del known[name]
        for item in items:
            self._put(item)
        self.synced.set()
        self._changed(())

    def upsert(self, item: LiveNode) -> None:
        before = self._nodes.get(item.name) or self._leftovers.get(item.name)
        self._put(item)
        after = self._nodes.get(item.name) or self._leftovers.get(item.name)
        if _news(before) != _news(after):
            self._changed([node for node in (before, after) if node is not None])

    def remove(self, item: LiveNode) -> None:
        before = self._nodes.pop(item.name, None) or self._leftovers.pop(item.name, None)
        if before is not None:
            self._changed([before])

    def _put(self, item: LiveNode) -> None:
        self._nodes.pop(item.name, None)
        self._leftovers.pop(item.name, None)
        if not item.name:
            if not self._nameless_seen:
                logger.warning("skipped a node that has no name: cluster=%s", self._place)
            self._nameless_seen = True
        elif is_leftover(item):
            self._leftovers[item.name] = item
        elif not item.fake:
            self._nodes[item.name] = item


def _news(node: LiveNode | None) -> tuple[object, ...]:
    if node is None:
        return ()
    return (node.uid, node.usable, node.fake, node.labels, node.annotations, node.digest)


class NodeLink:
    """Follows the real nodes of the cluster of `client`; `place` is the cluster's name in
    messages."""

    def __init__(
        self,
        *,
        client: KubeClient,
        place: str,
        changed: Changed,
        clock: Callable[[], float],
        nodes: LiveNodes | None = None,
    ) -> None:
        self.place = place
        self.nodes = LiveNodes(place=place, changed=changed) if nodes is None else nodes
        self._client = client
        self._changed = changed
        self._clock = clock
        self._trouble: tuple[str, float] | None = None
        self._task: asyncio.Task[None] | None = None
        self._reflector = Reflector(
            client=client,
            path=NODES_PATH,
            decoder=_LIVE_NODES,
            params={"labelSelector": _NOT_OURS},
            sink=self.nodes,
            page_size=PAGE_SIZE,
            on_trouble=self._note_trouble,
        )

    def start(self) -> None:
        """Begins to follow the nodes; begins again if the task has ended."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._reflector.run(), name=f"follow {self.place}")
            self._task.add_done_callback(_log_end)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    @property
    def problem(self) -> str | None:
        """Returns why the nodes may be out of date, if that has lasted for PATIENCE seconds; else
        None."""
        if self._trouble is None:
            return None
        sentence, since = self._trouble
        lasting = not self.nodes.synced.is_set() or self._clock() - since >= PATIENCE
        return sentence if lasting else None

    async def get(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Returns an object of the nodes' cluster, or None if it doesn't exist. Raises
        KwokOperatorError.
        """
        try:
            answer = await self._client.request("GET", path, params=params, retries=2)
        except NotFoundError:
            return None
        return decode_dict(answer)

    def _note_trouble(self, sentence: str | None) -> None:
        if sentence is None:
            self._trouble = None
        else:
            since = self._trouble[1] if self._trouble else self._clock()
            self._trouble = sentence, since
            asyncio.get_running_loop().call_later(PATIENCE, self._changed, ())
        self._changed(())


class RemoteLink:
    """Follows the real nodes of another cluster, named by a Secret with a kubeconfig.

    `read` returns the kubeconfig's text, and raises KwokOperatorError. It is called again and
    again, so a changed kubeconfig is used within seconds.
    """

    def __init__(
        self,
        *,
        name: str,
        read: Callable[[], Awaitable[str]],
        parse: Callable[[str], Endpoint],
        changed: Changed,
        clock: Callable[[], float],
    ) -> None:
        self.place = f"the cluster of Secret {name}"
        self.nodes = LiveNodes(place=self.place, changed=changed)
        self._read = read
        self._parse = parse
        self._changed = changed
        self._clock = clock
        self._link: NodeLink | None = None
        self._client: KubeClient | None = None
        self._text = ""
        self._trouble: str | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"reach {self.place}")
            self._task.add_done_callback(_log_end)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._disconnect()

    @property
    def problem(self) -> str | None:
        return self._trouble or (self._link.problem if self._link else None)

    async def get(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> dict[str, Any] | None:
        return await self._link.get(path, params) if self._link else None

    async def _run(self) -> None:
        """Reads the Secret again and again, and connects again when it has changed."""
        while True:
            pause = SECRET_CHECK_INTERVAL
            try:
                await self._connect(await self._read())
            except KwokOperatorError as error:
                pause = SECRET_RETRY_INTERVAL
                self._set_trouble(str(error))
            else:
                self._set_trouble(None)
            await asyncio.sleep(pause)

    async def _connect(self, text: str) -> None:
        if text == self._text and self._link is not None:
            self._link.start()
            return
        endpoint = self._parse(text)
        connection = ApiConnection(endpoint, load=self._load)
        await self._disconnect()
        self._text, self._client = text, KubeClient(connection=connection, max_connections=4)
        self._link = NodeLink(
            client=self._client,
            place=self.place,
            changed=self._changed,
            clock=self._clock,
            nodes=self.nodes,
        )
        logger.info("connected: cluster=%s server=%s", self.place, endpoint.server)
        self._link.start()

    async def _load(self) -> Endpoint:
        try:
            return self._parse(await self._read())
        except ConnectionConfigError:
            raise
        except KwokOperatorError as error:
            raise ConnectionConfigError(str(error)) from error

    async def _disconnect(self) -> None:
        if self._link is not None:
            await self._link.close()
        if self._client is not None:
            await self._client.close()
        self._link = self._client = None

    def _set_trouble(self, sentence: str | None) -> None:
        if sentence != self._trouble:
            if sentence is not None:
                logger.warning("not reachable: cluster=%s error=%s", self.place, sentence)
            self._trouble = sentence
            self._changed(())


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("%s has ended", task.get_name(), exc_info=task.exception())
