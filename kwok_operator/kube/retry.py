"""When to ask the API server again, and how long to wait before.

Pure policy: it neither sleeps nor draws, both are handed in. Where the server asked to wait by
Retry-After, mostly with 429 or 503, that is how long it takes, plus a little so that not everybody
comes back in the same moment. After anything else the wait grows exponentially, with full jitter.

Who may ask again at all is the caller's to say: a POST without an answer may have been carried out.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kwok_operator.errors import ApiError, ApiUnreachableError, ServerError, TooManyRequestsError

T = TypeVar("T")

ACCIDENTS: Final = (TooManyRequestsError, ServerError, ApiUnreachableError)
"""Any other 4xx is an answer: asking again would not change it."""
BASE_DELAY: Final = 0.5
MAX_DELAY: Final = 30.0
MAX_RETRY_AFTER: Final = 300.0
"""A proxy's Retry-After of an hour must not put the operator to sleep for an hour."""


def backoff(
    attempt: int,
    *,
    draw: Callable[[], float],
    base: float = BASE_DELAY,
    cap: float = MAX_DELAY,
) -> float:
    """Full jitter: anything from nothing to base * 2**attempt, never more than `cap`.

    `attempt` counts the failures before this one, from 0; `draw` gives numbers in [0, 1).
    """
    return draw() * min(cap, base * 2.0 ** min(attempt, 32))


def at_least_half(draw: Callable[[], float]) -> Callable[[], float]:
    """Draws from the upper half: for what must not be tried again at once."""
    return lambda: 0.5 + draw() / 2


def retry_delay(
    attempt: int,
    error: BaseException,
    *,
    draw: Callable[[], float],
) -> float:
    """Seconds to wait before asking again; `attempt` as for `backoff`."""
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
    """As `backoff`, but no sooner than the server asked for; at most `cap` all the same.

    For what is tried for ever: an API server that says one second to everybody, hour after hour,
    must see less and less of it.
    """
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(min(asked or 0.0, cap), backoff(attempt, draw=draw, base=base, cap=cap))


async def call_with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    retries: int,
    draw: Callable[[], float] = random.random,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Await `call()`, and again as the policy says, at most `retries` more times."""
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
