"""Draws: numbers that are made from a question, and not remembered."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.draws import InstanceSeed, instance_seed
from tests.unit.clouds import cloud

INSTANCES = st.builds(InstanceSeed, st.text(), st.text(), st.integers(0, 10**9))


@pytest.mark.parametrize(
    ("who", "what", "number"),
    [
        (InstanceSeed("group-a", "group-a", 0), "readiness", 0.329465075792334),
        (InstanceSeed("run-1", "group-a", 41), "provisioning/0", 0.3582149924701109),
        (InstanceSeed("ü", "spot", 999_999), "creation-failure/3", 0.0007772218169733724),
    ],
)
def test_seeds_give_the_same_for_ever(who: InstanceSeed, what: str, number: float) -> None:
    assert who.draw(what) == number


@given(INSTANCES, st.text())
def test_a_draw_is_between_zero_and_one_and_comes_again(who: InstanceSeed, what: str) -> None:
    assert 0 < who.draw(what) < 1
    assert who.draw(what) == InstanceSeed(who.seed, who.group, who.serial).draw(what)


@given(INSTANCES, st.text(), INSTANCES, st.text())
def test_different_questions_have_different_answers(
    one: InstanceSeed, what: str, other: InstanceSeed, else_: str
) -> None:
    assert (one.draw(what) == other.draw(else_)) == ((one, what) == (other, else_))


def test_no_part_runs_into_the_next() -> None:
    parts = [InstanceSeed("a", "bc", 1), InstanceSeed("ab", "c", 1), InstanceSeed("abc", "", 1)]
    assert len({who.draw("x") for who in parts}) == 3
    assert InstanceSeed("a", "b", 1).draw("1/2") != InstanceSeed("a", "b", 11).draw("/2")


def test_the_seed_is_the_groups_name_unless_there_is_one() -> None:
    assert instance_seed(cloud(), group="a", serial=7) == InstanceSeed("a", "a", 7)
    assert instance_seed(cloud(seed="s"), group="a", serial=7) == InstanceSeed("s", "a", 7)


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: InstanceSeed("s", "g", n).draw("w"),
        lambda n: InstanceSeed(f"s{n}", "g", 0).draw("w"),
        lambda n: InstanceSeed("s", f"g{n}", 0).draw("w"),
        lambda n: InstanceSeed("s", "g", 0).draw(f"w/{n}"),
    ],
    ids=["serial", "seed", "group", "what"],
)
def test_draws_are_even_whatever_varies(draw: Callable[[int], float]) -> None:
    draws = sorted(draw(n) for n in range(4_000))
    # Kolmogorov and Smirnov: of truly even draws, one in a hundred million is further off.
    assert max(abs(value - n / 4_000) for n, value in enumerate(draws)) < 0.05
