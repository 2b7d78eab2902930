"""The topology's part of a pass: which place each instance gets, and what its node says of it.

    join:    nodes seen ──> GroupPlaces: which node stands where, which annotations are wrong
    revise:  pending instances without a place ──fill──> the lowest free ones of the domain
    report:  status.topology, written before the nodes are; birth: labels and annotation of a node

A place is free if no node stands there (one that is being deleted does, until it is gone), and no
instance of any group of the domain waits for a node there. If a node has vanished, its place goes
to the next requested instance, which is created once it is certain that the node is gone. Groups
decide one after the other, without an `await` in between, so two of them never take one place.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.errors import REFUSED, ConflictError, TemplateError
from kwok_operator.kube.executor import Executor
from kwok_operator.nodegroups.cleaning import Node, part_of
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.inplace import Patch
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.observation import Memory, Observation, Openings
from kwok_operator.nodegroups.parts import Clock
from kwok_operator.nodegroups.places import NO_PLACES, PlaceRanges
from kwok_operator.nodegroups.plan import Plan
from kwok_operator.nodegroups.steps import GroupStep, StepPass, StepReport, Stop, Write
from kwok_operator.nodegroups.template import template_hash
from kwok_operator.topology.births import PlacedBirth, marked
from kwok_operator.topology.layout import FIELD, Layout
from kwok_operator.topology.record import dump, fill, recorded_places

logger = logging.getLogger(__name__)

NEXT_PLACE_DELAY = 1.0
"""Seconds after which groups without nodes show which place is the next free one now."""


@dataclass(slots=True)
class GroupPlaces:
    """What the process knows of the places of one group, by serial.

    `nodes` has the places of existing nodes as first seen, whatever their annotations say later;
    `promised` the places of instances that have no node yet, and of nodes that are to get a place.
    """

    uid: str
    domain: str = ""
    nodes: dict[int, int] = field(default_factory=dict)
    promised: dict[int, int] = field(default_factory=dict)
    layout: Layout | None = None
    """That of the template in the last pass."""
    astray: frozenset[int] = frozenset()
    """Serials of nodes whose annotation is gone, or says another place."""
    tries: Openings = field(default_factory=Openings)


class TopologyStep(GroupStep):
    """Gives nodes their places in the topology, in passes over groups with `template.topology`."""

    def __init__(
        self,
        *,
        store: GroupStore,
        cache: NodeCache,
        writer: NodeWriter,
        executor: Executor,
        clock: Clock,
        wake: Callable[[str, float], None],
        try_anew: Callable[[str], None],
    ) -> None:
        self.writer = writer
        self.executor = executor
        self.clock = clock
        self.wake = wake
        self._try_anew = try_anew
        self._store = store
        self._cache = cache
        self._standing: dict[str, GroupPlaces] = {}
        self._layouts: dict[str, tuple[tuple[str, int], Layout | None]] = {}
        """The groups' layouts, as of a uid and a generation; None if there is none."""
        self._admitted: dict[str, tuple[str, Layout]] = {}
        """By group, its uid and the layout that has passed `check`: status has it later."""
        self._clashing: dict[str, tuple[str, Layout | None]] = {}
        """By group that gets no nodes, the group whose layout is in its way, and that layout."""

    async def prepare(self, group: Group) -> None:
        if self._clashing:
            self._clear_the_way(group.name, self._layout(group))

    def check(self, group: Group) -> None:
        self._clashing.pop(group.name, None)
        layout = Layout.of(group.spec.template, group=group.name)
        if layout is None:
            return
        for name in self._store.names():
            other = self._store.get(name)
            if other is None or name == group.name or other.spec.template.topology is None:
                continue
            theirs = self._layout(other)
            label = layout.clashes(theirs) if theirs is not None else None
            if label and self._rank(other, theirs) < self._rank(group, layout):
                self._clashing[group.name] = name, theirs
                raise TemplateError(
                    field=f"{FIELD}.levels",
                    value=label,
                    problem=f"would have values that group {name} gives to nodes in other places",
                    remedy="write the same levels in both, or another domain",
                )
        self._admitted[group.name] = (group.uid, layout)

    def resolved(self, group: Group, node: Node) -> Node:
        layout = self._layout(group)
        return node if layout is None else layout.described_in(node)

    def join(self, group: Group, memory: Memory, seen: Observation, *, now: int) -> StepPass | None:
        if group.spec.template.topology is None and memory.status.topology is None:
            self.leave(group.name)
            return None
        return TopologyPass(self, group, memory, seen)

    def carry_over(self, wanted: Node, live: Node) -> Node:
        layout = Layout.read(part_of(wanted, "metadata", "annotations"))
        if layout is None:
            return wanted
        place = self._known_place(wanted, layout)
        if place is None:
            place = layout.place_of(part_of(live, "metadata", "annotations"))
        return wanted if place is None else marked(wanted, *layout.marks(place))

    def forget(self, name: str) -> None:
        if (gone := self._standing.get(name)) is not None:
            # Its places are free again, and so are the units that were out for it.
            for group in self._showing_next(gone.domain, apart=name):
                self.wake(group.name, NEXT_PLACE_DELAY)
        for known in (self._standing, self._layouts, self._admitted, self._clashing):
            known.pop(name, None)
        self._clear_the_way(name, None)

    def leave(self, name: str) -> None:
        """Drops the places of a group that has no topology any more."""
        self._standing.pop(name, None)
        self._admitted.pop(name, None)

    def standing(self, group: Group) -> GroupPlaces:
        """Returns the known places of a group's instances; before the group's first pass, those in
        its status."""
        known = self._standing.get(group.name)
        if known is None or known.uid != group.uid:
            known = self._standing[group.name] = GroupPlaces(group.uid)
            if group.status.topology is not None:
                known.domain = group.status.topology.domain
                known.promised = recorded_places(group.status)
        return known

    def taken(self, domain: str, *, apart: str) -> "_Taken":
        """Returns the taken places of a domain, except those that are taken only because they are
        promised to instances of group `apart`, or because a vanished node of it stood there."""
        others = set[int]()
        for group, known in self._of_domain(domain):
            if group.name != apart:
                others.update(known.promised.values())
            there = (s for s in known.astray if group.names.name(s) in self._cache)
            others.update(known.nodes[serial] for serial in there)
        return _Taken(self._cache.occupied(domain, apart=apart), others)

    def away(self, group: Group, domain: str) -> frozenset[int]:
        """Returns the places where those nodes of the group stood that have vanished from the
        watch, and may still exist."""
        return self._cache.places_of_strays(group.name, domain=domain)

    def places_of(self, group: Group, domain: str) -> Mapping[int, int]:
        """Returns the places of a group's nodes in a domain, by serial, whatever their annotations
        say. A node that is new since the last pass has the place that it was promised."""
        known = self._standing.get(group.name)
        if known is None or known.uid != group.uid or known.domain != domain:
            return {}
        return known.promised | known.nodes

    def is_there(self, node: str) -> bool:
        """Whether the cache has a node of this name now."""
        return node in self._cache

    def out(self, domain: str) -> PlaceRanges:
        """Returns the places in all units of the domain that are out for any of its groups. No
        group gets a new node there, as no cloud gives machines in a rack without power."""
        units = set[PlaceRanges]()
        for group in map(self._store.get, self._store.names()):
            if group is None or group.spec.cloud is None or not group.spec.cloud.outage_units:
                continue
            layout = self._layout_in_use(group)
            if layout is not None and layout.domain == domain:
                units.add(layout.units(group.spec.cloud.outage_units))
        return PlaceRanges.union(unit for some in units for unit in some.ranges)

    def show_next(self, domain: str, place: int, *, apart: str) -> None:
        """Schedules passes over those autoscaled groups of the domain, other than `apart`, that
        have no nodes and don't show `place` in their status as the next free place."""
        for group in self._showing_next(domain, apart=apart):
            shown = group.status.topology.next_place if group.status.topology else None
            if shown != place:
                self.wake(group.name, NEXT_PLACE_DELAY)

    def waits_for_next(self, domain: str, *, apart: str) -> bool:
        """Whether a group of the domain, other than `apart`, is autoscaled and has no nodes: then
        cluster-autoscaler reads the next free place from its status.
        """
        return next(self._showing_next(domain, apart=apart), None) is not None

    def _showing_next(self, domain: str, *, apart: str) -> Iterator[Group]:
        """Yields the autoscaled groups of a domain, other than `apart`, that have no nodes: for
        them cluster-autoscaler reads the next free place in their status."""
        for group, _ in self._of_domain(domain):
            if group.name != apart and group.spec.autoscaling and not group.status.replicas:
                yield group

    def _clear_the_way(self, name: str, layout: Layout | None) -> None:
        """Requests a new check of each template that was refused because of the former layout of
        group `name`, if `layout`, the group's present one, differs."""
        for waiting, (other, former) in list(self._clashing.items()):
            if other == name and former != layout:
                del self._clashing[waiting]
                self._try_anew(waiting)

    def _of_domain(self, domain: str) -> Iterator[tuple[Group, GroupPlaces]]:
        """Yields the groups that have places in the domain, even if only their resolved template,
        and no longer their spec, has a topology."""
        for name in self._store.names():
            group = self._store.get(name)
            if group is None:
                continue
            if name in self._standing or group.status.topology is not None:
                known = self.standing(group)
                if known.domain == domain:
                    yield group, known

    def _layout(self, group: Group) -> Layout | None:
        """Returns the layout that a group's spec describes; None if it describes none, or an
        invalid one."""
        version = (group.uid, group.generation)
        known = self._layouts.get(group.name)
        if known is None or known[0] != version:
            layout: Layout | None = None
            with suppress(TemplateError):
                layout = Layout.of(group.spec.template, group=group.name)
            known = self._layouts[group.name] = (version, layout)
        return known[1]

    def _layout_in_use(self, group: Group) -> Layout | None:
        """Returns the layout that gives a group's nodes their labels, also before the group's first
        pass."""
        known = self._standing.get(group.name)
        if known is not None and known.uid == group.uid and known.layout is not None:
            return known.layout
        return Layout.in_use(group.spec.template, group.status.resolved_template, group=group.name)

    def _rank(self, group: Group, layout: Layout | None) -> tuple[bool, str]:
        """Returns a sort key of groups whose layouts clash: groups that already use their layout
        come first, then the names decide."""
        resolved = part_of(group.status.resolved_template or {}, "metadata", "annotations")
        admitted = self._admitted.get(group.name) == (group.uid, layout)
        return not admitted and Layout.read(resolved) != layout, group.name

    def _known_place(self, wanted: Node, layout: Layout) -> int | None:
        """Returns the place that the operator remembers of an existing node, whatever the node's
        annotation says; None if it remembers none."""
        metadata = wanted["metadata"]
        name = part_of(wanted, "metadata", "labels").get(NODE_GROUP_LABEL, "")
        group, known = self._store.get(name), self._standing.get(name)
        if group is None or known is None or known.domain != layout.domain:
            return None
        serial = group.names.serial(metadata["name"])
        return None if serial is None else known.nodes.get(serial, known.promised.get(serial))


class _Taken(Container[int]):
    """The places that are in any of several sets, which are not copied."""

    def __init__(self, *sets: Container[int]) -> None:
        self._sets = sets

    def __contains__(self, place: object) -> bool:
        return any(place in each for each in self._sets)

    def along_with(self, places: Iterable[int]) -> "_Taken":
        return _Taken(*self._sets, frozenset(places))


def _certain(plan: Plan, placed: Mapping[int, int], *, away: Set[int]) -> tuple[int, ...]:
    """Returns the serials of the instances to create now: as many as planned, but none in the
    places `away`, whose nodes have vanished from the watch, and may still exist."""
    certain = (s for s in plan.pending if placed.get(s) not in away)
    return tuple(islice(certain, len(plan.create))) if away else plan.create


class TopologyPass(StepPass):
    """The topology's part of one pass over one group."""

    def __init__(self, step: TopologyStep, group: Group, memory: Memory, seen: Observation) -> None:
        self._step = step
        self._group = group
        self._memory = memory
        self._seen = seen
        self._layout: Layout | None = None
        self._status = memory.status.topology
        self._placed: dict[int, int] = {}
        self._marking: dict[int, int] = {}
        """The places of nodes whose annotation is to be written, by serial."""
        self._new = False
        self._out = NO_PLACES

    async def revise(
        self, plan: Plan, *, template: Node | None, reporting: bool, stop: Stop
    ) -> Plan | None:
        if template is None:
            # Nothing is created, and what was recorded stays.
            return replace(plan, standing=recorded_places(self._memory.status))
        self._layout = layout = Layout.read(part_of(template, "metadata", "annotations"))
        if layout is None:
            self._step.leave(self._group.name)
            self._status = None
            return plan
        known = self._step.standing(self._group)
        known.layout = layout
        before = recorded_places(self._memory.status, domain=layout.domain)
        self._look(known, layout.domain, before)
        taken = self._step.taken(layout.domain, apart=self._group.name)
        self._out = self._step.out(layout.domain)
        placed = {s: before[s] for s in plan.pending if s in before}
        placed = {s: p for s, p in placed.items() if p not in taken or self._stands(s)}
        if not reporting:
            rest = taken.along_with(placed.values())
            new = fill((s for s in plan.pending if s not in placed), rest, out=self._out)
            placed |= new
            self._new = bool(new)
            away = self._step.away(self._group, layout.domain)
            plan = replace(plan, create=_certain(plan, placed, away=away))
            rest = taken.along_with([*placed.values(), *away])
            homes = self._homes(known, plan, template=template, taken=rest)
            known.promised = placed | homes
            rest = rest.along_with(homes.values())
            records = self._seen.records
            self._marking = {s: known.nodes[s] for s in known.astray if s in records}
            self._marking |= {s: p for s, p in homes.items() if not self._is_in(plan, s)}
            self._status = dump(layout.domain, placed, next_place=self._next(layout.domain, rest))
        self._placed = placed
        return replace(plan, standing=placed)

    @property
    def urgent(self) -> bool:
        return self._new

    def report(self) -> StepReport:
        return StepReport(fields={"topology": self._status})

    def birth(self, serial: int, capacity: Mapping[str, str]) -> PlacedBirth | None:
        place = self._placed.get(serial)
        if self._layout is None or place is None:
            return None
        return PlacedBirth(*self._layout.marks(place))

    @property
    def writes(self) -> Sequence[Write]:
        return (self._mark,) if self._due() else ()

    def after_status(self) -> float | None:
        return Openings.FIRST if self._marking and not self._group.spec.paused else None

    def _stands(self, serial: int) -> bool:
        """Whether the node exists by now, though it didn't when the pass began."""
        return self._step.is_there(self._group.names.name(serial))

    def _look(self, known: GroupPlaces, domain: str, recorded: Mapping[int, int]) -> None:
        """Notes where each node stands. A node keeps its first known place until it is gone: the
        place recorded before it was created, or else the one in its annotation."""
        if known.domain != domain:
            known.domain, known.nodes, known.promised = domain, {}, {}
        nodes, astray = dict[int, int](), list[int]()
        for serial, record in chain(self._seen.records.items(), self._seen.terminating.items()):
            said = record.place
            place = said.number if said is not None and said.domain == domain else None
            first = known.nodes.get(serial, recorded.get(serial, place))
            if first is not None:
                nodes[serial] = first
                if first != place:
                    astray.append(serial)
        known.nodes, known.astray = nodes, frozenset(astray)

    def _homes(
        self, known: GroupPlaces, plan: Plan, *, template: Node, taken: "_Taken"
    ) -> dict[int, int]:
        """Returns places for nodes that have none: nodes that are being updated to this template,
        and nodes made from it that lost the annotation while no operator ran."""
        records = self._seen.records
        without = [s for s, r in records.items() if s not in known.nodes and not r.deleting]
        if not without:
            return {}
        # Not the hash in status: at the first pass after an edit that is the former one.
        present = template_hash(template)
        homeless = [
            s for s in without if self._is_in(plan, s) or records[s].template_hash == present
        ]
        homes = {s: known.promised[s] for s in homeless if s in known.promised}
        homes = {serial: place for serial, place in homes.items() if place not in taken}
        rest = taken.along_with(homes.values())
        return homes | fill((s for s in homeless if s not in homes), rest, out=self._out)

    def _is_in(self, plan: Plan, serial: int) -> bool:
        return self._seen.records[serial].name in plan.update

    def _next(self, domain: str, taken: Container[int]) -> int | None:
        """Returns the next free place, for the group's status; None if the group isn't autoscaled.
        Schedules passes over other groups of the domain whose status has to show it, too."""
        step, group = self._step, self._group
        autoscaled = group.spec.autoscaling is not None
        if not autoscaled and not step.waits_for_next(domain, apart=group.name):
            return None
        place = fill([0], taken, out=self._out)[0]
        step.show_next(domain, place, apart=group.name)
        return place if autoscaled else None

    def _due(self) -> list[int]:
        if self._group.spec.paused:
            return []
        now, tries = self._step.clock.monotonic(), self._step.standing(self._group).tries
        records = self._seen.records
        return [s for s in self._marking if tries.is_due(records[s].name, now=now)]

    async def _mark(self, stop: Stop) -> None:
        layout, step, group = self._layout, self._step, self._group
        tries = step.standing(group).tries

        async def mark(serial: int) -> None:
            record = self._seen.records[serial]
            labels, annotations = layout.marks(self._marking[serial]) if layout else ({}, {})
            # Labels that others have changed are theirs, as all labels are.
            homeless = serial not in step.standing(group).nodes
            metadata = {"annotations": annotations} | ({"labels": labels} if homeless else {})
            tries.tried(record.name, now=step.clock.monotonic())

            def patch(live: Node) -> list[Patch]:
                return [("", {"metadata": metadata})]

            try:
                await step.writer.patch_current(record, patch, uid=group.uid)
            except (ConflictError, *REFUSED) as error:
                logger.debug("place not written: node=%s error=%s", record.name, error)

        await step.executor.run(self._due(), mark, group=group.name, stop=stop)
