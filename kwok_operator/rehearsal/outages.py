"""Outages of groups, of pools and of zones, which steps of the timeline begin and end.

    OutageStep, the groups that exist  --changes_of-->  patches  --change-->  the cluster

A zone is out when all groups that make nodes in it are out, and have no stock. Their nodes are
NotReady; instances that are requested there fail at once, so an autoscaler tries other zones.
Nodes without a group, such as those of Karpenter, stay as they are.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kwok_operator.constants import GROUPS_PATH, POOLS_PATH, ZONE_LABEL
from kwok_operator.formats.untyped import as_map, text_at, value_at
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.scenario.timeline import OutageStep

_RETRIES: Final = 3
_MOST_AT_ONCE: Final = 20
_GONE: Final[Mapping[str, Any]] = {"outage": True, "stock": 0}


class OutageChange(NamedTuple):
    """The path of a group or pool, and the merge patches of its spec for begin and end."""

    path: str
    begins: Mapping[str, Any]
    ends: Mapping[str, Any]


def changes_of(step: OutageStep, groups: Mapping[str, Any]) -> list[OutageChange]:
    """Returns what the step changes, once the groups are as in `groups`, by name. Raises
    CommandError if no group is in the zone.
    """
    if step.pool is not None:
        return [OutageChange(f"{POOLS_PATH}/{step.pool}", {"outage": True}, {"outage": False})]
    if step.group is not None:
        out, over = ({"cloud": {"outage": on}} for on in (True, False))
        return [OutageChange(f"{GROUPS_PATH}/{step.group}", out, over)]
    there = {name: body for name, body in groups.items() if zone_of(body) == step.zone}
    if not there:
        raise CommandError(f"no group makes nodes in the zone {step.zone}; name another zone")
    clouds = {name: as_map(value_at(body, "spec", "cloud")) for name, body in there.items()}
    return [
        # What is null in a merge patch is removed.
        OutageChange(
            f"{GROUPS_PATH}/{name}",
            {"cloud": _GONE},
            {"cloud": {field: cloud.get(field) for field in _GONE}},
        )
        for name, cloud in sorted(clouds.items())
        # A group that another step has taken out with its zone, comes back when that step ends.
        if any(cloud.get(field) != value for field, value in _GONE.items())
    ]


def zone_of(group: Mapping[str, Any]) -> str:
    """Returns the zone of a group's nodes, by its resolved template; empty if there is none."""
    return text_at(group, "status", "resolvedTemplate", "metadata", "labels", ZONE_LABEL)


async def change(client: KubeClient, changes: Iterable[OutageChange], *, on: bool) -> None:
    """Begins or ends the outage. Raises ApiError, ApiUnreachableError."""
    slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def one(each: OutageChange) -> None:
        async with slots:
            await client.request(
                "PATCH",
                each.path,
                body={"spec": each.begins if on else each.ends},
                content_type=MERGE_PATCH,
                retries=_RETRIES,
            )

    await asyncio.gather(*map(one, changes))
