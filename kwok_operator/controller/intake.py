"""Groups as the API server has them, on their way to those who work on them.

    the first listing, a watch's events, listings now and then ──> Intake ──> store, budget

What can't be read, of another version's CRD perhaps, is told and counts as not seen: it is neither
worked on nor gone. Who has to look at a group then is for the caller to say.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kwok_operator.controller.budget import NodeBudget
from kwok_operator.controller.cache import NodeCache
from kwok_operator.controller.groups import Group, GroupStore
from kwok_operator.controller.statuswriter import StatusWriter
from kwok_operator.errors import DecodeError, KwokOperatorError, NotFoundError

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

    async def take_over(self) -> None:
        """Enters all groups, with what was granted to them before."""
        try:
            bodies, _ = await self._status.groups()
        except DecodeError as error:
            logger.error("not all groups are known yet: %s", error)
            return
        for body in bodies:
            group = _parse(body)
            if group is not None:
                self._store.put(group)
                held = max(group.status.target_size or 0, self._cache.count(group.name))
                self._budget.grant(group.name, held, wants_more=False)

    async def list_anew(self) -> set[str] | None:
        """Enters what a watch may have missed; returns the names of all groups and of those gone.

        None where the groups can't be listed, or not all be read.
        """
        try:
            bodies, version = await self._status.groups()
        except NotFoundError:
            return None  # the CRD is gone; the garbage collector sees to the nodes
        except KwokOperatorError as error:
            logger.warning("resync failed: error=%s", error)
            return None
        groups = [group for group in map(_parse, bodies) if group is not None]
        if len(groups) < len(bodies):
            return None  # what can't be read must not count as gone
        return self._store.replace(groups, version=version) | set(self._store.names())

    def seen(self, body: Mapping[str, Any], gone: bool) -> bool:
        """A watch tells of a group; returns whether that is news."""
        if gone:
            self._store.remove(name=body["metadata"]["name"], uid=body["metadata"]["uid"])
            return True
        group = _parse(body)
        return group is not None and self._store.put(group)


def _parse(body: Mapping[str, Any]) -> Group | None:
    try:
        return Group.parse(body)
    except (ValidationError, KeyError, ValueError) as error:
        name = body.get("metadata", {}).get("name")
        logger.error("unreadable group, does the CRD fit? group=%s error=%s", name, error)
        return None
