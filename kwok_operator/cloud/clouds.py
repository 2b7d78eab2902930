"""Changes a pass's plan as the simulated cloud demands: instances arrive late, fail, or end.

    Group, Observation  --observe-->  ObservedCloud (the nodes: how each should be, which are to go)
    ObservedCloud + Plan --decide-->  CloudDecision (instances without a Node, and what to write)

Groups compete for pools, so these decisions are made one after the other, without an `await` in
between: what one group was granted is known when the next one requests. What groups hold is counted
from their last passes, or from their status and nodes before the first; nothing has to be released.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from kwok_operator.cloud.annotations import Mark, mark_on
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.api.cloudstatus import CloudStatus
from kwok_operator.cloud.desired import DesiredNodes, Upkeep
from kwok_operator.cloud.draws import group_seed, instance_seed
from kwok_operator.cloud.life import deletion_delay
from kwok_operator.cloud.pools import Pools
from kwok_operator.cloud.record import CloudRecord, outstanding
from kwok_operator.cloud.room import CloudRequest, SettledRequests, settle
from kwok_operator.cloud.shaping import Hold, needs_shaping
from kwok_operator.cloud.states import Phase, State
from kwok_operator.cloud.stock import Amounts, Holder, Use
from kwok_operator.cloud.summary import (
    counts,
    failures_since,
    instance_counts,
    next_look,
    outage,
    provisioned,
    rows,
)
from kwok_operator.cloud.terms import in_force
from kwok_operator.cloud.units import ALONE, NO_OUTAGE, Outage, Units
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.times import parse_time
from kwok_operator.nodegroups.api.status import ConditionType, KwokNodeGroupStatus, Verdict
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.observation import Memory, Observation
from kwok_operator.nodegroups.places import NO_PLACES
from kwok_operator.nodegroups.plan import Plan
from kwok_operator.nodegroups.serials import compact
from kwok_operator.nodegroups.status import batches_of
from kwok_operator.topology.layout import Layout

_PERFECT = Cloud()


@dataclass(frozen=True, slots=True)
class ObservedCloud:
    """What a pass knows of the group's cloud before it plans. Times are milliseconds."""

    now: int
    cloud: Cloud
    out: Outage
    outage: Verdict
    nodes: DesiredNodes
    nodes_out: int
    """How many nodes are in an outage."""


@dataclass(frozen=True, slots=True)
class CloudDecision:
    """What the simulated cloud decides on a plan.

    `plan` creates only instances that are due, and deletes only nodes whose deletion is not put
    off. `due` says, by serial, since when each instance in `plan.create` is due. `reshape` are the
    serials of nodes that have to be patched; `postpone` says until when deletions are put off, by
    name. `look_again` is in seconds. `failures` counts the tries that failed since the last pass,
    by class of error.
    """

    observed: ObservedCloud
    plan: Plan
    status: CloudStatus
    provisioned: Verdict
    states: Mapping[State, int]
    failed: int
    due: Mapping[int, int]
    reshape: tuple[int, ...]
    postpone: Mapping[str, int]
    look_again: float | None
    failures: Mapping[str, int]
    units: Units

    @property
    def writes(self) -> bool:
        """Whether the cloud has to patch nodes: to change their taints, conditions or resources, or
        to note that their deletion is put off."""
        return bool(self.reshape or self.postpone)


@dataclass(slots=True)
class _Known:
    """What the last pass over the group with this uid computed, kept for the next pass."""

    uid: str
    upkeep: Upkeep = field(default_factory=Upkeep)
    status: CloudStatus | None = None
    record: CloudRecord = field(default_factory=CloudRecord)
    out: Outage = NO_OUTAGE
    phases: dict[int, Phase] = field(default_factory=dict)
    stuck: dict[int, Phase] = field(default_factory=dict)
    holding: Holder | None = None
    refused: Mapping[str, int] = field(default_factory=dict)


class Clouds:
    """The clouds of all groups. If a group's spec has no seed, the seed is made of `seed` and the
    group's name."""

    def __init__(self, *, store: GroupStore, cache: NodeCache, seed: str = "") -> None:
        self._store = store
        self._seed = seed
        self._cache = cache
        self._known: dict[str, _Known] = {}
        self.pools: Pools
        """Set after construction, as each of the two needs the other."""
        self.places_of: Callable[[Group, str], Mapping[int, int]] = lambda *_: {}
        """Returns the recorded places of a group's nodes in a domain, by serial. Set after
        construction, too."""

    def forget(self, name: str) -> None:
        """Forgets a group that is gone, so that what it held of pools is free."""
        known = self._known.pop(name, None)
        if known is not None and known.holding is not None:
            self.pools.touched(known.holding.pools)

    def phases(self, name: str) -> Mapping[int, Phase]:
        """Returns the phases of a group's instances without a Node, as of its last pass."""
        known = self._known.get(name)
        return known.phases if known is not None else {}

    def observe(
        self, group: Group, memory: Memory, seen: Observation, *, now: int
    ) -> ObservedCloud | None:
        """Observes the group's cloud; None if it has no simulated cloud, and neither its status nor
        its nodes have records of an earlier one."""
        cloud = self.in_force(group)
        if cloud is None and memory.status.cloud is None and not seen.marked and not seen.stuck:
            return None
        known = self._of(group)
        verdict, out = self._outage(group, cloud or _PERFECT, memory.status, now=now)
        marks: Mapping[int, Mark | None] = {s: mark_on(r.mark) for s, r in seen.marked.items()}
        if out.since is not None:
            marks = {s: mark_on(r.mark) for s, r in seen.records.items()}
        cloud = cloud or _PERFECT
        cap = cloud.interruptions.at_a_time if cloud.interruptions else None
        nodes_out = self._nodes_out(group, out, seen)
        nodes = known.upkeep.find(marks, at_a_time=cap, out=nodes_out, now=now)
        return ObservedCloud(
            now=now, cloud=cloud, out=out, outage=verdict, nodes=nodes, nodes_out=len(nodes_out)
        )

    def in_force(self, group: Group) -> Cloud | None:
        seed = group_seed(self._seed, group=group.name) if self._seed else None
        return in_force(group.spec, seed=seed)

    async def decide(
        self,
        group: Group,
        memory: Memory,
        seen: Observation,
        plan: Plan,
        observed: ObservedCloud,
        *,
        node: Mapping[str, Any] | None,
        hold: Hold,
        deciding: bool,
        stop: Callable[[], bool],
    ) -> CloudDecision | None:
        """Grants or refuses requests, unless `deciding` is false, then computes which instances are
        due; None if `stop()` is true. `node` is what the template resolves to, or last did.
        """
        known = self._of(group)
        each, units = self._each(observed.cloud, node), Units.of(node, plan.standing)
        postpone, leaving, late = self._deletions(group, seen, plan, observed, units)
        requested = _requested(
            group, memory, seen, plan, cloud=self.in_force(group), late=late, each=each, units=units
        )
        settled = settle(
            requested,
            self._record(known, memory.status),
            pools=self.pools.known,
            others=lambda pools: self._others(group.name, pools),
            now=observed.now // 1_000 * 1_000,
            deciding=deciding and not group.spec.paused,
        )
        before = known.phases
        phases = await self._phases(requested, known, settled, observed, stop)
        if phases is None:
            return None
        due = _due(plan, phases, now=observed.now)
        going = (*leaving, *(seen.stuck[s].name for s in late))
        plan = replace(plan, batches=settled.batches, create=tuple(due), delete=going)
        known.stuck = _stuck(group, seen, observed, units, known=known.stuck)
        tally = counts(phases.values())
        states = self._states(tally, seen, observed)
        shown: dict[str, Any] = {"instances": rows(phases | known.stuck)}
        if group.spec.cloud is not None:
            shown["counts"] = instance_counts(states)
        times = [next_look(phases.values()), observed.nodes.until, *_ends(seen)]
        return CloudDecision(
            observed=observed,
            plan=plan,
            status=settled.record.dump().model_copy(update=shown),
            provisioned=provisioned(phases),
            states=states,
            failed=tally.get(State.FAILED, 0),
            due=due,
            reshape=tuple(self._misshapen(group, seen, observed, hold, leaving=frozenset(leaving))),
            postpone=postpone,
            look_again=_wait(times, observed.now),
            failures=failures_since(before, phases, first_new=memory.status.next_serial),
            units=units,
        )

    def use(self) -> Use:
        """Returns what each group takes of each pool."""
        return Use(self._others("", None))

    def refused(self, pool: str) -> int:
        """Returns how many instances, of all groups, found no room in a pool."""
        total = 0
        for name in self.naming([pool]):
            known, group = self._known.get(name), self._store.get(name)
            if known is not None and known.holding is not None:
                total += known.refused.get(pool, 0)
            elif group is not None:
                record = CloudRecord.read(group.status.cloud, batches_of(group.status))
                total += record.refused_by_pool.get(pool, 0)
        return total

    def naming(self, pools: Iterable[str]) -> Iterator[str]:
        """Yields the names of the groups that draw from one of these pools."""
        wanted = frozenset(pools)
        for name in self._store.names():
            group = self._store.get(name)
            if group and group.spec.cloud and wanted.intersection(group.spec.cloud.capacity_pools):
                yield name

    def _of(self, group: Group) -> _Known:
        known = self._known.get(group.name)
        if known is None or known.uid != group.uid:
            known = self._known[group.name] = _Known(group.uid)
        return known

    def _outage(
        self, group: Group, cloud: Cloud, status: KwokNodeGroupStatus, *, now: int
    ) -> tuple[Verdict, Outage]:
        pools = self._pools_out(cloud)
        verdict = outage(cloud.outage, pools, cloud.outage_units)
        if not verdict.status:
            return verdict, NO_OUTAGE
        since = _outage_since(status, now=now)
        if cloud.outage or pools:
            return verdict, Outage(since)
        layout = Layout.in_use(group.spec.template, status.resolved_template, group=group.name)
        if layout is None:
            return verdict, Outage(since, places=NO_PLACES)
        return verdict, Outage.of_units(since, cloud, layout)

    def _nodes_out(self, group: Group, out: Outage, seen: Observation) -> dict[int, int]:
        """Returns since when nodes are in an outage, by serial. A node's place is the one that the
        operator has recorded, if any, else the one in the node's annotation, which anybody can
        edit."""
        if out.since is None:
            return {}
        if out.places is None:
            return dict.fromkeys(seen.records, out.since)
        said = {s: r.place for s, r in seen.records.items() if r.place is not None}
        places = {s: place.number for s, place in said.items() if place.domain == out.domain}
        places |= self.places_of(group, out.domain)
        return {s: out.since for s in seen.records if out.began(places.get(s)) is not None}

    def _pools_out(self, cloud: Cloud) -> list[str]:
        pools = self.pools.known
        return [name for name in cloud.capacity_pools if name in pools and pools[name].outage]

    def _record(self, known: _Known, status: KwokNodeGroupStatus) -> CloudRecord:
        if known.status is not status.cloud:
            known.status = status.cloud
            record = CloudRecord.read(status.cloud, batches_of(status))
            if record != known.record:
                known.phases = record.still(known.phases, before=known.record)
                known.record = record
        return known.record

    async def _phases(
        self,
        requested: CloudRequest,
        known: _Known,
        settled: SettledRequests,
        observed: ObservedCloud,
        stop: Callable[[], bool],
    ) -> dict[int, Phase] | None:
        """Notes what the group now takes of stock and pools (`settled`), and computes the phases of
        all pending instances.

        It pauses between parts, as ten thousand draws at once would block the event loop. Returns
        None if `stop()` is true. `settled` then isn't written to status, so the next pass decides
        the same again; it continues from the phases computed so far.
        """
        record = known.record
        if known.out != observed.out:
            known.phases = {}
        elif settled.record != record:
            known.phases = settled.record.still(known.phases, before=record)
        known.out = observed.out
        self._book(known, settled)
        parts = outstanding(
            settled.record,
            settled.batches,
            group=requested.group,
            arrived=requested.arrived,
            now=observed.now,
            out=observed.out,
            known={s: p for s, p in known.phases.items() if s not in settled.redated},
            units=requested.units,
        )
        found: dict[int, Phase] = {}
        for number, part in enumerate(parts):
            found |= part
            if number:
                await asyncio.sleep(0)
                if stop():
                    known.phases = record.still(known.phases | found, before=settled.record)
                    known.record = record
                    return None
        pending = frozenset(requested.pending)
        known.phases = {serial: phase for serial, phase in found.items() if serial in pending}
        return known.phases

    def _deletions(
        self, group: Group, seen: Observation, plan: Plan, observed: ObservedCloud, units: Units
    ) -> tuple[dict[str, int], list[str], list[int]]:
        """Returns the deletions to put off (node's name -> until when, in ms), the names of nodes
        to delete now, and the serials of nodes whose deletion was put off until now."""
        late = [] if group.spec.paused else [s for s, at in _deadlines(seen) if at <= observed.now]
        if observed.cloud.failures.slow_deletion is None or not plan.delete:
            return {}, list(plan.delete), late
        units, postponed = _units_of_nodes(units, observed.cloud, seen), dict[str, int]()
        for name in plan.delete:
            serial = seen.names.serial(name)
            if serial is None or serial in observed.nodes.ended:
                continue
            delay = _deletion_delay(group, observed.cloud, serial, units)
            if delay:
                postponed[name] = observed.now + delay
        return postponed, [name for name in plan.delete if name not in postponed], late

    def _misshapen(
        self,
        group: Group,
        seen: Observation,
        observed: ObservedCloud,
        hold: Hold,
        *,
        leaving: frozenset[str],
    ) -> Iterator[int]:
        if group.spec.paused:
            return
        for serial, desired in observed.nodes.desired.items():
            record = seen.records.get(serial)
            if record is None or record.name in leaving or desired.gone:
                continue
            if needs_shaping(mark_on(record.mark), desired, ready=record.ready, hold=hold):
                yield serial

    def _states(
        self, tally: Mapping[State, int], seen: Observation, observed: ObservedCloud
    ) -> Mapping[State, int]:
        states = dict(tally)
        for serial, record in seen.records.items():
            desired = observed.nodes.desired.get(serial)
            state = State.READY if desired is None else desired.state
            if state is State.READY and not record.usable:
                state = State.STARTING
            states[state] = states.get(state, 0) + 1
        if seen.stuck:
            states[State.DELETING] = len(seen.stuck)
        return states

    def _each(self, cloud: Cloud, node: Mapping[str, Any] | None) -> Amounts:
        """Returns the amounts that one instance takes of the resources that its pools limit."""
        pools = (self.pools.known.get(name) for name in cloud.capacity_pools)
        names = {resource for pool in pools if pool for resource in pool.resources}
        return _amounts(node, names) if names else {}

    def _others(self, but: str, pools: Sequence[str] | None) -> Iterator[Holder]:
        """Yields what groups other than `but` hold, of those that draw from one of `pools` (None:
        from any pool)."""
        wanted = None if pools is None else frozenset(pools)
        if wanted is not None and not wanted:
            return
        for name in self._store.names():
            group = self._store.get(name)
            if group is None or group.name == but or group.spec.cloud is None:
                continue
            drawn = group.spec.cloud.capacity_pools
            if drawn and (wanted is None or wanted.intersection(drawn)):
                yield self._holding(group, group.spec.cloud)

    def _holding(self, group: Group, cloud: Cloud) -> Holder:
        known = self._known.get(group.name)
        if known is not None and known.uid == group.uid and known.holding is not None:
            return replace(known.holding, pools=cloud.capacity_pools)
        status = group.status
        batches = batches_of(status)
        record = CloudRecord.read(status.cloud, batches)
        requested = {s for batch in batches for s in batch}
        nodes = (r for r in self._cache.group(group.name).values() if r.owner == group.uid)
        there = {record.serial for record in nodes if record.serial is not None}
        each = self._each(cloud, status.resolved_template)
        return Holder(
            group.name, (requested - record.refused(requested)) | there, each, cloud.capacity_pools
        )

    def _book(self, known: _Known, settled: SettledRequests) -> None:
        before, now = known.holding, settled.holding
        refused = settled.record.refused_by_pool
        known.record = settled.record
        if before is None or _taken(before) != _taken(now) or known.refused != refused:
            self.pools.touched({*now.pools, *(before.pools if before else ())})
        known.holding, known.refused = now, refused


def _requested(
    group: Group,
    memory: Memory,
    seen: Observation,
    plan: Plan,
    *,
    cloud: Cloud | None,
    late: Sequence[int],
    each: Amounts,
    units: Units,
) -> CloudRequest:
    """Returns what the plan requests of the simulated cloud. `late` are the serials of nodes whose
    deletion was put off, and that are deleted now."""
    here = seen.terminating.keys() | seen.records.keys()
    batches = compact(plan.batches, here=here, gone=frozenset(late)) if late else plan.batches
    return CloudRequest(
        group=group.name,
        cloud=cloud,
        pending=plan.pending,
        first_new=memory.status.next_serial,
        arrived=here,
        batches=batches,
        each=each,
        units=units,
    )


def _due(plan: Plan, phases: Mapping[int, Phase], *, now: int) -> dict[int, int]:
    """Returns the instances to create now (serial -> since when each is due), ordered by that
    time."""
    waiting = ((phases[s].since, s) for s in plan.create if phases[s].state is State.DUE)
    return {serial: since for since, serial in sorted(waiting) if since <= now}


def _taken(holding: Holder) -> tuple[object, ...]:
    return len(holding.serials), holding.pools, dict(holding.each)


def _amounts(node: Mapping[str, Any] | None, names: Iterable[str]) -> dict[str, Fraction]:
    capacity = ((node or {}).get("status") or {}).get("capacity") or {}
    return {name: parse_quantity(capacity[name]) for name in names if name in capacity}


def _deadlines(seen: Observation) -> Iterator[tuple[int, int]]:
    for serial, record in seen.stuck.items():
        if record.mark is not None and record.mark.delete_at is not None:
            yield serial, record.mark.delete_at


def _ends(seen: Observation) -> Iterator[int]:
    return (at for _, at in _deadlines(seen))


def _stuck(
    group: Group,
    seen: Observation,
    observed: ObservedCloud,
    units: Units,
    *,
    known: Mapping[int, Phase],
) -> dict[int, Phase]:
    """Returns the phases of nodes that are stuck in deletion, by serial. A phase's end is read from
    the node; its beginning is computed by drawing the delay again.

    If the spec was edited meanwhile, the delay drawn now may differ. A phase that would begin in
    the future begins now.
    """
    units, found = _units_of_nodes(units, observed.cloud, seen), dict[int, Phase]()
    for serial, at in _deadlines(seen):
        phase = known.get(serial)
        if phase is None or phase.until != at:
            delay = _deletion_delay(group, observed.cloud, serial, units)
            since = min(at - delay, observed.now)
            phase = Phase(State.DELETING, since, at, "SlowDeletion")
        found[serial] = phase
    return found


def _units_of_nodes(units: Units, cloud: Cloud, seen: Observation) -> Units:
    if cloud.unit is None or cloud.failures.slow_deletion is None:
        return ALONE
    nodes = (seen.records | seen.stuck).items()
    return units.of_nodes((serial, record.place) for serial, record in nodes)


def _deletion_delay(group: Group, cloud: Cloud, serial: int, units: Units) -> int:
    """Returns by how many milliseconds the deletion of a node is put off. If spec.cloud
    sets `unit` (such as a rack), all nodes of a unit have the same delay."""
    unit = units.number(cloud, serial)
    return deletion_delay(cloud, instance_seed(cloud, group=group.name, serial=serial, unit=unit))


def _outage_since(status: KwokNodeGroupStatus, *, now: int) -> int:
    for condition in status.conditions:
        if condition.type == ConditionType.OUTAGE and condition.status == "True":
            try:
                return parse_time(condition.last_transition_time)
            except ValueError:
                break
    return now // 1_000 * 1_000


def _wait(times: Iterable[int | None], now: int) -> float | None:
    """Returns the seconds until the first of these times (ms), at least `_SOONEST`; None if all
    times are None."""
    ahead = [at - now for at in times if at is not None]
    return max(_SOONEST, min(ahead) / 1_000) if ahead else None


_SOONEST = 0.1
"""Seconds: what becomes due within this time is handled in one pass."""
