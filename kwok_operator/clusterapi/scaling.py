"""From a scalable's replicas to its group: the target, and who goes.

    spec.replicas, Fleet (the group's instances), Machines  --follow-->  Change of the group's spec

Whoever scales down says first, by an annotation on Machines, which of them; so they are looked at
as they are when the smaller number is known. Then come those that aren't of use yet, and the rest
in the order that the scalable asks for: what Cluster API does (machineset_deletion_order.go).
"""

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

from kwok_operator.clusterapi.scalable import Kind, Scalable
from kwok_operator.formats.untyped import as_map
from kwok_operator.nodegroups.autoscaler import Change, Fleet, with_names


class DeletionOrder(StrEnum):
    """RANDOM is by name."""

    RANDOM = "Random"
    NEWEST = "Newest"
    OLDEST = "Oldest"


@dataclass(frozen=True, slots=True)
class Machines:
    """What their Machines say of instances, by name: `annotated` ones are to go when some are,
    `deleted` ones have been deleted while the instance is there. `usable` ones have a Node that is
    Ready.
    """

    annotated: Set[str] = frozenset()
    deleted: Set[str] = frozenset()
    usable: Set[str] = frozenset()


def deletion_order(scalable: Scalable) -> DeletionOrder:
    """Of either version; what is none of the orders counts as none."""
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
    """What brings the group to so many instances; None where it is on its way.

    A deleted Machine takes its instance with it, and another comes unless fewer are wanted. Below a
    minimum that somebody gave the group, others would only come in their place. Raises RefusedError
    where more would go at once than a spec can name.
    """
    alive = _alive(fleet)
    condemned = {serial for serial, name in alive.items() if name in machines.deleted}
    rest = [serial for serial in alive if serial not in condemned]
    victims: set[int] = set(condemned)
    if needs_machines(fleet, replicas):
        rest.sort(key=lambda serial: _rank(serial, alive[serial], machines, order))
        victims.update(rest[: max(0, len(rest) - max(replicas, fleet.min_size))])
    # What has no serial yet is not named: the smaller target is enough.
    given_out = {alive[serial] for serial in victims if serial < fleet.next_serial}
    if fleet.spec.target_size == replicas and given_out <= fleet.named:
        return None
    # Names of nodes that have gone are taken out whenever something is written anyway.
    names = with_names(fleet, given_out)
    return Change(replicas, names if names != fleet.named else None)


def needs_machines(fleet: Fleet, replicas: int) -> bool:
    """Whether victims are to be chosen, for which Machines have to be read afresh."""
    return max(replicas, fleet.min_size) < fleet.target


def _alive(fleet: Fleet) -> dict[int, str]:
    """The instances that stay unless somebody names them."""
    here = {s: name for s, name in fleet.present.items() if name not in fleet.going}
    return here | {serial: fleet.names.name(serial) for serial in fleet.waiting}


def _rank(
    serial: int, name: str, machines: Machines, order: DeletionOrder
) -> tuple[int, int | str]:
    kind = 2 if name in machines.usable else 1
    if name in machines.annotated:
        kind = 0
    # Serials count up: the lowest is the oldest.
    ages: dict[DeletionOrder, int] = {DeletionOrder.NEWEST: -serial, DeletionOrder.OLDEST: serial}
    return kind, ages.get(order, serial)
