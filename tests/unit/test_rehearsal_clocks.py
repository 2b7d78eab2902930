"""How far a cluster's clock is from ours, by the Date of its answers."""

import math

from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.rehearsal.judge.clocks import ClockOffset, DatedAnswer, moved_by, offset_of

MS = 0.001


def answer(sent: float, *, ahead: float, there: float = 0.01, back: float = 0.01) -> DatedAnswer:
    return DatedAnswer(sent, math.floor(sent + there + ahead), sent + there + back)


@given(
    ahead=st.floats(-100, 100),
    answers=st.lists(
        st.tuples(st.floats(0, 5), st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=12
    ),
)
def test_the_truth_is_within_the_error(
    ahead: float, answers: list[tuple[float, float, float]]
) -> None:
    found = offset_of(
        answer(1_000 + at, ahead=ahead, there=there, back=back) for at, there, back in answers
    )
    assert found is not None
    assert abs(found.ahead - ahead) <= found.error + 2 * MS


@given(ahead=st.floats(-100, 100))
def test_ten_answers_over_a_second_are_precise(ahead: float) -> None:
    found = offset_of(answer(1_000 + n * 0.12, ahead=ahead) for n in range(10))
    assert found is not None and found.error < 0.1


@given(
    ahead=st.floats(-60, 60),
    error=st.floats(0, 1),
    step=st.floats(-60, 60),
    there=st.floats(0, 3),
    back=st.floats(0, 3),
)
def test_a_clock_that_was_set_is_seen(
    ahead: float, error: float, step: float, there: float, back: float
) -> None:
    late = answer(1_000, ahead=ahead + step, there=there, back=back)
    found = moved_by(ClockOffset(ahead, error), late)
    slack = error + 1 + there + back
    assert abs(step) - slack - 2 * MS <= abs(found) <= max(abs(step) - error, 0) + 2 * MS
    assert found * step >= -MS


def test_without_a_date_there_is_no_offset() -> None:
    assert offset_of([]) is None


def test_servers_that_disagree_leave_a_large_error() -> None:
    found = offset_of(answer(1_000 + n * 0.1, ahead=5.0 * (n % 2)) for n in range(10))
    assert found is not None
    assert found.ahead - found.error <= 0 and 5 <= found.ahead + found.error < 7
    assert str(found).startswith("2.5 s ahead of this machine's")
