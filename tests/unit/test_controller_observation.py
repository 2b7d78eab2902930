"""A group as the cache and the record show it, and what the process remembers of it.

- ours by serial: right owner, right name; terminating ones apart, those held by a finalizer by name
- foreign: a node with our label or name that was not made for the group, named once; nodes of a
  group that had the name before are the garbage collector's
- memory: which serials of open batches have been there, so that those that vanish are known as
  gone; no others, however long a batch stays open
- a name that somebody else holds is spent
- nextSerial is beyond all that were recorded, asked for or seen: a lost status is harmless
- a status that somebody else has written is taken over, an older one isn't
"""

from itertools import pairwise
from typing import Any

import pytest

from kwok_operator import constants
from kwok_operator.controller.observed.nodecache import NodeCache, record_of
from kwok_operator.controller.observed.observation import Memory, Observation, observe, observed
from kwok_operator.core.naming import NodeNames
from kwok_operator.core.plan import ObservedGroup
from kwok_operator.core.serials import Batch
from kwok_operator.kube.decode import NodeView
from kwok_operator.kube.groups import Group
from kwok_operator.models.status import KwokNodeGroupStatus

UID = "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55"
BEFORE = "9d1f6a52-33c7-4c0b-8a55-0c6c7d0e4f10"
NAMES = NodeNames.of("web", UID)
NOW = "2026-01-02T03:04:05Z"
OPEN = {"nextSerial": 10, "pending": [{"first": 0, "last": 9, "requestedAt": NOW}]}


def node(
    name: str,
    *,
    owner: str = UID,
    deleting: bool = False,
    held: bool = False,
    ready: bool = False,
    tainted: bool = False,
    unreachable: bool = False,
    template: str = "",
) -> NodeView:
    annotations = {
        constants.NODE_GROUP_UID_ANNOTATION: owner,
        constants.TEMPLATE_HASH_ANNOTATION: template,
    }
    return NodeView(
        name=name,
        uid=f"uid-of-{name}",
        resource_version=1,
        created=0.0,
        labels={constants.NODE_GROUP_LABEL: "web"},
        annotations=annotations,
        owner_uids=(owner,) if owner else (),
        finalizers=("f",) if held else (),
        deleting=deleting,
        ready=ready,
        addresses=(),
        kubelet_port=0,
        provider_id="",
        not_ready_taint=tainted,
        unreachable_taint=unreachable,
    )


def ours(*serials: int, **fields: Any) -> list[NodeView]:
    return [node(NAMES.name(serial), **fields) for serial in serials]


class World:
    """A cache and a memory, which outlive one look."""

    def __init__(self, status: dict[str, Any] | None = None) -> None:
        self.cache = NodeCache(changed=lambda _: None, initialised=lambda *_, **__: None)
        self.memory = Memory(UID, KwokNodeGroupStatus.model_validate(status), 5)

    def look(self, nodes: list[NodeView] | None = None) -> Observation:
        """Looks, at exactly these nodes if they are given."""
        if nodes is not None:
            self.cache.replace([record_of(node) for node in nodes], 100)
        group = Group.parse({"metadata": {"name": "web", "uid": UID}})
        return observe(group, self.memory, self.cache)

    def plan_for(self, nodes: list[NodeView] | None = None) -> ObservedGroup:
        return observed(self.look(nodes), self.memory, room=50)


@pytest.fixture
def world() -> World:
    return World()


class TestOurs:
    def test_by_serial(self, world: World) -> None:
        seen = world.look(ours(0, 3))
        assert {s: r.name for s, r in seen.records.items()} == {
            0: NAMES.name(0),
            3: NAMES.name(3),
        }
        assert (seen.terminating, seen.held, seen.foreign) == ({}, (), ())

    def test_terminating_ones_are_apart(self, world: World) -> None:
        seen = world.look([*ours(0), *ours(1, deleting=True)])
        assert set(seen.records) == {0}
        assert set(seen.terminating) == {1}
        assert seen.held == ()

    def test_those_that_a_finalizer_holds_are_named(self, world: World) -> None:
        seen = world.look([*ours(0, held=True), *ours(1, deleting=True, held=True)])
        assert seen.held == (NAMES.name(1),)

    def test_ready_ones(self, world: World) -> None:
        seen = world.look([*ours(0), *ours(1, 2, ready=True), *ours(3, ready=True, deleting=True)])
        assert {r.name for r in seen.ready} == {NAMES.name(1), NAMES.name(2)}

    def test_usable_ones_are_ready_and_take_pods(self, world: World) -> None:
        nodes = [*ours(0), *ours(1, ready=True), *ours(2, 3, ready=True, tainted=True)]
        nodes += [*ours(4, tainted=True), *ours(5, ready=True, unreachable=True)]
        seen = world.look(nodes)
        assert (seen.usable, {r.serial for r in seen.tainted}) == (1, {2, 3})
        plan = observed(seen, world.memory, room=50, template_hash="another")
        assert plan.usable == {1}
        assert plan.ready == {1, 2, 3, 5}

    def test_a_node_that_stays_shut_is_tried_ever_less(self, world: World) -> None:
        openings, tries, now = world.memory.openings, list[int](), 0
        while len(tries) < 9:
            if openings.is_due("a", now=now):
                openings.tried("a", now=now)
                tries.append(now)
            assert openings.is_due("b", now=now)
            now += 1
        assert [b - a for a, b in pairwise(tries)] == [5, 10, 20, 40, 80, 160, 300, 300]
        openings.tried("b", now=now + 301)
        assert openings.is_due("a", now=now + 301), "what is long ago is forgotten"

    def test_those_of_a_template(self, world: World) -> None:
        seen = world.look([*ours(0, 1, template="new"), *ours(2, template="old")])
        assert (seen.count_updated("new"), seen.count_updated("old")) == (2, 1)
        assert seen.count_updated("other") == 0

    def test_another_groups_nodes_are_not_looked_at(self, world: World) -> None:
        other = node(NAMES.name(0))
        other.labels[constants.NODE_GROUP_LABEL] = "other"
        assert world.look([other]).records == {}


class TestForeign:
    def test_a_node_with_our_label_and_no_owner(self, world: World) -> None:
        seen = world.look([node("real-node", owner="")])
        assert seen.foreign == ("real-node",)
        assert seen.records == {}

    def test_a_node_with_our_label_and_name_and_no_owner(self, world: World) -> None:
        seen = world.look([node(NAMES.name(3), owner="")])
        assert seen.foreign == (NAMES.name(3),)
        assert seen.records == {}

    def test_a_node_that_claims_to_be_ours_under_a_name_that_is_not(self, world: World) -> None:
        assert world.look([node("real-node", owner=UID)]).foreign == ("real-node",)

    def test_a_name_that_somebody_else_holds(self, world: World) -> None:
        world.memory.taken[4] = NAMES.name(4)
        assert world.look(ours(0)).foreign == (NAMES.name(4),)

    def test_each_is_named_once(self, world: World) -> None:
        # It holds one of our names, and has our label besides.
        world.memory.taken[4] = NAMES.name(4)
        assert world.look([node(NAMES.name(4), owner="")]).foreign == (NAMES.name(4),)

    def test_one_that_is_on_its_way_out_is_not_worth_a_word(self, world: World) -> None:
        assert world.look([node("real-node", owner="", deleting=True)]).foreign == ()

    def test_nodes_of_the_group_that_had_the_name_before_are_not(self, world: World) -> None:
        before = NodeNames.of("web", BEFORE)
        assert world.look([node(before.name(0), owner=BEFORE)]).foreign == ()

    def test_a_node_of_another_group_that_was_given_our_label_is(self, world: World) -> None:
        # `kubectl label node --overwrite`: neither group counts it, and somebody has to say so.
        other = NodeNames.of("gpu", BEFORE).name(0)
        assert world.look([node(other, owner=BEFORE)]).foreign == (other,)


class TestGone:
    def test_what_comes_after_the_look_is_not_gone(self) -> None:
        world = World(OPEN)
        seen = world.look(ours(0, 1))
        world.memory.seen.add(2)
        assert observed(seen, world.memory, room=50).gone == frozenset()

    def test_a_serial_that_was_there_and_is_not_any_more(self) -> None:
        world = World(OPEN)
        assert world.plan_for(ours(0, 1, 2)).gone == frozenset()
        assert world.plan_for(ours(0, 2)).gone == {1}
        assert world.plan_for(ours(2)).gone == {0, 1}

    def test_one_on_its_way_out_is_there(self) -> None:
        world = World(OPEN)
        world.look(ours(0, 1))
        assert world.plan_for([*ours(0), *ours(1, deleting=True)]).gone == frozenset()
        assert world.plan_for(ours(0)).gone == {1}

    def test_also_one_that_was_on_its_way_out_when_first_seen(self) -> None:
        world = World(OPEN)
        world.look(ours(0, deleting=True))
        assert world.plan_for([]).gone == {0}

    def test_a_name_that_somebody_else_holds_is_spent(self) -> None:
        world = World(OPEN)
        world.memory.taken[4] = NAMES.name(4)
        assert world.plan_for([]).gone == {4}

    def test_without_an_open_batch_nothing_need_be_remembered(self) -> None:
        world = World({"nextSerial": 10})
        world.look(ours(*range(10)))
        assert world.memory.seen == set()
        assert world.plan_for(ours(0)).gone == frozenset()

    def test_what_was_remembered_is_dropped_when_the_last_batch_is_filled(self) -> None:
        world = World(OPEN)
        world.look(ours(0, 1))
        world.memory.status = KwokNodeGroupStatus(next_serial=10)
        assert world.plan_for(ours(0)).gone == frozenset()
        assert world.memory.seen == set()

    def test_only_what_lies_in_an_open_batch_is_remembered(self) -> None:
        # Serials go by the hundred thousand where nodes churn while one is waited for.
        world = World({"nextSerial": 101, "pending": [{"first": 0, "last": 0, "requestedAt": NOW}]})
        for serial in range(1, 100):
            plan = world.plan_for(ours(serial))
        assert (len(world.memory.seen), len(plan.gone)) == (0, 0)

    def test_also_where_a_gap_in_it_is_recorded(self) -> None:
        batch = {"first": 0, "last": 9, "requestedAt": NOW}
        world = World({"nextSerial": 10, "pending": [batch]})
        world.look(ours(3, 4))
        assert world.plan_for(ours(4)).gone == {3}
        world.memory.status = KwokNodeGroupStatus.model_validate(
            {"nextSerial": 10, "pending": [{**batch, "except": "3"}]}
        )
        assert world.plan_for(ours(4)).gone == frozenset()
        assert world.memory.seen == {4}

    def test_a_crash_forgets(self) -> None:
        # The record alone is left, and the serial is made again while its batch is open.
        World(OPEN).look(ours(0, 1))
        assert World(OPEN).plan_for(ours(0)).gone == frozenset()


class TestForThePlanner:
    def test_everything_is_handed_on(self) -> None:
        world = World({**OPEN, "targetSize": 7})
        plan = world.plan_for([*ours(0, 2), *ours(1, deleting=True)])
        assert plan == ObservedGroup(
            nodes={0: NAMES.name(0), 2: NAMES.name(2)},
            terminating=frozenset({1}),
            gone=frozenset(),
            batches=(Batch(0, 9, NOW),),
            next_serial=10,
            held=7,
            room=50,
        )

    def test_a_new_group_holds_nothing(self, world: World) -> None:
        plan = world.plan_for([])
        assert (plan.held, plan.next_serial, plan.batches) == (None, 0, ())

    def test_a_status_that_was_wiped_does_not_give_serials_out_again(self) -> None:
        # Not even where the nodes that had the last ones are gone.
        world = World()
        world.memory.next_serial = 41
        assert world.plan_for(ours(0)).next_serial == 41

    @pytest.mark.parametrize(
        ("status", "nodes", "following"),
        [
            ({"nextSerial": 12}, ours(0, 5), 12),
            ({}, ours(0, 5), 6),
            ({}, ours(2, deleting=True), 3),
            ({"nextSerial": 3, "pending": OPEN["pending"]}, [], 10),
            ({}, [node("web-000099", owner=""), *ours(1)], 2),
        ],
        ids=["recorded", "highest-node", "terminating", "open-batch", "not-by-foreign-nodes"],
    )
    def test_the_next_serial_is_beyond_all_that_are_known(
        self, status: dict[str, Any], nodes: list[NodeView], following: int
    ) -> None:
        assert World(status).plan_for(nodes).next_serial == following


class TestMemoryOfStatus:
    def group(self, version: int, next_serial: int) -> Group:
        return Group.parse(
            {
                "metadata": {"name": "web", "uid": UID, "resourceVersion": str(version)},
                "status": {"nextSerial": next_serial},
            }
        )

    def test_what_somebody_else_wrote_after_us_is_taken_over(self, world: World) -> None:
        world.memory.refresh(self.group(6, 41))
        assert (world.memory.status.next_serial, world.memory.status_version) == (41, 6)

    @pytest.mark.parametrize("version", [4, 5])
    def test_what_we_wrote_since_is_not_taken_back(self, world: World, version: int) -> None:
        world.memory.refresh(self.group(version, 41))
        assert (world.memory.status.next_serial, world.memory.status_version) == (0, 5)

    def test_after_a_restore_the_status_counts_and_no_serial_is_given_out_again(
        self, world: World
    ) -> None:
        world.memory.refresh(self.group(5, 41))
        world.memory.refresh(self.group(9, 60))
        world.memory.refresh(self.group(3, 41))
        assert (world.memory.status.next_serial, world.memory.status_version) == (41, 3)
        assert world.memory.next_serial == 60


def test_a_name_that_was_there_is_no_mistake_when_it_is_gone() -> None:
    """Victims stay named for a while after they have been deleted."""
    memory = Memory("u", KwokNodeGroupStatus(), 1)
    assert memory.never_there({"a", "b", "c"}, absent=["c"]) == ("c",)
    assert memory.never_there({"a", "b", "c"}, absent=["a", "c"]) == ("c",)
    assert memory.never_there({"c"}, absent=["c"]) == ("c",)
    assert memory.never_there({"a", "c"}, absent=["a", "c"]) == ("a", "c"), "named anew"
