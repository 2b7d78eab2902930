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


def test_kills_hit_the_start_and_the_work() -> None:
    plan = kills(random.Random(1), count=200, startup=2, nodes=100)
    early = [kill.after for kill in plan if kill.after is not None]
    late = [kill.nodes for kill in plan if kill.nodes is not None]
    assert len(early) + len(late) == 200
    assert 40 < len(early) < 100
    assert 0 <= min(early) and max(early) <= 2
    assert min(late) >= 1 and max(late) < 25


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


def test_bounds_of_a_plan_are_never_the_wrong_way_round() -> None:
    plan = steps(random.Random(2), groups=3, seconds=300, rate=4)
    bounds = [step.spec["autoscaling"] for step in plan if step.verb == "bounds"]
    assert bounds and all(b["minSize"] <= b["maxSize"] for b in bounds)


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
