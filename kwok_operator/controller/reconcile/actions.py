"""Carrying out a plan: nodes deleted, opened to pods, reshaped, created, patched.

    Work (a plan, and what it was made from)  --carry_out-->  NodeWriter, many calls at once

Stops between two nodes when the group changes. What is left is nobody's to remember: the next plan
is made from what is there then.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kwok_operator.controller.cloud.decision import CloudDecision
from kwok_operator.controller.cloud.kwok import KwokLink
from kwok_operator.controller.observed.nodecache import NodeRecord
from kwok_operator.controller.observed.observation import Memory, Observation
from kwok_operator.controller.writers.executor import Executor
from kwok_operator.controller.writers.nodewriter import NodeWriter
from kwok_operator.core.cleaning import Node
from kwok_operator.core.cloud.shaping import Birth, DesiredShape, Hold
from kwok_operator.core.plan import Plan
from kwok_operator.core.template import KubeletEndpoint, NodeTemplate, render
from kwok_operator.errors import ApiError
from kwok_operator.kube.groups import Group
from kwok_operator.models.cloud import Interruptions
from kwok_operator.models.nodegroup import DeletedNodePods
from kwok_operator.observability.metrics import Metrics

logger = logging.getLogger(__name__)

WRITES_PER_PASS = 2_000
"""Creates, and patches: then the next pass looks whether they are still what is wanted."""


@dataclass(frozen=True, slots=True)
class Work:
    """A plan to carry out. `node` is the template, None where there is no usable one.

    `stop` tells whether the plan has become pointless. `opening` are Ready nodes that are to take
    pods. `decision` is what the simulated cloud adds, if there is one, `hold` how it keeps nodes
    not Ready.
    """

    group: Group
    memory: Memory
    plan: Plan
    seen: Observation
    node: Node | None
    stop: Callable[[], bool]
    opening: Sequence[NodeRecord] = ()
    decision: CloudDecision | None = None
    hold: Hold = Hold.NONE


class Execution:
    """Writes nodes as plans say.

    `now` gives RFC 3339 times, `clock` monotonic seconds, `nodes` how many nodes are wanted in all.
    """

    def __init__(
        self,
        *,
        writer: NodeWriter,
        executor: Executor,
        kwok: KwokLink,
        metrics: Metrics,
        now: Callable[[], str],
        clock: Callable[[], float],
        nodes: Callable[[], int],
        provider_id_prefix: str,
    ) -> None:
        self._writer = writer
        self._executor = executor
        self._kwok = kwok
        self._metrics = metrics
        self._now = now
        self._clock = clock
        self._nodes = nodes
        self._prefix = provider_id_prefix

    async def carry_out(self, work: Work) -> None:
        """Raises ApiError where the API server refuses a write."""
        if work.plan.delete:
            await self._delete(work)
        if work.opening and not work.stop():
            await self._let_pods_on(work)
        if work.decision is not None and work.decision.writes and not work.stop():
            await self._postpone(work, work.decision)
            await self._reshape(work, work.decision)
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

    async def _let_pods_on(self, work: Work) -> None:
        refusals: list[ApiError] = []

        async def let_pods_on(record: NodeRecord) -> None:
            # What fails otherwise is tried again by the executor, and by the next pass.
            refusal = await self._writer.let_pods_on(record.name, uid=work.group.uid)
            work.memory.openings.tried(record.name, now=self._clock())
            if refusal is not None:
                refusals.append(refusal)

        opening = work.opening[:WRITES_PER_PASS]
        await self._executor.run(opening, let_pods_on, stop=work.stop)
        if refusals:
            logger.warning(
                "pods are kept off new nodes: group=%s nodes=%d error=%s",
                work.group.name,
                len(refusals),
                refusals[0],
            )

    async def _postpone(self, work: Work, decision: CloudDecision) -> None:
        by_name = _by_name(work.seen)

        async def postpone(name: str) -> None:
            await self._writer.postpone(by_name[name], decision.postpone[name])

        await self._executor.run(list(decision.postpone), postpone, stop=work.stop)

    async def _reshape(self, work: Work, decision: CloudDecision) -> None:
        nodes, interruptions = decision.observed.nodes, decision.observed.cloud.interruptions

        async def reshape(serial: int) -> None:
            record, desired = work.seen.records[serial], nodes.desired[serial]
            shape = DesiredShape(
                desired=desired,
                life=nodes.lives.get(serial),
                hold=work.hold,
                taint=(interruptions or Interruptions()).taint,
                now=self._now(),
                noticed_at=nodes.noticed.get(serial),
                kwok_alive=self._kwok.alive,
            )
            await self._writer.reshape(record, shape, uid=work.group.uid)

        await self._executor.run(decision.reshape, reshape, stop=work.stop)

    async def _create(self, work: Work, node: Node) -> None:
        group, plan, names = work.group, work.plan, work.seen.names
        asked_at = {s: b.requested_at for b in plan.batches for s in b}
        endpoint = await self._endpoint(work.seen)
        rendered = self._render(group, node, endpoint)

        made: set[int] = set()

        async def create(serial: int) -> None:
            if serial in made:
                # Done again because of what came after: its name is never used twice.
                await self._writer.let_pods_on(names.name(serial), uid=group.uid)
                return
            name, ready, now = names.name(serial), endpoint is not None, self._now()
            birth = _birth(work, node, serial)
            # A node that is held is told all that it takes to be made Ready later.
            ready &= birth is None or birth.desired.ready or work.hold is not Hold.NONE
            body = rendered.body(name, requested_at=asked_at[serial], now=now, ready=ready)
            if birth is not None:
                body = birth.body(body, hold=work.hold, now=now)
            answer = await self._writer.create(name, body, group=group.name, uid=group.uid)
            if answer is None:
                work.memory.taken[serial] = name
                return
            made.add(serial)
            work.memory.seen.add(serial)
            self._metrics.node_created(group.name)
            if endpoint is not None:
                # What is refused here, the next pass tries again, and tells.
                await self._writer.let_pods_on(name, uid=group.uid, answer=answer)

        first = _first_ready(work, node)
        if endpoint is None and first is not None and self._kwok.wants_scout():
            # The plan goes on in the next pass, which knows whether kwok has answered.
            async with self._kwok.scouting:
                if self._kwok.wants_scout() and await self._endpoint(work.seen) is None:

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
            record = by_name[name]
            wanted = json.loads(rendered.body(name, requested_at="", now="", ready=False))
            missing = _missing(work, record)
            if await self._writer.update(record, wanted, uid=group.uid, missing=missing):
                self._metrics.node_updated(group.name)

        await self._executor.run(work.plan.update[:WRITES_PER_PASS], update, stop=work.stop)

    def _render(self, group: Group, node: Node, endpoint: KubeletEndpoint | None) -> NodeTemplate:
        return render(
            node,
            group=group.name,
            uid=group.uid,
            provider_id_prefix=self._prefix,
            endpoint=endpoint,
            nodes=self._nodes(),
        )

    async def _endpoint(self, seen: Observation) -> KubeletEndpoint | None:
        return await self._kwok.endpoint(record.name for record in seen.ready)


def deletes_pods(group: Group) -> bool:
    """Whether the pods of a group's nodes go with them."""
    return group.spec.scale_down.pods is DeletedNodePods.DELETE


def _birth(work: Work, node: Node, serial: int) -> Birth | None:
    """None without a simulated cloud."""
    if work.decision is None:
        return None
    observed = work.decision.observed
    return Birth.of(
        observed.cloud,
        group=work.group.name,
        serial=serial,
        due=work.decision.due[serial],
        now=observed.now,
        capacity=node["status"]["capacity"],
    )


def _missing(work: Work, record: NodeRecord) -> tuple[str, ...]:
    """The resources that a node still lacks in the simulated cloud."""
    if work.decision is None or record.serial is None:
        return ()
    desired = work.decision.observed.nodes.desired.get(record.serial)
    return () if desired is None else tuple(resource.name for resource in desired.missing)


def _first_ready(work: Work, node: Node) -> int | None:
    """The first serial to be created whose node kwok may make Ready at once."""
    for serial in work.plan.create:
        birth = _birth(work, node, serial)
        if birth is None or birth.desired.ready:
            return serial
    return None


def _by_name(seen: Observation) -> dict[str, NodeRecord]:
    return {record.name: record for record in (*seen.records.values(), *seen.stuck.values())}
