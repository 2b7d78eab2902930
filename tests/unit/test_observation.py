"""A group as the cache and the record show it, and what the process remembers of it."""

from itertools import pairwise
from typing import Any

import pytest

from kwok_operator import constants
from kwok_operator.kube.decode import NodeView
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.nodecache import NodeCache, record_of
from kwok_operator.nodegroups.observation import HashedNodes, Memory, Observation, observe, observed
from kwok_operator.nodegroups.plan import ObservedGroup
from kwok_operator.nodegroups.serials import Batch

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
    version: int = 1,
) -> NodeView:
    annotations = {
        constants.NODE_GROUP_UID_ANNOTATION: owner,
        constants.TEMPLATE_HASH_ANNOTATION: template,
    }
    return NodeView(
        name=name,
        uid=f"uid-of-{name}",
        resource_version=version,
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
    def test_by_serial_terminating_ones_apart_and_held_ones_by_name(self, world: World) -> None:
        nodes = [*ours(0, 3, held=True), *ours(1, deleting=True)]
        seen = world.look([*nodes, *ours(2, deleting=True, held=True)])
        assert {s: r.name for s, r in seen.records.items()} == {s: NAMES.name(s) for s in (0, 3)}
        assert (set(seen.terminating), seen.held, seen.foreign) == ({1, 2}, (NAMES.name(2),), ())

    def test_usable_ones_are_ready_and_take_pods(self, world: World) -> None:
        nodes = [*ours(0), *ours(1, ready=True), *ours(2, 3, ready=True, tainted=True)]
        nodes += [*ours(4, tainted=True), *ours(5, ready=True, unreachable=True)]
        seen = world.look([*nodes, *ours(6, ready=True, deleting=True)])
        assert {r.serial for r in seen.ready} == {1, 2, 3, 5}
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


def test_a_node_of_karpenters_is_nobodys_here(world: World) -> None:
    theirs, own = node("web-x7k2p", owner=""), ours(0)
    for each in (theirs, *own):  # a group that was copied from Karpenter's nodes has the label, too
        each.labels[constants.NODE_POOL_LABEL] = "pool"
    seen = world.look([theirs, *own])
    assert (seen.foreign, set(seen.records), world.cache.count("web")) == ((), {0}, 1)


def test_who_is_foreign_is_named_once(world: World) -> None:
    before, other = NodeNames.of("web", BEFORE).name(0), NodeNames.of("gpu", BEFORE).name(0)
    rows = [
        ("our label, no owner", node("real-node", owner=""), ("real-node",)),
        ("our name, no owner", node(NAMES.name(3), owner=""), (NAMES.name(3),)),
        ("a name that is not ours", node("real-node", owner=UID), ("real-node",)),
        ("on its way out", node("real-node", owner="", deleting=True), ()),
        ("of the group that had the name before", node(before, owner=BEFORE), ()),
        # `kubectl label node --overwrite`: neither group counts it, and somebody has to say so.
        ("another group's, with our label", node(other, owner=BEFORE), (other,)),
    ]
    for what, each, foreign in rows:
        seen = world.look([each])
        assert (seen.foreign, seen.records) == (foreign, {}), what
    world.memory.taken[4] = NAMES.name(4)
    for nodes in (ours(0), [node(NAMES.name(4), owner="")]):
        assert world.look(nodes).foreign == (NAMES.name(4),), "a name that somebody else holds"


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
        world.look([*ours(0, 1), *ours(2, deleting=True)])
        assert world.plan_for([*ours(0), *ours(1, 2, deleting=True)]).gone == frozenset()
        assert world.plan_for(ours(0)).gone == {1, 2}

    def test_a_name_that_somebody_else_holds_is_spent(self) -> None:
        world = World(OPEN)
        world.memory.taken[4] = NAMES.name(4)
        assert world.plan_for([]).gone == {4}

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

    @pytest.mark.parametrize(("version", "known"), [(4, (0, 5)), (5, (0, 5)), (6, (41, 6))])
    def test_what_somebody_wrote_after_us_is_taken_over_and_nothing_older(
        self, world: World, version: int, known: tuple[int, int]
    ) -> None:
        world.memory.refresh(self.group(version, 41))
        assert (world.memory.status.next_serial, world.memory.status_version) == known

    def test_after_a_restore_no_serial_is_given_out_again(self, world: World) -> None:
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


def test_which_nodes_have_lost_the_hash_of_their_template() -> None:
    hashed, version = HashedNodes(), 1

    def lost(template_hash: str, *of: str) -> list[int | None]:
        nodes = [
            node(NAMES.name(serial), template=each, version=version)
            for serial, each in enumerate(of)
        ]
        return [r.serial for r in hashed.lost(template_hash, [*map(record_of, nodes)])]

    assert lost("one", "one", "one", "") == []
    assert lost("one", "one", "", "") == [1]
    assert lost("one", "one", "", "") == [1], "until it is back"
    assert lost("two", "one", "", "two") == [], "those are outdated"
    assert lost("one", "one", "one", "two") == []
    assert lost("one", "two", "odd", "two") == [1]
    hashed.note_written(2, "one")
    assert lost("one", "one", "one", "") == [2]
    version = 7
    assert lost("one", "one", "one", "odd") == [2]
    version = 6
    assert lost("one", "one", "odd", "odd") == [], "they are as they were before: a restore"
