"""The ledger: what it calls a violation, and what it leaves to a crash."""

from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION
from tests.chaos.invariants import IN_FLIGHT, Census, Ledger

pytestmark = pytest.mark.core


def node(number: int, *, uid: str = "", group: str = "g", owner: str = "u") -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{group}-{number}",
            "uid": uid or f"uid-{number}",
            "labels": {NODE_GROUP_LABEL: group},
            "annotations": {NODE_GROUP_UID_ANNOTATION: owner},
            "ownerReferences": [{"uid": owner}],
        }
    }


def going(number: int) -> dict[str, Any]:
    found = node(number)
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return found


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.asked("g", 3)
    return ledger


def grow(ledger: Ledger, count: int, *, first: int = 0) -> list[str]:
    for number in range(first, first + count):
        ledger.seen(node(number))
    return ledger.violations


def test_as_many_as_were_asked_for_are_fine_and_one_more_is_not(ledger: Ledger) -> None:
    assert not grow(ledger, 3)
    assert ledger.count("g") == 3
    assert grow(ledger, 1, first=3) == ["g has 4 nodes, of at most 3"]


def test_terminating_and_gone_nodes_make_room(ledger: Ledger) -> None:
    grow(ledger, 3)
    ledger.seen(going(0))
    ledger.gone(node(1))
    assert ledger.names_of("g") == ["g-2"]
    assert not grow(ledger, 2, first=3)


def test_a_lower_target_counts_from_the_next_rest_on(ledger: Ledger) -> None:
    grow(ledger, 1)
    ledger.asked("g", 1)
    assert not grow(ledger, 2, first=1)
    ledger.gone(node(1))
    ledger.gone(node(2))
    ledger.rest("g")
    assert grow(ledger, 1, first=3)


def test_a_crash_leaves_nothing_where_the_target_only_rose(ledger: Ledger) -> None:
    ledger.crashed()
    ledger.asked("g", 5)
    assert ledger.bound("g") == 5


def test_a_crash_leaves_what_was_in_flight_where_the_target_went_down_and_up(
    ledger: Ledger,
) -> None:
    ledger.asked("g", 1)
    ledger.asked("g", 4)
    assert ledger.bound("g") == 4
    ledger.crashed()
    assert ledger.bound("g") == 4 + IN_FLIGHT
    ledger.rest("g")
    assert ledger.bound("g") == 4


def test_a_bound_that_comes_and_goes_is_a_target_that_goes_down_and_up(ledger: Ledger) -> None:
    ledger.crashed()
    ledger.limited("g", 1)
    assert ledger.bound("g") == 3
    ledger.asked("g", 3)
    assert ledger.bound("g") == 3 + IN_FLIGHT


def test_a_name_that_comes_back_as_another_node_is_a_violation(ledger: Ledger) -> None:
    ledger.seen(node(0))
    ledger.gone(node(0))
    ledger.seen(node(0))
    assert not ledger.violations
    ledger.gone(node(0))
    ledger.seen(node(0, uid="another"))
    assert ledger.violations == ["the name g-0 was used twice: by uid-0 and another"]


def test_a_group_that_was_made_again_has_a_count_of_its_own(ledger: Ledger) -> None:
    grow(ledger, 3)
    for number in range(10, 13):
        ledger.seen(node(number, owner="v"))
    assert ledger.count("g") == 6
    assert not ledger.violations


def test_nodes_that_only_look_like_ours_do_not_count(ledger: Ledger) -> None:
    for number in range(5):
        impostor = node(number)
        impostor["metadata"]["ownerReferences"] = []
        ledger.seen(impostor)
    assert ledger.count("g") == 0
    assert not ledger.violations


def test_a_list_after_a_gap_is_the_whole_truth(ledger: Ledger) -> None:
    grow(ledger, 2)
    ledger.replace([node(1), node(2)])
    assert ledger.names_of("g") == ["g-1", "g-2"]
    assert ledger.names == 3


def test_a_census_counts_what_carries_no_mark_as_well() -> None:
    census = Census("g-", but=["g-9"])
    for number in (0, 1, 9):
        bare = node(number)
        del bare["metadata"]["labels"]
        census.seen("ADDED", bare)
    assert (census.names, census.most) == ({"g-0", "g-1"}, 2)
    census.seen("MODIFIED", going(0))
    census.seen("DELETED", node(1))
    census.seen("ADDED", node(2))
    census.listed([node(3)])
    assert (census.names, census.most, census.made, census.lost) == ({"g-3"}, 2, 4, 3)


def test_names_that_a_restored_cluster_has_forgotten_may_come_again(ledger: Ledger) -> None:
    ledger.seen(node(0))
    ledger.restored()
    ledger.replace([node(0, uid="another")])
    assert not ledger.violations
