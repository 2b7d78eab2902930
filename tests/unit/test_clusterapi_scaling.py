"""Who goes when a MachineDeployment gets other replicas."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import read_scalable
from kwok_operator.clusterapi.scaling import (
    DeletionOrder,
    Machines,
    deletion_order,
    follow,
    without_retries,
)
from kwok_operator.nodegroups.autoscaler import Change
from tests.scalables import NAMES, instances, named


def machines(
    annotated: set[int] | None = None,
    deleted: set[int] | None = None,
    usable: set[int] | None = None,
) -> Machines:
    return Machines(*(named(*(serials or ())) for serials in (annotated, deleted, usable)))


ORDERS = st.sampled_from(DeletionOrder)
SERIALS = st.sets(st.integers(0, 30), max_size=12)


@given(SERIALS, st.integers(0, 5), st.integers(0, 20), SERIALS, SERIALS, SERIALS, ORDERS)
def test_as_many_go_as_are_too_many_and_the_annotated_first(
    present: set[int],
    waiting: int,
    replicas: int,
    annotated: set[int],
    deleted: set[int],
    usable: set[int],
    order: DeletionOrder,
) -> None:
    before = instances(present=present, waiting=waiting)
    alive = {*present, *before.waiting}
    change = follow(before, replicas, machines(annotated, deleted, usable), order=order)
    lost = deleted & alive
    if change is None:
        assert replicas == len(alive) and not lost
        return
    gone = {NAMES.serial(name) for name in change.names or ()}
    assert change.target == replicas
    assert lost <= gone <= alive
    fewer = len(alive) > replicas
    assert len(gone) == max(len(lost), len(alive) - replicas if fewer else 0)
    chosen, spared = gone - lost, alive - gone
    if chosen:
        # None that was annotated stays while another goes; none of use goes before one of no use.
        assert not (spared & annotated and chosen - annotated)
        plain = chosen - annotated
        assert not (plain & usable and (spared - annotated) - usable)


@given(SERIALS, st.integers(0, 12), SERIALS, ORDERS)
def test_a_decision_is_not_made_twice(
    present: set[int], replicas: int, annotated: set[int], order: DeletionOrder
) -> None:
    known = machines(annotated, usable=present)
    change = follow(instances(present=present), replicas, known, order=order)
    if change is not None:
        gone = {NAMES.serial(name) or 0 for name in change.names or ()}
        after = instances(present=present, target=change.target, named=gone)
        assert follow(after, replicas, known, order=order) is None


@given(SERIALS, st.integers(0, 12), st.integers(0, 12))
def test_the_groups_minimum_keeps_instances(present: set[int], replicas: int, least: int) -> None:
    before = instances(present=present, target=replicas, least=least)
    alive = {*present, *before.waiting}
    change = follow(before, replicas, machines(usable=present), order=DeletionOrder.RANDOM)
    gone = {NAMES.serial(name) for name in (change and change.names) or ()}
    assert len(alive - gone) >= min(len(alive), max(replicas, least))


@given(SERIALS, SERIALS, SERIALS, st.integers(0, 12), st.booleans())
def test_karpenters_retries_take_no_machine(
    present: set[int], annotated: set[int], going: set[int], replicas: int, recently: bool
) -> None:
    before = instances(present=present, named=going)
    left = (present - going).union(before.waiting)
    chosen = annotated & left
    known = machines(annotated)
    wanted, chooses = without_retries(before, replicas, known, recently=recently)
    assert chooses == bool(chosen)
    if not (chosen or recently):
        assert wanted == replicas
    else:
        assert wanted == max(replicas, len(left - chosen))


@pytest.mark.parametrize(
    ("order", "going"),
    [
        (DeletionOrder.RANDOM, (4, 9)),
        (DeletionOrder.OLDEST, (1, 4)),
        (DeletionOrder.NEWEST, (9, 7)),
    ],
)
def test_the_order_decides_among_equals(order: DeletionOrder, going: tuple[int, ...]) -> None:
    before = instances(present={1, 4, 7, 9})
    change = follow(before, 2, machines(usable={1, 4, 7, 9}), order=order)
    assert change == Change(2, named(*going))


def test_one_after_the_other_takes_both_annotated_ones() -> None:
    # Whoever looks late sees both annotations at the first of two steps.
    known = machines({3, 5}, usable={1, 3, 5, 7})
    first = follow(instances(present={1, 3, 5, 7}), 3, known, order=DeletionOrder.NEWEST)
    assert first == Change(3, named(5))
    second = follow(
        instances(present={1, 3, 5, 7}, target=3, named={5}), 2, known, order=DeletionOrder.NEWEST
    )
    assert second == Change(2, named(3, 5))


def test_instances_without_a_serial_are_not_named() -> None:
    # Ten are wanted, four are there: the other six have not been asked for.
    before = instances(present={0, 1, 2, 3}, target=10)
    change = follow(before, 5, machines(usable={0, 1, 2, 3}), order=DeletionOrder.RANDOM)
    assert change == Change(5, None)


@pytest.mark.parametrize(
    ("kind", "spec", "order"),
    [
        ("MachineDeployment", {"deletion": {"order": "Oldest"}}, "Oldest"),
        (
            "MachineDeployment",
            {"strategy": {"rollingUpdate": {"deletePolicy": "Newest"}}},
            "Newest",
        ),
        ("MachineSet", {"deletePolicy": "Newest"}, "Newest"),
        ("MachineSet", {"deletion": {"order": "Newest"}, "deletePolicy": "Oldest"}, "Newest"),
        ("MachineDeployment", {"deletePolicy": "Newest"}, "Random"),
        ("MachineSet", {"deletion": "Newest"}, "Random"),
        ("MachineDeployment", {"strategy": [1], "deletion": {"order": ["Oldest"]}}, "Random"),
        ("MachineSet", {}, "Random"),
    ],
)
def test_the_order_of_either_version(kind: str, spec: dict[str, Any], order: str) -> None:
    body = {"kind": kind, "metadata": {"name": "a", "namespace": "b"}, "spec": spec}
    assert deletion_order(read_scalable(body, Keys())) == order
