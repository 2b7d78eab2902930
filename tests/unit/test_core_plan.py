"""What a group needs next, given what it wishes and what there is.

- target: within minSize, maxSize and the brake for all groups, and which of them held; unset means
  "as it is"; the brake makes a group wait and takes no node away
- too few: serials that were asked for and have not come, then new ones, in one dated batch
- too many: what has not come is taken back first, the newest first; then nodes, in the order asked
- nodesToDelete: go whatever the target; the target alone says how many remain; a pending one is
  never created; what names nothing is reported and never comes into being
- paused: nothing in either direction; an unusable template: nothing is asked for
- terminating nodes count for nothing, gone ones are not made again, no serial is given out twice

How passes work together over time is in test_controller_world.py.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from kwok_operator.core.naming import NodeNames
from kwok_operator.core.plan import Observed, Plan, Target, make_plan
from kwok_operator.core.serials import Batch
from kwok_operator.models.nodegroup import KwokNodeGroupSpec
from tests.fakes.rows import each_row

NAMES = NodeNames.of("web", "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55")
NOW = "2026-01-02T03:04:05Z"
EARLIER = "2026-01-02T03:00:00Z"


def spec(target: int | None = None, **fields: Any) -> KwokNodeGroupSpec:
    return KwokNodeGroupSpec.model_validate({"targetSize": target, **fields})


def named(*serials: int) -> list[str]:
    return [NAMES.name(serial) for serial in serials]


def deleting(*names: str) -> dict[str, Any]:
    return {"scaleDown": {"nodesToDelete": list(names)}}


def seen(
    nodes: Iterable[int] = (),
    *,
    terminating: Iterable[int] = (),
    gone: Iterable[int] = (),
    batches: tuple[Batch, ...] = (),
    next_serial: int | None = None,
    held: int | None = None,
    room: int = 10_000,
) -> Observed:
    """What is there; the next serial is the one after all that occur, unless it is said."""
    there = {serial: NAMES.name(serial) for serial in nodes}
    used = [-1, *there, *terminating, *gone, *(b.last for b in batches)]
    return Observed(
        nodes=there,
        terminating=frozenset(terminating),
        gone=frozenset(gone),
        batches=batches,
        next_serial=max(used) + 1 if next_serial is None else next_serial,
        held=held,
        room=room,
    )


def plan(wish: KwokNodeGroupSpec, observed: Observed, *, may_create: bool = True) -> Plan:
    return make_plan(wish, observed, names=NAMES, now=NOW, may_create=may_create)


class TestTarget:
    @each_row(
        "wish value limit",
        [
            (spec(3), 3, None),
            (spec(0), 0, None),
            (spec(3, autoscaling={}), 3, None),
            (spec(3, autoscaling={"minSize": 3, "maxSize": 3}), 3, None),
            (spec(3, autoscaling={"minSize": 5}), 5, "MinSize"),
            (spec(0, autoscaling={"minSize": 5}), 5, "MinSize"),
            (spec(9, autoscaling={"maxSize": 5}), 5, "MaxSize"),
            (spec(9, autoscaling={"maxSize": 0}), 0, "MaxSize"),
            (spec(autoscaling={"minSize": 5}), 5, "MinSize"),
            (spec(autoscaling={"maxSize": 1}), 1, "MaxSize"),
        ],
    )
    def test_is_within_the_bounds(
        self, wish: KwokNodeGroupSpec, value: int, limit: str | None
    ) -> None:
        target = plan(wish, seen([0, 1])).target
        assert target.value == value
        assert (target.limit and target.limit.reason) == limit

    def test_a_limit_tells_what_was_asked_for_and_what_holds_it(self) -> None:
        low = plan(spec(3, autoscaling={"minSize": 5}), seen()).target
        high = plan(spec(9, autoscaling={"maxSize": 5}), seen()).target
        assert low.limit is not None
        assert low.limit.message == "autoscaling.minSize is 5; 3 would be fewer."
        assert high.limit is not None
        assert high.limit.message == "autoscaling.maxSize is 5; 9 would be more."
        assert (low.wanted, high.wanted) == (3, 9)

    def test_unset_is_the_one_that_was_in_force(self) -> None:
        assert plan(spec(), seen([0, 1], held=7)).target == Target(7, 7)

    def test_unset_from_the_beginning_is_as_many_nodes_as_there_are(self) -> None:
        assert plan(spec(), seen()).target == Target(0, 0)
        assert plan(spec(), seen([4, 8])).target == Target(2, 2)

    def test_zero_is_not_unset(self) -> None:
        assert plan(spec(0), seen([0, 1], held=2)).target == Target(0, 0)
        assert plan(spec(), seen([0, 1], held=0)).target == Target(0, 0)

    def test_what_goes_over_the_brake_waits(self) -> None:
        target = plan(spec(10), seen(range(3), room=4)).target
        assert (target.value, target.wanted) == (4, 10)
        assert target.limit is not None
        assert target.limit.reason == "NodeLimit"
        assert "leaves 4 for this one, 6 of 10 wait" in target.limit.message
        assert "--max-total-nodes" in target.limit.message

    @each_row("room value", [(10, 10), (9, 9), (5, 5), (4, 5), (0, 5)])
    def test_the_brake_takes_no_node_away(self, room: int, value: int) -> None:
        assert plan(spec(10), seen(range(5), room=room)).target.value == value

    def test_a_group_over_the_brake_may_still_shrink(self) -> None:
        target = plan(spec(2), seen(range(5), room=0)).target
        assert (target.value, target.limit) == (2, None)

    def test_the_brake_is_stronger_than_the_floor(self) -> None:
        target = plan(spec(0, autoscaling={"minSize": 5}), seen(room=3)).target
        assert target.value == 3
        assert target.limit is not None
        assert target.limit.reason == "NodeLimit"


class TestTooFew:
    def test_new_serials_are_asked_for_in_one_batch_dated_now(self) -> None:
        todo = plan(spec(3), seen())
        assert todo.create == todo.pending == (0, 1, 2)
        assert todo.batches == (Batch(0, 2, NOW),)
        assert todo.next_serial == 3
        assert todo.delete == ()

    def test_only_what_is_missing_is_asked_for(self) -> None:
        todo = plan(spec(5), seen([0, 3, 4]))
        assert todo.create == (5, 6)
        assert todo.batches == (Batch(5, 6, NOW),)

    def test_what_was_asked_for_before_is_waited_for_and_keeps_its_date(self) -> None:
        asked = (Batch(0, 4, EARLIER),)
        todo = plan(spec(5), seen([0, 2], batches=asked))
        assert todo.create == (1, 3, 4)
        assert todo.batches == (Batch(1, 4, EARLIER),)
        assert todo.next_serial == 5

    def test_a_higher_target_adds_a_batch_of_its_own(self) -> None:
        todo = plan(spec(7), seen([0, 1], batches=(Batch(0, 4, EARLIER),)))
        assert todo.create == (2, 3, 4, 5, 6)
        assert todo.batches == (Batch(2, 4, EARLIER), Batch(5, 6, NOW))

    def test_when_all_have_come_no_batch_is_left(self) -> None:
        todo = plan(spec(3), seen(range(3), batches=(Batch(0, 2, EARLIER),)))
        assert (todo.create, todo.delete, todo.batches) == ((), (), ())
        assert todo.next_serial == 3

    def test_a_node_that_somebody_deleted_comes_back_under_a_new_name(self) -> None:
        assert plan(spec(3), seen([0, 2])).create == (3,)

    def test_also_while_its_batch_is_still_being_filled(self) -> None:
        todo = plan(spec(4), seen([0], gone=[1], batches=(Batch(0, 3, EARLIER),)))
        assert todo.create == (2, 3, 4)
        assert all(1 not in batch for batch in todo.batches)

    def test_a_terminating_node_counts_for_nothing(self) -> None:
        # A foreign finalizer may hold it for ever.
        todo = plan(spec(3), seen([0, 1], terminating=[2]))
        assert todo.create == (3,)
        assert todo.delete == ()

    def test_a_terminating_node_is_not_made_again_under_its_name(self) -> None:
        todo = plan(spec(3), seen([0], terminating=[1], batches=(Batch(0, 2, EARLIER),)))
        assert todo.create == (2, 3)

    def test_the_first_serial_is_the_one_that_was_recorded(self) -> None:
        assert plan(spec(1), seen(next_serial=41)).create == (41,)

    def test_nothing_is_asked_for_over_the_brake(self) -> None:
        todo = plan(spec(10), seen(range(3), room=5))
        assert todo.create == (3, 4)


class TestTooMany:
    @pytest.mark.parametrize(
        ("order", "deleted"),
        [(None, (9, 8, 5)), ("NewestFirst", (9, 8, 5)), ("OldestFirst", (1, 2, 5))],
    )
    def test_nodes_go_in_the_order_asked_for(
        self, order: str | None, deleted: tuple[int, ...]
    ) -> None:
        wish = spec(2, scaleDown={"order": order})
        # Given in disorder: what counts is the serial, which tells the age.
        assert plan(wish, seen([9, 1, 8, 5, 2])).delete == tuple(named(*deleted))

    @pytest.mark.parametrize("order", ["NewestFirst", "OldestFirst"])
    def test_at_target_zero_all_go(self, order: str) -> None:
        todo = plan(spec(0, scaleDown={"order": order}), seen(range(4)))
        assert set(todo.delete) == set(named(0, 1, 2, 3))
        assert len(todo.delete) == 4

    @pytest.mark.parametrize("order", ["NewestFirst", "OldestFirst"])
    def test_what_has_not_come_is_taken_back_first_the_newest_first(self, order: str) -> None:
        asked = (Batch(2, 6, EARLIER),)
        todo = plan(spec(4, scaleDown={"order": order}), seen([0, 1], batches=asked))
        assert todo.delete == ()
        assert todo.create == (2, 3)
        assert todo.batches == (Batch(2, 3, EARLIER),)

    def test_only_then_nodes_are_deleted(self) -> None:
        asked = (Batch(3, 4, EARLIER),)
        todo = plan(spec(2), seen([0, 1, 2], batches=asked))
        assert todo.pending == ()
        assert todo.delete == tuple(named(2))
        assert todo.batches == ()

    def test_a_serial_that_was_taken_back_is_not_given_out_again(self) -> None:
        shrunk = plan(spec(1), seen([0], batches=(Batch(1, 5, EARLIER),)))
        assert shrunk.next_serial == 6
        grown = plan(spec(2), seen([0], batches=shrunk.batches, next_serial=shrunk.next_serial))
        assert grown.create == (6,)

    def test_what_is_taken_back_is_recorded_where_later_ones_have_come(self) -> None:
        todo = plan(spec(2), seen([6], batches=(Batch(3, 6, EARLIER),)))
        assert todo.create == (3,)
        assert todo.batches == (Batch(3, 3, EARLIER),)

    def test_terminating_nodes_are_not_deleted_again(self) -> None:
        assert plan(spec(1), seen([0, 1], terminating=[2, 3])).delete == tuple(named(1))


class TestNodesToDelete:
    def test_with_a_lower_target_in_the_same_write_exactly_these_go(self) -> None:
        todo = plan(spec(3, **deleting(*named(0, 2))), seen(range(5)))
        assert todo.delete == tuple(named(0, 2))
        assert todo.create == ()

    def test_with_an_unchanged_target_they_are_replaced(self) -> None:
        todo = plan(spec(5, **deleting(*named(0, 2))), seen(range(5)))
        assert todo.delete == tuple(named(0, 2))
        assert todo.create == (5, 6)

    def test_with_a_still_lower_target_others_go_too(self) -> None:
        todo = plan(spec(2, **deleting(*named(0))), seen(range(5)))
        assert set(todo.delete) == set(named(0, 4, 3))

    def test_more_of_them_than_the_target_leaves_room_for(self) -> None:
        todo = plan(spec(3, **deleting(*named(0, 1, 2, 3, 4))), seen(range(5)))
        assert set(todo.delete) == set(named(*range(5)))
        assert todo.create == (5, 6, 7)

    def test_a_group_without_a_target_replaces_them(self) -> None:
        todo = plan(spec(None, **deleting(*named(1))), seen(range(3), held=3))
        assert (todo.delete, todo.create) == (tuple(named(1)), (3,))

    def test_a_pending_one_is_never_created(self) -> None:
        asked = (Batch(1, 3, EARLIER),)
        todo = plan(spec(3, **deleting(*named(2))), seen([0], batches=asked))
        assert todo.create == (1, 3)
        assert todo.delete == ()
        assert todo.batches == (Batch(1, 3, EARLIER, frozenset({2})),)

    def test_a_pending_one_is_replaced_where_the_target_says_so(self) -> None:
        todo = plan(spec(4, **deleting(*named(2))), seen([0], batches=(Batch(1, 3, EARLIER),)))
        assert todo.create == (1, 3, 4)

    @each_row(
        "name",
        ["web", "web-zzzz-000001", NAMES.name(99), NAMES.name(1).replace("000001", "1"), "other"],
    )
    def test_a_name_that_names_nothing_is_reported_and_nothing_is_done(self, name: str) -> None:
        todo = plan(spec(3, **deleting(name)), seen(range(3)))
        assert todo.unknown == (name,)
        assert (todo.create, todo.delete, todo.batches) == ((), (), ())

    def test_one_that_is_gone_already_is_reported(self) -> None:
        todo = plan(spec(2, **deleting(*named(0, 1))), seen([1, 2, 3]))
        assert todo.unknown == tuple(named(0))
        assert todo.delete == tuple(named(1))

    @pytest.mark.parametrize(
        "observed",
        [
            seen([0, 1]),
            seen([0], terminating=[1]),
            seen([0], batches=(Batch(0, 1, EARLIER),)),
        ],
        ids=["node", "terminating", "pending"],
    )
    def test_one_that_is_there_in_any_form_is_known(self, observed: Observed) -> None:
        assert plan(spec(1, **deleting(*named(1))), observed).unknown == ()

    def test_serials_not_given_out_yet_are_passed_over(self) -> None:
        # Or a node would be created, deleted as named, created again, and so on.
        todo = plan(spec(5, **deleting(*named(3, 5))), seen(range(3)))
        assert todo.create == (4, 6)
        assert todo.next_serial == 7
        assert todo.batches == (Batch(4, 6, NOW, frozenset({5})),) or todo.batches == (
            Batch(3, 6, NOW, frozenset({3, 5})),
        )
        after = seen([0, 1, 2, 4, 6], batches=todo.batches, next_serial=7)
        again = plan(spec(5, **deleting(*named(3, 5))), after)
        assert (again.create, again.delete, again.pending) == ((), (), ())

    def test_over_the_brake_a_named_node_goes_and_is_not_replaced(self) -> None:
        # What goes over the brake waits, a replacement too.
        todo = plan(spec(5, **deleting(*named(0))), seen(range(5), room=2))
        assert todo.delete == tuple(named(0))
        assert todo.create == ()

    def test_deletes_are_the_same_whatever_the_room(self) -> None:
        wish = spec(4, **deleting(*named(1)))
        plans = [plan(wish, seen(range(6), room=room)) for room in (0, 3, 5, 100)]
        assert {p.delete for p in plans} == {tuple(named(1, 5))}

    def test_a_serial_far_ahead_costs_nothing(self) -> None:
        todo = plan(spec(2, **deleting(NAMES.name(10**12))), seen())
        assert (todo.create, todo.next_serial) == ((0, 1), 2)


class TestPaused:
    @pytest.mark.parametrize("target", [0, 2, 9])
    def test_nothing_is_created_or_deleted(self, target: int) -> None:
        wish = spec(target, paused=True, **deleting(*named(0)))
        todo = plan(wish, seen([0, 1], batches=(Batch(2, 3, EARLIER),)))
        assert (todo.create, todo.delete) == ((), ())
        assert todo.next_serial == 4

    def test_what_was_asked_for_stays_asked_for(self) -> None:
        todo = plan(spec(0, paused=True), seen([0, 2], batches=(Batch(1, 3, EARLIER),)))
        assert todo.pending == (1, 3)
        assert todo.batches == (Batch(1, 3, EARLIER),)

    def test_the_target_is_told_all_the_same(self) -> None:
        assert plan(spec(9, paused=True), seen()).target == Target(9, 9)


class TestWithoutAUsableTemplate:
    def test_nothing_new_is_asked_for(self) -> None:
        todo = plan(spec(3), seen([0]), may_create=False)
        assert (todo.create, todo.pending, todo.batches) == ((), (), ())
        assert todo.next_serial == 1

    def test_what_was_asked_for_is_not_created_and_not_given_up(self) -> None:
        todo = plan(spec(3), seen([0], batches=(Batch(1, 2, EARLIER),)), may_create=False)
        assert (todo.create, todo.pending) == ((), (1, 2))
        assert todo.batches == (Batch(1, 2, EARLIER),)

    def test_nodes_may_still_go(self) -> None:
        todo = plan(spec(1, **deleting(*named(0))), seen(range(3)), may_create=False)
        assert set(todo.delete) == set(named(0, 2))
