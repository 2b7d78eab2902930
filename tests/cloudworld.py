"""The simulated cloud of several groups, pass by pass, without an API server."""

import itertools
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kwok_operator.cloud.annotations import Mark, mark_on
from kwok_operator.cloud.clouds import CloudDecision, Clouds
from kwok_operator.cloud.pools import Pools
from kwok_operator.cloud.shaping import Birth, Hold, shown_text
from kwok_operator.formats.times import format_time, milliseconds_of
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus, PendingBatch
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord
from kwok_operator.nodegroups.observation import Memory, observe, observed
from kwok_operator.nodegroups.plan import make_plan
from kwok_operator.observability.metrics import Metrics

NODE: Mapping[str, Any] = {"status": {"capacity": {"cpu": "4"}}}
"""A node of a group, unless another one is given for it."""
BEGUN = milliseconds_of(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def pool_object(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": next(_NUMBERS)}
    return {"metadata": metadata, "spec": spec}


_NUMBERS = itertools.count(1)


def _returned(deciding: Coroutine[Any, Any, CloudDecision | None]) -> CloudDecision | None:
    """Runs it to its end without an event loop, which takes longer than a decision: it pauses only
    to let others run."""
    try:
        while True:
            deciding.send(None)
    except StopIteration as ended:
        decision: CloudDecision | None = ended.value
        return decision


class World:
    """Groups, nodes and a clock; statuses and nodes are what survives a restart."""

    def __init__(self, *, seed: str = "") -> None:
        self.seed = seed
        self.now = BEGUN
        self.version = itertools.count(1)
        self.bodies: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.used: dict[str, set[int]] = {}
        self.pools: list[dict[str, Any]] = []
        self.templates: dict[str, Mapping[str, Any]] = {}
        self.stops: Iterator[bool] = itertools.repeat(False)
        """What a pass is told each time it asks whether the group has changed."""
        self.restart()

    def restart(self) -> None:
        """A new process, which knows what the API server holds."""
        self.store = GroupStore(clock=lambda: 0.0)
        self.cache = NodeCache(changed=lambda _: None, initialised=lambda *_, **__: None)
        self.memories: dict[str, Memory] = {}
        self.clouds = Clouds(store=self.store, cache=self.cache, seed=self.seed)
        self.clouds.pools = Pools(
            client=None,  # type: ignore[arg-type]  # nothing is written here
            changed=lambda _: None,
            use=self.clouds.use,
            refused=self.clouds.refused,
            now=lambda: format_time(self.now),
            metrics=Metrics(),
        )
        self.clouds.pools.objects.listed(self.pools, 1)
        for body in self.bodies.values():
            self.store.put(Group.parse(body))
        self.cache.replace([replace(node) for node in self.nodes.values()], 10**9)

    def set_pool(self, name: str, **spec: Any) -> None:
        item = pool_object(name, **spec)
        self.pools = [*(p for p in self.pools if p["metadata"]["name"] != name), item]
        self.clouds.pools.objects.listed(self.pools, 10**9)

    def apply(self, name: str, **spec: Any) -> None:
        body = self.bodies.get(name, {"metadata": {"name": name, "uid": f"uid-{name}"}})
        metadata = {**body["metadata"], "resourceVersion": str(next(self.version))}
        metadata["generation"] = body["metadata"].get("generation", 0) + 1
        merged = {**body.get("spec", {}), **spec}
        self.bodies[name] = {**body, "metadata": metadata, "spec": merged}
        self.store.put(Group.parse(self.bodies[name]))

    def remove(self, name: str) -> None:
        body = self.bodies.pop(name)
        self.store.remove(name=name, uid=body["metadata"]["uid"])
        self.clouds.forget(name)
        for node in [n for n in self.nodes.values() if n.group == name]:
            self.drop(node)

    def drop(self, node: NodeRecord) -> None:
        del self.nodes[node.name]
        self.cache.deleted(node.name, gone=True)

    def one_pass(self, name: str) -> CloudDecision | None:
        group = self.store.get(name)
        assert group is not None
        memory = self.memories.get(name)
        if memory is None:
            memory = self.memories[name] = Memory(group.uid, group.status, group.resource_version)
        memory.refresh(group)
        seen = observe(group, memory, self.cache)
        outlook = self.clouds.observe(group, memory, seen, now=self.now)
        ended = outlook.nodes.ended if outlook else frozenset()
        plan = make_plan(
            group.spec,
            observed(seen, memory, room=10**6, ended=ended),
            names=seen.names,
            now=format_time(self.now),
            may_create=True,
        )
        if outlook is None:
            return None
        turn = _returned(
            self.clouds.decide(
                group,
                memory,
                seen,
                plan,
                outlook,
                node=self.templates.get(name, NODE),
                hold=Hold.STAGE,
                deciding=True,
                stop=lambda: next(self.stops),
            )
        )
        if turn is None:
            return None
        self._write(group, memory, turn)
        for node_name in turn.plan.delete:
            self.drop(self.nodes[node_name])
        for node_name, at in turn.postpone.items():
            self.postpone(node_name, at)
        for serial in turn.plan.create:
            self._create(group, seen.names.name(serial), serial, turn)
        for serial in turn.reshape:
            record = seen.records[serial]
            self._mark(record, turn, serial)
        return turn

    def _write(self, group: Group, memory: Memory, turn: CloudDecision) -> None:
        """Through the API's form and back, as the API server does."""
        status = KwokNodeGroupStatus(
            target_size=turn.plan.target.value,
            next_serial=turn.plan.next_serial,
            pending=tuple(
                PendingBatch(
                    first=b.first,
                    last=b.last,
                    requested_at=b.requested_at,
                    except_=",".join(map(str, sorted(b.spent))) or None,
                )
                for b in turn.plan.batches
            ),
            cloud=turn.status,
        )
        body = self.bodies[group.name]
        metadata = {**body["metadata"], "resourceVersion": str(next(self.version))}
        self.bodies[group.name] = {**body, "metadata": metadata, "status": status.dump()}
        self.store.put(Group.parse(self.bodies[group.name]))
        known = self.store.get(group.name)
        assert known is not None
        memory.status, memory.status_version = known.status, known.resource_version

    def _create(self, group: Group, name: str, serial: int, turn: CloudDecision) -> None:
        used = self.used.setdefault(group.uid, set())
        assert serial not in used, f"{name} was there before"
        used.add(serial)
        self.memories[group.name].seen.add(serial)
        birth = Birth.of(
            turn.observed.cloud,
            group=group.name,
            serial=serial,
            due=turn.due[serial],
            now=self.now,
            capacity=self.templates.get(group.name, NODE)["status"]["capacity"],
            hold=Hold.STAGE,
        )
        node = NodeRecord(
            name=name,
            uid=f"uid-{name}",
            resource_version=next(self.version),
            group=group.name,
            owner=group.uid,
            serial=serial,
            template_hash="",
            ready=birth.desired.ready,
            deleting=False,
            held=False,
            endpoint=None,
            mark=Mark(life=birth.life, shown=shown_text(birth.desired, Hold.STAGE)),
        )
        self._put(node)

    def _mark(self, record: NodeRecord, turn: CloudDecision, serial: int) -> None:
        view, noticed = turn.observed.nodes.desired[serial], turn.observed.nodes.noticed.get(serial)
        mark = mark_on(record.mark) or Mark()
        kept = mark.noticed_at if noticed is None else noticed
        mark = replace(
            mark, shown=shown_text(view, Hold.STAGE), noticed_at=kept, hold=not view.ready
        )
        version = next(self.version)
        self._put(replace(record, ready=view.ready, mark=mark, resource_version=version))

    def _put(self, node: NodeRecord) -> None:
        self.nodes[node.name] = node
        self.cache.upsert(replace(node))

    def postpone(self, name: str, at: int) -> None:
        """Its deletion is put off until then."""
        node = self.nodes[name]
        mark = replace(mark_on(node.mark) or Mark(), delete_at=at)
        self._put(replace(node, mark=mark, resource_version=next(self.version)))

    def settle(self, *, within: int = 60) -> None:
        """Passes of all groups, second by second."""
        for _ in range(within):
            for name in list(self.bodies):
                self.one_pass(name)
            self.now += 1_000

    def count(self, *groups: str) -> int:
        return sum(node.group in groups for node in self.nodes.values())
