"""Who is given notice, where only so many may be under notice at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.desired import give_notice, next_notice
from kwok_operator.cloud.life import End, Life

T0 = 1_800_000_000_000


def lives(*due: int | None) -> dict[int, Life]:
    """By serial; each is due so many milliseconds after T0, or never."""
    return {
        serial: Life(T0, end=None if at is None else End(at, 0, "Interrupted"))
        for serial, at in enumerate(due)
    }


@pytest.mark.parametrize(
    ("at_a_time", "under_way", "given_"),
    [(9, 0, (1, 3, 0)), (3, 1, (1, 3)), (3, 5, ()), (0, 0, ())],
)
def test_first_due_first_noticed(at_a_time: int, under_way: int, given_: tuple[int, ...]) -> None:
    some = lives(30, 10, None, 10, 99)
    assert give_notice(some, at_a_time=at_a_time, under_way=under_way, now=T0 + 50) == given_


@pytest.mark.parametrize(
    ("due", "at_a_time", "look"), [([30, None, 90], 2, T0 + 30), ([30], 1, None), ([None], 2, None)]
)
def test_when_to_look_again(due: list[int | None], at_a_time: int, look: int | None) -> None:
    assert next_notice(lives(*due), at_a_time=at_a_time, under_way=1, now=T0) == look


_DUE = st.lists(st.none() | st.integers(0, 100), max_size=8)


@given(_DUE, st.integers(0, 4), st.integers(0, 4), st.integers(0, 120))
def test_the_limit_holds_and_nobody_is_due_before(
    due: list[int | None], at_a_time: int, under_way: int, age: int
) -> None:
    some = lives(*due)
    given_ = give_notice(some, at_a_time=at_a_time, under_way=under_way, now=T0 + age)
    assert under_way + len(given_) <= max(at_a_time, under_way)
    look = next_notice(some, at_a_time=at_a_time, under_way=under_way, now=T0 + age)
    assert (look == T0 + age) == bool(given_)
    if look is not None:
        assert look >= T0 + age
        assert not give_notice(some, at_a_time=at_a_time, under_way=under_way, now=look - 1) or (
            look == T0 + age
        )
        assert give_notice(some, at_a_time=at_a_time, under_way=under_way, now=look)


@given(_DUE, st.integers(1, 4))
def test_everybody_gets_notice_in_the_end(due: list[int | None], at_a_time: int) -> None:
    left = lives(*due)
    order: list[int] = []
    while now := give_notice(left, at_a_time=at_a_time, under_way=0, now=T0 + 100):
        order += now
        left = {serial: life for serial, life in left.items() if serial not in now}
    expected = sorted((at, serial) for serial, at in enumerate(due) if at is not None)
    assert order == [serial for _, serial in expected]
