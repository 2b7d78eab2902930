"""Enters groups from the API server in the store and the budget.

    the first listing, a watch's events, listings now and then ──> Intake ──> store, budget

A group that can't be read counts as not seen: it is neither worked on nor gone. An event with an
older version than the known one is late, or the cluster was restored; a list that is begun after it
decides which.
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
    """Enters groups in the store."""

    def __init__(
        self, *, store: GroupStore, status: StatusWriter, cache: NodeCache, budget: NodeBudget
    ) -> None:
        self._store = store
        self._status = status
        self._cache = cache
        self._budget = budget
        self.doubted = asyncio.Event()
        """Set while there is a reason to list all groups soon."""
        self._looked_into = False

    @property
    def sure(self) -> bool:
        """Whether the known groups may be acted on: no list is wanted or under way because of a
        doubt."""
        return not self.doubted.is_set() and not self._looked_into

    async def take_over(self) -> None:
        """Enters all groups, and books the nodes that they were granted before."""
        groups, _ = await self._status.groups()
        for group in groups:
            self._store.put(group)
            target = group.status.target_size if isinstance(group, Group) else None
            held = max(target or 0, self._cache.count(group.name))
            self._budget.grant(group.name, held, wants_more=False)

    async def list_anew(self) -> set[str] | None:
        """Lists all groups to enter what a watch may have missed; returns the names of all, and of
        those gone.

        Returns None if the groups can't be listed.
        """
        doubted, before = self.doubted.is_set(), self._store.newest
        self.doubted.clear()
        self._looked_into = doubted
        try:
            groups, version = await self._status.groups()
        except NotFoundError:
            return None  # the CRD is gone; the garbage collector sees to the nodes
        except KwokOperatorError as error:
            if doubted:
                self.doubted.set()  # there is trouble, which others report
            else:
                logger.warning("resync failed: error=%s", error)
            return None
        finally:
            self._looked_into = False
        restored = version < before
        if restored:
            logger.warning("the cluster was restored: version=%d before=%d", version, before)
            # What a watch said meanwhile may be lost with what the list replaced.
            self.doubted.set()
        gone = self._store.replace(groups, version=version, restored=restored)
        return gone | set(self._store.names())

    def seen(self, body: Mapping[str, Any], gone: bool) -> bool:
        """Enters a group that a watch reports; returns whether that is news."""
        group = read_group(body)
        if gone:
            self._store.remove(name=group.name, uid=group.uid, version=group.resource_version)
            return True
        known = self._store.get(group.name)
        if known is not None and known.resource_version > group.resource_version:
            self.doubted.set()
        return self._store.put(group)
