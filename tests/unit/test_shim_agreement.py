"""The target and the list of instances agree at any instant, however late the shim hears of things.

A group is played: cluster-autoscaler asks, the operator makes its passes and creates nodes when it
gets to it, nodes are lost, and the news of groups and of nodes reach the shim late, each at a pace
of its own.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.kube.decode import NodeView
from kwok_operator.nodegroups.autoscaler import (
    Change,
    RefusedError,
    Victim,
    decrease,
    delete,
    increase,
)
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.plan import ObservedGroup, make_plan
from kwok_operator.nodegroups.serials import format_ranges
from kwok_operator.nodegroups.status import batches_of
from kwok_operator.shim.groupnodes import BEHIND
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.fakes.shimcalls import STATES, Clock, Shim
from tests.fakes.shimstore import group_of, node_of, pending

NOW = "2026-01-02T03:04:05Z"


def told(shim: Shim) -> dict[int, str]:
    """States by serial."""
    group = shim.store.served("web")
    assert group is not None
    names = {group.names.serial(i.removeprefix("kwok:")): s for i, s in shim.instances().items()}
    assert None not in names
    return {serial: state for serial, state in names.items() if serial is not None}


def target(shim: Shim) -> int:
    request = pb.NodeGroupTargetSizeRequest(id="web")
    return int(shim.ask("NodeGroupTargetSize", request, pb.NodeGroupTargetSizeResponse).targetSize)


@dataclass
class World:
    """What is so, and the news of it that the shim has not heard yet."""

    version: int = 1
    spec: dict[str, Any] = field(default_factory=lambda: {"targetSize": 0})
    status: dict[str, Any] = field(default_factory=dict)
    nodes: dict[int, NodeView] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    given_out: set[int] = field(default_factory=set)
    to_create: list[int] = field(default_factory=list)
    given_back: set[int] = field(default_factory=set)
    of_groups: deque[Group] = field(default_factory=deque)
    of_nodes: deque[tuple[bool, NodeView]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.shim = Shim(self.group(), clock=self.clock)

    def group(self) -> Group:
        self.version += 1
        bounds = {"minSize": 0, "maxSize": 1_000}
        return group_of(version=self.version, autoscaling=bounds, status=self.status, **self.spec)

    def ask(self, change: Change | None) -> None:
        """Written by the shim, which has the answer of the API server."""
        if change is None:
            return
        self.spec["targetSize"] = change.target
        if change.names is not None:
            self.spec["scaleDown"] = {"nodesToDelete": sorted(change.names)}
        self.shim.store.put_group(self.group())

    def operate(self) -> None:
        """A pass: status first, then deletions; nodes are created when their time comes."""
        group = self.group()
        plan = make_plan(
            group.spec,
            ObservedGroup(
                nodes={serial: view.name for serial, view in self.nodes.items()},
                terminating=frozenset(),
                gone=frozenset(self.seen - self.nodes.keys()),
                batches=batches_of(group.status),
                next_serial=group.status.next_serial,
                held=group.status.target_size,
                room=1_000,
            ),
            names=group.names,
            now=NOW,
            may_create=True,
        )
        batches = [
            pending(b.first, b.last, **{"except": format_ranges(b.spent)}) for b in plan.batches
        ]
        self.status = {
            "pending": batches,
            "nextSerial": plan.next_serial,
            "targetSize": plan.target.value,
        }
        self.of_groups.append(self.group())
        self.to_create = list(plan.create)
        self.given_out.update(plan.create)
        for name in plan.delete:
            self.lose(group.names.serial(name) or 0)

    def create(self) -> None:
        if self.to_create:
            serial = self.to_create.pop(0)
            view = self._view(serial)
            self.nodes[serial] = view
            self.seen.add(serial)
            self.of_nodes.append((True, view))

    def lose(self, serial: int) -> None:
        if serial in self.nodes:
            del self.nodes[serial]
            self.of_nodes.append((False, self._view(serial)))

    def hear(self, groups: int, nodes: int) -> None:
        for _ in range(min(groups, len(self.of_groups))):
            self.shim.store.groups.upsert(self.of_groups.popleft())
        for _ in range(min(nodes, len(self.of_nodes))):
            there, view = self.of_nodes.popleft()
            sink = self.shim.store.nodes
            (sink.upsert if there else sink.remove)(view)

    def _view(self, serial: int) -> NodeView:
        self.version += 1
        return node_of(self.group(), serial, resource_version=self.version)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("increase"), st.integers(1, 5)),
        st.tuples(st.just("give back"), st.integers(0, 40)),
        st.tuples(st.just("decrease"), st.integers(1, 4)),
        st.tuples(st.just("operate"), st.just(0)),
        st.tuples(st.just("create"), st.integers(1, 4)),
        st.tuples(st.just("lose"), st.integers(0, 40)),
        st.tuples(st.just("hear of groups"), st.integers(1, 3)),
        st.tuples(st.just("hear of nodes"), st.integers(1, 4)),
    ),
    max_size=40,
)


def play(world: World, what: str, number: int) -> None:
    group = world.shim.store.served("web")
    assert group is not None
    fleet = world.shim.store.fleet(group)
    staying = sorted(serial for serial, state in told(world.shim).items() if state != "Deleting")
    match what:
        case "increase":
            world.ask(increase(fleet, number))
        case "give back" if staying:
            serial = staying[number % len(staying)]
            world.given_back.add(serial)
            world.ask(delete(fleet, [Victim(group.names.name(serial))]))
        case "decrease":
            change = decrease(fleet, -number)
            kept = target(world.shim) if change is None else change.target
            world.given_back |= set(staying[kept:])
            world.ask(change)
        case "operate":
            world.operate()
        case "create":
            for _ in range(number):
                world.create()
        case "lose" if world.nodes:
            world.lose(sorted(world.nodes)[number % len(world.nodes)])
        case "hear of groups":
            world.hear(number, 0)
        case "hear of nodes":
            world.hear(0, number)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_they_agree_at_every_step(steps: list[tuple[str, int]]) -> None:
    world, promised = World(), set[int]()
    for what, number in steps:
        play(world, what, number)
        now = told(world.shim)
        staying = {serial for serial, state in now.items() if state != "Deleting"}
        assert len(staying) == target(world.shim) == world.spec["targetSize"]
        promised |= staying
    for _ in range(3):
        world.operate()
        while world.to_create:
            world.create()
    world.hear(1_000, 1_000)
    assert told(world.shim) == dict.fromkeys(world.nodes, "Running")
    assert promised - world.given_back <= world.given_out


class TestOneWatchIsBehindTheOther:
    @pytest.fixture
    def world(self) -> World:
        """Two nodes are there, and the group waits for them no more; neither node is seen yet."""
        world = World()
        world.spec["targetSize"] = 2
        world.operate()
        world.hear(9, 9)
        world.create()
        world.create()
        world.operate()
        world.hear(9, 0)
        return world

    def test_the_nodes_are_waited_for(self, world: World) -> None:
        assert told(world.shim) == {0: "Creating", 1: "Creating"}
        world.hear(0, 1)
        assert told(world.shim) == {0: "Running", 1: "Creating"}
        world.hear(0, 1)
        assert told(world.shim) == {0: "Running", 1: "Running"}

    def test_also_where_the_shim_never_saw_the_group_wait(self) -> None:
        """It has the newest status by its own write, before the watch has told of the others."""
        world = World()
        play(world, "increase", 1)
        for _ in range(2):
            world.operate()
            world.create()
        play(world, "increase", 1)
        assert told(world.shim) == {0: "Creating", 1: "Creating"}
        world.hear(9, 9)
        assert told(world.shim) == {0: "Running", 1: "Creating"}

    def test_but_not_for_one_that_was_seen_and_is_gone(self) -> None:
        world = World()
        world.spec["targetSize"] = 1
        world.operate()
        world.hear(1, 0)
        world.create()
        world.operate()
        world.lose(0)
        world.hear(0, 2)
        world.hear(1, 0)
        assert told(world.shim) == {1: "Creating"}

    def test_a_spent_serial_is_not_expected(self) -> None:
        """A Node came first and went again; of that the shim has seen nothing but the record."""
        world = World()
        play(world, "increase", 3)
        world.operate()
        world.hear(1, 0)
        world.to_create = [1]
        world.create()
        world.lose(1)
        world.operate()
        world.hear(1, 0)
        assert told(world.shim) == dict.fromkeys([0, 2, 3], "Creating")

    def test_of_too_many_the_last_requested_go(self) -> None:
        """As the operator does: a Node was lost and replaced, and then another given back."""
        world = World()
        for what in ("increase", "increase", "operate", "create", "create", "operate"):
            play(world, what, 1)
        world.lose(0)
        world.operate()
        play(world, "give back", 0)
        assert told(world.shim) == {1: "Creating"}
        world.hear(9, 9)
        assert told(world.shim) == {1: "Running"}

    def test_not_longer_than_the_watch_is_behind(self, world: World) -> None:
        """A newer version has come, and not that node: it is gone again, or was never made."""
        world.hear(0, 1)
        other = group_of("db")
        news = node_of(other, 0, resource_version=world.version + 1)
        world.shim.store.nodes.upsert(news)
        assert told(world.shim) == {0: "Running", 2: "Creating"}

    def test_a_list_of_nodes_comes_as_far_as_its_version(self, world: World) -> None:
        world.shim.store.nodes.replace([], world.version)
        assert told(world.shim) == {2: "Creating", 3: "Creating"}

    def test_nor_longer_than_a_watch_can_be_behind(self, world: World) -> None:
        world.clock.now += BEHIND
        assert told(world.shim) == {2: "Creating", 3: "Creating"}


class TestForeseenInstances:
    def test_it_belongs_to_its_group(self) -> None:
        """cluster-autoscaler asks so before it gives back what never came."""
        group = group_of(targetSize=2, status={"nextSerial": 5})
        shim = Shim(group)
        owners = {}
        for serial in (5, 6, 7):
            name = f"kwok:{group.names.name(serial)}"
            owners[serial] = shim.group_of(name=name, providerID=name)
        assert owners == {5: "web", 6: "web", 7: ""}

    def test_a_requested_serial_is_given_out_whatever_status_counts(self) -> None:
        shim = Shim(group_of(targetSize=3, status={"nextSerial": 0, "pending": [pending(4, 5)]}))
        assert told(shim).keys() == {4, 5, 6}

    def test_instances_beyond_the_limit_of_all_groups_say_so(self) -> None:
        """It has no place among what is asked for, so it would be waited for in vain."""
        limited = {
            "type": "ScalingLimited",
            "status": "True",
            "reason": "NodeLimit",
            "message": "--max-total-nodes leaves 1 for this one.",
            "lastTransitionTime": NOW,
        }
        status = {"nextSerial": 1, "pending": [pending(0, 0)], "conditions": [limited]}
        request = pb.NodeGroupNodesRequest(id="web")
        for seen, expected in ((0, ("", 0)), (1, ("NodeLimit", 1))):
            shim = Shim(group_of(targetSize=2, status=status | {"observedGeneration": seen}))
            found = shim.ask("NodeGroupNodes", request, pb.NodeGroupNodesResponse).instances
            assert [STATES[i.status.instanceState] for i in found] == ["Creating", "Creating"]
            errors = [i.status.errorInfo for i in found]
            told_errors = [(error.errorCode, error.instanceErrorClass) for error in errors]
            assert told_errors == [("", 0), expected]


def test_victims_that_others_know_nothing_of_are_refused() -> None:
    group = group_of(targetSize=2, status={"nextSerial": 5})
    fleet = Shim(group).store.fleet(group)
    with pytest.raises(RefusedError, match="is no instance of group web"):
        delete(fleet, [Victim(group.names.name(7))])
