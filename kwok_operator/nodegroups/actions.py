"""Carries out a plan: deletes, creates and patches nodes, removes the taint of new nodes so that
pods may come, and makes the writes of steps (nodegroups/steps.py).

    PassResult (a plan, and what it was made from)  --carry_out-->  NodeWriter, many calls at once

It stops between two nodes when the group changes. It need not remember which nodes were left
undone: the next plan is made from the nodes that exist then.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from kwok_operator import constants
from kwok_operator.errors import FAILED_REQUEST, REFUSED, ApiError, KwokOperatorError
from kwok_operator.nodegroups.api.nodegroup import DeletedNodePods
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.network import NodeNetwork
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.nodewriter import Stored, template_hash_of
from kwok_operator.nodegroups.observation import Observation
from kwok_operator.nodegroups.parts import Parts, PassResult
from kwok_operator.nodegroups.steps import FirstWrite, Stop, Write
from kwok_operator.nodegroups.template import KubeletEndpoint, NodeTemplate, render

logger = logging.getLogger(__name__)

WRITES_PER_PASS = 2_000
"""The most nodes that one pass creates, and the most that it patches. The next pass then checks
whether more are still wanted."""


class Actions:
    """Carries out plans by writing nodes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._writer = parts.writer
        self._executor = parts.executor
        self._kwok = parts.kwok
        self._metrics = parts.metrics

    async def carry_out(
        self, result: PassResult, *, opening: Sequence[NodeRecord], stop: Stop
    ) -> None:
        """Makes all writes of a plan. If some fail with one of FAILED_REQUEST, it raises the first
        of these errors at the end.

        `opening` are the Ready nodes whose taint of new nodes is removed, so that pods may come.
        """
        plan, node = result.plan, result.resolution.node
        writes: list[Write] = []
        if plan.delete:
            writes.append(partial(self._delete, result))
        if opening:
            writes.append(partial(self._let_pods_on, result, opening))
        writes += [write for step in result.steps for write in step.writes]
        if node is not None and plan.create:
            writes.append(partial(self._create, result, node))
        if node is not None and plan.update:
            writes.append(partial(self._update, result, node))
        first: KwokOperatorError | None = None
        for write in writes:
            if stop():
                break
            try:
                await write(stop)
            except FAILED_REQUEST as error:
                first = first or error
        if first is not None:
            raise first

    async def _delete(self, result: PassResult, stop: Stop) -> None:
        by_name = _by_name(result.seen)
        pods = deletes_pods(result.group)

        async def delete(name: str) -> None:
            await self._writer.delete(by_name[name], pods=pods)
            self._metrics.node_deleted(result.group.name)

        names = [name for name in result.plan.delete if not by_name[name].dismissed]
        await self._executor.run(names, delete, group=result.group.name, stop=stop)

    async def _let_pods_on(
        self, result: PassResult, opening: Sequence[NodeRecord], stop: Stop
    ) -> None:
        refusals: list[ApiError] = []
        for step in result.steps:
            await step.before_nodes()

        async def let_pods_on(record: NodeRecord) -> None:
            # An operator that was killed after it created the node may not have called `born`.
            for step in result.steps:
                await step.born(record.name, uid=record.uid, made=record.created * 1_000)
            # If this fails for another reason, the executor and the next pass try again.
            refusal = await self._writer.let_pods_on(record.name, uid=result.group.uid)
            result.memory.openings.tried(record.name, now=self._parts.clock.monotonic())
            if refusal is not None:
                refusals.append(refusal)

        await self._executor.run(
            opening[:WRITES_PER_PASS], let_pods_on, group=result.group.name, stop=stop
        )
        if refusals:
            logger.warning(
                "pods are kept off new nodes: group=%s nodes=%d error=%s",
                result.group.name,
                len(refusals),
                refusals[0],
            )

    async def _create(self, result: PassResult, node: Node, stop: Stop) -> None:
        group, plan, names = result.group, result.plan, result.seen.names
        asked_at = {s: b.requested_at for b in plan.batches for s in b}
        born_ready = group.spec.template.are_born_ready
        for step in result.steps:
            await step.before_nodes()
        endpoint = await self._endpoint(result.seen) if born_ready else None
        rendered = self._render(group, node, endpoint)
        uid_by_serial, cache = dict[int, str](), self._parts.cache

        async def create(serial: int) -> None:
            # The executor calls this again if a later request failed. Then the uid is known.
            stored = None if serial in uid_by_serial else await post(serial)
            if serial not in uid_by_serial:
                return
            name = names.name(serial)
            # Steps write what belongs to the node, such as companions, before pods can come.
            for step in result.steps:
                await step.born(name, uid=uid_by_serial[serial])
            if endpoint is not None:
                # If the API server refuses, the next pass tries again, and reports it.
                await self._writer.let_pods_on(name, uid=group.uid, stored=stored)

        async def post(serial: int) -> Stored | None:
            name, ready, now = names.name(serial), endpoint is not None, self._parts.clock.now()
            births = _births(result, node, serial)
            ready &= all(birth.keeps_ready_parts for birth in births)
            if rendered.network and not cache.claim(rendered.network, name, serial):
                result.memory.given_up.add(serial)
                return None
            body = rendered.body(
                name, requested_at=asked_at[serial], now=now, ready=ready, serial=serial
            )
            for birth in births:
                body = birth.body(body, now=now)
            try:
                stored = await self._writer.create(
                    name, body, group=group.name, uid=group.uid, template_hash=rendered.hash
                )
            except KwokOperatorError as error:
                if rendered.network:
                    self._give_back(name, error)
                raise
            if stored is None:
                cache.release(name)
                result.memory.taken[serial] = name
                return None
            uid_by_serial[serial] = stored.node.uid
            result.memory.seen.add(serial)
            result.memory.hashed_nodes.note_written(serial, template_hash_of(stored.node))
            self._metrics.node_created(group.name)
            return stored

        first = _first_ready(result, node) if born_ready else None
        if endpoint is None and first is not None and self._kwok.wants_scout():
            await self._scout(result, first, create, stop)
        else:
            await self._executor.run(
                plan.create[:WRITES_PER_PASS], create, group=result.group.name, stop=stop
            )

    async def _scout(
        self, result: PassResult, first: int, create: Callable[[int], Awaitable[None]], stop: Stop
    ) -> None:
        """Creates one node as kwok's scout: without Ready, to see whether kwok answers. The next
        pass creates the other nodes, and knows the answer."""

        async def post() -> bool:
            await self._executor.run([first], create, group=result.group.name, stop=stop)
            return first in result.memory.seen

        async with self._kwok.scouting:
            if self._kwok.wants_scout() and await self._endpoint(result.seen) is None:
                await self._kwok.scout(result.seen.names.name(first), post)

    async def _update(self, result: PassResult, node: Node, stop: Stop) -> None:
        group, by_name = result.group, _by_name(result.seen)
        rendered = self._render(group, node, None)

        async def update(name: str) -> None:
            record = by_name[name]
            wanted = json.loads(rendered.body(name, requested_at="", now="", ready=False))
            if await self._writer.update(
                record, wanted, uid=group.uid, carry_over=self._carry_over
            ):
                self._metrics.node_updated(group.name)
                result.memory.hashed_nodes.note_written(record.serial, rendered.hash)

        await self._executor.run(
            result.plan.update[:WRITES_PER_PASS], update, group=result.group.name, stop=stop
        )

    def _carry_over(self, wanted: Node, live: Node) -> Node:
        for step in self._parts.steps:
            wanted = step.carry_over(wanted, live)
        return wanted

    def _render(self, group: Group, node: Node, endpoint: KubeletEndpoint | None) -> NodeTemplate:
        return render(
            node,
            group=group.name,
            uid=group.uid,
            provider_id_prefix=self._parts.provider_id_prefix,
            endpoint=endpoint,
            nodes=self._parts.budget.granted,
            machines=group.annotations.get(constants.MACHINES_ANNOTATION, ""),
            network=NodeNetwork.of(group.spec.template.network, group=group.name),
        )

    def _give_back(self, name: str, error: KwokOperatorError) -> None:
        """Releases the addresses that were reserved for a node whose creation failed. If the API
        server gave no answer, the node may exist: then they are released later."""
        if isinstance(error, REFUSED):
            self._parts.cache.release(name)
        else:
            # Without an answer from the API server the node may exist.
            self._parts.cache.unheard_of(name, now=self._parts.clock.monotonic())

    async def _endpoint(self, seen: Observation) -> KubeletEndpoint | None:
        return await self._kwok.endpoint(record.name for record in seen.ready)


def deletes_pods(group: Group) -> bool:
    """Whether the operator deletes the pods of a node together with the node."""
    return group.spec.scale_down.pods is DeletedNodePods.DELETE


def _births(result: PassResult, node: Node, serial: int) -> list[FirstWrite]:
    capacity = node["status"]["capacity"]
    births = (step.birth(serial, capacity) for step in result.steps)
    return [birth for birth in births if birth is not None]


def _first_ready(result: PassResult, node: Node) -> int | None:
    """Returns the first of the new serials whose node kwok may make Ready at once; None if there is
    none. A simulated cloud delays some nodes."""
    for serial in result.plan.create:
        if all(birth.ready for birth in _births(result, node, serial)):
            return serial
    return None


def _by_name(seen: Observation) -> dict[str, NodeRecord]:
    return {record.name: record for record in (*seen.records.values(), *seen.stuck.values())}
