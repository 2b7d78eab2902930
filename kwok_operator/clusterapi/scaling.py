"""Computes how a scalable's replicas change its group: the target, and the nodes to delete.

    spec.replicas, Fleet (the group's instances), Machines  --follow-->  Change of the group's spec

cluster-autoscaler annotates the Machines to delete before it lowers the replicas, so Machines are
read again once the smaller number is known. Annotated Machines are deleted first, then Machines
without a Ready Node, then all other Machines in the scalable's deletion order, as in Cluster API
(machineset_deletion_order.go).
"""

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from kwok_operator.clusterapi.scalable import Kind, Scalable
from kwok_operator.formats.untyped import as_map
from kwok_operator.nodegroups.autoscaler import Change, Fleet, with_names


class DeletionOrder(StrEnum):
    """Which Machines are deleted first.

    For RANDOM, Cluster API sorts by name, as its names end in random letters. Ours count up, so
    they are sorted by a hash of the name. This order is always the same, too, and has nothing to do
    with age.
    """

    RANDOM = "Random"
    NEWEST = "Newest"
    OLDEST = "Oldest"


@dataclass(frozen=True, slots=True)
class Machines:
    """Names of a group's Machines: `annotated` ones are to be deleted first; `deleted` ones were
    deleted by somebody while their instance exists; `usable` ones have a Ready Node."""

    annotated: Set[str] = frozenset()
    deleted: Set[str] = frozenset()
    usable: Set[str] = frozenset()


def deletion_order(scalable: Scalable) -> DeletionOrder:
    """Reads the deletion order, in either API version; an unknown one counts as RANDOM."""
    spec = scalable.spec
    rolling = as_map(as_map(spec.get("strategy")).get("rollingUpdate"))
    given = (
        as_map(spec.get("deletion")).get("order"),
        (rolling if scalable.kind is Kind.MACHINE_DEPLOYMENT else spec).get("deletePolicy"),
    )
    for text in given:
        if text in tuple(DeletionOrder):
            return DeletionOrder(text)
    return DeletionOrder.RANDOM


def follow(
    fleet: Fleet, replicas: int, machines: Machines, *, order: DeletionOrder
) -> Change | None:
    """Returns the change that brings the group to `replicas` instances; None if none is needed.

    If somebody has deleted a Machine, its instance is deleted, too, and replaced unless fewer
    instances are wanted. The group never gets fewer instances than its own minimum, as the operator
    would replace them. Raises RefusedError if more nodes would be deleted at once than a group's
    spec can name.
    """
    alive = _alive(fleet)
    condemned = {serial for serial, name in alive.items() if name in machines.deleted}
    rest = [serial for serial in alive if serial not in condemned]
    victims: set[int] = set(condemned)
    if needs_machines(fleet, replicas):
        rest.sort(key=lambda serial: _rank(serial, alive[serial], machines, order))
        victims.update(rest[: max(0, len(rest) - max(replicas, fleet.min_size))])
    # Instances whose serial is not used yet need no name: the smaller target cancels them.
    given_out = {alive[serial] for serial in victims if serial < fleet.next_serial}
    if fleet.spec.target_size == replicas and given_out <= fleet.named:
        return None
    # Names of nodes that are gone are removed only together with another change.
    names = with_names(fleet, given_out)
    return Change(replicas, names if names != fleet.named else None)


def without_retries(
    fleet: Fleet, replicas: int, machines: Machines, *, recently: bool
) -> tuple[int, bool]:
    """Returns the replicas without Karpenter's repeated reductions, and whether Machines that
    Karpenter has annotated exist. `recently`: such Machines existed a short time ago.

    Karpenter annotates a Machine that it deletes, and lowers the replicas. It may lower them again
    for the same Machine until it sees the Machine's deletionTimestamp. So after an annotation, the
    result counts at least all Machines that aren't annotated.
    """
    alive = frozenset(_alive(fleet).values())
    chosen = alive & machines.annotated
    retries = bool(chosen) or recently
    return max(replicas, len(alive - chosen)) if retries else replicas, bool(chosen)


def needs_machines(fleet: Fleet, replicas: int) -> bool:
    """Whether there are more instances than wanted. If so, the caller lists the Machines again, as
    their newest annotations decide which instances are deleted.
    """
    return max(replicas, fleet.min_size) < fleet.target


def _alive(fleet: Fleet) -> dict[int, str]:
    """The instances that are not being deleted, by serial."""
    here = {s: name for s, name in fleet.present.items() if name not in fleet.going}
    return here | {serial: fleet.names.name(serial) for serial in fleet.waiting}


def _rank(
    serial: int, name: str, machines: Machines, order: DeletionOrder
) -> tuple[int, int | str]:
    kind = 2 if name in machines.usable else 1
    if name in machines.annotated:
        kind = 0
    if order is DeletionOrder.RANDOM:
        return kind, sha256(name.encode()).hexdigest()
    # Serials count up, so the lowest is the oldest.
    return kind, -serial if order is DeletionOrder.NEWEST else serial
