"""Carrying out a plan: nodes deleted, opened to pods, reshaped, created, patched.

    PassResult (a plan, and what it was made from)  --carry_out-->  NodeWriter, many calls at once

Stops between two nodes when the group changes. What is left is nobody's to remember: the next plan
is made from what is there then.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence

from kwok_operator import constants
from kwok_operator.cloud.api.cloud import Interruptions
from kwok_operator.cloud.decision import CloudDecision
from kwok_operator.cloud.shaping import Birth, DesiredShape, Hold
from kwok_operator.errors import FAILED_REQUEST, REFUSED, ApiError, KwokOperatorError
from kwok_operator.nodegroups.api.nodegroup import DeletedNodePods
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.network import NodeNetwork
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.nodewriter import Stored, template_hash_of
from kwok_operator.nodegroups.observation import Observation
from kwok_operator.nodegroups.parts import Parts, PassResult
from kwok_operator.nodegroups.template import KubeletEndpoint, NodeTemplate, render

logger = logging.getLogger(__name__)

WRITES_PER_PASS = 2_000
"""Creates, and patches: then the next pass looks whether they are still what is wanted."""


Stop = Callable[[], bool]
"""Whether a plan has become pointless."""


class Actions:
    """Writes nodes as plans say."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._writer = parts.writer
        self._executor = parts.executor
        self._kwok = parts.kwok
        self._companions = parts.companions
        self._metrics = parts.metrics

    async def carry_out(
        self, found: PassResult, *, opening: Sequence[NodeRecord], stop: Stop
    ) -> None:
        """Raises the first of FAILED_REQUEST that writes end with, once the others are made.

        `opening` are Ready nodes that are to take pods.
        """
        plan, decision, node = found.plan, found.decision, found.resolution.node
        steps: list[Callable[[], Awaitable[None]]] = []
        if plan.delete:
            steps.append(lambda: self._delete(found, stop))
        if opening:
            steps.append(lambda: self._let_pods_on(found, opening, stop))
        if decision is not None and decision.writes:
            steps.append(lambda: self._postpone(found, decision, stop))
            steps.append(lambda: self._reshape(found, decision, stop))
        if node is not None and plan.create:
            steps.append(lambda: self._create(found, node, stop))
        if node is not None and plan.update:
            steps.append(lambda: self._update(found, node, stop))
        first: KwokOperatorError | None = None
        for step in steps:
            if stop():
                break
            try:
                await step()
            except FAILED_REQUEST as error:
                first = first or error
        if first is not None:
            raise first

    async def _delete(self, found: PassResult, stop: Stop) -> None:
        by_name = _by_name(found.seen)
        pods = deletes_pods(found.group)

        async def delete(name: str) -> None:
            await self._writer.delete(by_name[name], pods=pods)
            self._metrics.node_deleted(found.group.name)

        await self._executor.run(found.plan.delete, delete, group=found.group.name, stop=stop)

    async def _let_pods_on(
        self, found: PassResult, opening: Sequence[NodeRecord], stop: Stop
    ) -> None:
        refusals: list[ApiError] = []
        await self._companions.first_look(found.group)

        async def let_pods_on(record: NodeRecord) -> None:
            # An operator that ended in between may have made the node alone.
            await self._companions.born(
                found.group, record.name, uid=record.uid, made=record.created * 1_000
            )
            # What fails otherwise is tried again by the executor, and by the next pass.
            refusal = await self._writer.let_pods_on(record.name, uid=found.group.uid)
            found.memory.openings.tried(record.name, now=self._parts.clock.monotonic())
            if refusal is not None:
                refusals.append(refusal)

        await self._executor.run(
            opening[:WRITES_PER_PASS], let_pods_on, group=found.group.name, stop=stop
        )
        if refusals:
            logger.warning(
                "pods are kept off new nodes: group=%s nodes=%d error=%s",
                found.group.name,
                len(refusals),
                refusals[0],
            )

    async def _postpone(self, found: PassResult, decision: CloudDecision, stop: Stop) -> None:
        by_name = _by_name(found.seen)

        async def postpone(name: str) -> None:
            await self._writer.postpone(by_name[name], decision.postpone[name])

        await self._executor.run(
            list(decision.postpone), postpone, group=found.group.name, stop=stop
        )

    async def _reshape(self, found: PassResult, decision: CloudDecision, stop: Stop) -> None:
        nodes, interruptions = decision.observed.nodes, decision.observed.cloud.interruptions

        async def reshape(serial: int) -> None:
            record, desired = found.seen.records[serial], nodes.desired[serial]
            shape = DesiredShape(
                desired=desired,
                life=nodes.lives.get(serial),
                hold=found.hold,
                taint=(interruptions or Interruptions()).taint,
                now=self._parts.clock.now(),
                noticed_at=nodes.noticed.get(serial),
                kwok_alive=self._kwok.alive,
            )
            await self._writer.reshape(record, shape, uid=found.group.uid)

        await self._executor.run(decision.reshape, reshape, group=found.group.name, stop=stop)

    async def _create(self, found: PassResult, node: Node, stop: Stop) -> None:
        group, plan, names = found.group, found.plan, found.seen.names
        asked_at = {s: b.requested_at for b in plan.batches for s in b}
        born_ready = group.spec.template.are_born_ready
        await self._companions.first_look(group)
        endpoint = await self._endpoint(found.seen) if born_ready else None
        rendered = self._render(group, node, endpoint)
        made, cache = dict[int, str](), self._parts.cache

        async def create(serial: int) -> None:
            # Done again because of what came after: its name is never used twice.
            stored = None if serial in made else await post(serial)
            if serial not in made:
                return
            name = names.name(serial)
            # Before pods may come: they find what belongs to the node.
            await self._companions.born(group, name, uid=made[serial])
            if endpoint is not None:
                # What is refused here, the next pass tries again, and tells.
                await self._writer.let_pods_on(name, uid=group.uid, stored=stored)

        async def post(serial: int) -> Stored | None:
            name, ready, now = names.name(serial), endpoint is not None, self._parts.clock.now()
            birth = _birth(found, node, serial)
            # A node that is held is told all that it takes to be made Ready later.
            ready &= birth is None or birth.desired.ready or found.hold is not Hold.NONE
            if rendered.network and not cache.claim(rendered.network, name, serial):
                found.memory.given_up.add(serial)
                return None
            body = rendered.body(
                name, requested_at=asked_at[serial], now=now, ready=ready, serial=serial
            )
            if birth is not None:
                body = birth.body(body, hold=found.hold, now=now)
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
                found.memory.taken[serial] = name
                return None
            made[serial] = stored.node.uid
            found.memory.seen.add(serial)
            found.memory.stamped.saw(serial, template_hash_of(stored.node))
            self._metrics.node_created(group.name)
            return stored

        first = _first_ready(found, node) if born_ready else None
        if endpoint is None and first is not None and self._kwok.wants_scout():
            await self._scout(found, first, create, stop)
        else:
            await self._executor.run(
                plan.create[:WRITES_PER_PASS], create, group=found.group.name, stop=stop
            )

    async def _scout(
        self, found: PassResult, first: int, create: Callable[[int], Awaitable[None]], stop: Stop
    ) -> None:
        """Makes one node. The plan goes on in the next pass, which knows whether kwok has
        answered."""

        async def post() -> bool:
            await self._executor.run([first], create, group=found.group.name, stop=stop)
            return first in found.memory.seen

        async with self._kwok.scouting:
            if self._kwok.wants_scout() and await self._endpoint(found.seen) is None:
                await self._kwok.scout(found.seen.names.name(first), post)

    async def _update(self, found: PassResult, node: Node, stop: Stop) -> None:
        group, by_name = found.group, _by_name(found.seen)
        rendered = self._render(group, node, None)

        async def update(name: str) -> None:
            record = by_name[name]
            wanted = json.loads(rendered.body(name, requested_at="", now="", ready=False))
            missing = _missing(found, record)
            if await self._writer.update(record, wanted, uid=group.uid, missing=missing):
                self._metrics.node_updated(group.name)
                found.memory.stamped.saw(record.serial, rendered.hash)

        await self._executor.run(
            found.plan.update[:WRITES_PER_PASS], update, group=found.group.name, stop=stop
        )

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
        """The addresses of a node whose create has failed."""
        if isinstance(error, REFUSED):
            self._parts.cache.release(name)
        else:
            # Nobody knows whether the node is there.
            self._parts.cache.unheard_of(name, now=self._parts.clock.monotonic())

    async def _endpoint(self, seen: Observation) -> KubeletEndpoint | None:
        return await self._kwok.endpoint(record.name for record in seen.ready)


def deletes_pods(group: Group) -> bool:
    """Whether the pods of a group's nodes go with them."""
    return group.spec.scale_down.pods is DeletedNodePods.DELETE


def _birth(found: PassResult, node: Node, serial: int) -> Birth | None:
    """None without a simulated cloud."""
    if found.decision is None:
        return None
    observed = found.decision.observed
    return Birth.of(
        observed.cloud,
        group=found.group.name,
        serial=serial,
        due=found.decision.due[serial],
        now=observed.now,
        capacity=node["status"]["capacity"],
    )


def _missing(found: PassResult, record: NodeRecord) -> tuple[str, ...]:
    """The resources that a node still lacks in the simulated cloud."""
    if found.decision is None or record.serial is None:
        return ()
    desired = found.decision.observed.nodes.desired.get(record.serial)
    return () if desired is None else tuple(resource.name for resource in desired.missing)


def _first_ready(found: PassResult, node: Node) -> int | None:
    """The first serial to be created whose node kwok may make Ready at once."""
    for serial in found.plan.create:
        birth = _birth(found, node, serial)
        if birth is None or birth.desired.ready:
            return serial
    return None


def _by_name(seen: Observation) -> dict[str, NodeRecord]:
    return {record.name: record for record in (*seen.records.values(), *seen.stuck.values())}
