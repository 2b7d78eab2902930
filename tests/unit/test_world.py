"""Passes over time, in a world where everything goes wrong: cache, memory, plan, record together.

A state machine has an API server (nodes, events on their way, the stored status) and an operator
(cache, memory) in it. People change the spec, delete nodes, hold them with finalizers, take names;
events arrive late, answers get lost, passes are cut short anywhere, the process crashes and
forgets.

At every step:
- a serial is recorded before its node is created, and nextSerial is beyond all that were created
- no serial is created twice, except after a crash (or a lost answer) while its batch was open, or
  after a crash right after the status was wiped
- a create never brings a group over its target (but for what is in flight), and never makes a node
  that is named to be deleted
- only nodes of the group are deleted or patched; none are created or touched while paused
- only an outdated node is replaced or patched for an update, and none under OnDelete

And whenever it is left alone for a moment: exactly the target in force, no named node, nothing
pending, nothing left to do, nothing new to write; all nodes up to date if the group wants that.
"""

import dataclasses
from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kwok_operator import constants
from kwok_operator.kube.decode import NodeView
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord, record_of
from kwok_operator.nodegroups.observation import Memory, Observation, observe, observed
from kwok_operator.nodegroups.plan import Plan, make_plan
from kwok_operator.nodegroups.serials import MAX_BATCHES
from kwok_operator.nodegroups.status import Facts, batches_of, make_status

GROUP = "web"
UID = "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55"
NAMES = NodeNames.of(GROUP, UID)
NOW = "2026-01-02T03:04:05Z"
MOST = 12


class ApiServer:
    """Nodes by name, the events about them that the watch has not told yet, the stored status."""

    def __init__(self) -> None:
        self.version = 0
        self.nodes: dict[str, NodeView] = {}
        self.events: deque[tuple[str, NodeView]] = deque()
        self.status: dict[str, Any] = {}

    def post(self, name: str, *, ours: bool, template: str = "") -> NodeView | None:
        """The node as created; None for a conflict."""
        if name in self.nodes:
            return None
        self.version += 1
        node = NodeView(
            name=name,
            uid=f"node-{self.version}",
            resource_version=self.version,
            created=0.0,
            labels={constants.NODE_GROUP_LABEL: GROUP},
            annotations=_annotations(template) if ours else {},
            owner_uids=(UID,) if ours else (),
            finalizers=(),
            deleting=False,
            ready=True,
            addresses=(),
            kubelet_port=0,
            provider_id="",
        )
        self.nodes[name] = node
        self.events.append(("upsert", node))
        return node

    def delete(self, name: str) -> bool:
        """False where there is no such node."""
        node = self.nodes.get(name)
        if node is None:
            return False
        if node.finalizers:
            self._change(node, deleting=True)
        else:
            del self.nodes[name]
            self.version += 1
            self.events.append(("remove", dataclasses.replace(node, deleting=True)))
        return True

    def patch(self, name: str, template: str) -> NodeView | None:
        """The node as patched; None where there is no such node."""
        if name not in self.nodes or self.nodes[name].deleting:
            return None
        self._change(self.nodes[name], annotations=_annotations(template))
        return self.nodes[name]

    def hold(self, name: str) -> None:
        self._change(self.nodes[name], finalizers=("example.com/hold",))

    def let_go(self, name: str) -> None:
        node = self.nodes[name]
        self._change(node, finalizers=())
        if node.deleting:
            self.delete(name)

    def _change(self, node: NodeView, **fields: Any) -> None:
        self.version += 1
        changed = dataclasses.replace(node, resource_version=self.version, **fields)
        self.nodes[node.name] = changed
        self.events.append(("upsert", changed))


def _annotations(template: str) -> dict[str, str]:
    return {
        constants.NODE_GROUP_UID_ANNOTATION: UID,
        constants.TEMPLATE_HASH_ANNOTATION: template,
    }


class Operator:
    """What one process knows: it dies with it."""

    def __init__(self, api: ApiServer) -> None:
        self.cache = NodeCache(changed=lambda _: None, initialised=lambda *_, **__: None)
        api.events.clear()
        self.cache.replace([record_of(node) for node in api.nodes.values()], api.version)
        self.memory = Memory(UID, KwokNodeGroupStatus.model_validate(api.status), 0)

    def hear(self, kind: str, node: NodeView) -> None:
        if kind == "remove":
            self.cache.remove(record_of(node))
        else:
            self.cache.upsert(record_of(node))


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.api = ApiServer()
        self.operator = Operator(self.api)
        self.spec: dict[str, Any] = {"targetSize": 3}
        self.generation = 1
        self.room = 1_000
        self.template_is_usable = True
        self.template = "template-0"
        self.created: set[int] = set()
        self.may_come_again: set[int] = set()
        self.forgotten: set[int] = set()

    # What people do.

    @rule(size=st.none() | st.integers(0, MOST))
    def scale(self, size: int | None) -> None:
        self._edit(targetSize=size)

    @rule(low=st.integers(0, 6), span=st.none() | st.integers(0, 6))
    def set_bounds(self, low: int, span: int | None) -> None:
        self._edit(autoscaling={"minSize": low, "maxSize": None if span is None else low + span})

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self._edit(paused=paused)

    @rule(order=st.sampled_from(["NewestFirst", "OldestFirst"]))
    def set_order(self, order: str) -> None:
        self._edit(scaleDown={**self.spec.get("scaleDown", {}), "order": order})

    @rule(
        offsets=st.lists(st.integers(-MOST, 3), max_size=5),
        others=st.lists(st.sampled_from(["web", "other-000001"]), max_size=1),
        size=st.none() | st.integers(0, MOST),
    )
    def name_nodes_to_delete(self, offsets: list[int], others: list[str], size: int | None) -> None:
        # Around nextSerial are nodes, pending ones, spent ones, and some that don't exist yet.
        middle = int(self.api.status.get("nextSerial", 0))
        names = [NAMES.name(max(0, middle + offset)) for offset in offsets]
        self._edit(scaleDown={**self.spec.get("scaleDown", {}), "nodesToDelete": names + others})
        if size is not None:
            self._edit(targetSize=size)

    @rule(usable=st.booleans())
    def break_or_mend_the_template(self, usable: bool) -> None:
        self.template_is_usable = usable

    @rule(to=st.integers(0, 3))
    def edit_the_template(self, to: int) -> None:
        self.template = f"template-{to}"

    @rule(
        kind=st.sampled_from(["OnDelete", "InPlace", "RollingUpdate"]),
        limit=st.sampled_from(["3", "50%", "100%"]),
    )
    def choose_the_update_strategy(self, kind: str, limit: str) -> None:
        self._edit(updateStrategy={"type": kind, "rollingUpdate": {"maxUnavailable": limit}})

    @rule(room=st.integers(0, 15) | st.just(1_000))
    def give_other_groups_more_or_less(self, room: int) -> None:
        self.room = room

    @precondition(lambda self: self.api.nodes)
    @rule(data=st.data())
    def delete_a_node_by_hand(self, data: st.DataObject) -> None:
        self.api.delete(self._any_node(data))

    @precondition(lambda self: self.api.nodes)
    @rule(data=st.data())
    def hold_a_node(self, data: st.DataObject) -> None:
        self.api.hold(self._any_node(data))

    @precondition(lambda self: self.api.nodes)
    @rule(data=st.data())
    def let_a_node_go(self, data: st.DataObject) -> None:
        self.api.let_go(self._any_node(data))

    @rule(ahead=st.integers(0, 3))
    def take_a_name(self, ahead: int) -> None:
        self.api.post(NAMES.name(int(self.api.status.get("nextSerial", 0)) + ahead), ours=False)

    @rule()
    def wipe_the_status(self) -> None:
        # `kubectl replace --subresource=status`: the operator hears of it as of any change.
        self.api.status = {}
        memory = self.operator.memory
        wiped = Group.parse(
            {
                "metadata": {
                    "name": GROUP,
                    "uid": UID,
                    "resourceVersion": str(memory.status_version + 1),
                }
            }
        )
        memory.refresh(wiped)

    # What happens to the operator.

    @rule(events=st.integers(1, 20))
    def hear_of_nodes(self, events: int) -> None:
        for _ in range(min(events, len(self.api.events))):
            self.operator.hear(*self.api.events.popleft())

    @rule()
    def crash(self) -> None:
        # Whatever was asked for and is not known to be there is created on the record's word alone.
        status = KwokNodeGroupStatus.model_validate(self.api.status)
        self.may_come_again |= {s for batch in batches_of(status) for s in batch}
        if not self.api.status:
            self.forgotten |= self.created
            self.may_come_again |= self.created
        self.operator = Operator(self.api)

    @rule(writes=st.integers(0, 30))
    def pass_(self, writes: int) -> None:
        self._pass(writes=writes)

    @rule(writes=st.integers(0, 30), lost=st.integers(1, 3))
    def pass_that_loses_answers(self, writes: int, lost: int) -> None:
        self._pass(writes=writes, lost=lost)

    @rule(recorded=st.booleans(), writes=st.integers(0, 8))
    def pass_that_ends_in_a_crash(self, recorded: bool, writes: int) -> None:
        self._pass(writes=writes, record=recorded)
        self.crash()

    # What must be true.

    @invariant()
    def next_serial_is_beyond_all_that_were_created(self) -> None:
        if self.api.status:
            remembered = self.created - self.forgotten
            assert self.api.status["nextSerial"] > max(remembered, default=-1)

    @invariant()
    def the_record_is_short(self) -> None:
        assert len(self.api.status.get("pending", ())) <= MAX_BATCHES + 1

    @rule()
    def left_alone_it_comes_to_rest_at_the_target(self) -> None:
        self._edit(paused=False)
        self.template_is_usable = True
        for _ in range(MOST):
            self.hear_of_nodes(len(self.api.events) or 1)
            self._pass(writes=1_000)
        self.hear_of_nodes(len(self.api.events) or 1)
        written = dict(self.api.status)
        plan = self._pass(writes=1_000)
        assert (plan.create, plan.delete, plan.update, plan.pending) == ((), (), (), ())
        assert self.api.status == written, "nothing new to write"
        assert "pending" not in written or written["pending"] == []
        living = [n for n in self.api.nodes.values() if n.owner_uids and not n.deleting]
        assert {n.name for n in living}.isdisjoint(self._wish().scale_down.nodes_to_delete)
        assert len(living) == written["targetSize"] == written["replicas"]
        self._check_target(len(living))
        if self._wish().update_strategy.type != "OnDelete" and self.room >= len(living):
            hashes = {n.annotations[constants.TEMPLATE_HASH_ANNOTATION] for n in living}
            assert hashes <= {self.template}
            assert plan.rollout is None

    def teardown(self) -> None:
        self.left_alone_it_comes_to_rest_at_the_target()

    def _check_target(self, nodes: int) -> None:
        wish = self._wish()
        wanted = nodes if wish.target_size is None else wish.target_size
        if wish.autoscaling is not None:
            wanted = max(wanted, wish.autoscaling.min_size)
            if wish.autoscaling.max_size is not None:
                wanted = min(wanted, wish.autoscaling.max_size)
        # Over the brake a group keeps what it has, and gets no more.
        assert nodes == min(wanted, max(self.room, nodes))

    def _edit(self, **fields: Any) -> None:
        self.spec = {**self.spec, **fields}
        self.generation += 1

    def _wish(self) -> KwokNodeGroupSpec:
        return KwokNodeGroupSpec.model_validate(self.spec)

    def _any_node(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.api.nodes)))

    def _pass(self, *, writes: int, lost: int = 0, record: bool = True) -> Plan:
        """Looks, decides, records, and makes so many of the writes: deletes first."""
        memory, cache = self.operator.memory, self.operator.cache
        group = Group(
            name=GROUP,
            uid=UID,
            generation=self.generation,
            resource_version=0,
            deleting=False,
            orphaning=False,
            spec=self._wish(),
            status=memory.status,
            names=NodeNames.of(GROUP, UID),
            has_scale_down=False,
        )
        seen = observe(group, memory, cache)
        plan = make_plan(
            group.spec,
            observed(
                seen,
                memory,
                room=self.room,
                template_hash=self.template if self.template_is_usable else None,
            ),
            names=NAMES,
            now=NOW,
            may_create=self.template_is_usable,
        )
        if group.spec.paused:
            assert (plan.create, plan.delete, plan.update) == ((), (), ())
        self._check_update(plan, seen)
        memory.next_serial = plan.next_serial
        if not record:
            return plan
        memory.status = self._status(plan, seen)
        self.api.status = memory.status.dump()
        for name in plan.delete[:writes]:
            self._delete(name, seen)
        for n, serial in enumerate(plan.create[: max(0, writes - len(plan.delete))]):
            self._create(serial, plan, answered=n >= lost)
        for name in plan.update[: max(0, writes - len(plan.delete) - len(plan.create))]:
            node = self.api.patch(name, self.template)
            if node is not None:
                self.operator.cache.updated(record_of(node))
        return plan

    def _check_update(self, plan: Plan, seen: Observation) -> None:
        by_name = {record.name: record for record in seen.records.values()}
        going = plan.delete[len(plan.delete) - plan.replaced :]
        assert len(going) == plan.replaced
        for name in (*going, *plan.update):
            assert by_name[name].owner == UID
            assert by_name[name].template_hash != self.template
        if self._wish().update_strategy.type == "OnDelete" or not self.template_is_usable:
            assert (going, plan.update) == ((), ())

    def _status(self, plan: Plan, seen: Observation) -> KwokNodeGroupStatus:
        facts = Facts(
            generation=self.generation,
            target=plan.target,
            paused=self._wish().paused,
            replicas=len(seen.records),
            ready=len(seen.ready),
            updated=seen.count_updated(self.template),
            pending=len(plan.pending),
            failed=0,
            leaving=len(plan.delete),
            terminating=seen.held,
            foreign=seen.foreign,
            next_serial=plan.next_serial,
            batches=plan.batches,
            rollout=plan.rollout,
        )
        return make_status(
            facts, group=GROUP, previous=self.operator.memory.status, resolved=None, now=NOW
        )

    def _delete(self, name: str, seen: Observation) -> None:
        record: dict[str, NodeRecord] = {r.name: r for r in seen.records.values()}
        assert record[name].owner == UID
        gone = not self.api.delete(name)
        self.operator.cache.deleted(name, gone=gone)

    def _create(self, serial: int, plan: Plan, *, answered: bool) -> None:
        name, memory = NAMES.name(serial), self.operator.memory
        recorded = batches_of(KwokNodeGroupStatus.model_validate(self.api.status))
        assert any(serial in batch for batch in recorded), "recorded before it is created"
        assert name not in self._wish().scale_down.nodes_to_delete
        node = self.api.post(name, ours=True, template=self.template)
        if node is not None:
            assert serial not in self.created or serial in self.may_come_again
            self.created.add(serial)
            # A node whose answer was lost is in flight until the watch tells of it.
            living = [n for n in self.api.nodes.values() if n.owner_uids and not n.deleting]
            heard_of = self.operator.cache.group(GROUP).keys() | {name}
            assert len([n for n in living if n.name in heard_of]) <= plan.target.value
        if not answered:
            # Nobody knows whether it is there; if it is deleted at once, it may be made again.
            self.may_come_again.add(serial)
            return
        if node is None:
            there = self.api.nodes[name]
            node = there if there.owner_uids and not there.deleting else None
        if node is None:
            memory.taken[serial] = name
        else:
            self.operator.cache.created(GROUP, record_of(node))
            memory.seen.add(serial)


def test_the_world_always_comes_to_rest_at_the_target() -> None:
    run_state_machine_as_test(World, settings=settings(max_examples=100, stateful_step_count=30))


@pytest.mark.parametrize("crash_after", range(6))
def test_a_crash_after_any_number_of_creates_ends_with_the_target(crash_after: int) -> None:
    # The plainest of its stories, told without chance.
    world = World()
    world.scale(5)
    world._pass(writes=crash_after)
    world.crash()
    world.left_alone_it_comes_to_rest_at_the_target()
    assert sorted(world.api.nodes) == [NAMES.name(serial) for serial in range(5)]
