"""When to ask again, and how long to wait before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import (
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from kwok_operator.kube.retry import (
    MAX_DELAY,
    MAX_RETRY_AFTER,
    backoff,
    call_with_retries,
    retry_delay,
)
from tests.fakes.reflecting import Naps

UNREACHABLE = ApiUnreachableError(server="https://k8s", cause="refused")
draws = st.floats(min_value=0.0, max_value=1.0, exclude_max=True)
attempts = st.integers(min_value=0, max_value=10**6)


@given(attempts, draws)
def test_backoff_stays_in_bounds(attempt: int, drawn: float) -> None:
    delay = backoff(attempt, draw=lambda: drawn)
    assert 0.0 <= delay <= min(MAX_DELAY, 0.5 * 2.0 ** min(attempt, 60))


@given(attempts, draws, draws)
def test_backoff_is_spread_by_the_draw(attempt: int, low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert backoff(attempt, draw=lambda: low) <= backoff(attempt, draw=lambda: high)


@pytest.mark.parametrize(("attempt", "delay"), [(0, 0.25), (1, 0.5), (3, 2.0), (10, 15.0)])
def test_backoff_doubles_up_to_the_cap(attempt: int, delay: float) -> None:
    assert backoff(attempt, draw=lambda: 0.5) == delay


async def test_an_answer_is_an_answer_and_a_bug_a_bug() -> None:
    # Even with a delay: what counts is that asking again would not change it.
    errors: list[Exception] = [
        kind("no", status=409, retry_after=1.0)
        for kind in (ConflictError, ForbiddenError, GoneError, InvalidError, NotFoundError)
    ]
    for error in [*errors, ValueError()]:
        assert await retried([error], retries=5) == (error, [])


@given(attempts, draws, st.floats(min_value=0.0, max_value=1e9))
def test_retry_after_is_a_minimum(attempt: int, drawn: float, asked: float) -> None:
    for error in (
        TooManyRequestsError("wait", status=429, retry_after=asked),
        ServerError("wait", status=503, retry_after=asked),
    ):
        delay = retry_delay(attempt, error, draw=lambda: drawn)
        assert delay is not None
        assert min(asked, MAX_RETRY_AFTER) <= delay <= min(asked, MAX_RETRY_AFTER) + 0.5


@pytest.mark.parametrize(
    "error",
    [TooManyRequestsError("", status=429), ServerError("", status=500), UNREACHABLE],
    ids=["429", "500", "unreachable"],
)
def test_accidents_back_off(error: Exception) -> None:
    assert retry_delay(2, error, draw=lambda: 0.5) == 1.0


async def retried(
    outcomes: list[Exception], *, retries: int
) -> tuple[Exception | None, list[float]]:
    """With which error a call of these outcomes, and then a good one, ends; and the waits."""
    naps = Naps()

    async def call() -> None:
        if outcomes:
            raise outcomes.pop(0)

    try:
        await call_with_retries(call, retries=retries, draw=lambda: 0.5, sleep=naps)
    except Exception as error:
        return error, naps.slept
    return None, naps.slept


async def test_call_again_until_it_succeeds_or_too_often() -> None:
    asked = TooManyRequestsError("", status=429, retry_after=7.0)
    outcomes = [UNREACHABLE, ServerError("", status=500), asked]
    assert await retried(list(outcomes), retries=3) == (None, [0.25, 0.5, 7.25])
    assert await retried(list(outcomes), retries=2) == (asked, [0.25, 0.5])
