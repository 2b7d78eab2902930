"""Outages of groups, pools, zones and racks, which steps of the timeline begin and end.

    OutageStep, the groups that exist  --Outages-->  patches  --OutagePlayer-->  the cluster

An outage of a zone is one of all groups that make nodes in it, and sets their stock to 0. Their
nodes are NotReady; instances that are requested there fail at once, so an autoscaler tries other
zones. An outage of a unit, such as a rack, is one in all groups with the same topology domain.
Nodes without a group, such as those of Karpenter, stay as they are.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from kwok_operator.cloud.api.cloud import MAX_OUTAGE_UNITS
from kwok_operator.cloud.draws import InstanceSeed
from kwok_operator.constants import (
    GROUPS_PATH,
    NODE_GROUP_LABEL,
    POOLS_PATH,
    ZONE_LABEL,
)
from kwok_operator.errors import NotFoundError
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.kube.resources import NODES
from kwok_operator.kube.retry import RETRIES
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.scenario.applied import layouts_of, zone_in
from kwok_operator.rehearsal.scenario.timeline import OutageStep, UnitsStep
from kwok_operator.topology.api import long_form
from kwok_operator.topology.layout import Layout

_MOST_AT_ONCE: Final = 20
_GONE: Final[Mapping[str, Any]] = {"outage": True, "stock": 0}
_UNITS: Final = "outageUnits"


class OutageChange(NamedTuple):
    """What to change in a group or pool: its path, and fields of its outage with new values.
    `units` are the units that the step itself takes out; `uid` is the uid of the group.
    """

    path: str
    fields: Mapping[str, Any]
    units: tuple[str, ...] = ()
    uid: str = ""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The merge patch for the spec of the group or pool; null removes a field."""
        return self.fields if self.path.startswith(POOLS_PATH) else {"cloud": self.fields}

    @property
    def holds(self) -> list[tuple[str, str, str, str]]:
        """What the change takes out, as tuples of path, uid, field and unit (empty for a field
        without units). Each stays out until the last step that takes it out ends.
        """
        each = [(_UNITS, unit) for unit in self.units] or [(field, "") for field in self.fields]
        return [(self.path, self.uid, field, unit) for field, unit in each]


class Outages:
    """The outages of one run. If several steps take out the same group, pool or unit, it stays out
    until the last of these steps ends; then it is as it was before the first. Units that were out
    for another reason than a step stay out.
    """

    def __init__(self) -> None:
        self._steps = Counter[tuple[str, str, str, str]]()
        """How many steps hold something."""
        self._before: dict[tuple[str, str, str, str], Any] = {}
        """The value of a field before the first of these steps; whether a unit was out by it."""

    def begin(
        self, step: OutageStep, groups: Mapping[str, Any], *, units: Collection[str] = ()
    ) -> list[OutageChange]:
        """Notes that the step has begun, and returns the changes to make; sends nothing.

        `groups` are the groups as they are now, by name: `end` restores the values of their
        fields. `units` are those that the step takes out. Raises CommandError if no group has any
        of them, or if more than MAX_OUTAGE_UNITS of a group would be out.
        """
        changes = [
            each._replace(uid=_uid(_at(groups, each.path)))
            for each in _changes_of(step, groups, units)
        ]
        has_before = step.zone is not None or step.topology is not None
        for each in changes:
            body = _at(groups, each.path)
            for hold in each.holds:
                before = value_at(body, "spec", "cloud", hold[2]) if has_before else False
                before = hold[3] in as_list(before) if each.units else before
                self._before.setdefault(hold, before)
                self._steps[hold] += 1
        changes = [self._with_units(each, groups) if each.units else each for each in changes]
        for each in changes:
            if each.units and (count := len(each.fields[_UNITS])) > MAX_OUTAGE_UNITS:
                raise CommandError(
                    f"{count} units of the group {_name(each.path)} would be out at once, and at"
                    f" most {MAX_OUTAGE_UNITS} can; end another step before, or name wider units"
                )
        return changes

    def end(self, begun: Iterable[OutageChange], groups: Mapping[str, Any]) -> list[OutageChange]:
        """Returns what to change at the end of a step that has begun with these changes.

        `groups` are the groups as they are now. If a group was deleted after the step's beginning,
        neither it nor a new group of its name is changed.
        """
        changes = []
        for each in begun:
            self._steps.subtract(each.holds)
            over = {h: self._before.pop(h) for h in each.holds if not self._steps[h]}
            if not _is_there(each, groups):
                continue
            if each.units:
                back = {unit for (*_, unit), before in over.items() if not before}
                changes.append(self._with_units(each, groups, back))
            elif over:
                fields = {field: before for (_, _, field, _), before in over.items()}
                changes.append(each._replace(fields=fields))
        return changes

    def _with_units(
        self, change: OutageChange, groups: Mapping[str, Any], back: Collection[str] = ()
    ) -> OutageChange:
        """Returns the change, with all units of the group that must be out from now on: those that
        are out now, except those in `back`, and those that steps which haven't ended take out.
        """
        live = as_list(value_at(_at(groups, change.path), "spec", "cloud", _UNITS))
        of_group = (change.path, change.uid, _UNITS)
        held = {hold[3] for hold, steps in self._steps.items() if steps and hold[:3] == of_group}
        out = [unit for unit in live if unit not in back]
        return change._replace(fields={_UNITS: [*out, *sorted(held.difference(out))] or None})


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _at(groups: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    return as_map(groups.get(_name(path))) if path.startswith(GROUPS_PATH) else {}


def _uid(group: Mapping[str, Any]) -> str:
    return text_at(group, "metadata", "uid")


def _is_there(change: OutageChange, groups: Mapping[str, Any]) -> bool:
    """Whether the group of the change still exists, with the same uid. True for any pool."""
    body = _at(groups, change.path)
    return change.path.startswith(POOLS_PATH) or (bool(body) and _uid(body) == change.uid)


def _changes_of(
    step: OutageStep, groups: Mapping[str, Any], units: Collection[str]
) -> list[OutageChange]:
    if step.pool is not None:
        return [OutageChange(f"{POOLS_PATH}/{step.pool}", {"outage": True})]
    if step.group is not None:
        return [OutageChange(f"{GROUPS_PATH}/{step.group}", {"outage": True})]
    if step.topology is not None:
        return _changes_of_units(groups, units, step.topology.level)
    there = sorted(name for name, body in groups.items() if zone_of(body) == step.zone)
    if not there:
        raise CommandError(f"no group makes nodes in the zone {step.zone}; name another zone")
    return [OutageChange(f"{GROUPS_PATH}/{name}", _GONE) for name in there]


def _changes_of_units(
    groups: Mapping[str, Any], units: Collection[str], level: str | None
) -> list[OutageChange]:
    changes, left = list[OutageChange](), set(units)
    for name, layout in sorted(_layouts(groups).items()):
        own = tuple(sorted(unit for unit in units if _has_unit(layout, unit, level)))
        left.difference_update(own)
        if own:
            changes.append(OutageChange(f"{GROUPS_PATH}/{name}", {_UNITS: own}, own))
    if left:
        raise CommandError(f"no group has the unit {min(left)} in its topology; name another one")
    return changes


def _has_unit(layout: Layout, unit: str, level: str | None) -> bool:
    """Whether the layout has this unit, in this level if one is given. (In another group's layout,
    a unit of another level may have the same name.)
    """
    places = layout.unit(unit)
    if places is None or level is None:
        return places is not None
    return layout.labels(places.start).get(long_form(level)) == unit


def standing_units(
    labels: Iterable[Mapping[str, Any]],
    groups: Mapping[str, Any],
    level: str,
    *,
    pools_out: Set[str],
) -> set[str]:
    """Returns the units of a level, such as racks, in which at least one node stands that isn't
    out. `labels` are the labels of each node.
    """
    layouts, label = _layouts(groups), long_form(level)
    out, units = _out_places(groups, layouts), set[str]()
    for each in labels:
        name, value = text_at(each, NODE_GROUP_LABEL), text_at(each, label)
        layout = layouts.get(name)
        if layout is None or not _has_unit(layout, value, level):
            continue
        if _is_out(groups[name], pools_out):
            continue
        narrowest = layout.unit(text_at(each, layout.layers[-1].labels[0]))
        if narrowest is None or not any(narrowest.start in unit for unit in out[layout.domain]):
            units.add(value)
    return units


def units_back(
    changes: Iterable[OutageChange], groups: Mapping[str, Any], *, pools_out: Set[str]
) -> list[str]:
    """Returns the units of these changes that are no longer out. `groups` are the groups as they
    are now.
    """
    layouts, back, held = _layouts(groups), set[str](), set[str]()
    out = _out_places(groups, layouts)
    for each in changes:
        layout = layouts.get(_name(each.path))
        if layout is None or _is_out(groups[_name(each.path)], pools_out):
            continue
        for unit in each.units:
            # An edit of the levels may have left none of this value.
            places, wider = layout.unit(unit) or range(0), out[layout.domain]
            is_out = any(places[0] in o and places[-1] in o for o in wider if places)
            (held if is_out else back).add(unit)
    return sorted(back - held)


def _is_out(group: Mapping[str, Any], pools_out: Set[str]) -> bool:
    """Whether all of a group is out, by its own outage or by a pool that it draws from."""
    cloud = as_map(value_at(group, "spec", "cloud"))
    return cloud.get("outage") is True or not pools_out.isdisjoint(
        as_list(cloud.get("capacityPools"))
    )


def _out_places(groups: Mapping[str, Any], layouts: Mapping[str, Layout]) -> dict[str, list[range]]:
    """Returns, by topology domain, the places in units that are out, as ranges of numbers. A place
    has one node.
    """
    out = defaultdict[str, list[range]](list)
    for name, layout in layouts.items():
        units = as_list(value_at(groups[name], "spec", "cloud", _UNITS))
        out[layout.domain] += layout.units(tuple(map(str, units))).ranges
    return out


def zone_of(group: Mapping[str, Any]) -> str:
    """Returns the zone of a group's nodes, by its resolved template, or by its spec until the
    operator has resolved that; empty if there is none.
    """
    resolved = text_at(group, "status", "resolvedTemplate", "metadata", "labels", ZONE_LABEL)
    return resolved or zone_in(as_map(group.get("spec")))


def _layouts(groups: Mapping[str, Any]) -> dict[str, Layout]:
    """Returns the layout of the topology in which the nodes of each group stand, by the group's
    name. It is that of the group's resolved template, as an edit of the spec may be refused;
    without a resolved template, it is that of the spec.
    """
    layouts = layouts_of({name: as_map(body.get("spec")) for name, body in groups.items()})
    for name, body in groups.items():
        resolved = value_at(body, "status", "resolvedTemplate", "metadata", "annotations")
        if (layout := Layout.read(as_map(resolved))) is not None:
            layouts[name] = layout
    return layouts


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
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def begin(self, number: int, step: OutageStep) -> BegunOutage:
        """Begins step `number` of the timeline. Raises CommandError if there is nothing to take
        out, ApiError, ApiUnreachableError.
        """
        async with self._turn:
            groups, units, short = await self._groups(), tuple[str, ...](), ""
            what = step.group or step.pool or f"zone {step.zone}"
            if step.topology is not None:
                units, short = await self._units(number, step.topology, groups)
                what = names_in_words(units)
            changes = self._outages.begin(step, groups, units=units)
            # A group may have been deleted since; one that was never there is the step's mistake.
            await self._change_all(changes, may_lack=lambda each: bool(_at(groups, each.path)))
        return BegunOutage(what, short, changes)

    async def end(self, begun: BegunOutage) -> str:
        """Ends an outage, and returns what came back. Raises ApiError, ApiUnreachableError."""
        async with self._turn:
            changes = self._outages.end(begun.changes, await self._groups())
            # A deleted group or pool has no outage to end.
            await self._change_all(changes, may_lack=lambda _: True)
            if any(each.units for each in begun.changes):
                groups = await self._groups()
                out = await self._pools_out(groups)
                back = names_in_words(units_back(changes, groups, pools_out=out))
            else:
                back = begun.what if any(not each.fields["outage"] for each in changes) else ""
        return back or f"nothing comes back: {begun.what} is still out otherwise, or deleted"

    async def _groups(self) -> dict[str, Any]:
        """Returns the groups as the API server has them now, as a watch may still show an older
        state.
        """
        return await self._by_name(GROUPS_PATH)

    async def _pools_out(self, groups: Mapping[str, Any]) -> frozenset[str]:
        """Returns the names of the pools that are out now. Sends a request only if a group draws
        from a pool.
        """
        if not any(value_at(body, "spec", "cloud", "capacityPools") for body in groups.values()):
            return frozenset()
        pools = await self._by_name(POOLS_PATH)
        return frozenset(n for n, body in pools.items() if value_at(body, "spec", "outage") is True)

    async def _by_name(self, path: str) -> dict[str, Any]:
        answer = json.loads(await self._client.request("GET", path, retries=RETRIES))
        return {text_at(body, "metadata", "name"): body for body in answer["items"]}

    async def _units(
        self, number: int, step: UnitsStep, groups: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], str]:
        """Returns the units that a step takes out, and a clause for the report if they are fewer
        than the step wants.
        """
        if step.level is None:
            return tuple(sorted(set(step.values or ()))), ""
        selector = f"{NODE_GROUP_LABEL},{long_form(step.level)}"
        nodes = await NODES.metadata(self._client, labelSelector=selector)
        labels = (as_map(node.get("labels")) for node in nodes)
        out = await self._pools_out(groups)
        there = standing_units(labels, groups, step.level, pools_out=out)
        if not there:
            what = f"no node of a group stands in a unit of {step.level} that isn't out yet"
            raise CommandError(f"{what}; let the step come later, or name another level")
        units = drawn_units(there, step, seed=self._seed, what=f"timeline/{number}")
        return units, f"; {step.count} were to be" if len(units) < step.count else ""

    async def _change_all(
        self, changes: Sequence[OutageChange], *, may_lack: Callable[[OutageChange], bool]
    ) -> None:
        """Sends all changes. Raises the first error, but ignores that a group or pool is gone if
        `may_lack` returns True for its change.
        """
        answers = await asyncio.gather(*map(self._change, changes), return_exceptions=True)
        for change, answer in zip(changes, answers, strict=True):
            gone = isinstance(answer, NotFoundError) and may_lack(change)
            if isinstance(answer, BaseException) and not gone:
                raise answer

    async def _change(self, change: OutageChange) -> None:
        async with self._slots:
            await self._client.request(
                "PATCH",
                change.path,
                body={"spec": change.spec},
                content_type=MERGE_PATCH,
                retries=RETRIES,
            )
