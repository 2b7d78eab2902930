"""Creates nodes: which, from what, and with one POST each.

    PassResult (a plan, and what it was made from)  --NodeCreation-->  names, bodies, addresses
        --executor: many at once-->  NodePoster  --POST-->  the API server

A 409 is a result, not an error: the name may be that of a node that an earlier POST created, whose
answer was lost. Nodes that could not be created are not remembered: the next plan is made from the
nodes that exist then.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from kwok_operator import constants
from kwok_operator.constants import NODES_PATH
from kwok_operator.errors import (
    REFUSED,
    AlteredNodeError,
    ApiError,
    ApiUnreachableError,
    ConflictError,
    KwokOperatorError,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import NODES, NodeView, decode_dict
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.network import NodeNetwork
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.nodewriter import (
    FIELD_MANAGER,
    NodeWriter,
    Stored,
    require_marks,
    template_hash_of,
)
from kwok_operator.nodegroups.observation import Observation
from kwok_operator.nodegroups.parts import Parts, PassResult
from kwok_operator.nodegroups.steps import FirstWrite, Stop
from kwok_operator.nodegroups.template import KubeletEndpoint, NodeTemplate, render

logger = logging.getLogger(__name__)

WRITES_PER_PASS: Final = 2_000
"""The most nodes that one pass creates, and the most that it patches. The next pass then checks
whether more are still wanted."""


class NodePoster:
    """Creates single nodes. The executor counts the POST against --max-qps; `count_request` is
    called to count each further request.

    The executor calls `create`, which makes each request once, because after a 429, a 5xx or no
    answer the executor repeats the whole call. If the first POST has created the node, the second
    one finds it.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        cache: NodeCache,
        writer: NodeWriter,
        count_request: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._writer = writer
        self._count_request = count_request

    async def create(
        self, name: str, body: bytes, *, group: str, uid: str, template_hash: str
    ) -> Stored | None:
        """Creates a node. Returns None if its name belongs to a node that the operator did not
        make.

        Raises AlteredNodeError if a webhook removed what shows the node's group (label, owner) or
        template (hash). Such a node is deleted again, or the group would create nodes without end.
        """
        try:
            answer = await self._client.request(
                "POST", NODES_PATH, params={"fieldManager": FIELD_MANAGER}, body=body
            )
        except ConflictError:
            self._count_request()
            found = await self._writer.read(name)
            if found is None or found.node.deleting or not _is_made_by_us(found.body):
                logger.info("name is taken: group=%s node=%s", group, name)
                return None
            # If the answer to an earlier POST was lost, its node may have the previous template.
            stored, template_hash = found, template_hash_of(found.node)
        else:
            stored = Stored(answer, NODES.one(answer))
        try:
            require_marks(stored.node, name, group=group, uid=uid, template_hash=template_hash)
        except AlteredNodeError:
            self._count_request()
            await self._take_back(stored.node, group=group, uid=uid)
            raise
        self._cache.created(group, self._cache.record_of(stored.node))
        return stored

    async def _take_back(self, node: NodeView, *, group: str, uid: str) -> None:
        record = self._cache.record_of(node)
        try:
            await self._writer.delete_once(record, {"uid": node.uid}, retries=PATIENT)
        except (ApiError, ApiUnreachableError) as error:
            serial = NodeNames.of(group, uid).serial(node.name)
            self._cache.lost(replace(record, group=group, owner=uid, serial=serial))
            logger.warning("not deleted: group=%s node=%s error=%s", group, node.name, error)


class NodeCreation:
    """Creates the nodes of plans."""

    def __init__(self, parts: Parts, poster: NodePoster) -> None:
        self._parts = parts
        self._poster = poster

    async def create(self, result: PassResult, node: Node, stop: Stop) -> None:
        """Creates the nodes that the plan in `result` adds; they copy `node`. Raises one of
        FAILED_REQUEST if some could not be created."""
        born_ready = result.group.spec.template.are_born_ready
        for step in result.steps:
            await step.before_nodes()
        endpoint = await self._endpoint(result.seen) if born_ready else None
        planned = _PlannedNodes(self._parts, self._poster, result, node, endpoint)
        first = planned.first_ready() if born_ready else None
        if endpoint is None and first is not None and self._parts.kwok.wants_scout():
            await self._scout(result, first, planned.create, stop)
        else:
            serials = result.plan.create[:WRITES_PER_PASS]
            await self._parts.executor.run(
                serials, planned.create, group=result.group.name, stop=stop
            )

    async def _scout(
        self, result: PassResult, first: int, create: Callable[[int], Awaitable[None]], stop: Stop
    ) -> None:
        """Creates one node without Ready (kwok's scout), to see whether kwok initialises it. The
        next pass creates the other nodes, and then knows whether kwok is alive."""

        async def post() -> bool:
            await self._parts.executor.run([first], create, group=result.group.name, stop=stop)
            return first in result.memory.seen

        async with self._parts.kwok.scouting:
            if self._parts.kwok.wants_scout() and await self._endpoint(result.seen) is None:
                await self._parts.kwok.scout(result.seen.names.name(first), post)

    async def _endpoint(self, seen: Observation) -> KubeletEndpoint | None:
        return await self._parts.kwok.endpoint(record.name for record in seen.ready)


class _PlannedNodes:
    """Creates the nodes that one plan adds. If kwok's kubelet `endpoint` is given, it creates them
    Ready."""

    def __init__(
        self,
        parts: Parts,
        poster: NodePoster,
        result: PassResult,
        node: Node,
        endpoint: KubeletEndpoint | None,
    ) -> None:
        self._parts = parts
        self._poster = poster
        self._result = result
        self._capacity = node["status"]["capacity"]
        self._born_ready = endpoint is not None
        self._rendered = rendered_for(parts, result.group, node, endpoint)
        self._requested_at = {s: batch.requested_at for batch in result.plan.batches for s in batch}
        self._uids: dict[int, str] = {}

    async def create(self, serial: int) -> None:
        """Creates a node, then what steps create for it, such as companions. If a request fails,
        the executor calls this again; a POST that has succeeded isn't repeated."""
        stored = None if serial in self._uids else await self._post(serial)
        if serial not in self._uids:
            return
        result, name = self._result, self._result.seen.names.name(serial)
        # Steps write what belongs to the node, such as companions, before pods can come.
        for step in result.steps:
            await step.born(name, uid=self._uids[serial])
        if self._born_ready:
            # If the API server refuses, the next pass tries again, and reports it.
            await self._parts.writer.let_pods_on(name, uid=result.group.uid, stored=stored)

    async def _post(self, serial: int) -> Stored | None:
        group, memory, rendered = self._result.group, self._result.memory, self._rendered
        name, births = self._result.seen.names.name(serial), self._births(serial)
        now = self._parts.clock.now()
        if rendered.network and not self._parts.cache.claim(rendered.network, name, serial):
            memory.given_up.add(serial)
            return None
        ready = self._born_ready and all(birth.keeps_ready_parts for birth in births)
        body = rendered.body(
            name, requested_at=self._requested_at[serial], now=now, ready=ready, serial=serial
        )
        for birth in births:
            body = birth.body(body, now=now)
        try:
            stored = await self._poster.create(
                name, body, group=group.name, uid=group.uid, template_hash=rendered.hash
            )
        except KwokOperatorError as error:
            if rendered.network:
                self._give_back(name, error)
            raise
        if stored is None:
            self._parts.cache.release(name)
            memory.taken[serial] = name
            return None
        self._uids[serial] = stored.node.uid
        memory.seen.add(serial)
        memory.hashed_nodes.note_written(serial, template_hash_of(stored.node))
        self._parts.metrics.node_created(group.name)
        return stored

    def first_ready(self) -> int | None:
        """Returns the first of the new serials whose node kwok may make Ready at once; None if a
        simulated cloud delays all of them."""
        for serial in self._result.plan.create:
            if all(birth.ready for birth in self._births(serial)):
                return serial
        return None

    def _births(self, serial: int) -> list[FirstWrite]:
        births = (step.birth(serial, self._capacity) for step in self._result.steps)
        return [birth for birth in births if birth is not None]

    def _give_back(self, name: str, error: KwokOperatorError) -> None:
        """Releases the addresses that were reserved for a node whose creation failed. If the API
        server gave no answer, the node may exist: then they are released later."""
        if isinstance(error, REFUSED):
            self._parts.cache.release(name)
        else:
            # Without an answer from the API server the node may exist.
            self._parts.cache.unheard_of(name, now=self._parts.clock.monotonic())


def rendered_for(
    parts: Parts, group: Group, node: Node, endpoint: KubeletEndpoint | None
) -> NodeTemplate:
    """Returns the NodeTemplate of the nodes that the group creates now; they copy `node`."""
    return render(
        node,
        group=group.name,
        uid=group.uid,
        provider_id_prefix=parts.provider_id_prefix,
        endpoint=endpoint,
        nodes=parts.budget.granted,
        machines=group.annotations.get(constants.MACHINES_ANNOTATION, ""),
        network=NodeNetwork.of(group.spec.template.network, group=group.name),
    )


def _is_made_by_us(body: bytes) -> bool:
    """Whether managedFields says that the operator created this node. It says so even if a webhook
    removed the label and annotations of the group."""
    written = decode_dict(body)["metadata"].get("managedFields") or ()
    return any(entry.get("manager") == FIELD_MANAGER for entry in written)
