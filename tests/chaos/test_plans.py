"""Plans: drawn from the seed alone, and within what the scope says."""

import random

import pytest

from tests.chaos.plans import GENTLE, ROUGH, Blow, chance, effective, kills, rounds, steps

pytestmark = pytest.mark.core


def test_same_seed_and_name_give_the_same_plan_and_others_another() -> None:
    def plan(seed: int, name: str) -> object:
        draw = chance(seed, name)
        return kills(draw, count=20, startup=2, nodes=300), steps(
            draw, groups=9, seconds=30, rate=3
        )

    assert plan(7, "a") == plan(7, "a")
    assert plan(7, "a") != plan(8, "a")
    assert plan(7, "a") != plan(7, "b")


def test_steps_fill_their_time_and_do_all_there_is_to_do() -> None:
    plan = steps(random.Random(1), groups=10, seconds=300, rate=4)
    assert sum(step.pause for step in plan) < 300
    assert 900 < len(plan) < 1500
    assert {step.group for step in plan} == set(range(10))
    assert {step.verb for step in plan} == {
        *("create", "scale", "template", "strategy", "bounds", "pause", "resume"),
        *("nodesToDelete", "delete"),
    }
    assert all(step.victims for step in plan if step.verb == "nodesToDelete")


@pytest.mark.parametrize(
    ("spec", "held", "nodes"),
    [
        ({"targetSize": 5}, 9, 5),
        ({}, 9, 9),
        ({"targetSize": 5, "autoscaling": {"minSize": 7, "maxSize": 20}}, 0, 7),
        ({"targetSize": 50, "autoscaling": {"minSize": 7, "maxSize": 20}}, 0, 20),
        ({"targetSize": 5, "autoscaling": {}}, 0, 5),
    ],
)
def test_effective_target(spec: dict[str, object], held: int, nodes: int) -> None:
    assert effective(spec, held=held) == nodes


def test_rounds_of_one_seed_are_equal_and_leave_nothing_out() -> None:
    def dealt(seed: int) -> list[Blow]:
        plan = rounds(random.Random(seed), blows=16)
        return [blow for _ in range(6) for blow in next(plan)]

    assert dealt(1) == dealt(1) != dealt(2)
    assert {blow.kind for blow in dealt(1)} == {*ROUGH, *GENTLE}
