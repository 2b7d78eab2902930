"""Delta debugging finds what is needed, and nothing else.

Aspects: what is returned has the property, and nothing of it can be left out; of a property that
more never spoils, it is the needed part exactly; numbers are as low as they can be; nothing is
tried that wasn't asked for; few tries are needed for one cause among many.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.rehearsal.shrinking.deltadebugging import lowered, minimized

T = TypeVar("T")


def driven(tries: Generator[T, bool, T], holds: Callable[[T], bool]) -> tuple[T, list[T]]:
    """Returns what the tries lead to, and what was tried."""
    tried: list[T] = []
    try:
        each = next(tries)
        while True:
            tried.append(each)
            each = tries.send(holds(each))
    except StopIteration as end:
        return end.value, tried


items = st.integers(0, 40)


@given(st.integers(0, 40), st.booleans(), st.data())
def test_of_a_monotone_property_exactly_what_is_needed_is_left(
    count: int, singly: bool, data: st.DataObject
) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1)) if count else st.just(set[int]()))
    left, _ = driven(minimized(range(count), singly=singly), lambda some: needed <= set(some))
    assert left == tuple(sorted(needed))


@given(st.integers(1, 12), st.booleans(), st.sets(st.frozensets(st.integers(0, 11))))
def test_of_any_property_nothing_can_be_left_out(
    count: int, singly: bool, having: set[frozenset[int]]
) -> None:
    every = tuple(range(count))

    def holds(some: tuple[int, ...]) -> bool:
        return some == every or frozenset(some) in having

    left, tried = driven(minimized(every, singly=singly), holds)
    assert holds(left)
    assert not any(holds((*left[:n], *left[n + 1 :])) for n in range(len(left)))
    assert all(set(some) < set(every) for some in tried)


def test_what_is_all_needed_is_tried_one_by_one() -> None:
    assert len(driven(minimized("abcd", singly=True), lambda some: False)[1]) == 4
    numbers, least = {"a": 9, "b": 2, "c": 1}, {"a": 0, "b": 1, "c": 1}
    assert len(driven(lowered(numbers, least, singly=True), lambda now: False)[1]) == 2


@given(
    st.dictionaries(st.integers(0, 8), st.tuples(st.integers(0, 3), st.integers(0, 300))),
    st.booleans(),
    st.data(),
)
def test_each_number_is_as_low_as_it_can_be(
    bounds: dict[int, tuple[int, int]], singly: bool, data: st.DataObject
) -> None:
    least = {key: low for key, (low, _) in bounds.items()}
    numbers = {key: low + more for key, (low, more) in bounds.items()}
    needed = {key: data.draw(st.integers(least[key], numbers[key])) for key in bounds}
    left, tried = driven(
        lowered(numbers, least, singly=singly),
        lambda now: all(now[key] >= needed[key] for key in now),
    )
    assert left == needed
    assert all(least[key] <= each[key] <= numbers[key] for each in tried for key in each)


@given(st.integers(0, 999))
def test_one_cause_among_a_thousand_takes_few_tries(cause: int) -> None:
    left, tried = driven(minimized(range(1000)), lambda some: cause in some)
    assert left == (cause,)
    assert len(tried) <= 30
