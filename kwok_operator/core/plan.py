"""What a group needs next: which serials to create, which nodes to delete.

    Wish (spec) + Observed (nodes, recorded batches) + bounds  --make_plan-->  Plan

An instance is a serial: asked for (recorded in a batch), then a node, then gone. A plan is made
anew from what is seen every time and never remembered, so it can be thrown away at any instant:
what must survive is in `Plan.batches` and `Plan.next_serial`, which are written before the first
node is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kwok_operator.core.naming import NodeNames
from kwok_operator.core.serials import Batch, compact
from kwok_operator.models.nodegroup import KwokNodeGroupSpec


@dataclass(frozen=True, slots=True)
class Observed:
    """A group as it is.

    `nodes` maps the serial of each node that is ours and not terminating to its name;
    `terminating` has the serials of those on their way out. `gone` are serials whose node was
    there and is not any more, or whose name somebody else holds. `held` is the number of nodes
    that the group keeps where its spec names none: the target last in force. `room` is how many
    nodes it may have before the operator's limit for all groups together is reached.
    """

    nodes: Mapping[int, str]
    terminating: frozenset[int]
    gone: frozenset[int]
    batches: tuple[Batch, ...]
    next_serial: int
    held: int | None
    room: int


@dataclass(frozen=True, slots=True)
class Limit:
    """Why the target in force is not the one asked for."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Target:
    """The number of nodes aimed at, what was asked for, and what held it back, if anything did."""

    value: int
    wanted: int
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`pending` are the serials that are asked for and not there, oldest first; `create` those of
    them that may be created now. `delete` are names; `unknown` the names to delete that name
    nothing. `batches` and `next_serial` are to be recorded before anything is created.
    """

    target: Target
    pending: tuple[int, ...]
    create: tuple[int, ...]
    delete: tuple[str, ...]
    batches: tuple[Batch, ...]
    next_serial: int
    unknown: tuple[str, ...] = ()


def bounded_target(spec: KwokNodeGroupSpec, observed: Observed, *, staying: int) -> Target:
    """min(max(targetSize, minSize), maxSize, the limit for all groups), and which of them held.

    The limit for all groups makes a group wait, it never takes nodes away that are there:
    `staying` are those that nobody has named to be deleted.
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
            "NodeLimit",
            f"--max-total-nodes of all groups leaves {allowed} for this one, {value - allowed} of "
            f"{value} wait. Raise the flag or scale other groups down.",
        )
        value = allowed
    return Target(value, wanted, limit)


def make_plan(
    spec: KwokNodeGroupSpec, observed: Observed, *, names: NodeNames, now: str, may_create: bool
) -> Plan:
    """Decides; `now` (RFC 3339) dates what is asked for. Without `may_create` nothing is asked for.

    What has not arrived is taken back before a node is deleted, the newest first. A node named in
    `scaleDown.nodesToDelete` goes whatever the target; the target alone says how many remain.
    """
    named = {n: names.serial(n) for n in sorted(spec.scale_down.nodes_to_delete)}
    condemned = {s for s in named.values() if s is not None}
    staying = [s for s in sorted(observed.nodes) if s not in condemned]
    target = bounded_target(spec, observed, staying=len(staying))
    arrived = observed.nodes.keys() | observed.terminating
    batches = compact(observed.batches, here=arrived, gone=observed.gone)
    absent = [s for b in batches for s in b if s not in arrived and s not in observed.gone]
    if spec.paused:
        return Plan(target, tuple(absent), (), (), batches, observed.next_serial)

    pending = [s for s in absent if s not in condemned]
    surplus = max(0, len(staying) + len(pending) - target.value)
    taken_back = pending[len(pending) - min(surplus, len(pending)) :]
    pending = pending[: len(pending) - len(taken_back)]
    leaving = _leaving(staying, count=surplus - len(taken_back), order=spec.scale_down.order)
    unwanted = observed.gone | condemned | frozenset(taken_back)
    batches = compact(batches, here=arrived, gone=unwanted)
    next_serial = observed.next_serial

    missing = target.value - len(staying) - len(pending)
    if missing > 0 and may_create:
        asked = _ask(next_serial, missing, now=now, avoid=condemned)
        pending += list(asked)
        batches, next_serial = (*batches, asked), asked.last + 1
    going = sorted(condemned & observed.nodes.keys())
    asked_for = observed.batches
    return Plan(
        target=target,
        pending=tuple(pending),
        create=tuple(pending) if may_create else (),
        delete=tuple(observed.nodes[s] for s in [*going, *leaving]),
        batches=batches,
        next_serial=next_serial,
        unknown=tuple(
            name
            for name, s in named.items()
            if s is None or not (s in arrived or any(s in batch for batch in asked_for))
        ),
    )


def _leaving(staying: list[int], *, count: int, order: str) -> list[int]:
    """The serials to delete in `scaleDown.order`; serials count up, so they tell the age."""
    if count <= 0:
        return []
    return staying[:count] if order == "OldestFirst" else staying[: -count - 1 : -1]


def _ask(first: int, count: int, *, now: str, avoid: set[int]) -> Batch:
    last, spent, left = first - 1, set(), count
    while left:
        last += 1
        if last in avoid:
            spent.add(last)
        else:
            left -= 1
    return Batch(first, last, now, frozenset(spent))
