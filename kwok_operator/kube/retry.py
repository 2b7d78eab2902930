"""Decides when to retry a request, and how long to wait before.

The functions that sleep and draw random numbers are parameters, so that tests need not wait. If the
server sent Retry-After, usually with 429 or 503, the wait is that long, plus a little so that not
all clients return at the same moment. After any other failure the wait grows exponentially, with
full jitter.

The caller decides whether a request may be repeated at all: a POST without an answer may have
created something.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kwok_operator.errors import ApiError, ApiUnreachableError, ServerError, TooManyRequestsError

T = TypeVar("T")

ACCIDENTS: Final = (TooManyRequestsError, ServerError, ApiUnreachableError)
"""The errors after which a retry makes sense. Any other 4xx would be the answer again."""
RETRIES: Final = 3
"""How often a command repeats a request."""
PATIENT: Final = 4
"""The retries of the operator, and of rehearsals, which must go on."""
BASE_DELAY: Final = 0.5
MAX_DELAY: Final = 30.0
MAX_RETRY_AFTER: Final = 300.0
"""The most seconds that a Retry-After counts for. A proxy that sends an hour must not stop the
operator for an hour."""


def backoff(
    attempt: int,
    *,
    draw: Callable[[], float],
    base: float = BASE_DELAY,
    cap: float = MAX_DELAY,
) -> float:
    """Returns the seconds to wait, with full jitter: from 0 to base * 2**attempt, at most `cap`.

    `attempt` counts the failures before this one, from 0; `draw` returns numbers in [0, 1).
    """
    return draw() * min(cap, base * 2.0 ** min(attempt, 32))


def at_least_half(draw: Callable[[], float]) -> Callable[[], float]:
    """Wraps `draw` to return numbers in [0.5, 1): for retries that must not come at once."""
    return lambda: 0.5 + draw() / 2


def retry_delay(
    attempt: int,
    error: BaseException,
    *,
    draw: Callable[[], float],
) -> float:
    """Returns the seconds to wait before a retry; `attempt` is as in `backoff`."""
    if isinstance(error, ApiError) and error.retry_after is not None:
        return min(error.retry_after, MAX_RETRY_AFTER) + draw() * BASE_DELAY
    return backoff(attempt, draw=draw)


def patient_delay(
    attempt: int,
    error: BaseException,
    *,
    draw: Callable[[], float],
    base: float = BASE_DELAY,
    cap: float = MAX_DELAY,
) -> float:
    """Returns seconds like `backoff`, but no less than the server's Retry-After; at most `cap` in
    any case.

    For endless retries: an API server that answers "retry after one second" for hours must get
    fewer and fewer requests.
    """
    retry_after = error.retry_after if isinstance(error, ApiError) else None
    return max(min(retry_after or 0.0, cap), backoff(attempt, draw=draw, base=base, cap=cap))


async def call_with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    retries: int,
    draw: Callable[[], float] = random.random,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Awaits `call()`, and repeats it after an error in ACCIDENTS (429, 5xx, no answer), at most
    `retries` times."""
    attempt = 0
    while True:
        try:
            return await call()
        except ACCIDENTS as error:
            if attempt >= retries:
                raise
            delay = retry_delay(attempt, error, draw=draw)
        attempt += 1
        await sleep(delay)
