"""Keeps the companions of nodes: each node of a group gets what `spec.template.companions` says.

    NodeCache (uids) ──────────────┐
    GroupStore (spec) ─────────────┼──> survey per group ──> Executor ──> CompanionWriter
    CompanionCache (what exists) ──┘             └──> verdict, for the group's status

Level-triggered like the reconciler: a pass compares the nodes with the caches of companions. So a
pass after a crash or somebody's edit does the same as one after a scale-up. If a template has no
companions any more, the condition in the group's status still shows that some may have to be
deleted. The garbage collector deletes the companions of nodes that are gone.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.companions.companioncache import TRY_AGAIN_AFTER, CompanionCache
from kwok_operator.companions.copying import ReadCompanions
from kwok_operator.companions.desired import (
    ABOUT_TO_BE_WRITTEN,
    CompanionKind,
    CompanionOwner,
    Trouble,
    asks_for_companions,
    dropped,
    not_allowed,
    not_served,
    refused,
    taken,
)
from kwok_operator.companions.state import GroupCompanions, asks, last_verdict
from kwok_operator.companions.survey import (
    CompanionWork,
    repair_key,
    survey,
    wanted_now,
)
from kwok_operator.companions.writer import CompanionWriter
from kwok_operator.errors import (
    REFUSED,
    ApiError,
    ForbiddenError,
    KwokOperatorError,
    NotFoundError,
    TooManyRequestsError,
    one_line,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.executor import Executor
from kwok_operator.nodegroups.api.status import Verdict
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord

logger = logging.getLogger(__name__)

LOOK_AGAIN_AFTER: Final = 60.0
FIRST_LOOK: Final = 5.0
"""The most seconds that new nodes wait for the first pass over their group's companions."""
_REFUSED = (*REFUSED, NotFoundError)


class CompanionKeeper:
    """Keeps the companions of all groups.

    `wake(name, delay)` plans a call of `look_at` for a group; `changed(name)` plans a pass of the
    reconciler. `cloud(group)` returns the group's simulated cloud; `monotonic()` and `wall()`
    return seconds.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        store: GroupStore,
        cache: NodeCache,
        executor: Executor,
        wake: Callable[[str, float], None],
        changed: Callable[[str], None],
        cloud: Callable[[Group], Cloud | None],
        read: ReadCompanions,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._cache = cache
        self._executor = executor
        self._wake = wake
        self._changed = changed
        self._cloud = cloud
        self._read = read
        self._monotonic = monotonic
        self._wall = wall
        self._kind_caches = {
            kind: CompanionCache(
                kind, client=client, changed=self.nodes_changed, monotonic=monotonic
            )
            for kind in CompanionKind
        }
        self._writer = CompanionWriter(
            client=client, caches=self._kind_caches, count_request=executor.count_request
        )
        self._states: dict[str, GroupCompanions] = {}
        self._closing = False

    def group_changed(self, name: str) -> None:
        """Plans a pass for a group that is new, was changed, or is gone, if it has or had
        companions."""
        group = self._store.get(name)
        if name in self._states or (group is not None and asks(group)):
            self._wake(name, 0.0)

    def nodes_changed(self, name: str) -> None:
        """Plans a pass after a change of a group's nodes or their companions."""
        if (state := self._states.get(name)) is not None:
            self._wake(name, state.gathered_for)

    def verdict(self, group: Group, *, nodes: int) -> Verdict | None:
        """Returns the condition CompanionsPresent; None if the group's template has no companions,
        and no earlier ones are left.

        If the condition is True, but the group has more nodes than the last pass saw, it becomes
        Unknown: the companions of the new nodes are still to be written.
        """
        state = self._states.get(group.name)
        if state is None or state.uid != group.uid:
            return last_verdict(group)
        found = state.verdict if state.looked.is_set() else last_verdict(group)
        if found is not None and found.status and nodes > state.nodes:
            found = ABOUT_TO_BE_WRITTEN
        state.reported = found
        return found

    def looks_after(self, group: Group) -> bool:
        """Whether the group's template has companions, or some of an earlier template are left."""
        return group.name in self._states or asks(group)

    def complete(self, group: Group, nodes: list[NodeRecord]) -> list[NodeRecord]:
        """Returns those of the `nodes` that have all of their companions."""
        if not asks_for_companions(group.spec.template):
            return nodes
        state = self._states.get(group.name)
        if state is None or state.uid != group.uid or not state.looked.is_set():
            known = last_verdict(group)
            return nodes if known is not None and known.status else []
        return [node for node in nodes if node.name in state.complete]

    async def first_look(self, group: Group) -> None:
        """Waits at most 5 s for the group's first pass over companions, which shows whether they
        can be made.

        If they can be made, new nodes get their companions before any pod comes.
        """
        if self._over(group) or not asks_for_companions(group.spec.template):
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._state(group).looked.wait(), FIRST_LOOK)

    async def born(self, group: Group, name: str, *, uid: str, made: int | None = None) -> None:
        """Makes the companions of a new node, before its taint is removed and pods may come.

        `made` is when the node was created (epoch milliseconds), None for just now. After errors,
        the next pass tries again. Raises only TooManyRequestsError: the caller has to wait and call
        again.
        """
        if group.name not in self._states:
            return
        state = self._state(group)
        owner, now = CompanionOwner(name, uid, group.name), self._now
        mine, due = wanted_now(
            group,
            group.names.serial(name),
            [each for each in state.companions if not each.shared],
            self._cloud(group),
            made=now if made is None else made,
            now=now,
        )
        if due is not None:
            self._wake(group.name, max(state.gathered_for, (due - now) / 1_000))
        if state.stopped or not mine:
            return
        state.under_way.add(uid)
        try:
            for companion in mine:
                await self._writer.make(companion, owner, first=False)
        except TooManyRequestsError:
            raise
        except KwokOperatorError as error:
            logger.debug("companions are late: node=%s error=%s", name, error)
        finally:
            state.under_way.discard(uid)
            self._wake(group.name, state.gathered_for)

    async def look_at(self, name: str) -> None:
        """Makes one pass over the companions of a group. Raises KwokOperatorError if it has to be
        tried again."""
        group = self._store.get(name)
        if self._closing:
            return
        if group is None or group.deleting or not asks(group):
            if (state := self._states.pop(name, None)) is not None:
                state.looked.set()
                if group is None or not group.orphaning:
                    await self._clear_pools(name, state)
                await self._stop_unused()
            return
        state = self._state(group)
        copy = state.copy
        await copy.refresh(group.spec.template, self._read, now=self._monotonic())
        if self._states.get(name) is not state:
            return  # the group was deleted, or created anew, and has another pass
        state = self._state(group)
        trouble = state.invalid or (copy.trouble if copy.unknown else await self._start(state))
        if trouble is None:
            trouble = await self._bring(group, state)
        self._judge(group, state, trouble)
        if trouble is not None:
            self._wake(name, TRY_AGAIN_AFTER)
        elif state.companions or copy.companions is not None:
            self._wake(name, LOOK_AGAIN_AFTER)

    @property
    def _now(self) -> int:
        """The time in epoch milliseconds."""
        return round(self._wall() * 1_000)

    def close(self) -> None:
        """Starts no more writes; writes in flight are finished."""
        self._closing = True

    async def stop(self) -> None:
        """Ends the watches. Call it when no pass runs any more."""
        for cache in self._kind_caches.values():
            await cache.stop()

    def _state(self, group: Group) -> GroupCompanions:
        state = self._states.get(group.name)
        if state is None or state.uid != group.uid:
            if state is not None:
                state.looked.set()
            state = self._states[group.name] = GroupCompanions(group.uid)
        state.recompile(group)
        return state

    async def _start(self, state: GroupCompanions) -> Trouble | None:
        """Watches all kinds of companions, as objects of an earlier template may exist. Returns why
        a kind that the present template needs can't be watched, or None."""
        wanted = {companion.kind for companion in state.companions}
        troubles = {kind: await cache.start() for kind, cache in self._kind_caches.items()}
        return next((t for kind, t in troubles.items() if t is not None and kind in wanted), None)

    async def _stop_unused(self) -> None:
        for cache in self._kind_caches.values():
            await cache.stop(unless=lambda: bool(self._states))

    async def _bring(self, group: Group, state: GroupCompanions) -> Trouble | None:
        now, wall = self._monotonic(), self._now
        result = survey(
            group,
            self._cache.group(group.name).values(),
            state.companions,
            {kind: cache.group(group.name) for kind, cache in self._kind_caches.items()},
            is_due=lambda key: state.repairs.is_due(key, now=now),
            under_way=state.under_way,
            cloud=self._cloud(group),
            now=wall,
        )
        state.held = result.held
        state.nodes, state.took = result.nodes, self._monotonic() - now
        if result.due is not None:
            self._wake(group.name, max(state.gathered_for, (result.due - wall) / 1_000))
        state.counts = result.owners, result.owners - len(result.complete)
        state.complete = result.complete
        if result.work and not group.spec.paused:
            if not state.failing:
                self._judge(group, state, None)
            state.trouble = None
            try:
                over = partial(self._over, group)
                do = partial(self._do, group, state)
                await self._executor.run(result.work, do, group=group.name, stop=over)
            except _REFUSED:
                return state.trouble
            if any(work.writes_beside(state.taken) for work in result.work):
                self._wake(group.name, state.gathered_for)
        names = frozenset(result.taken | state.taken)
        state.taken.clear()
        if names:
            return taken(names)
        return dropped(frozenset(result.dropped)) if result.dropped else None

    async def _do(self, group: Group, state: GroupCompanions, work: CompanionWork) -> None:
        owner, now = work.owner, self._monotonic()
        if not owner.is_group:
            node = self._cache.group(owner.group).get(owner.base)
            if node is None or node.uid != owner.uid or node.deleting:
                return
        kind, requests = CompanionKind.CSI_NODE, 0
        try:
            for kind, each in work.stale:
                requests += 1
                await self._writer.delete(kind, each, first=requests == 1)
            for companion in work.missing:
                kind = companion.kind
                if work.stale:
                    state.repairs.tried(repair_key(companion, owner), now=now)
                requests += 1
                if not await self._writer.make(companion, owner, first=requests == 1):
                    state.taken.add(companion.name(owner.base))
                elif state.stopped and state.trouble is None:
                    self._judge(group, state, None)  # the trouble is over
        except _REFUSED as error:
            state.trouble = _trouble(kind, error)
            raise

    async def _clear_pools(self, name: str, state: GroupCompanions) -> None:
        """Deletes the companions that the nodes of a group shared, without waiting for the garbage
        collector."""
        for kind, cache in self._kind_caches.items():
            for each in [k for k in cache.group(name).values() if k.owner == state.uid]:
                with suppress(ForbiddenError):
                    await self._writer.delete(kind, each, first=True)

    def _judge(self, group: Group, state: GroupCompanions, trouble: Trouble | None) -> None:
        left = any(cache.group(group.name) for cache in self._kind_caches.values())
        if state.judge(trouble, left=left, paused=group.spec.paused):
            self._changed(group.name)

    def _over(self, group: Group) -> bool:
        now = self._store.get(group.name)
        return (
            self._closing
            or now is None
            or (now.uid, now.generation, now.deleting)
            != (group.uid, group.generation, group.deleting)
        )


def _trouble(kind: CompanionKind, error: ApiError) -> Trouble:
    match error:
        case NotFoundError():
            return not_served(kind)
        case ForbiddenError() if not error.by_policy:
            return not_allowed(kind)
    return refused(kind, one_line(error.message, limit=300))
