"""The instances of a group that have no Node: who asks, what is decided, what is recorded.

    Asked (plan) + CloudRecord + pools and who holds what  --settle-->  SettledRequests

What comes out has to be written before anything is created. Nobody has to remember it: with
nothing new to decide, the same comes out again.
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
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.nodegroups.serials import Batch

_PERFECT = Cloud()


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a group's plan concerns its cloud.

    `pending` are the serials that are asked for and not there, from `first_new` on those that are
    in no record yet. `arrived` have a Node, also one that is on its way out. `cloud` is that in
    force, None for a perfect one; `each` what one instance takes, by resource.
    """

    group: str
    cloud: Cloud | None
    pending: Sequence[int]
    first_new: int
    arrived: Set[int]
    batches: tuple[Batch, ...]
    each: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettledRequests:
    """`redated` are serials whose tries begin now; `holding` is what the group takes."""

    record: CloudRecord
    batches: tuple[Batch, ...]
    redated: frozenset[int]
    holding: Holder


Others = Callable[[Sequence[str]], Iterable[Holder]]
"""What the other groups hold of pools, by name."""


def settle(
    asked: Asked,
    record: CloudRecord,
    *,
    pools: Mapping[str, CapacityPool],
    others: Others,
    now: int,
    deciding: bool = True,
) -> SettledRequests:
    """Decides on what is new or asks again, and records it; `now` is in whole seconds.

    Unless `deciding`, nothing is granted or refused: only what isn't wanted any more is forgotten.
    """
    cloud = asked.cloud or _PERFECT
    wanted = frozenset(asked.pending)
    new = [serial for serial in asked.pending if serial >= asked.first_new]
    holding = Holder(
        group=asked.group,
        serials=(wanted - record.refused(wanted)).difference(new).union(asked.arrived),
        each=asked.each,
        pools=cloud.capacity_pools,
    )
    decision = StockDecision()
    serials = _in_order([(now, new), *record.asking(now)], wanted) if deciding else []
    if serials:
        request = StockRequest(
            group=asked.group,
            serials=serials,
            each=asked.each,
            pools=cloud.capacity_pools,
            stock=cloud.stock,
            outage=cloud.outage,
        )
        held = [holding, *others(cloud.capacity_pools)]
        decision = decide(request, pools=pools, holders=held)
    granted = frozenset(decision.granted)
    settled = record.settled(decision, wanted=wanted, now=now)
    again = granted.difference(new)
    batches = redated(asked.batches, granted=again, at=format_time(now)) if again else asked.batches
    oldest = min((parse_time(batch.requested_at) for batch in batches), default=None)
    history = settled.history.revised(asked.cloud, group=asked.group, now=now, oldest=oldest)
    return SettledRequests(
        record=replace(settled, history=history),
        batches=batches,
        redated=again,
        holding=replace(holding, serials=granted.union(holding.serials)),
    )


def _in_order(asking: Iterable[tuple[int, Iterable[int]]], wanted: Set[int]) -> list[int]:
    """The wanted serials, first those that ask for the longest time."""
    return [s for _, s in sorted((t, s) for t, serials in asking for s in serials if s in wanted)]
