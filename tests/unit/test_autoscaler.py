"""What cluster-autoscaler asks of a group, as a change of its spec."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.constants import MAX_NODES_TO_DELETE
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.autoscaler import (
    Change,
    Fleet,
    RefusalReason,
    RefusedError,
    Victim,
    decrease,
    delete,
    increase,
)
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.serials import Batch

NAMES = NodeNames.of("web", "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55")


def fleet(
    target: int | None,
    *,
    nodes: int = 0,
    pending: int = 0,
    named: tuple[int, ...] = (),
    bounds: tuple[int, int | None] = (0, None),
    leaving: tuple[int, ...] = (),
    held: int | None = None,
) -> Fleet:
    """Serials: nodes first, then pending ones; `leaving` come on top."""
    autoscaling: dict[str, Any] = {"minSize": bounds[0]}
    if bounds[1] is not None:
        autoscaling["maxSize"] = bounds[1]
    spec = {
        "targetSize": target,
        "autoscaling": autoscaling,
        "scaleDown": {"nodesToDelete": [NAMES.name(s) for s in named]},
    }
    given_out = max((nodes + pending, *(s + 1 for s in leaving)))
    return Fleet(
        group="web",
        names=NAMES,
        spec=KwokNodeGroupSpec.model_validate(spec),
        status=KwokNodeGroupStatus.model_validate({"targetSize": held}),
        present={s: NAMES.name(s) for s in range(nodes) if s not in leaving},
        leaving=frozenset(leaving),
        batches=(Batch(nodes, nodes + pending - 1, ""),) if pending else (),
        next_serial=given_out,
    )


def victims(*serials: int, failed: bool = False) -> list[Victim]:
    return [Victim(NAMES.name(s), failed) for s in serials]


def names(*serials: int) -> frozenset[str]:
    return frozenset(NAMES.name(s) for s in serials)


def refusal(call: Any, *arguments: Any) -> RefusalReason:
    with pytest.raises(RefusedError) as refused:
        call(*arguments)
    assert "web" in str(refused.value) or "must be" in str(refused.value)
    return refused.value.kind


class TestInstances:
    def test_what_is_missing_has_the_serials_to_come(self) -> None:
        group = fleet(6, nodes=2, pending=1)
        assert (group.waiting, group.staying, group.going) == ((2, 3, 4, 5), 2, frozenset())
        assert group.is_waiting(5)
        assert not group.is_waiting(6)

    def test_a_serial_that_was_given_back_is_never_given_out(self) -> None:
        assert fleet(4, nodes=2, named=(3,)).waiting == (2, 4)

    def test_what_is_too_much_goes_what_has_no_node_first(self) -> None:
        group = fleet(1, nodes=2, pending=2)
        assert (group.waiting, group.going) == ((), names(1))

    def test_a_node_that_the_cloud_takes_back_is_replaced(self) -> None:
        group = replace(fleet(2, nodes=2), ended=frozenset({0}))
        assert (group.waiting, group.going) == ((2,), names(0))

    def test_a_node_that_was_there_is_not_waited_for(self) -> None:
        group = replace(fleet(3, pending=3), gone=frozenset({1}))
        assert (group.pending, group.waiting) == ((0, 2), (0, 2, 3))

    @pytest.mark.parametrize("target", [10**6, MAX_TARGET_SIZE])
    def test_a_typo_costs_no_more_than_can_be_told(self, target: int) -> None:
        assert len(fleet(target, nodes=2).waiting) < 250_000


class TestIncrease:
    def test_it_counts_from_the_target(self) -> None:
        assert increase(fleet(3, nodes=1), 2) == Change(5)

    def test_an_unset_target_is_what_is_in_force(self) -> None:
        assert increase(fleet(None, nodes=2, held=4), 1) == Change(5)
        assert increase(fleet(None, nodes=2), 1) == Change(3)

    def test_a_target_outside_the_bounds_counts_as_the_bound(self) -> None:
        assert increase(fleet(0, bounds=(2, 9)), 1) == Change(3)
        assert decrease(fleet(99, nodes=1, bounds=(0, 9)), -2) == Change(7)

    def test_names_that_are_gone_are_taken_out(self) -> None:
        gone = replace(fleet(4, nodes=4, named=(2, 6)), next_serial=9)
        assert increase(gone, 1) == Change(5, names(2))

    @pytest.mark.parametrize("delta", [0, -1])
    def test_it_must_be_positive(self, delta: int) -> None:
        assert refusal(increase, fleet(3), delta) is RefusalReason.INVALID

    def test_over_the_maximum_is_refused(self) -> None:
        assert refusal(increase, fleet(3, bounds=(0, 4)), 2) is RefusalReason.OUT_OF_RANGE


class TestDelete:
    def test_victims_are_named_and_the_target_lowered(self) -> None:
        assert delete(fleet(5, nodes=5), victims(1, 3)) == Change(3, names(1, 3))

    def test_a_pending_instance_goes_as_well(self) -> None:
        assert delete(fleet(5, nodes=3, pending=2), victims(4)) == Change(4, names(4))

    def test_each_counts_once(self) -> None:
        assert delete(fleet(5, nodes=5), victims(1, 1)) == Change(4, names(1))
        assert delete(fleet(4, nodes=5, named=(1,)), victims(1)) is None
        change = delete(fleet(4, nodes=5, named=(1,)), victims(1, 2))
        assert change == Change(3, names(1, 2))

    def test_what_is_not_given_out_yet_goes_as_well(self) -> None:
        """By name, so that the operator leaves it out: it may be giving it out right now."""
        assert delete(fleet(5, nodes=2), victims(3, 4)) == Change(3, names(3, 4))
        group = fleet(3, nodes=2, named=(3, 4))
        assert increase(group, 1) == Change(4), "it is not seen yet that they were left out"
        assert group.waiting == (2,)

    def test_what_goes_anyway_lowers_nothing(self) -> None:
        """But it is named: another might go."""
        assert delete(fleet(3, nodes=5), victims(4)) == Change(3, names(4))
        ended = replace(fleet(2, nodes=2), ended=frozenset({0}))
        assert delete(ended, victims(0, 1)) == Change(1, names(0, 1))

    def test_what_has_gone_lowers_nothing(self) -> None:
        gone = replace(fleet(4, nodes=4), next_serial=9)
        assert delete(gone, victims(7)) is None
        assert delete(fleet(4, nodes=5, leaving=(2,)), victims(2)) is None

    def test_names_that_are_gone_are_taken_out(self) -> None:
        gone = replace(fleet(4, nodes=4, named=(6, 8)), next_serial=9, leaving=frozenset({8}))
        assert delete(gone, victims(0)) == Change(3, names(0, 8))

    def test_the_minimum_holds(self) -> None:
        at_minimum = fleet(2, nodes=2, bounds=(2, 9))
        assert refusal(delete, at_minimum, victims(0)) is RefusalReason.AT_MINIMUM
        assert refusal(delete, fleet(3, nodes=3, bounds=(2, 9)), victims(0, 1)) is (
            RefusalReason.AT_MINIMUM
        )

    def test_failed_instances_go_at_the_minimum_and_are_tried_again(self) -> None:
        at_minimum = fleet(2, nodes=1, pending=1, bounds=(2, 9))
        assert delete(at_minimum, victims(1, failed=True)) == Change(2, names(1))

    def test_what_is_not_ours_is_refused_and_nothing_goes(self) -> None:
        for name in ("web-zzzz-000001", "other", NAMES.name(5)):
            group = fleet(5, nodes=5)
            assert refusal(delete, group, [*victims(1), Victim(name)]) is RefusalReason.INVALID

    def test_very_many(self) -> None:
        size = MAX_NODES_TO_DELETE + 1
        assert (
            refusal(delete, fleet(size, nodes=size), victims(*range(size)))
            is RefusalReason.TOO_MANY
        )


class TestDecrease:
    def test_the_newest_pending_are_taken_back_by_name(self) -> None:
        assert decrease(fleet(5, nodes=2, pending=3), -2) == Change(3, names(3, 4))

    def test_what_has_no_serial_yet_needs_no_name(self) -> None:
        assert decrease(fleet(5, nodes=2), -2) == Change(3)
        assert decrease(fleet(5, nodes=2, pending=1), -3) == Change(2, names(2))

    def test_nodes_stay(self) -> None:
        """One of three has come: giving back all three takes two."""
        assert decrease(fleet(3, nodes=1, pending=2), -3) == Change(1, names(1, 2))
        assert decrease(fleet(3, nodes=3), -1) is None

    def test_the_minimum_holds(self) -> None:
        assert decrease(fleet(5, nodes=1, pending=4, bounds=(3, 9)), -4) == Change(3, names(3, 4))

    @pytest.mark.parametrize("delta", [0, 1])
    def test_it_must_be_negative(self, delta: int) -> None:
        assert refusal(decrease, fleet(3), delta) is RefusalReason.INVALID


calls = st.lists(
    st.one_of(
        st.tuples(st.just("increase"), st.integers(-2, 6)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 16), max_size=4)),
        st.tuples(st.just("decrease"), st.integers(-6, 2)),
    ),
    max_size=12,
)


@given(
    target=st.integers(0, 8),
    nodes=st.integers(0, 6),
    pending=st.integers(0, 6),
    ended=st.frozensets(st.integers(0, 5)),
    least=st.integers(0, 3),
    asked=calls,
)
def test_nothing_is_lost_and_nothing_counted_twice(
    target: int,
    nodes: int,
    pending: int,
    ended: frozenset[int],
    least: int,
    asked: list[tuple[str, Any]],
) -> None:
    group = fleet(target, nodes=nodes, pending=pending, bounds=(least, 12))
    group = replace(group, ended=ended & group.present.keys())
    for kind, what in asked:
        before, told = group.target, staying(group)
        try:
            if kind == "increase":
                change: Change | None = increase(group, what)
                expected = before + what
            elif kind == "delete":
                change = delete(group, victims(*what))
                expected = before - len(told & set(what))
            else:
                change = decrease(group, what)
                expected = max(before + what, least, group.staying) if change else before
        except RefusedError:
            continue
        group = changed(group, change)
        assert group.target == expected == len(staying(group))
        assert least <= group.target <= 12
        gone = told - staying(group)
        if kind == "increase":
            assert not gone
        elif kind == "delete":
            assert gone == told & set(what)
        else:
            assert not gone & group.present.keys()
            assert gone <= set(sorted(told)[len(told) - len(gone) :]), "the newest"


def staying(group: Fleet) -> set[int]:
    """The serials of all instances that are told and aren't Deleting."""
    return {s for s, name in group.present.items() if name not in group.going} | {*group.waiting}


def changed(group: Fleet, change: Change | None) -> Fleet:
    """As it is once the change is written."""
    if change is None:
        return group
    update: dict[str, Any] = {"target_size": change.target}
    if change.names is not None:
        named = {"nodes_to_delete": change.names}
        update["scale_down"] = group.spec.scale_down.model_copy(update=named)
    return replace(group, spec=group.spec.model_copy(update=update))
