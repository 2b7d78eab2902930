"""Deletes and patches nodes as a plan says, and removes the taint of new nodes, so that pods may
come. creation.py creates nodes.

    PassResult (a plan, and what it was made from)  --Actions-->  NodeWriter, many calls at once

Each method stops between two nodes when the group changes.
"""

import json
import logging
from collections.abc import Sequence

from kwok_operator.errors import ApiError
from kwok_operator.nodegroups.api.nodegroup import DeletedNodePods
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.creation import WRITES_PER_PASS, rendered_for
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.observation import Observation
from kwok_operator.nodegroups.parts import Parts, PassResult
from kwok_operator.nodegroups.steps import Stop

logger = logging.getLogger(__name__)


class Actions:
    """Deletes and patches the nodes that plans name, and removes the taint of new nodes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._writer = parts.writer
        self._executor = parts.executor
        self._metrics = parts.metrics

    async def delete(self, result: PassResult, stop: Stop) -> None:
        by_name = _by_name(result.seen)
        pods = deletes_pods(result.group)

        async def delete(name: str) -> None:
            await self._writer.delete(by_name[name], pods=pods)
            self._metrics.node_deleted(result.group.name)

        names = [name for name in result.plan.delete if not by_name[name].dismissed]
        await self._executor.run(names, delete, group=result.group.name, stop=stop)

    async def let_pods_on(
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

    async def update(self, result: PassResult, node: Node, stop: Stop) -> None:
        group, by_name = result.group, _by_name(result.seen)
        rendered = rendered_for(self._parts, group, node, None)

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


def deletes_pods(group: Group) -> bool:
    """Whether the operator deletes the pods of a node together with the node."""
    return group.spec.scale_down.pods is DeletedNodePods.DELETE


def _by_name(seen: Observation) -> dict[str, NodeRecord]:
    return {record.name: record for record in (*seen.records.values(), *seen.stuck.values())}
