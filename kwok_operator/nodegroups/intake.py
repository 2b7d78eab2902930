"""Takes groups from the API server into the store and the budget.

    the first listing, a watch's events, listings now and then ──> Intake ──> store, budget

A group that can't be read is treated as not seen: the operator neither works on it nor deletes its
nodes. An event with an older version than the known one is late, or the cluster was restored from a
backup; a list that is begun after the event shows which.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from kwok_operator.errors import KwokOperatorError, NotFoundError
from kwok_operator.nodegroups.budget import NodeBudget
from kwok_operator.nodegroups.client import Group, read_group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.statuswriter import StatusWriter

logger = logging.getLogger(__name__)


class Intake:
    """Takes groups from the API server into the store."""

    def __init__(
        self, *, store: GroupStore, status: StatusWriter, cache: NodeCache, budget: NodeBudget
    ) -> None:
        self._store = store
        self._status = status
        self._cache = cache
        self._budget = budget
        self.doubted = asyncio.Event()
        """Set while something suggests that the known groups are wrong: all groups are listed
        soon."""
        self._looked_into = False

    @property
    def sure(self) -> bool:
        """Whether the known groups may be acted on. False while a list that was requested because
        of a doubt is due or under way."""
        return not self.doubted.is_set() and not self._looked_into

    async def take_over(self) -> None:
        """Lists all groups at the start, stores them, and books the nodes that an earlier operator
        granted them."""
        groups, _ = await self._status.groups()
        for group in groups:
            self._store.put(group)
            target = group.status.target_size if isinstance(group, Group) else None
            held = max(target or 0, self._cache.count(group.name))
            self._budget.grant(group.name, held, wants_more=False)

    async def list_anew(self) -> set[str] | None:
        """Lists all groups, to learn what a watch may have missed. Returns the names of all stored
        groups and of those that are gone; None if the groups can't be listed."""
        doubted, before = self.doubted.is_set(), self._store.newest
        self.doubted.clear()
        self._looked_into = doubted
        try:
            groups, version = await self._status.groups()
        except NotFoundError:
            return None  # the CRD is gone; the garbage collector deletes the nodes
        except KwokOperatorError as error:
            if doubted:
                self.doubted.set()  # tried again; other requests report the trouble
            else:
                logger.warning("resync failed: error=%s", error)
            return None
        finally:
            self._looked_into = False
        restored = version < before
        if restored:
            logger.warning("the cluster was restored: version=%d before=%d", version, before)
            # The list may have replaced what the watch reported meanwhile, so another list follows.
            self.doubted.set()
        gone = self._store.replace(groups, version=version, restored=restored)
        return gone | set(self._store.names())

    def seen(self, body: Mapping[str, Any], gone: bool) -> bool:
        """Stores a group that a watch reports. Returns whether it differs from what is known."""
        group = read_group(body)
        if gone:
            self._store.remove(name=group.name, uid=group.uid, version=group.resource_version)
            return True
        known = self._store.get(group.name)
        if known is not None and known.resource_version > group.resource_version:
            self.doubted.set()
        return self._store.put(group)
