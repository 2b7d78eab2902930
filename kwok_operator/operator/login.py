"""How kopf logs in: as often as it must, and no faster than an API server should be asked.

kopf asks for a login when it starts and after each 401. Where the new credentials are refused as
well it would ask again at once, hundreds of times a second for as long as a token stays expired;
where a login fails it would wait for a minute. So the pause is made here, and a login never fails:
credentials that can't be loaded leave the old ones in use, and the next 401 asks again.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.kube.connection import ApiConnection
from kwok_operator.kube.retry import backoff
from kwok_operator.kube.session import Session

logger = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 10.0
GOOD_AFTER: Final = 5.0
"""Credentials that were used for this long were good: the next 401 starts a new count."""


class KopfLogin:
    """Gives the server's URL and a session that is logged in there; seconds everywhere."""

    def __init__(
        self,
        connection: ApiConnection,
        *,
        open_session: Callable[[], Session],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._connection = connection
        self._open_session = open_session
        self._clock = clock
        self._sleep = sleep
        self._draw = draw
        self._last = float("-inf")
        self._refused = 0

    async def __call__(self) -> tuple[str, Session]:
        if self._clock() - self._last >= GOOD_AFTER:
            self._refused = 0
        else:
            await self._sleep(backoff(self._refused, draw=self._draw, cap=LONGEST_PAUSE))
            self._refused += 1
        try:
            await self._connection.reload()
        except ConnectionConfigError as error:
            logger.warning("logging in again failed, keeping the old: error=%s", error)
        self._last = self._clock()
        return self._connection.server, self._open_session()
