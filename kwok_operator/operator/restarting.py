"""Runs parts that must run for ever and may fail now and then: restarts them after a pause.

Each error is logged, an unexpected one with its traceback. The watch on nodes and the leadership
aren't run by this, as they must not go on after an error: if they end, the program ends.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube.retry import patient_delay

logger = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 15.0
GOOD_AFTER: Final = 60.0
"""If a part ran for so many seconds before it failed, its failures are counted from 1 again."""


async def keep_running(
    name: str,
    part: Callable[[], Awaitable[None]],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    draw: Callable[[], float] = random.random,
) -> None:
    """Runs `part` again after each error, until it returns or is cancelled."""
    failures = 0
    while True:
        begun = clock()
        try:
            return await part()
        except Exception as error:
            if clock() - begun >= GOOD_AFTER:
                failures = 0
            delay = patient_delay(failures, error, draw=draw, cap=LONGEST_PAUSE)
            failures += 1
            expected = isinstance(error, KwokOperatorError)
            logger.warning(
                "%s: retry_in=%.1fs error=%s",
                name,
                delay,
                error if expected else repr(error),
                exc_info=None if expected else error,
            )
        await sleep(delay)
