"""What comparisons can show, by simulation."""

from random import Random
from statistics import fmean

import pytest

from hack import arms, power, rules
from hack.simulated import reported


def test_the_same_numbers_come_again() -> None:
    assert [*power.tables(1, (8,))] == [*power.tables(1, (8,))]


def test_a_count_of_decisions_is_reported_beside_a_named_wait() -> None:
    """In 8 of 8 pairs there are 11 nodes, not 10. A named wait hid that in one of eight comparisons
    where both counts and waits came second."""
    random, found = Random(8), []
    for _ in range(80):
        a, b = power.others(random, 8)
        both = a | {power.NODES: [10.0] * 8}, b | {power.NODES: [11.0] * 8}
        found.append(power.NODES in reported(*both, ["0"]))
    assert fmean(found) >= 0.95


@pytest.mark.parametrize("pairs", [8])
def test_a_with_a_raises_no_alarm_whichever_figure_comes_first(pairs: int) -> None:
    without, named, *_ = power.alarms(pairs, 300)
    # Of 300 at 1 in 100 more than 9 come by chance less than 1 time in 1000.
    assert without <= 9 / 300 and named <= 9 / 300


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("of", "rounds"), [(3, 9), (5, 10)])
def test_arms_that_are_alike_share_the_alarms(of: int, rounds: int, skewed: bool) -> None:
    # Of 300 at 1 in 128 more than 8 come by chance less than 1 time in 1000.
    assert arms.alarms(of, rounds, 300, skewed=skewed) <= 8 / 300


def test_further_arms_hide_little() -> None:
    found = [arms.power(of, 12, 100, 1.15) for of in (2, 3, 5)]
    assert found[0] >= 0.9 and min(found) >= found[0] - 0.1, found


@pytest.mark.parametrize("change", [1.08, 1.095])
def test_a_change_below_the_bound_fails_no_job(change: float) -> None:
    before, now = rules.condition(200, change)
    assert before > 0.1 and now <= 7 / 200
