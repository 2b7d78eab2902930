"""Outages of groups, pools, zones and racks, which steps of the timeline begin and end.

    OutageStep, the groups that exist  --Outages-->  patches  --OutagePlayer-->  the cluster

A zone is out when all groups that make nodes in it are out, and have no stock. Their nodes are
NotReady; instances that are requested there fail at once, so an autoscaler tries other zones.
A unit is out in all groups of its domain. Nodes without a group, such as those of Karpenter, stay
as they are.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kwok_operator.cloud.draws import InstanceSeed
from kwok_operator.constants import (
    GROUPS_PATH,
    NODE_GROUP_LABEL,
    NODES_PATH,
    POOLS_PATH,
    ZONE_LABEL,
)
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.client import ACCEPT_METADATA_LIST, MERGE_PATCH, KubeClient
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.scenario.applied import layouts_of, zone_in
from kwok_operator.rehearsal.scenario.timeline import OutageStep, UnitsStep
from kwok_operator.topology.api import long_form

_RETRIES: Final = 3
_MOST_AT_ONCE: Final = 20
_GONE: Final[Mapping[str, Any]] = {"outage": True, "stock": 0}
_UNITS: Final = "outageUnits"


class OutageChange(NamedTuple):
    """The path of a group or pool, and fields of its outage with their new values. `units` are
    those that the step itself takes out."""

    path: str
    fields: Mapping[str, Any]
    units: tuple[str, ...] = ()

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
        self._units = Counter[tuple[str, str]]()
        """How many steps take out a unit, by path and the value of its label."""
        self._before: dict[tuple[str, str], Any] = {}

    def begin(
        self, step: OutageStep, groups: Mapping[str, Any], *, units: Collection[str] = ()
    ) -> list[OutageChange]:
        """Notes that the step has begun, and returns the changes to make; sends nothing.

        `groups` are the groups as they are now, by name: `end` restores what their fields have
        here. `units` are those that the step takes out. Raises CommandError if no group has any.
        """
        changes = _changes_of(step, groups, units)
        for path, fields, own in changes:
            body = groups.get(path.rpartition("/")[2])
            for field in fields:
                # Later on, it may be seen as a step before has left it.
                has_before = step.zone is not None or step.topology is not None
                before = value_at(body, "spec", "cloud", field) if has_before else False
                self._before.setdefault((path, field), before)
                self._steps[path, field] += 1
            self._units.update((path, unit) for unit in own)
        return [self._with_others(each) if each.units else each for each in changes]

    def end(self, begun: Iterable[OutageChange]) -> list[OutageChange]:
        """Returns what to change at the end of a step that has begun with these changes."""
        changes = []
        for path, fields, own in begun:
            self._steps.subtract((path, field) for field in fields)
            self._units.subtract((path, unit) for unit in own)
            over = {f: self._before[path, f] for f in fields if not self._steps[path, f]}
            if over:
                changes.append(OutageChange(path, over))
            elif own:
                changes.append(self._with_others(OutageChange(path, {}, own)))
        return changes

    def out(self, groups: Mapping[str, Any]) -> set[str]:
        """Returns the units that are out, by a step or by the groups as they are in `groups`."""
        named = (value_at(body, "spec", "cloud", _UNITS) for body in groups.values())
        return {unit for (_, unit), steps in self._units.items() if steps}.union(
            *(as_list(each) for each in named)
        )

    def _with_others(self, change: OutageChange) -> OutageChange:
        """Returns the change with all units of the group that are out now."""
        before = self._before[change.path, _UNITS] or []
        held = {
            unit for (path, unit), steps in self._units.items() if steps and path == change.path
        }
        return change._replace(fields={_UNITS: [*before, *sorted(held.difference(before))]})


def _changes_of(
    step: OutageStep, groups: Mapping[str, Any], units: Collection[str]
) -> list[OutageChange]:
    if step.pool is not None:
        return [OutageChange(f"{POOLS_PATH}/{step.pool}", {"outage": True})]
    if step.group is not None:
        return [OutageChange(f"{GROUPS_PATH}/{step.group}", {"outage": True})]
    if step.topology is not None:
        return _changes_of_units(groups, units)
    there = sorted(name for name, body in groups.items() if zone_of(body) == step.zone)
    if not there:
        raise CommandError(f"no group makes nodes in the zone {step.zone}; name another zone")
    return [OutageChange(f"{GROUPS_PATH}/{name}", _GONE) for name in there]


def _changes_of_units(groups: Mapping[str, Any], units: Collection[str]) -> list[OutageChange]:
    changes, left = list[OutageChange](), set(units)
    for name, layout in sorted(layouts_of(_specs(groups)).items()):
        own = tuple(sorted(unit for unit in units if layout.unit(unit) is not None))
        left.difference_update(own)
        if own:
            changes.append(OutageChange(f"{GROUPS_PATH}/{name}", {_UNITS: own}, own))
    if left:
        raise CommandError(f"no group has the unit {min(left)} in its topology; name another one")
    return changes


def zone_of(group: Mapping[str, Any]) -> str:
    """Returns the zone of a group's nodes, by its resolved template, or by its spec until the
    operator has resolved that; empty if there is none.
    """
    resolved = text_at(group, "status", "resolvedTemplate", "metadata", "labels", ZONE_LABEL)
    return resolved or zone_in(as_map(group.get("spec")))


def _specs(groups: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: as_map(body.get("spec")) for name, body in groups.items()}


def drawn_units(there: Iterable[str], step: UnitsStep, *, seed: str, what: str) -> tuple[str, ...]:
    """Returns the units that a step takes out of those that are `there`, drawn by the seed."""
    draws = sorted((InstanceSeed(seed, unit, 0).draw(what), unit) for unit in set(there))
    return tuple(sorted(unit for _, unit in draws[: step.count]))


class BegunOutage(NamedTuple):
    what: str
    """What is out, for the mark in the report."""
    short: str
    """What the mark says, too, if there were fewer units than wanted."""
    changes: Sequence[OutageChange]


class OutagePlayer:
    """Begins and ends the outages of one run. `seed` is the scenario's."""

    def __init__(self, client: KubeClient, *, seed: str) -> None:
        self._client = client
        self._seed = seed
        self._outages = Outages()
        self._turn = asyncio.Lock()
        """Of two patches of one group's units, the later one must be the last."""

    async def begin(self, number: int, step: OutageStep, groups: Mapping[str, Any]) -> BegunOutage:
        """Begins step `number` of the timeline. Raises CommandError if there is nothing to take
        out, ApiError, ApiUnreachableError.
        """
        async with self._turn:
            units, short = tuple[str, ...](), ""
            what = step.group or step.pool or f"zone {step.zone}"
            if step.topology is not None:
                units, short = await self._units(number, step.topology, groups)
                what = names_in_words(units)
            changes = self._outages.begin(step, groups, units=units)
            await self._change(changes)
        return BegunOutage(what, short, changes)

    async def end(self, begun: BegunOutage) -> None:
        """Ends an outage. Raises ApiError, ApiUnreachableError."""
        async with self._turn:
            await self._change(self._outages.end(begun.changes))

    async def _units(
        self, number: int, step: UnitsStep, groups: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], str]:
        """Returns the units that a step takes out, and what is to be said if they are too few."""
        if step.level is None:
            return tuple(sorted({*step.values} if step.values else ())), ""
        label = long_form(step.level)
        answer = await self._client.request(
            "GET",
            NODES_PATH,
            params={"labelSelector": f"{NODE_GROUP_LABEL},{label}"},
            accept=ACCEPT_METADATA_LIST,
            retries=_RETRIES,
        )
        layouts = layouts_of(_specs(groups)).values()
        values = {text_at(n, "metadata", "labels", label) for n in json.loads(answer)["items"]}
        there = {v for v in values if any(each.unit(v) is not None for each in layouts)}
        there -= self._outages.out(groups)
        if not there:
            what = f"no node of a group stands in a unit of {step.level} that isn't out yet"
            raise CommandError(f"{what}; let the step come later, or name another level")
        units = drawn_units(there, step, seed=self._seed, what=f"timeline/{number}")
        return units, f"; {step.count} were to be" if len(units) < step.count else ""

    async def _change(self, changes: Iterable[OutageChange]) -> None:
        slots = asyncio.Semaphore(_MOST_AT_ONCE)

        async def one(each: OutageChange) -> None:
            async with slots:
                await self._client.request(
                    "PATCH",
                    each.path,
                    body={"spec": each.spec},
                    content_type=MERGE_PATCH,
                    retries=_RETRIES,
                )

        await asyncio.gather(*map(one, changes))
