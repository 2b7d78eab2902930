"""Decides which instances without a Node get room in stock and pools, and what to record of it.

    CloudRequest (plan) + CloudRecord + pools and what groups hold  --settle-->  SettledRequests

The result has to be written to status before anything is created. It need not be kept in memory:
with nothing new to decide, `settle` returns the same again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.record import CloudRecord, redated
from kwok_operator.cloud.stock import (
    Amounts,
    CapacityPool,
    Holder,
    StockDecision,
    StockRequest,
    decide,
)
from kwok_operator.cloud.units import ALONE, Units
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.nodegroups.serials import Batch

_PERFECT = Cloud()


@dataclass(frozen=True, slots=True)
class CloudRequest:
    """The part of a group's plan that concerns its cloud.

    `pending` are the serials that are requested and have no Node; those from `first_new` on are in
    no record yet. `arrived` are those with a Node, also one in deletion. `cloud` is the one in
    force, None for a perfect cloud; `each` is what one instance takes, by resource.
    """

    group: str
    cloud: Cloud | None
    pending: Sequence[int]
    first_new: int
    arrived: Set[int]
    batches: tuple[Batch, ...]
    each: Amounts = field(default_factory=dict)
    units: Units = ALONE


@dataclass(frozen=True, slots=True)
class SettledRequests:
    """What `settle` decided, to be written to status.

    `redated` are serials that found room now, so that their tries begin now; `holding` is what
    the group takes of stock and pools.
    """

    record: CloudRecord
    batches: tuple[Batch, ...]
    redated: frozenset[int]
    holding: Holder


Others = Callable[[Sequence[str]], Iterable[Holder]]
"""A function that returns what the other groups hold of the pools with these names."""


def settle(
    requested: CloudRequest,
    record: CloudRecord,
    *,
    pools: Mapping[str, CapacityPool],
    others: Others,
    now: int,
    deciding: bool = True,
) -> SettledRequests:
    """Grants or refuses new serials and those due for a retry; `now` is ms, in whole seconds.

    If `deciding` is false, nothing is granted or refused, and only serials that are no longer
    requested are forgotten.
    """
    cloud = requested.cloud or _PERFECT
    wanted = frozenset(requested.pending)
    new = [serial for serial in requested.pending if serial >= requested.first_new]
    holding = Holder(
        group=requested.group,
        serials=(wanted - record.refused(wanted)).difference(new).union(requested.arrived),
        each=requested.each,
        pools=cloud.capacity_pools,
    )
    decision = StockDecision()
    serials = _in_order([(now, new), *record.asking(now)], wanted) if deciding else []
    if serials:
        serials += requested.units.companions(cloud, serials, among=record.refused(wanted))
        request = StockRequest(
            group=requested.group,
            serials=serials,
            each=requested.each,
            pools=cloud.capacity_pools,
            stock=cloud.stock,
            outage=cloud.outage,
            whole=requested.units.whole(cloud, serials),
        )
        held = [holding, *others(cloud.capacity_pools)]
        decision = decide(request, pools=pools, holders=held)
    granted = frozenset(decision.granted)
    settled = record.settled(decision, wanted=wanted, now=now)
    again = granted.difference(new)
    batches = (
        redated(requested.batches, granted=again, at=format_time(now))
        if again
        else requested.batches
    )
    oldest = min((parse_time(batch.requested_at) for batch in batches), default=None)
    history = settled.history.revised(
        requested.cloud, group=requested.group, now=now, oldest=oldest
    )
    return SettledRequests(
        record=replace(settled, history=history),
        batches=batches,
        redated=again,
        holding=replace(holding, serials=granted.union(holding.serials)),
    )


def _in_order(asking: Iterable[tuple[int, Iterable[int]]], wanted: Set[int]) -> list[int]:
    """The wanted serials, in the order in which they began to wait."""
    return [s for _, s in sorted((t, s) for t, serials in asking for s in serials if s in wanted)]
