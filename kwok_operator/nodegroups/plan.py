"""Works out what a group needs next: which serials to create, which nodes to delete or to patch.

    spec + ObservedGroup (nodes, recorded batches) + bounds  --make_plan-->  Plan

An instance is a serial: first requested (recorded in a batch), then a node, then gone. Each pass
makes a new plan from what it observes and remembers none, so a plan can be thrown away at any
instant: what must survive is in `Plan.batches` and `Plan.next_serial`, which are written before the
first node is.

Three modules change a plan afterwards: reconciler.py shortens `create` by the number of nodes that
vanished from the watch and may still exist, topology/step.py leaves out instances whose place such
a node may still have, and cloud/clouds.py replaces `batches`, `create` and `delete`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec, UpdateStrategyType
from kwok_operator.nodegroups.api.status import LAST_SERIAL
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.serials import Batch, compact, in_batches

NODE_LIMIT: Final = "NodeLimit"
NO_ADDRESSES: Final = "NoAddresses"
NO_NAMES: Final = "NoNames"
WAITING: Final = (NODE_LIMIT, NO_ADDRESSES, NO_NAMES)
"""The reasons of limits that may go away: the instances that wait are then created."""


@dataclass(frozen=True, slots=True)
class Places:
    """The blocks of addresses that serials can have. There are `number` blocks; serials that are
    equal modulo `number` share one. `taken(serial)` returns 0 if the serial's block is free, else
    for how many serials, from this one on, the block is taken."""

    number: int
    taken: Callable[[int], int]

    def without(self, serials: Iterable[int]) -> "Places":
        """Returns a copy in which the blocks of these serials count as taken, too."""
        kept, number = frozenset([s % self.number for s in serials]), self.number
        return replace(self, taken=lambda s: self.taken(s) or int(s % number in kept))


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """A group as observed.

    `nodes` maps the serial of each node that is ours and not terminating to its name; `terminating`
    has the serials of those being deleted. `gone` are serials whose node existed and no longer
    does, or whose name belongs to a foreign node. `held` is the number of nodes that the group
    keeps if its spec has no number: the target last in force. `room` is how many nodes it may have
    within the operator's limit for all groups together.

    `outdated` are those of the `nodes` that were made from an earlier template; without a usable
    template there are none. `ready` are those that are Ready, `usable` those of them that take
    pods; both are only filled if there are outdated ones. `finalizing` is the number of deleted
    nodes that a finalizer keeps; `room` is already reduced by them. `ended` are those that the
    simulated cloud takes back: they are deleted whatever the target, as are nodes that the spec
    names. `places` is set if nodes have addresses of their own.
    """

    nodes: Mapping[int, str]
    terminating: frozenset[int]
    gone: frozenset[int]
    batches: tuple[Batch, ...]
    next_serial: int
    held: int | None
    room: int
    ready: frozenset[int] = frozenset()
    usable: frozenset[int] = frozenset()
    outdated: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    places: Places | None = None
    finalizing: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """Why the target in force differs from the requested one."""

    reason: str
    message: str

    @property
    def keeps_waiting(self) -> bool:
        return self.reason in WAITING


@dataclass(frozen=True, slots=True)
class Target:
    """The number of nodes to reach, the requested number, and the limit that made them differ,
    if any."""

    value: int
    wanted: int
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """An update of outdated nodes to the present template.

    `max_unavailable` is None if nodes are patched and not replaced. `held` means that none may be
    replaced: the group has more nodes than the operator's limit leaves for it, so it could not
    create the new ones.
    """

    strategy: UpdateStrategyType
    max_unavailable: int | None = None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a group needs next.

    `pending` are the serials that were requested and have no node yet, oldest first; `create` those
    of them that may be created now. `delete` and `update` (to be patched) are names of nodes;
    `unknown` are names to delete to which no node belongs. `batches` and `next_serial` must be
    recorded before anything is created or deleted. Of the nodes to delete, `replaced` is how many
    `rollout` replaces, and `ended` how many the simulated cloud takes back. `standing` maps
    `pending` serials to their places, if the group has a topology (topology/).
    """

    target: Target
    pending: tuple[int, ...]
    create: tuple[int, ...]
    delete: tuple[str, ...]
    batches: tuple[Batch, ...]
    next_serial: int
    unknown: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    replaced: int = 0
    ended: int = 0
    rollout: Rollout | None = None
    standing: Mapping[int, int] = field(default_factory=dict)


def bounded_target(spec: KwokNodeGroupSpec, observed: ObservedGroup, *, staying: int) -> Target:
    """Returns min(max(targetSize, minSize), maxSize, the limit for all groups), and which one
    decided.

    The limit for all groups makes a group wait, but never deletes existing nodes: `staying` is the
    number of nodes that nobody has named to be deleted.
    """
    held = observed.held if observed.held is not None else len(observed.nodes)
    wanted = spec.target_size if spec.target_size is not None else held
    value, limit = wanted, None
    bounds = spec.autoscaling
    if bounds is not None and value < bounds.min_size:
        value = bounds.min_size
        limit = Limit("MinSize", f"autoscaling.minSize is {value}; {wanted} would be fewer.")
    if bounds is not None and bounds.max_size is not None and value > bounds.max_size:
        value = bounds.max_size
        limit = Limit("MaxSize", f"autoscaling.maxSize is {value}; {wanted} would be more.")
    allowed = max(observed.room, min(value, staying))
    if value > allowed:
        limit = Limit(
            NODE_LIMIT,
            f"--max-total-nodes of all groups leaves {allowed} for this one, {value - allowed} of "
            f"{value} wait. Raise the flag or scale other groups down.",
        )
        value = allowed
    return Target(value, wanted, limit)


def make_plan(
    spec: KwokNodeGroupSpec,
    observed: ObservedGroup,
    *,
    names: NodeNames,
    now: str,
    may_create: bool,
) -> Plan:
    """Makes the plan; `now` (RFC 3339) dates requests. Unless `may_create`, it only deletes nodes.

    If the target falls, requested instances without a node are cancelled first (the newest first),
    then nodes are deleted. A node named in `scaleDown.nodesToDelete` is deleted whatever the
    target; the target alone says how many remain.
    """
    named = {n: names.serial(n) for n in sorted(spec.scale_down.nodes_to_delete)}
    condemned = {s for s in named.values() if s is not None} | observed.ended
    staying = [s for s in sorted(observed.nodes) if s not in condemned]
    target = bounded_target(spec, observed, staying=len(staying))
    arrived = observed.terminating.union(observed.nodes)
    batches = compact(observed.batches, here=arrived, gone=observed.gone)
    absent = [s for b in batches for s in b if s not in arrived and s not in observed.gone]
    if spec.paused:
        rollout = _rollout(spec, observed, staying, target=target.value)
        return Plan(target, tuple(absent), (), (), batches, observed.next_serial, rollout=rollout)

    pending = [s for s in absent if s not in condemned]
    surplus = max(0, len(staying) + len(pending) - target.value)
    taken_back = pending[len(pending) - min(surplus, len(pending)) :]
    pending = pending[: len(pending) - len(taken_back)]
    leaving = _leaving(spec, observed, staying, count=surplus - len(taken_back))
    staying = _without(staying, leaving)
    rollout = _rollout(spec, observed, staying, target=target.value)
    replaced = _replaced(observed, staying, rollout, target=target.value) if may_create else []
    staying = _without(staying, replaced)
    unwanted = observed.gone | condemned | frozenset([*taken_back, *leaving, *replaced])
    batches, next_serial = compact(batches, here=arrived, gone=unwanted), observed.next_serial

    missing = target.value - len(staying) - len(pending)
    if missing > 0 and (may_create or observed.places is not None):
        free = _free_serials(observed, missing, pending=pending, avoid=condemned)
        target = _shortened(target, observed, missing - len(free))
        if may_create and free:
            pending += free
            batches = (*batches, *in_batches(free, requested_at=now))
            next_serial = free[-1] + 1
    going = sorted(s for s in condemned if s in observed.nodes)
    patched = staying if may_create and _patches(rollout) else []
    return Plan(
        target=target,
        pending=tuple(pending),
        create=tuple(pending) if may_create else (),
        delete=tuple(observed.nodes[s] for s in [*going, *leaving, *replaced]),
        batches=batches,
        next_serial=next_serial,
        unknown=_unknown(named, arrived, observed.batches),
        update=tuple(observed.nodes[s] for s in patched if s in observed.outdated),
        replaced=len(replaced),
        ended=len(observed.ended),
        rollout=rollout,
    )


def max_unavailable(text: str, *, target: int) -> int:
    """Returns `maxUnavailable` as a number of nodes; a percentage is of the target, rounded
    down, but at least 1."""
    if text.endswith("%"):
        return max(1, target * int(text[:-1]) // 100)
    return int(text)


def _leaving(
    spec: KwokNodeGroupSpec, observed: ObservedGroup, staying: list[int], *, count: int
) -> list[int]:
    """Returns `count` serials to delete in `scaleDown.order`.

    The oldest node has the lowest serial. Nodes that a RollingUpdate is going to delete anyway come
    first.
    """
    if count <= 0:
        return []
    order = staying if spec.scale_down.order == "OldestFirst" else staying[::-1]
    if spec.update_strategy.type is UpdateStrategyType.ROLLING_UPDATE:
        order = sorted(order, key=lambda serial: serial not in observed.outdated)
    return order[:count]


def _rollout(
    spec: KwokNodeGroupSpec, observed: ObservedGroup, staying: list[int], *, target: int
) -> Rollout | None:
    strategy = spec.update_strategy
    if strategy.type is UpdateStrategyType.ON_DELETE or observed.outdated.isdisjoint(staying):
        return None
    if strategy.type is UpdateStrategyType.IN_PLACE:
        return Rollout(strategy.type)
    limit = max_unavailable(strategy.rolling_update.max_unavailable, target=target)
    # Where deleted nodes stay, each takes room beside the one in its place.
    held = observed.room < target + bool(observed.finalizing)
    return Rollout(strategy.type, limit, held=held)


def _patches(rollout: Rollout | None) -> bool:
    return rollout is not None and rollout.strategy is UpdateStrategyType.IN_PLACE


def _replaced(
    observed: ObservedGroup, staying: list[int], rollout: Rollout | None, *, target: int
) -> list[int]:
    """Returns the outdated serials to replace now: those that aren't Ready, then those that are
    Ready but not usable, then the oldest of the usable ones.

    Usable nodes are replaced only while at most `max_unavailable` nodes are missing or not usable.
    Of the outdated nodes that are Ready but not usable, at most `max_unavailable` are replaced,
    less the number of all other nodes that are missing or not usable, as the new nodes may become
    unusable for the same reason. A Deployment does so, too.
    """
    if rollout is None or rollout.max_unavailable is None or rollout.held:
        return []
    outdated = [s for s in staying if s in observed.outdated]
    unavailable = target - sum(s in observed.usable for s in staying)
    budget = max(0, rollout.max_unavailable - unavailable)
    not_ready = [s for s in outdated if s not in observed.ready]
    shut = [s for s in outdated if s in observed.ready and s not in observed.usable]
    on_their_way = unavailable - len(shut)
    cleared = shut[: max(0, rollout.max_unavailable - on_their_way)]
    replaced = not_ready + cleared + _without(outdated, not_ready + shut)[:budget]
    return replaced[: observed.room - target] if observed.finalizing else replaced


def _without(serials: list[int], others: list[int]) -> list[int]:
    out = frozenset(others)
    return [s for s in serials if s not in out] if out else serials


def _unknown(
    named: Mapping[str, int | None], arrived: Set[int], asked_for: tuple[Batch, ...]
) -> tuple[str, ...]:
    # Thousands may be named, of dozens of batches: each name is looked for in one of them.
    absent = sorted(s for s in named.values() if s is not None and s not in arrived)
    ends = [(bisect_left(absent, b.first), bisect_right(absent, b.last), b) for b in asked_for]
    asked = {s for first, last, batch in ends for s in absent[first:last] if s not in batch.spent}
    return tuple(
        name for name, s in named.items() if s is None or (s not in arrived and s not in asked)
    )


def _shortened(target: Target, observed: ObservedGroup, short: int) -> Target:
    """Returns the target, lowered by the `short` nodes for which there is no address or no name."""
    if not short:
        return target
    wait = f"{short} of {target.value} wait."
    if observed.places is not None and observed.next_serial + observed.places.number <= LAST_SERIAL:
        limit = Limit(
            NO_ADDRESSES,
            f"template.network has no more addresses that are free: {wait}"
            " Make podCIDR and nodeCIDR larger, or the blocks smaller by a greater blockSize.",
        )
    else:
        limit = Limit(
            NO_NAMES,
            f"status.nextSerial is as high as it can be, which somebody has written: {wait}"
            " Make another group in place of this one.",
        )
    return Target(target.value - short, target.wanted, limit)


def _free_serials(
    observed: ObservedGroup, count: int, *, pending: list[int], avoid: set[int]
) -> list[int]:
    """Returns the next unused serials, at most `count`, that have free addresses and aren't in
    `avoid`.

    No serial is above LAST_SERIAL. Addresses that are taken now may be free in the next pass.
    """
    serial, places, end = observed.next_serial, observed.places, LAST_SERIAL + 1
    if places is not None:
        places, end = places.without(pending), min(end, serial + places.number)
    free = list[int]()
    while len(free) < count and serial < end:
        step = places.taken(serial) if places is not None else 0
        if not step and serial not in avoid:
            free.append(serial)
        serial += step or 1
    return free
