"""Lists and watches one resource, for ever, and passes its objects to a sink.

    LIST in pages ──> replace(all)          again after 410, and after an outage
         │
         v
    WATCH from there ──> upsert / remove    resumed from the last version seen after a cut

Between a list and its watch no event is lost: the watch starts at the list's resourceVersion. If an
object was deleted before the watch began, the sink learns it from replace(), as the list lacks it.

An API server may come back after an outage with older data, and would then send no events until its
versions have overtaken ours. So all is listed again after an outage. An outage is assumed if the
server can't be reached, or if it refuses or is late when it is checked after a cut: a server that
is starting accepts connections before it answers, and refuses resources that it has yet to load.
Lists ask for no version, so each is as new as the store itself. A list that is older than our last
version means that the store was restored, whatever replicas and caches there are.

Owns the protocol, its back-off, and the log lines on transitions. It keeps no objects. It never
gives up: permissions and CRDs may come later. It yields to the event loop between pages and within
bursts; the sink must keep replace() short. A sink that would take long over 50,000 objects can
handle each page as it comes (`on_page`), and then replace() has little to change.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from kwok_operator.errors import (
    FAILED_REQUEST,
    ApiError,
    ApiUnreachableError,
    DecodeError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    UnauthorizedError,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import Decoder
from kwok_operator.kube.followed import pages
from kwok_operator.kube.gathering import GATHER
from kwok_operator.kube.retry import retry_delay

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

LIST_TIMEOUT: Final = 60.0
WATCH_SECONDS: Final = (240, 300)
"""Seconds between which the length of each watch is drawn (timeoutSeconds), so that not all watches
end at once."""
WATCH_GRACE: Final = 30.0
INACTIVITY: Final = 70.0
BURST: Final = 50
STABLE_AFTER: Final = 5.0
"""After a watch that was open for so many seconds, the count of failures starts again at 0."""
MIN_WATCH: Final = 1.0
"""A watch that ends within so many seconds without an event is a failure. Otherwise a server that
ends each watch at once would cause a tight loop."""
AWAY_AFTER: Final = 1.0
"""Seconds within which a healthy API server answers. No server can be stopped, restored and started
in less."""
RELIST_AFTER: Final = 3
"""After so many watches in a row that were opened but brought nothing usable, all is listed
again."""

RIGHTS_WITHIN: Final = 5.0
"""The most seconds until a request that got a 403 is tried again, as nothing reports that
permissions were granted."""

SERVED_WITHIN: Final = 1.0
"""Seconds until an optional resource that was never served is tried again."""

_IN_STREAM: Final = "stream"


class Sink(Protocol[T_contra]):
    """Receives the objects. The methods must be quick, or they stall the event loop."""

    def replace(self, items: Sequence[T_contra], resource_version: int) -> None:
        """Called with a full list: exactly these objects exist."""

    def upsert(self, item: T_contra) -> None:
        """Called with an object that is new or has changed."""

    def remove(self, item: T_contra) -> None:
        """Called with an object that is gone, or no longer selected."""


class _StreamError(Exception):
    """A watch was opened, but the server sent an error in it, or ended it at once."""


class Reflector(Generic[T]):
    """Keeps one sink informed of all objects of one resource."""

    def __init__(
        self,
        *,
        client: KubeClient,
        path: str,
        sink: Sink[T],
        decoder: Decoder[T],
        params: Mapping[str, str] | None = None,
        page_size: int = 250,
        inactivity: float = INACTIVITY,
        away_after: float = AWAY_AFTER,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        on_page: Callable[[Sequence[T]], None] | None = None,
        on_trouble: Callable[[str | None], None] | None = None,
        on_restart: Callable[[str, str], None] | None = None,
        on_restored: Callable[[], None] | None = None,
        gather_for: Callable[[], float] = lambda: GATHER,
        optional: bool = False,
    ) -> None:
        """`gather_for()` returns the seconds for which events may be gathered now (gathering.py).
        After a watch was cut the server is checked; an answer after more than `away_after` seconds
        counts as an outage. If an `optional` resource isn't served, the sink gets an empty list, of
        version 0, and nothing is reported until it has been served. `on_page` gets each page of a
        list, before replace() gets all of it. `on_trouble` gets a sentence when lists or watches
        fail, and None when they work again. `on_restart(path, cause)` is called when a watch or a
        list has ended: "closed" by the server as requested, "expired" history, or "failed".
        `on_restored` is called when versions go back, before the new list.
        """
        self.synced = asyncio.Event()
        """Set once the sink has received the first full list, and never cleared."""
        self.last_contact = clock()
        """When the server last sent anything; with bookmarks, at least once a minute."""
        self._client = client
        self._path = path
        self._params = dict(params or {})
        self._sink = sink
        self._decoder = decoder
        self._page_size = page_size
        self._inactivity = inactivity
        self._away_after = away_after
        self._sleep = sleep
        self._draw = draw
        self._clock = clock
        self._on_page = on_page
        self._on_trouble = on_trouble
        self._on_restart = on_restart
        self._on_restored = on_restored
        self._gather_for = gather_for
        self._optional = self._just_served = optional
        self._served = self._gone_before = False
        self._version: int | None = None
        self._newest = 0
        self._opened_at: float | None = None
        self._cut = False
        """Whether the last watch ended early, and the server has not been checked since."""
        self._ended_at = 0.0
        self._failures = self._useless_streams = 0
        self._trouble: str | None = None

    @property
    def version(self) -> int:
        """The resourceVersion up to which the sink has all changes; 0 if everything must be listed
        again."""
        return self._version or 0

    @property
    def just_served(self) -> bool:
        """Whether an optional resource has not been watched yet since the API server began to serve
        it.

        A list can be older than the watch cache that the server makes at the first request. Then
        the first watch is refused as expired, and all is listed again.
        """
        return self._just_served

    async def run(self) -> None:
        """Lists and watches until cancelled; run again, it continues from the last version.

        Raises only the sink's errors.
        """
        while True:
            try:
                if self._cut:
                    await self._check_server()
                if self._version is None:
                    self._version = await self._list()
                try:
                    await self._watch(self._version)
                finally:
                    self._ended_at = self._clock()
                self._just_served = False
                self._restarts("closed")
            except GoneError as error:
                self._restarts("expired")
                # A 410 is normal after a long cut. Several in a row are not, and must not cause a
                # storm of lists.
                logger.info("history is gone, listing anew: path=%s error=%s", self._path, error)
                self._version = None
                if self._gone_before:
                    await self._back_off(error)
                self._gone_before = True
            except (*FAILED_REQUEST, _StreamError) as error:
                if self._optional and not self._served and isinstance(error, NotFoundError):
                    self._has_none()
                    await self._sleep(SERVED_WITHIN)
                    continue
                self._report(error)
                self._just_served &= self._opened_at is None
                away = self._cut or isinstance(error, ApiUnreachableError)
                if self._opened_at is None and away:
                    self._version = None  # the store may have been restored: list again
                if self._optional and isinstance(error, NotFoundError):
                    self._has_none()
                else:
                    self._restarts("failed")
                if isinstance(error, DecodeError | _StreamError):
                    self._useless_streams += 1
                    if self._useless_streams >= RELIST_AFTER:
                        self._useless_streams, self._version = 0, None
                await self._back_off(error)

    def _has_none(self) -> None:
        """Passes an empty list to the sink, as the API server doesn't serve the resource."""
        self.last_contact, self._version, self._just_served = self._clock(), None, True
        self._sink.replace((), 0)
        self.synced.set()

    def _restarts(self, cause: str) -> None:
        if self._on_restart is not None:
            self._on_restart(self._path, cause)

    async def _back_off(self, error: Exception) -> None:
        # A load balancer that now and then cuts quiet connections must not lengthen the delays.
        if self._opened_at is not None and self._clock() - self._opened_at >= STABLE_AFTER:
            self._failures = 0
        # Also after any 4xx, as somebody may grant the permission or install the CRD.
        delay = retry_delay(self._failures, error, draw=self._draw)
        if isinstance(error, ForbiddenError):
            delay = min(delay, RIGHTS_WITHIN)
        self._failures += 1
        await self._sleep(delay)

    async def _list(self) -> int:
        """Lists all pages for the sink; returns the version to watch from."""
        items: list[T] = []
        version = 0
        listed = pages(
            self._client,
            self._path,
            self._decoder,
            self._params,
            size=self._page_size,
            timeout=LIST_TIMEOUT,
        )
        async for page in listed:
            self.last_contact = self._clock()
            items += page.items
            # All pages show the state of the first one, and its version is the one to watch from.
            if not version:
                version = page.resource_version
                self._compare(version)
            if self._on_page is not None:
                self._on_page(page.items)
            await asyncio.sleep(0)
        self._served = True
        self._sink.replace(items, version)
        self._recovered()
        self.synced.set()
        logger.info("synced: path=%s count=%d", self._path, len(items))
        return version

    def _compare(self, version: int) -> None:
        if version < self._newest:
            logger.warning(
                "versions go back, as after a restore: path=%s version=%d before=%d",
                self._path,
                version,
                self._newest,
            )
            if self._on_restored is not None:
                self._on_restored()
        self._newest = version

    async def _watch(self, version: int) -> None:
        """Passes on events until the watch ends. Raises an error if the watch fails, or if the
        server ends it at once without an event."""
        low, high = WATCH_SECONDS
        seconds = low + int((high - low) * self._draw())
        started, heard, self._opened_at, self._cut = self._clock(), 0, None, False
        lines = self._client.lines(
            self._path,
            {
                **self._params,
                "watch": "true",
                "resourceVersion": str(version),
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(seconds),
            },
            timeout=seconds + WATCH_GRACE,
            inactivity=self._inactivity,
            on_open=self._opened,
            gather_for=self._gather_for,
        )
        async with contextlib.aclosing(lines) as stream:
            async for line in stream:
                self.last_contact = self._clock()
                self._take(line)
                heard += 1
                if heard % BURST == 0:
                    await asyncio.sleep(0)
        lasted = self._clock() - started
        if not heard and lasted < MIN_WATCH:
            raise _StreamError("the server ended the watch at once")
        self._cut = lasted < seconds

    async def _check_server(self) -> None:
        """Checks whether the server answers, after a watch was silent or ended early; raises an
        error if not. If the answer is late, or older than the last version, all is listed again.

        A silent watch alone is no failure: if a kind has no changes, its watch gets no bookmarks
        unless etcd reports its progress more often than by default.
        """
        self._opened_at = None
        answer = await self._client.request("GET", self._path, params={"limit": "1"})
        self._cut = False
        late = self._clock() - self._ended_at > self._away_after
        if late or self._decoder.page(answer).resource_version < self.version:
            self._version = None

    def _take(self, line: bytes) -> None:
        event = self._decoder.event(line)
        if isinstance(event.error, GoneError):
            raise event.error
        if event.error is not None:
            raise _StreamError(str(event.error)) from event.error
        if event.item is not None:
            if event.type == "DELETED":
                self._sink.remove(event.item)
            else:
                self._sink.upsert(event.item)
        self._version = event.resource_version or self._version
        self._newest = max(self._newest, self.version)
        self._failures = self._useless_streams = 0
        self._gone_before = self._just_served = False
        self._recovered()

    def _opened(self) -> None:
        self.last_contact = self._opened_at = self._clock()
        self._cut = True
        if self._trouble != _IN_STREAM:
            self._recovered()

    def _recovered(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            if self._on_trouble is not None:
                self._on_trouble(None)
            logger.info(
                "resumed: path=%s version=%s",
                self._path,
                self._version,
                extra={"over": self._path},
            )

    def _report(self, error: Exception) -> None:
        """Logs that lists or watches fail: when it begins or its cause changes, not each time."""
        match error:
            case ApiError():
                trouble = str(error.status)
            case ApiUnreachableError():
                trouble = "unreachable"
            case _:
                trouble = _IN_STREAM
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if self._on_trouble is not None:
            self._on_trouble(f"{error}{self._remedy(error)}")
        logger.warning(
            "%s failed, retrying: path=%s error=%s%s",
            "listing" if self._version is None else "watching",
            self._path,
            error,
            self._remedy(error),
            extra={"trouble": self._path},
        )

    def _remedy(self, error: Exception) -> str:
        resource = self._path.rpartition("/")[2]
        match error:
            case UnauthorizedError():
                return "; renew the credentials (token, certificate or exec plugin)"
            case ForbiddenError():
                return f"; grant the verbs list and watch on {resource} to this identity"
            case NotFoundError():
                return f"; the API server does not serve {resource}: install its CRD"
        return ""
