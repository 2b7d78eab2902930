"""The brake: how many nodes all groups together may have.

- what one group was granted is not there for the others; what it gives back is
- first come, first served: a group that was granted its nodes keeps them
- who waits for room is woken when there is some, and nobody else is
- a group that is gone gives all of it back
- over the limit (it was lowered, or groups were taken over) there is no room, and no less than that
"""

import pytest

from kwok_operator.controller.reconcile.budget import NodeBudget


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def budget(woken: list[str]) -> NodeBudget:
    return NodeBudget(limit=10, freed=woken.append)


def test_all_of_it_is_there_for_the_first(budget: NodeBudget) -> None:
    assert budget.room("a") == 10


def test_a_groups_own_nodes_are_within_its_room(budget: NodeBudget) -> None:
    budget.grant("a", 6, wants_more=False)
    assert budget.room("a") == 10
    assert budget.room("b") == 4


def test_what_several_have_is_not_there_for_another(budget: NodeBudget) -> None:
    budget.grant("a", 6, wants_more=False)
    budget.grant("b", 3, wants_more=False)
    assert (budget.room("a"), budget.room("b"), budget.room("c")) == (7, 4, 1)


def test_a_new_grant_takes_the_place_of_the_one_before(budget: NodeBudget) -> None:
    budget.grant("a", 6, wants_more=False)
    budget.grant("a", 2, wants_more=False)
    assert budget.room("b") == 8


def test_who_came_first_keeps_what_it_has(budget: NodeBudget) -> None:
    budget.grant("a", 8, wants_more=False)
    budget.grant("b", budget.room("b"), wants_more=True)
    assert (budget.room("a"), budget.room("b")) == (8, 2)


def test_over_the_limit_there_is_no_room(budget: NodeBudget) -> None:
    budget.grant("a", 30, wants_more=False)
    assert budget.room("b") == 0
    assert budget.room("a") == 10


def test_a_limit_of_nothing_is_one(woken: list[str]) -> None:
    assert NodeBudget(limit=0, freed=woken.append).room("a") == 0


class TestWaking:
    def test_who_waits_is_woken_when_another_shrinks(
        self, budget: NodeBudget, woken: list[str]
    ) -> None:
        budget.grant("a", 10, wants_more=False)
        budget.grant("b", 0, wants_more=True)
        budget.grant("a", 4, wants_more=False)
        assert woken == ["b"]
        assert budget.room("b") == 6

    def test_all_that_wait_are_woken(self, budget: NodeBudget, woken: list[str]) -> None:
        budget.grant("a", 10, wants_more=False)
        for name in "bcd":
            budget.grant(name, 0, wants_more=True)
        budget.grant("a", 9, wants_more=False)
        assert sorted(woken) == ["b", "c", "d"]

    def test_nobody_is_woken_when_a_group_grows_or_stays(
        self, budget: NodeBudget, woken: list[str]
    ) -> None:
        budget.grant("b", 0, wants_more=True)
        budget.grant("a", 4, wants_more=False)
        budget.grant("a", 4, wants_more=False)
        budget.grant("a", 5, wants_more=False)
        assert woken == []

    def test_who_does_not_wait_is_left_alone(self, budget: NodeBudget, woken: list[str]) -> None:
        budget.grant("a", 5, wants_more=False)
        budget.grant("b", 5, wants_more=True)
        budget.grant("b", 5, wants_more=False)
        budget.grant("a", 1, wants_more=False)
        assert woken == []

    def test_a_group_does_not_wake_itself(self, budget: NodeBudget, woken: list[str]) -> None:
        budget.grant("a", 10, wants_more=True)
        budget.grant("a", 5, wants_more=True)
        assert woken == []

    def test_waiting_does_not_end_with_being_woken(
        self, budget: NodeBudget, woken: list[str]
    ) -> None:
        budget.grant("a", 10, wants_more=False)
        budget.grant("b", 0, wants_more=True)
        budget.grant("a", 9, wants_more=False)
        budget.grant("a", 8, wants_more=False)
        assert woken == ["b", "b"]


class TestRelease:
    def test_a_group_that_is_gone_gives_all_back(
        self, budget: NodeBudget, woken: list[str]
    ) -> None:
        budget.grant("a", 10, wants_more=False)
        budget.grant("b", 0, wants_more=True)
        budget.release("a")
        assert woken == ["b"]
        assert budget.room("b") == 10

    def test_it_waits_for_nothing_any_more(self, budget: NodeBudget, woken: list[str]) -> None:
        budget.grant("a", 5, wants_more=True)
        budget.grant("b", 5, wants_more=False)
        budget.release("a")
        budget.grant("b", 1, wants_more=False)
        assert woken == []

    @pytest.mark.parametrize("name", ["empty", "unknown"])
    def test_a_group_without_nodes_frees_nothing(
        self, budget: NodeBudget, woken: list[str], name: str
    ) -> None:
        budget.grant("empty", 0, wants_more=False)
        budget.grant("b", 10, wants_more=True)
        budget.release(name)
        assert woken == []
