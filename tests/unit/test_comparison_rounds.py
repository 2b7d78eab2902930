"""In which order the runs of a comparison are played, and when that ends."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from kwok_operator.comparison.plan import ComparisonPlan
from kwok_operator.comparison.rounds import WholeRound, in_minutes, next_round, runs_left, time_left
from kwok_operator.comparison.statistics import EffectVerdict, compare_figures
from tests.fakes.compared import plan

FIGURE = "nodeHours"


def first_arms(made: ComparisonPlan, pairs: int) -> str:
    return "".join(made.round(number)[0].arm.name for number in range(1, pairs + 1))


def test_each_order_is_a_fair_draw_of_its_own() -> None:
    plain = plan()
    draws = [first_arms(replace(plain, order_seed=str(seed)), 3) for seed in range(800)]
    for kind in ("aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb"):
        assert draws.count(kind) == pytest.approx(100, abs=40), kind  # four standard deviations
    made = plan(order_seed="7")
    repeats = "".join(made.round(number, 2)[0].arm.name for number in range(1, 30))
    assert repeats != first_arms(made, 29)


def test_each_order_of_three_arms_is_as_likely() -> None:
    made = plan(beside=["c"])
    orders = Counter(
        "".join(run.arm.name for run in replace(made, order_seed=str(seed)).round(number))
        for seed in range(200)
        for number in range(1, 7)
    )
    assert len(orders) == 6
    assert all(count == pytest.approx(200, abs=52) for count in orders.values()), orders


def test_what_disturbs_every_fourth_run_is_no_difference() -> None:
    """With A first in odd pairs and B in even ones it is, in 19 of 100 comparisons."""
    plain = plan()
    alarms, comparisons, pairs = 0, 300, 12
    for seed in range(comparisons):
        noise = random.Random(seed)
        made = replace(plain, order_seed=str(seed))
        values: dict[str, list[float | None]] = {"a": [], "b": []}
        for place, run in enumerate(run for n in range(1, pairs + 1) for run in made.round(n)):
            disturbed = 0.1 if (place + seed) % 4 == 0 else 0.0
            values[run.arm.name].append(math.exp(noise.gauss(0, 0.03) + disturbed))
        (effect,) = compare_figures(
            {FIGURE: values["a"]}, {FIGURE: values["b"]}, lower_is_better={FIGURE: True}
        )
        alarms += effect.verdict is not EffectVerdict.NONE_SEEN
    assert alarms <= 0.03 * comparisons, alarms


def test_the_repeats_come_last_and_end_when_they_are_in_vain() -> None:
    made, busy = plan(runs=3), WholeRound(1, busy=True)
    there = {1: busy, 3: busy}
    assert next_round(made, there) == (2, 1)
    assert len([*runs_left(made, there, cold=True)]) == 2 + 2 + 4
    there |= {2: busy}
    assert next_round(made, there) == (1, 2)
    assert len([*runs_left(made, there, cold=False)]) == 4
    assert len([*runs_left(made, there | {1: WholeRound(2, busy=False)}, cold=False)]) == 4
    there |= {1: WholeRound(2, busy=True)}
    assert len([*runs_left(made, there, cold=False)]) == 2
    assert next_round(made, there) == (2, 2)
    assert next_round(made, there | {2: WholeRound(2, busy=True)}) is None
    assert next_round(made, there | {2: WholeRound(2, busy=False)}) == (3, 2)
    assert next_round(plan(runs=3, repeat_busy=False), there) is None


@pytest.mark.parametrize(
    ("took", "said"),
    [
        ({}, "28 to 58 min"),
        ({"a": [60.0, 80.0]}, "about 7 min"),
        ({"a": [60.0], "b": [1, 3]}, "about 3 min"),
    ],
)
def test_the_time_that_is_left(took: dict[str, list[float]], said: str) -> None:
    runs = [*runs_left(plan(runs=3), {}, cold=False)]
    assert in_minutes(*time_left(runs, took)) == said
