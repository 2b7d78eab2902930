"""Carrying out a plan: nodes deleted, created and patched, in this order.

    Work (a plan, and what it was made from)  --carry_out-->  NodeWriter, many calls at once

Stops between two nodes when the group changes. What is left is nobody's to remember: the next plan
is made from what is there then.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from kwok_operator.controller.cache import NodeRecord
from kwok_operator.controller.executor import Executor
from kwok_operator.controller.groups import Group
from kwok_operator.controller.kwok import KwokLink
from kwok_operator.controller.nodes import NodeWriter
from kwok_operator.controller.observation import Memory, Observation
from kwok_operator.core.cleaning import Node
from kwok_operator.core.plan import Plan
from kwok_operator.core.template import KubeletEndpoint, NodeTemplate, render
from kwok_operator.metrics import Metrics
from kwok_operator.models.nodegroup import DeletedNodePods

WRITES_PER_PASS = 2_000
"""Creates, and patches: then the next pass looks whether they are still what is wanted."""


@dataclass(frozen=True, slots=True)
class Work:
    """A plan to carry out. `node` is the template, None where there is no usable one.

    `stop` tells whether the plan has become pointless.
    """

    group: Group
    memory: Memory
    plan: Plan
    seen: Observation
    node: Node | None
    stop: Callable[[], bool]


class Execution:
    """Writes nodes as plans say. `now` gives RFC 3339 times."""

    def __init__(
        self,
        *,
        writer: NodeWriter,
        executor: Executor,
        kwok: KwokLink,
        metrics: Metrics,
        now: Callable[[], str],
        provider_id_prefix: str,
    ) -> None:
        self._writer = writer
        self._executor = executor
        self._kwok = kwok
        self._metrics = metrics
        self._now = now
        self._prefix = provider_id_prefix

    async def carry_out(self, work: Work) -> None:
        """Raises ApiError where the API server refuses a write."""
        if work.plan.delete:
            await self._delete(work)
        if work.node is not None and work.plan.create and not work.stop():
            await self._create(work, work.node)
        if work.node is not None and work.plan.update and not work.stop():
            await self._update(work, work.node)

    async def _delete(self, work: Work) -> None:
        by_name = _by_name(work.seen)
        pods = deletes_pods(work.group)

        async def delete(name: str) -> None:
            await self._writer.delete(by_name[name], pods=pods)
            self._metrics.node_deleted(work.group.name)

        await self._executor.run(work.plan.delete, delete, stop=work.stop)

    async def _create(self, work: Work, node: Node) -> None:
        group, plan, names = work.group, work.plan, work.seen.names
        asked_at = {s: b.requested_at for b in plan.batches for s in b}
        endpoint = await self._endpoint(work.seen)
        rendered = self._render(group, node, endpoint)

        async def create(serial: int) -> None:
            name, ready = names.name(serial), endpoint is not None
            asked = asked_at[serial]
            body = rendered.body(name, requested_at=asked, now=self._now(), ready=ready)
            made = await self._writer.create(
                name, body, group=group.name, uid=group.uid, born_ready=endpoint
            )
            if made:
                work.memory.seen.add(serial)
                self._metrics.node_created(group.name)
            else:
                work.memory.taken[serial] = name

        if endpoint is None and self._kwok.wants_scout():
            # The plan goes on in the next pass, which knows whether kwok has answered.
            async with self._kwok.scouting:
                if self._kwok.wants_scout() and await self._endpoint(work.seen) is None:
                    first = plan.create[0]

                    async def post() -> bool:
                        await self._executor.run([first], create, stop=work.stop)
                        return first in work.memory.seen

                    await self._kwok.scout(names.name(first), post)
            return
        await self._executor.run(plan.create[:WRITES_PER_PASS], create, stop=work.stop)

    async def _update(self, work: Work, node: Node) -> None:
        group, by_name = work.group, _by_name(work.seen)
        rendered = self._render(group, node, None)

        async def update(name: str) -> None:
            body = rendered.body(name, requested_at="", now="", ready=False)
            if await self._writer.update(by_name[name], json.loads(body), uid=group.uid):
                self._metrics.node_updated(group.name)

        await self._executor.run(work.plan.update[:WRITES_PER_PASS], update, stop=work.stop)

    def _render(self, group: Group, node: Node, endpoint: KubeletEndpoint | None) -> NodeTemplate:
        return render(
            node,
            group=group.name,
            uid=group.uid,
            provider_id_prefix=self._prefix,
            endpoint=endpoint,
        )

    async def _endpoint(self, seen: Observation) -> KubeletEndpoint | None:
        return await self._kwok.endpoint(record.name for record in seen.ready)


def deletes_pods(group: Group) -> bool:
    """Whether the pods of a group's nodes go with them."""
    return group.spec.scale_down.pods is DeletedNodePods.DELETE


def _by_name(seen: Observation) -> dict[str, NodeRecord]:
    return {record.name: record for record in seen.records.values()}
