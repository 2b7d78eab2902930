"""The work queue: which groups have something to do, and when.

    add(key) ──> due time per key ──> one task per key ──> handle(key)

Until `open` is called, and after `close`, `add` does nothing.
A key (name of a group) is never handled twice at once: if it is added while it runs, it runs again
afterwards. Keys don't wait for each other; the executor bounds the load on the API server. If the
handler raises an error, the key is tried again with a growing delay, and no sooner than the API
server's Retry-After says. Two things cut this delay short: users change what they want of the
group, or the key is added `anew`, because the cause of the error may be gone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable

from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube.retry import at_least_half, patient_delay

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.5
LAST_RETRY = 60.0


class WorkQueue:
    """Runs `handle(key)` for keys that are due. Belongs to one event loop.

    `wish` returns what users want of a key, as a value to compare: while it is unchanged, a failed
    key waits.
    """

    def __init__(
        self,
        handle: Callable[[str], Awaitable[None]],
        *,
        draw: Callable[[], float],
        wish: Callable[[str], Hashable] = lambda _: None,
    ) -> None:
        self._handle = handle
        self._draw = draw
        self._wish = wish
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._rests: dict[str, tuple[float, Hashable]] = {}
        """Failed key -> until when it waits, and what users wanted when it failed: if that changes,
        the wait ends."""
        self._anew: dict[str, float] = {}
        """Failed key that was added `anew` -> when it is tried, in place of its longer wait."""
        self._pauses: dict[str, tuple[float, float]] = {}
        """Key that was tried `anew` -> until when it can't be tried so again, and how long that
        pause is."""
        self.is_open = False

    def open(self) -> None:
        """From now on `add` accepts keys."""
        self.is_open = True

    def add(self, key: str, delay: float = 0.0, *, anew: bool = False) -> None:
        """Handles `key` in `delay` seconds, or sooner if that is planned already.

        A key that failed waits longer. `anew` says that the cause of the failure may be gone, and
        cuts this wait short.
        """
        if not self.is_open:
            return
        loop = asyncio.get_running_loop()
        if anew:
            self._anew.setdefault(key, self._pauses.get(key, (0.0, 0.0))[0])
        due = max(loop.time() + delay, self._rest_until(key))
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._start, key)

    async def close(self, *, grace: float) -> None:
        """Starts nothing any more; waits up to `grace` seconds for running handlers, then
        cancels them."""
        self.is_open = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        running = list(self._running.values())
        if running:
            _, late = await asyncio.wait(running, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    @property
    def depth(self) -> int:
        """The number of keys that wait or run."""
        return len(self._timers.keys() | self._running.keys())

    def busy(self, *, within: float) -> bool:
        """Whether a key is being handled now, or will be within `within` seconds."""
        if self._running:
            return True
        if not self._timers:
            return False
        soon = asyncio.get_running_loop().time() + within
        return any(timer.when() <= soon for timer in self._timers.values())

    def _start(self, key: str) -> None:
        del self._timers[key]
        if key in self._running:
            self._again.add(key)
        else:
            self._running[key] = asyncio.create_task(self._run(key), name=f"reconcile {key}")

    def _rest_until(self, key: str) -> float:
        until, wish = self._rests.get(key, (0.0, None))
        return min(until, self._anew.get(key, until)) if wish == self._wish(key) else 0.0

    def _begin_anew(self, key: str) -> None:
        """Notes that a key is tried again early because of `add(anew=True)`, and sets the time
        before which it can't be tried early again."""
        if self._anew.pop(key, None) is None:
            return
        now = asyncio.get_running_loop().time()
        until, pause = self._pauses.get(key, (now - LAST_RETRY, 0.0))
        pause = FIRST_RETRY if now - until >= LAST_RETRY else min(2 * pause, LAST_RETRY)
        self._pauses[key] = (now + pause, pause)

    async def _run(self, key: str) -> None:
        wish = self._wish(key)
        self._begin_anew(key)
        try:
            await self._handle(key)
        except Exception as error:
            self._retry(key, error, wish)
        else:
            if key in self._failures:
                logger.info("reconciled again: group=%s", key, extra={"over": f"group {key}"})
            for known in (self._failures, self._rests, self._pauses):
                known.pop(key, None)
        finally:
            del self._running[key]
            if key in self._again:
                self._again.discard(key)
                self.add(key)

    def _retry(self, key: str, error: Exception, wish: Hashable) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        draw = at_least_half(self._draw)
        delay = patient_delay(failures - 1, error, draw=draw, base=FIRST_RETRY, cap=LAST_RETRY)
        expected = isinstance(error, KwokOperatorError)
        logger.warning(
            "reconciling failed: group=%s attempt=%d retry_in=%.1fs error=%s",
            key,
            failures,
            delay,
            error if expected else repr(error),
            exc_info=None if expected else error,
            extra={"trouble": f"group {key}"},
        )
        self._rests[key] = (asyncio.get_running_loop().time() + delay, wish)
        # A pass that the failed one has planned for soon waits as long as the retry.
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self.add(key)
