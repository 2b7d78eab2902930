"""The KwokCapacityPools that exist, and their status.

    events, lists ──> Pools ──> known (and a call: changed) ──> passes of groups, which decide
                        ^
    groups' passes ─────┴─ touched ──> run() ──PATCH──> status

`changed` (Assembly._pools_changed) wakes the groups that draw from the pools.

A pool's status is computed anew each time, from what the passes have seen. The operator reads one
thing back from it: when an outage began, so that a restart doesn't change this time.

If the CRD is not installed, there are no pools.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kwok_operator.cloud.api.capacitypool import (
    KwokCapacityPoolSpec,
    KwokCapacityPoolStatus,
    PoolCondition,
)
from kwok_operator.cloud.poolstatus import pool_conditions, pool_status
from kwok_operator.cloud.stock import CapacityPool, Use
from kwok_operator.constants import POOL_KIND, POOLS_PATH
from kwok_operator.errors import KwokOperatorError, NotFoundError, NotLeadingError, one_line
from kwok_operator.formats.times import parse_time
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.followed import FollowedKind
from kwok_operator.nodegroups.statuswriter import put_status
from kwok_operator.observability.metrics import Metrics

logger = logging.getLogger(__name__)

WRITE_EVERY: Final = 1.0
"""Seconds in which several changes are put into one write."""
TRY_AGAIN_AFTER: Final = 10.0
"""Seconds until a write of status that failed is tried again."""


@dataclass(frozen=True, slots=True)
class StoredPool:
    """A pool as the API server has it; if it can't be read, `pool` is None and `problem` is why."""

    name: str
    uid: str
    resource_version: int
    generation: int
    spec: KwokCapacityPoolSpec
    pool: CapacityPool | None
    problem: str
    status: Mapping[str, Any]
    conditions: tuple[PoolCondition, ...]


def stored_pool(raw: Mapping[str, Any]) -> StoredPool:
    metadata, status = raw["metadata"], raw.get("status") or {}
    name: str = metadata["name"]
    spec, pool, problem = KwokCapacityPoolSpec(), None, ""
    try:
        spec = KwokCapacityPoolSpec.model_validate(raw.get("spec") or {})
        pool = CapacityPool.of(name, spec)
    except ValueError as error:
        problem = str(error)
    return StoredPool(
        name=name,
        uid=metadata["uid"],
        resource_version=int(metadata.get("resourceVersion") or 0),
        generation=metadata.get("generation") or 0,
        spec=spec,
        pool=pool,
        problem=problem,
        status=status,
        conditions=_conditions(status),
    )


def _conditions(status: Any) -> tuple[PoolCondition, ...]:
    """Returns the conditions in a pool's status; () if the status is invalid: then the
    operator didn't write it."""
    try:
        conditions = KwokCapacityPoolStatus.model_validate(status).conditions
        for condition in conditions:
            parse_time(condition.last_transition_time)
    except ValueError:
        return ()
    return conditions


class Pools:
    """Follows the KwokCapacityPools, and writes their status.

    `changed(names)` is called when pools are new, changed or gone; `use()` counts what is taken,
    `refused(name)` returns how many instances found no room in a pool; `now()` returns the time,
    in RFC 3339 and whole seconds. All are called on the event loop.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        changed: Callable[[Collection[str]], None],
        use: Callable[[], Use],
        refused: Callable[[str], int],
        now: Callable[[], str],
        metrics: Metrics,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.known: dict[str, CapacityPool] = {}
        """The pools by name, without those that can't be read."""
        self.objects = FollowedKind(stored_pool, self._seen)
        self._client = client
        self._changed = changed
        self._use = use
        self._refused = refused
        self._now = now
        self._metrics = metrics
        self._sleep = sleep
        self._seen_out: dict[str, str] = {}
        """When outages of pools were first seen, by name of the pool."""
        self._touched: set[str] = set()
        self._news = asyncio.Event()
        self._trouble: dict[str, str] = {}

    def touched(self, names: Collection[str]) -> None:
        """Requests that the status of these pools is written soon, as what is taken of them, or
        refused, has changed."""
        if names:
            self._touched.update(names)
            self._news.set()

    async def run(self) -> None:
        """Writes status for ever: of each pool at most once a second, and only if it changed."""
        while True:
            await self._news.wait()
            await self._sleep(WRITE_EVERY)
            names = self._touched & self.known.keys()
            self._touched.clear()
            self._news.clear()
            use = self._use() if names else Use()
            failed = {name for name in sorted(names) if not await self._write(name, use)}
            if failed:
                self.touched(failed)
                await self._sleep(TRY_AGAIN_AFTER)

    def _seen(self, old: StoredPool | None, new: StoredPool | None) -> None:
        """Enters a pool that is new, was changed, or is gone, and calls `changed` if its spec or
        uid differs."""
        before = None if old is None else (old.uid, old.pool)
        if old is not None and (new is None or new.uid != old.uid):
            self._forget(old.name)
        if new is not None:
            self._keep(new, known=old)
        after = None if new is None else (new.uid, new.pool)
        if before != after and any(each and each.pool for each in (old, new)):
            self._changed({each.name for each in (old, new) if each})

    def _keep(self, pool: StoredPool, *, known: StoredPool | None) -> None:
        if known is None or (known.uid, known.generation) != (pool.uid, pool.generation):
            self.touched({pool.name})
            if pool.problem:
                problem = one_line(pool.problem, limit=300)
                logger.warning("%s %s can't be read: %s", POOL_KIND, pool.name, problem)
        if pool.pool is None:
            self.known.pop(pool.name, None)
        else:
            self.known[pool.name] = pool.pool
        if pool.pool is not None and pool.pool.outage:
            self._seen_out.setdefault(pool.name, self._now())
        else:
            self._seen_out.pop(pool.name, None)

    def _forget(self, name: str) -> None:
        self._metrics.forget_pool(name)
        self._seen_out.pop(name, None)
        self._trouble.pop(name, None)
        self.known.pop(name, None)

    async def _write(self, name: str, use: Use) -> bool:
        """Writes a pool's status. Returns False if that failed and is to be tried again."""
        stored = self.objects.get(name)
        if stored is None:
            return True
        status = self._status(stored, use)
        dumped = status.dump()
        self._metrics.pool(
            name,
            used=status.instances,
            limit=stored.spec.instances,
            refused=status.refused,
        )
        if dumped == stored.status:
            return True
        path = f"{POOLS_PATH}/{name}"
        try:
            await put_status(self._client, path, uid=stored.uid, status=dumped)
        except NotFoundError:
            return True  # the watch will report it
        except NotLeadingError as error:
            logger.debug("status of %s %s not written: %s", POOL_KIND, name, error)
            return False
        except KwokOperatorError as error:
            self._note_trouble(name, error)
            return False
        self._trouble.pop(name, None)
        present = self.objects.get(name)
        if present is not None and present.uid == stored.uid:
            # The watch reports it too, but perhaps after the next write.
            self.objects.wrote(replace(present, status=dumped, conditions=status.conditions))
        return True

    def _status(self, stored: StoredPool, use: Use) -> KwokCapacityPoolStatus:
        refused = self._refused(stored.name)
        conditions = pool_conditions(
            stored.spec,
            refused=refused,
            generation=stored.generation,
            previous=stored.conditions,
            outage_since=self._seen_out.get(stored.name),
            now=self._now(),
        )
        return pool_status(
            stored.name,
            stored.spec,
            use=use,
            refused=refused,
            generation=stored.generation,
            conditions=conditions,
        )

    def _note_trouble(self, name: str, error: KwokOperatorError) -> None:
        """Logs why a pool's status was not written, unless its last error was of the same type."""
        trouble = type(error).__name__
        if self._trouble.get(name) != trouble:
            self._trouble[name] = trouble
            logger.warning("status of %s %s was not written: %s", POOL_KIND, name, error)
