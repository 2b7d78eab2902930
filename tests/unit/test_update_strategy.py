"""What a plan does about nodes that were made from another template than the present one.

How the patches look is in test_inplace.py, how nodes are written in tests/e2e.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec, UpdateStrategyType
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.plan import ObservedGroup, Plan, Rollout, make_plan, max_unavailable
from kwok_operator.nodegroups.serials import Batch

NAMES = NodeNames.of("web", "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55")
NOW = "2026-01-02T03:04:05Z"
ON_DELETE: dict[str, Any] = {"type": "OnDelete"}
IN_PLACE: dict[str, Any] = {"type": "InPlace"}


def rolling(limit: object = 2) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}}


def named(*serials: int) -> tuple[str, ...]:
    return tuple(NAMES.name(serial) for serial in serials)


def plan(
    strategy: dict[str, Any],
    *,
    nodes: Iterable[int] = range(6),
    outdated: Iterable[int] = range(6),
    not_ready: Iterable[int] = (),
    shut: Iterable[int] = (),
    target: int = 6,
    batches: tuple[Batch, ...] = (),
    next_serial: int = 0,
    room: int = 10_000,
    finalizing: int = 0,
    may_create: bool = True,
    **fields: Any,
) -> Plan:
    spec = {"targetSize": target, "updateStrategy": strategy, **fields}
    there = {serial: NAMES.name(serial) for serial in nodes}
    observed = ObservedGroup(
        nodes=there,
        terminating=frozenset(),
        gone=frozenset(),
        batches=batches,
        next_serial=max([next_serial - 1, *there, *(batch.last for batch in batches)]) + 1,
        held=None,
        room=room,
        ready=frozenset(there) - frozenset(not_ready),
        usable=frozenset(there) - frozenset(not_ready) - frozenset(shut),
        outdated=frozenset(there) & frozenset(outdated),
        finalizing=finalizing,
    )
    return make_plan(
        KwokNodeGroupSpec.model_validate(spec),
        observed,
        names=NAMES,
        now=NOW,
        may_create=may_create,
    )


def touched(todo: Plan) -> tuple[tuple[str, ...], ...]:
    return (todo.delete, tuple(map(str, todo.create)), todo.update)


@pytest.mark.parametrize("strategy", [ON_DELETE, IN_PLACE, rolling()], ids=str)
def test_where_all_nodes_are_up_to_date_nothing_is_done(strategy: dict[str, Any]) -> None:
    todo = plan(strategy, outdated=())
    assert touched(todo) == ((), (), ())
    assert todo.rollout is None


def test_on_delete_leaves_outdated_nodes_alone() -> None:
    todo = plan(ON_DELETE, not_ready=[0])
    assert touched(todo) == ((), (), ())
    assert todo.rollout is None


class TestInPlace:
    def test_outdated_nodes_are_patched_the_oldest_first(self) -> None:
        todo = plan(IN_PLACE, outdated=[4, 1, 2], not_ready=[2])
        assert touched(todo) == ((), (), named(1, 2, 4))
        assert todo.rollout == Rollout(UpdateStrategyType.IN_PLACE)

    def test_but_not_those_that_go_anyway(self) -> None:
        todo = plan(IN_PLACE, target=4, scaleDown={"nodesToDelete": named(1)})
        assert set(todo.delete) == set(named(1, 5))
        assert todo.update == named(0, 2, 3, 4)

    def test_where_only_such_are_outdated_there_is_no_update(self) -> None:
        assert plan(IN_PLACE, target=5, outdated=[5]).rollout is None

    def test_a_group_that_grows_does_both(self) -> None:
        todo = plan(IN_PLACE, target=8)
        assert (todo.create, len(todo.update)) == ((6, 7), 6)


class TestRollingUpdate:
    def test_the_oldest_are_replaced_first_as_many_as_may_be_missing(self) -> None:
        todo = plan(rolling(2))
        assert todo.delete == named(0, 1)
        assert todo.replaced == 2
        assert (todo.create, todo.batches) == ((6, 7), (Batch(6, 7, NOW),))
        assert todo.rollout == Rollout(UpdateStrategyType.ROLLING_UPDATE, 2)

    @pytest.mark.parametrize(
        ("limit", "target", "nodes"),
        [
            ("10%", 1000, 100),
            ("10%", 19, 1),
            ("10%", 5, 1),
            ("100%", 7, 7),
            ("99%", 2, 1),
            ("1%", 0, 1),
            ("7", 5, 7),
        ],
    )
    def test_a_share_is_rounded_down_to_one(self, limit: str, target: int, nodes: int) -> None:
        assert max_unavailable(limit, target=target) == nodes

    def test_what_is_not_ready_or_missing_counts(self) -> None:
        # Two up-to-date ones are on their way to be Ready, one is still pending.
        fields: dict[str, Any] = {"nodes": [1, 2, 3, 4, 5], "not_ready": [4, 5]}
        todo = plan(rolling(4), outdated=[1, 2, 3], batches=(Batch(6, 6, NOW),), **fields)
        assert todo.delete == named(1)
        assert todo.create == (6, 7)
        assert plan(rolling(3), outdated=[1, 2, 3], **fields).delete == ()

    def test_outdated_ones_that_are_not_ready_go_first_and_at_no_cost(self) -> None:
        todo = plan(rolling(3), not_ready=[2, 4])
        assert todo.delete == named(2, 4, 0)
        assert plan(rolling(1), not_ready=[2, 4, 5]).delete == named(2, 4, 5)

    def test_outdated_ones_that_take_no_pods_are_next_as_many_as_may_be_on_their_way(self) -> None:
        assert plan(rolling(1), shut=[2, 4, 5]).delete == named(2)
        assert plan(rolling(4), shut=[2, 4, 5]).delete == named(2, 4, 5, 0)
        assert plan(rolling(2), shut=[2, 4, 5], not_ready=[0]).delete == named(0, 2)
        on_its_way = (Batch(6, 6, NOW),)
        assert plan(rolling(1), shut=[2, 4], nodes=range(5), batches=on_its_way).delete == ()

    def test_up_to_date_ones_that_take_no_pods_stop_it(self) -> None:
        assert plan(rolling(2), outdated=[0, 1, 2], shut=[2, 4, 5]).delete == ()

    def test_up_to_date_ones_stay_ready_or_not(self) -> None:
        todo = plan(rolling(6), outdated=[3], not_ready=[0, 1])
        assert todo.delete == named(3)

    def test_a_group_that_grows_first_grows(self) -> None:
        todo = plan(rolling(2), target=10)
        assert (todo.delete, todo.create) == ((), (6, 7, 8, 9))
        assert todo.rollout is not None

    @pytest.mark.parametrize(
        ("order", "gone"), [("NewestFirst", (4, 2, 5)), ("OldestFirst", (2, 4, 0))]
    )
    def test_a_surplus_takes_outdated_ones_first(self, order: str, gone: tuple[int, ...]) -> None:
        todo = plan(rolling(), target=3, outdated=[2, 4], scaleDown={"order": order})
        assert (todo.delete, todo.replaced, todo.rollout) == (named(*gone), 0, None)
        in_order = plan(IN_PLACE, target=4, outdated=[0, 1, 2], scaleDown={"order": "NewestFirst"})
        assert in_order.delete == named(5, 4)

    def test_one_that_is_replaced_is_never_created_again(self) -> None:
        # After a crash the record alone would bring it back: its batch is still open.
        todo = plan(rolling(2), nodes=[*range(4), 5], batches=(Batch(0, 5, NOW),))
        assert todo.delete == named(0)
        assert todo.batches[0] == Batch(4, 4, NOW)
        late = plan(rolling(2), nodes=[1, 2, 3, 5, 6], batches=(Batch(0, 5, NOW),))
        assert 1 not in late.create
        assert all(1 not in batch for batch in late.batches)

    def test_over_the_limit_of_all_groups_nothing_is_replaced(self) -> None:
        todo = plan(rolling(), room=5)
        assert touched(todo) == ((), (), ())
        assert todo.rollout == Rollout(UpdateStrategyType.ROLLING_UPDATE, 2, held=True)
        assert plan(rolling(), room=6).replaced == 2

    def test_where_deleted_nodes_stay_each_new_one_needs_room_beside_them(self) -> None:
        full = plan(rolling(), room=6, finalizing=1)
        assert full.rollout == Rollout(UpdateStrategyType.ROLLING_UPDATE, 2, held=True)
        assert plan(rolling(), room=7, finalizing=1).delete == named(0)


@pytest.mark.parametrize("strategy", [IN_PLACE, rolling()], ids=str)
class TestHeldBack:
    def test_paused_does_nothing_and_says_that_there_is_something(
        self, strategy: dict[str, Any]
    ) -> None:
        todo = plan(strategy, paused=True, not_ready=[3])
        assert touched(todo) == ((), (), ())
        assert todo.rollout is not None

    def test_where_nothing_may_be_created_nothing_is_replaced_or_patched(
        self, strategy: dict[str, Any]
    ) -> None:
        assert touched(plan(strategy, may_create=False, not_ready=[3])) == ((), (), ())


class Group(RuleBasedStateMachine):
    """A group whose nodes come, become Ready and get patched as plans say, more or less."""

    def __init__(self) -> None:
        super().__init__()
        self.template, self.target, self.strategy = 0, 5, rolling(2)
        self.paused = False
        self.nodes: dict[int, int] = {}
        self.ready: set[int] = set()
        self.shut: set[int] = set()
        self.batches: tuple[Batch, ...] = ()
        self.next_serial = 0
        self.left_alone_it_ends_with_all_nodes_up_to_date()

    @rule(size=st.integers(0, 8))
    def scale(self, size: int) -> None:
        self.target = size

    @rule()
    def edit_the_template(self) -> None:
        self.template += 1

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.paused = paused

    @rule(strategy=st.sampled_from([ON_DELETE, IN_PLACE, rolling(1), rolling(3), rolling("50%")]))
    def choose(self, strategy: dict[str, Any]) -> None:
        self.strategy = strategy

    @rule(serials=st.sets(st.integers(0, 40)))
    def become_ready(self, serials: set[int]) -> None:
        self.ready |= serials & self.nodes.keys()

    @rule(serials=st.sets(st.integers(0, 40), max_size=2))
    def fail(self, serials: set[int]) -> None:
        self.ready -= serials

    @rule()
    def shut_for_good(self) -> None:
        self.shut |= {s for s, hash_ in self.nodes.items() if hash_ != self.template}

    @rule(serials=st.sets(st.integers(0, 40), max_size=2))
    def vanish(self, serials: set[int]) -> None:
        self._delete(serials)

    @rule(writes=st.integers(0, 20), usable=st.booleans())
    def pass_(self, writes: int, usable: bool) -> None:
        self._pass(writes=writes, usable=usable)

    def _pass(self, *, writes: int, usable: bool) -> Plan:
        before = dict(self.nodes)
        todo = plan(
            self.strategy,
            nodes=before,
            outdated=[s for s in before if usable and before[s] != self.template],
            not_ready=before.keys() - self.ready,
            shut=self.shut,
            target=self.target,
            batches=self.batches,
            next_serial=self.next_serial,
            may_create=usable,
            paused=self.paused,
        )
        self._check(todo)
        self.batches, self.next_serial = todo.batches, todo.next_serial
        jobs: list[tuple[str, Any]] = [("delete", NAMES.serial(name)) for name in todo.delete]
        jobs += [("create", serial) for serial in todo.create]
        jobs += [("update", NAMES.serial(name)) for name in todo.update]
        for verb, serial in jobs[:writes]:
            if verb == "delete":
                self._delete({serial})
            else:
                assert (serial in self.nodes) == (verb == "update")
                self.nodes[serial] = self.template
        return todo

    def _delete(self, serials: set[int]) -> None:
        self.ready -= serials
        self.nodes = {s: hash_ for s, hash_ in self.nodes.items() if s not in serials}

    def _check(self, todo: Plan) -> None:
        going = [s for name in todo.delete if (s := NAMES.serial(name)) is not None]
        replaced = set(going[len(going) - todo.replaced :])
        assert all(self.nodes[serial] != self.template for serial in replaced)
        kind = self.strategy["type"]
        if kind != "RollingUpdate" or self.paused:
            assert not replaced
        else:
            usable = self.ready - self.shut
            before = len(usable - (set(going) - replaced))
            limit = str(self.strategy["rollingUpdate"]["maxUnavailable"])
            fewest = self.target - max_unavailable(limit, target=self.target)
            assert len(usable - set(going)) >= min(before, fewest)
        if kind != "InPlace" or self.paused:
            assert not todo.update
        if self.paused:
            assert not todo.delete

    @rule()
    def left_alone_it_ends_with_all_nodes_up_to_date(self) -> None:
        self.paused = False
        # An update stops at new nodes that take no pods, which are up to somebody else.
        self.shut -= {s for s, hash_ in self.nodes.items() if hash_ == self.template}
        for _ in range(3 * 8 + 2):
            todo = self._pass(writes=100, usable=True)
            self.ready |= self.nodes.keys()
        assert touched(todo) == ((), (), ())
        assert todo.rollout is None
        assert len(self.nodes) == self.target
        if self.strategy["type"] != "OnDelete":
            assert set(self.nodes.values()) <= {self.template}


def test_an_update_always_ends_and_never_takes_more_than_it_may() -> None:
    run_state_machine_as_test(Group, settings=settings(max_examples=60, stateful_step_count=25))
