"""What cluster-autoscaler asks of a group, as a change of its spec.

- an increase counts from the target within the bounds, and is refused over the maximum
- deleting names the victims and lowers the target by as many, once for each, down to the minimum;
  what has gone lowers nothing, what isn't ours is refused and then nothing goes
- failed instances go at the minimum too, and the target stays there
- a decrease takes back what has no Node yet, the newest first, names it, and never a Node
- whatever the order of calls, the sum of what was accepted is the change of the target
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.constants import MAX_NODES_TO_DELETE
from kwok_operator.core.autoscaler import (
    Change,
    Fleet,
    Refusal,
    RefusedError,
    Victim,
    decrease,
    delete,
    increase,
)
from kwok_operator.core.naming import NodeNames
from kwok_operator.models.nodegroup import KwokNodeGroupSpec
from kwok_operator.models.status import KwokNodeGroupStatus

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
        pending=tuple(range(nodes, nodes + pending)),
        next_serial=given_out,
    )


def victims(*serials: int, failed: bool = False) -> list[Victim]:
    return [Victim(NAMES.name(s), failed) for s in serials]


def names(*serials: int) -> frozenset[str]:
    return frozenset(NAMES.name(s) for s in serials)


def refusal(call: Any, *arguments: Any) -> Refusal:
    with pytest.raises(RefusedError) as refused:
        call(*arguments)
    assert "web" in str(refused.value) or "must be" in str(refused.value)
    return refused.value.kind


class TestIncrease:
    def test_it_counts_from_the_target(self) -> None:
        assert increase(fleet(3, nodes=1), 2) == Change(5)

    def test_an_unset_target_is_what_is_in_force(self) -> None:
        assert increase(fleet(None, nodes=2, held=4), 1) == Change(5)
        assert increase(fleet(None, nodes=2, pending=1), 1) == Change(4)

    def test_a_target_outside_the_bounds_counts_as_the_bound(self) -> None:
        assert increase(fleet(0, bounds=(2, 9)), 1) == Change(3)
        assert decrease(fleet(99, nodes=1, bounds=(0, 9)), -2) == Change(7)

    def test_names_that_are_gone_are_taken_out(self) -> None:
        gone = replace(fleet(4, nodes=4, named=(2, 6)), next_serial=9)
        assert increase(gone, 1) == Change(5, names(2))

    @pytest.mark.parametrize("delta", [0, -1])
    def test_it_must_be_positive(self, delta: int) -> None:
        assert refusal(increase, fleet(3), delta) is Refusal.INVALID

    def test_over_the_maximum_is_refused(self) -> None:
        assert refusal(increase, fleet(3, bounds=(0, 4)), 2) is Refusal.OUT_OF_RANGE


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

    def test_what_has_gone_lowers_nothing(self) -> None:
        gone = replace(fleet(4, nodes=4), next_serial=9)
        assert delete(gone, victims(7)) is None
        assert delete(fleet(4, nodes=5, leaving=(2,)), victims(2)) is None

    def test_names_that_are_gone_are_taken_out(self) -> None:
        gone = replace(fleet(4, nodes=4, named=(6, 8)), next_serial=9, leaving=frozenset({8}))
        assert delete(gone, victims(0)) == Change(3, names(0, 8))

    def test_the_minimum_holds(self) -> None:
        at_minimum = fleet(2, nodes=2, bounds=(2, 9))
        assert refusal(delete, at_minimum, victims(0)) is Refusal.AT_MINIMUM
        assert refusal(delete, fleet(3, nodes=3, bounds=(2, 9)), victims(0, 1)) is (
            Refusal.AT_MINIMUM
        )

    def test_failed_instances_go_at_the_minimum_and_are_tried_again(self) -> None:
        at_minimum = fleet(2, nodes=1, pending=1, bounds=(2, 9))
        assert delete(at_minimum, victims(1, failed=True)) == Change(2, names(1))

    def test_what_is_not_ours_is_refused_and_nothing_goes(self) -> None:
        for name in ("web-zzzz-000001", "other", NAMES.name(5)):
            group = fleet(5, nodes=5)
            assert refusal(delete, group, [*victims(1), Victim(name)]) is Refusal.INVALID

    def test_very_many(self) -> None:
        size = MAX_NODES_TO_DELETE + 1
        assert refusal(delete, fleet(size, nodes=size), victims(*range(size))) is Refusal.TOO_MANY


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
        assert refusal(decrease, fleet(3), delta) is Refusal.INVALID


calls = st.lists(
    st.one_of(
        st.tuples(st.just("increase"), st.integers(-2, 6)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 12), max_size=4)),
        st.tuples(st.just("decrease"), st.integers(-6, 2)),
    ),
    max_size=12,
)


@given(
    target=st.integers(0, 8),
    nodes=st.integers(0, 6),
    pending=st.integers(0, 6),
    least=st.integers(0, 3),
    asked=calls,
)
def test_nothing_is_lost_and_nothing_counted_twice(
    target: int, nodes: int, pending: int, least: int, asked: list[tuple[str, Any]]
) -> None:
    group = fleet(target, nodes=nodes, pending=pending, bounds=(least, 12))
    for kind, what in asked:
        before = group.target
        try:
            if kind == "increase":
                change: Change | None = increase(group, what)
                expected = before + what
            elif kind == "delete":
                new = {s for s in what if s < nodes + pending and NAMES.name(s) not in group.named}
                change = delete(group, victims(*what))
                expected = before - len(new)
            else:
                change = decrease(group, what)
                expected = max(before + what, least, group.staying) if change else before
        except RefusedError:
            continue
        if change is None:
            assert expected == before
            continue
        assert change.target == expected
        assert least <= change.target <= 12
        scale_down = group.spec.scale_down
        if change.names is not None:
            if kind == "decrease":
                assert not (change.names - group.named) & set(group.present.values())
            scale_down = scale_down.model_copy(update={"nodes_to_delete": change.names})
        update = {"target_size": change.target, "scale_down": scale_down}
        group = replace(group, spec=group.spec.model_copy(update=update))
