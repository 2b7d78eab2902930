"""Decides which instances get room in their group's own stock, and in pools that groups share.

    a group's request + pools + what is held now  --decide-->  granted, refused

First come, first served. What is held counts first and is never taken away, even if a pool was made
smaller. A request needs room in all of its pools. There is no ledger: what is held is counted from
groups and nodes each time, and the caller records the decision before anything is created.

The instances of a request are alike, so if there is room for some only, the first ones get it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from kwok_operator.cloud.api.capacitypool import KwokCapacityPoolSpec
from kwok_operator.cloud.api.cloud import CloudError
from kwok_operator.cloud.states import Fault
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.nodegroups.api.status import OUT_OF_STOCK, OUTAGE, POOL_EXHAUSTED, POOL_MISSING

Amounts = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class CapacityPool:
    """The limits of a KwokCapacityPool; a resource that it doesn't name is not limited."""

    name: str
    instances: int | None = None
    resources: Amounts = field(default_factory=dict)
    error: CloudError = field(default_factory=CloudError)
    outage: bool = False

    @classmethod
    def of(cls, name: str, spec: KwokCapacityPoolSpec) -> "CapacityPool":
        resources = {key: parse_quantity(amount) for key, amount in spec.resources.items()}
        return cls(name, spec.instances, resources, spec.error, spec.outage)


@dataclass(frozen=True, slots=True)
class StockRequest:
    """The instances that a group requests, in order; each takes the same amounts, `each`.

    `stock` is how many the group may have in all; `outage` says that the group is in an outage. The
    serials of each sequence in `whole` get room together or not at all.
    """

    group: str
    serials: Sequence[int]
    each: Amounts = field(default_factory=dict)
    pools: Sequence[str] = ()
    stock: int | None = None
    outage: bool = False
    whole: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class Holder:
    """What a group holds: its instances that have a node or were granted, and their amounts."""

    group: str
    serials: Collection[int]
    each: Amounts = field(default_factory=dict)
    pools: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Serials without room. `pool` is None if the group's own stock is the reason.

    If `fault` is None, the serials are not refused, but undecided.
    """

    serials: tuple[int, ...]
    pool: str | None
    reason: str
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class StockDecision:
    """The decision on a StockRequest: the serials that got room (`granted`), and those that did not
    (`refused`)."""

    granted: tuple[int, ...] = ()
    refused: Refused | None = None


@dataclass(slots=True)
class Share:
    """How much a group takes of a pool."""

    instances: int = 0
    resources: dict[str, Fraction] = field(default_factory=dict)

    def add(self, count: int, each: Amounts) -> None:
        self.instances += count
        for name, amount in each.items():
            self.resources[name] = self.resources.get(name, Fraction()) + count * amount


class Use:
    """Counts what is in use, by pool and by group. An instance counts once, even if two Holders of
    its group have it."""

    def __init__(self, holders: Iterable[Holder] = ()) -> None:
        self._serials: dict[str, set[int]] = {}
        self._shares: dict[str, dict[str, Share]] = {}
        self._totals: dict[str, Share] = {}
        for holder in holders:
            self.add(holder)

    def add(self, holder: Holder) -> None:
        known = self._serials.setdefault(holder.group, set())
        new = set(holder.serials) - known
        known |= new
        for pool in dict.fromkeys(holder.pools) if new else ():
            share = self._shares.setdefault(pool, {}).setdefault(holder.group, Share())
            for part in (share, self._totals.setdefault(pool, Share())):
                part.add(len(new), holder.each)

    def has(self, group: str, serial: int) -> bool:
        return serial in self._serials.get(group, ())

    def instances(self, group: str) -> int:
        return len(self._serials.get(group, ()))

    def shares(self, pool: str) -> Mapping[str, Share]:
        """Returns what each group takes of a pool, by group."""
        return self._shares.get(pool, {})

    def total(self, pool: str) -> Share:
        return self._totals.get(pool, Share())


@dataclass(frozen=True, slots=True)
class _Bound:
    """A limit: there is room for `room` more instances; `limited` says why, in words."""

    room: int
    pool: str | None
    limited: str


def decide(
    request: StockRequest, *, pools: Mapping[str, CapacityPool], holders: Iterable[Holder] = ()
) -> StockDecision:
    """Grants or refuses the instances of a request. Instances that the group holds already are left
    out.

    If a pool doesn't exist, or there is an outage, all instances stay undecided: call again later.
    But a group whose own stock is used up has nothing to wait for, and is refused even then.
    """
    use = Use(holders)
    serials = tuple(s for s in dict.fromkeys(request.serials) if not use.has(request.group, s))
    if not serials:
        return StockDecision()
    own = _own_bound(request, use)
    if own and not own[0].room:
        return StockDecision(refused=_refusal(serials, own[0], pools))
    hindrance = _hindrance(request, pools)
    if hindrance:
        return StockDecision(refused=Refused(serials, *hindrance, fault=None))
    bounds = [*own, *_bounds_of_pools(request, pools, use)]
    least = min(bounds, key=lambda bound: bound.room, default=_Bound(len(serials), None, ""))
    granted = _first_whole(request.whole, serials, room=least.room)
    heard = frozenset(granted)
    rest = tuple(s for s in serials if s not in heard)
    return StockDecision(granted, _refusal(rest, least, pools) if rest else None)


def _first_whole(
    whole: Sequence[Sequence[int]], serials: tuple[int, ...], *, room: int
) -> tuple[int, ...]:
    """Returns the first of the `serials`, up to `room`, but those of one sequence in `whole` only
    together. After the first sequence that doesn't fit, none is returned, as the later ones were
    requested later."""
    wanted, granted = frozenset(serials), list[int]()
    for unit in whole or ([serial] for serial in serials):
        new = [serial for serial in unit if serial in wanted]
        if len(granted) + len(new) > room:
            break
        granted += new
    return tuple(granted)


def _hindrance(
    request: StockRequest, pools: Mapping[str, CapacityPool]
) -> tuple[str | None, str] | None:
    if request.outage:
        return None, OUTAGE
    for name in request.pools:
        if name not in pools:
            return name, POOL_MISSING
        if pools[name].outage:
            return name, OUTAGE
    return None


def _own_bound(request: StockRequest, use: Use) -> list[_Bound]:
    if request.stock is None:
        return []
    room = request.stock - use.instances(request.group)
    return [_Bound(max(0, room), None, f"the group's stock is {request.stock}")]


def _bounds_of_pools(
    request: StockRequest, pools: Mapping[str, CapacityPool], use: Use
) -> Iterator[_Bound]:
    for name in request.pools:
        yield from _bounds_of_pool(pools[name], request.each, use.total(name))


def _bounds_of_pool(pool: CapacityPool, each: Amounts, used: Share) -> Iterator[_Bound]:
    if pool.instances is not None:
        room = pool.instances - used.instances
        limited = f"KwokCapacityPool {pool.name} has {pool.instances} instances"
        yield _Bound(max(0, room), pool.name, limited)
    for name, limit in pool.resources.items():
        amount = each.get(name, Fraction())
        if amount > 0:
            room = (limit - used.resources.get(name, Fraction())) // amount
            limited = f"KwokCapacityPool {pool.name} has no more {name}"
            yield _Bound(max(0, room), pool.name, limited)


def _refusal(serials: tuple[int, ...], bound: _Bound, pools: Mapping[str, CapacityPool]) -> Refused:
    error = CloudError() if bound.pool is None else pools[bound.pool].error
    reason = OUT_OF_STOCK if bound.pool is None else POOL_EXHAUSTED
    return Refused(serials, bound.pool, reason, Fault.of(error, cause=bound.limited))
