"""Outages of groups, of pools and of zones, which steps of the timeline begin and end.

    OutageStep, the groups that exist  --Outages-->  patches  --change-->  the cluster

A zone is out when all groups that make nodes in it are out, and have no stock. Their nodes are
NotReady; instances that are requested there fail at once, so an autoscaler tries other zones.
Nodes without a group, such as those of Karpenter, stay as they are.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kwok_operator.constants import GROUPS_PATH, POOLS_PATH, ZONE_LABEL
from kwok_operator.formats.untyped import as_map, text_at, value_at
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.scenario.applied import zone_in
from kwok_operator.rehearsal.scenario.timeline import OutageStep

_RETRIES: Final = 3
_MOST_AT_ONCE: Final = 20
_GONE: Final[Mapping[str, Any]] = {"outage": True, "stock": 0}


class OutageChange(NamedTuple):
    """The path of a group or pool, and fields of its outage with their new values."""

    path: str
    fields: Mapping[str, Any]

    @property
    def spec(self) -> Mapping[str, Any]:
        """The merge patch of its spec; what is null in it is removed."""
        return self.fields if self.path.startswith(POOLS_PATH) else {"cloud": self.fields}


class Outages:
    """The outages of one run. Where several steps take out the same, it comes back, as it was
    before the first, when the last of them ends.
    """

    def __init__(self) -> None:
        self._steps = Counter[tuple[str, str]]()
        """How many steps hold a field, by path and field."""
        self._before: dict[tuple[str, str], Any] = {}

    def begin(self, step: OutageStep, groups: Mapping[str, Any]) -> list[OutageChange]:
        """Returns what the step changes, once the groups are as in `groups`, by name. Raises
        CommandError if no group is in the zone.
        """
        changes = _changes_of(step, groups)
        for path, fields in changes:
            body = groups.get(path.rpartition("/")[2]) if step.zone is not None else None
            for field in fields:
                # Later on, it may be seen as a step before has left it.
                before = value_at(body, "spec", "cloud", field) if body is not None else False
                self._before.setdefault((path, field), before)
                self._steps[path, field] += 1
        return changes

    def end(self, begun: Iterable[OutageChange]) -> list[OutageChange]:
        """Returns what to change at the end of a step that has begun with these changes."""
        changes = []
        for path, fields in begun:
            self._steps.subtract((path, field) for field in fields)
            over = {f: self._before[path, f] for f in fields if not self._steps[path, f]}
            if over:
                changes.append(OutageChange(path, over))
        return changes


def _changes_of(step: OutageStep, groups: Mapping[str, Any]) -> list[OutageChange]:
    if step.pool is not None:
        return [OutageChange(f"{POOLS_PATH}/{step.pool}", {"outage": True})]
    if step.group is not None:
        return [OutageChange(f"{GROUPS_PATH}/{step.group}", {"outage": True})]
    there = sorted(name for name, body in groups.items() if zone_of(body) == step.zone)
    if not there:
        raise CommandError(f"no group makes nodes in the zone {step.zone}; name another zone")
    return [OutageChange(f"{GROUPS_PATH}/{name}", _GONE) for name in there]


def zone_of(group: Mapping[str, Any]) -> str:
    """Returns the zone of a group's nodes, by its resolved template, or by its spec until the
    operator has resolved that; empty if there is none.
    """
    resolved = text_at(group, "status", "resolvedTemplate", "metadata", "labels", ZONE_LABEL)
    return resolved or zone_in(as_map(group.get("spec")))


async def change(client: KubeClient, changes: Iterable[OutageChange]) -> None:
    """Begins or ends an outage. Raises ApiError, ApiUnreachableError."""
    slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def one(each: OutageChange) -> None:
        async with slots:
            await client.request(
                "PATCH",
                each.path,
                body={"spec": each.spec},
                content_type=MERGE_PATCH,
                retries=_RETRIES,
            )

    await asyncio.gather(*map(one, changes))
