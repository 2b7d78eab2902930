"""Turns requests of cluster-autoscaler (CA) into changes of a group's spec.

    Fleet (spec, status, nodes as seen)  --plan-->  the instances that CA sees
    Fleet + CA's request  --increase, delete, decrease-->  Change; None if nothing changes

A Change names the nodes to delete and lowers the target together, so that the operator never has to
guess which nodes to delete. The operator's next step is computed with the operator's own planner,
so the number of instances that stay equals the target at any instant. As with CA's externalgrpc
provider, deleting an instance that is gone is no error and lowers no target, and failed instances
can be deleted even at the minimum.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from kwok_operator.constants import MAX_NODES_TO_DELETE
from kwok_operator.errors import KwokOperatorError
from kwok_operator.nodegroups.api.autoscaling import Autoscaling
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.autoscalable import MAX_ANSWER
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.plan import ObservedGroup, Plan, make_plan
from kwok_operator.nodegroups.serials import Batch

MOST_INSTANCES: Final = MAX_ANSWER // 20
"""So many instances fit into no answer: each takes more than 20 bytes."""


class RefusalReason(StrEnum):
    """Why a request of CA is refused. The shim has a gRPC status code for each reason."""

    INVALID = "Invalid"
    OUT_OF_RANGE = "OutOfRange"
    AT_MINIMUM = "AtMinimum"
    TOO_MANY = "TooMany"


class RefusedError(KwokOperatorError):
    """A group can't do what CA requests. CA shows the message in its Events."""

    def __init__(self, kind: RefusalReason, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True)
class Fleet:
    """A group and its instances, by serial (the number in the name of a node).

    `present` maps serials to names of Nodes that aren't terminating; `leaving` are the serials of
    terminating Nodes. `batches` have all requested serials, with or without a Node; `gone` are the
    requested serials whose Node no longer exists. `ended` are serials of Nodes that the simulated
    cloud takes back. `next_serial` is the lowest serial that was never used.
    """

    group: str
    names: NodeNames
    spec: KwokNodeGroupSpec
    status: KwokNodeGroupStatus
    present: Mapping[int, str]
    leaving: frozenset[int]
    batches: tuple[Batch, ...]
    next_serial: int
    gone: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()

    @property
    def named(self) -> frozenset[str]:
        """Names in `scaleDown.nodesToDelete`; some of these nodes may be gone already."""
        return self.spec.scale_down.nodes_to_delete

    @property
    def min_size(self) -> int:
        return self.spec.autoscaling.min_size if self.spec.autoscaling else 0

    @property
    def max_size(self) -> int | None:
        return self.spec.autoscaling.max_size if self.spec.autoscaling else None

    @property
    def target(self) -> int:
        """The requested number of nodes, within the group's bounds."""
        return target_of(self.spec, self.status, count=lambda: len(self.present))

    @cached_property
    def pending(self) -> tuple[int, ...]:
        """Requested serials that have no Node yet, oldest first; cancelled ones are included."""
        return tuple(
            serial for batch in self.batches for serial in batch if self._is_absent(serial)
        )

    @cached_property
    def plan(self) -> Plan:
        """The operator's next plan, as if neither --max-total-nodes nor addresses limited it."""
        observed = ObservedGroup(
            nodes=self.present,
            terminating=self.leaving,
            gone=self.gone,
            batches=self.batches,
            next_serial=self.next_serial,
            held=self.status.target_size,
            room=MOST_INSTANCES,
            ended=self.ended,
        )
        return make_plan(self.spec, observed, names=self.names, now="", may_create=True)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Requested serials that have no Node yet and were not cancelled, oldest first.

        Those from `next_serial` on are requested by the spec, but not yet recorded in status.
        """
        return self.plan.pending

    @cached_property
    def going(self) -> frozenset[str]:
        """The names of existing Nodes that are to be deleted."""
        return frozenset(self.plan.delete)

    @property
    def staying(self) -> int:
        """The number of Nodes that are not to be deleted."""
        return len(self.present) - len(self.going)

    def is_waiting(self, serial: int) -> bool:
        return serial in self._waiting

    @cached_property
    def _waiting(self) -> frozenset[int]:
        return frozenset(self.waiting)

    def _is_absent(self, serial: int) -> bool:
        return not (serial in self.present or serial in self.leaving or serial in self.gone)


def target_of(
    spec: KwokNodeGroupSpec, status: KwokNodeGroupStatus, *, count: Callable[[], int]
) -> int:
    """Returns the requested number of nodes, within the group's bounds.

    `count()` returns the number of existing nodes; it is only called if neither spec nor status has
    a target.
    """
    wanted = status.target_size if spec.target_size is None else spec.target_size
    bounds = spec.autoscaling or Autoscaling()
    wanted = max(count() if wanted is None else wanted, bounds.min_size)
    return wanted if bounds.max_size is None else min(wanted, bounds.max_size)


@dataclass(frozen=True, slots=True)
class Victim:
    """An instance that CA wants to delete; `failed` if it never became a node."""

    name: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """The change to write: the new target, and the new `nodesToDelete` if it changes (else
    None)."""

    target: int
    names: frozenset[str] | None = None


def increase(fleet: Fleet, delta: int) -> Change:
    """Returns the change that raises the target by `delta`, and removes names of nodes that are
    gone from `nodesToDelete`. Raises RefusedError if the target would exceed the maximum, or
    `delta` is not positive.
    """
    if delta <= 0:
        raise RefusedError(RefusalReason.INVALID, f"the increase must be positive, and is {delta}")
    target = fleet.target + delta
    if fleet.max_size is not None and target > fleet.max_size:
        raise RefusedError(
            RefusalReason.OUT_OF_RANGE,
            f"group {fleet.group} has a target of {fleet.target} and a maximum of "
            f"{fleet.max_size}: {delta} more are too many",
        )
    pruned = with_names(fleet, ())
    return Change(target, pruned if pruned != fleet.named else None)


def delete(fleet: Fleet, victims: Iterable[Victim]) -> Change | None:
    """Returns the change that deletes `victims` and lowers the target by as many; None if it would
    change nothing. Instances that are to be deleted anyway don't lower the target.

    Raises RefusedError if a victim is no instance of the group, if the target would be below the
    minimum, or if too many nodes would be named for deletion.
    """
    new = {victim.name: victim for victim in victims if _goes(fleet, victim)}
    if not new:
        return None
    fewer = [victim for name, victim in new.items() if name not in fleet.going]
    healthy = sum(not victim.failed for victim in fewer)
    if healthy > fleet.target - fleet.min_size:
        raise RefusedError(
            RefusalReason.AT_MINIMUM,
            f"group {fleet.group} has a target of {fleet.target} and a minimum of "
            f"{fleet.min_size}: {healthy} fewer are too few",
        )
    target = max(fleet.min_size, fleet.target - len(fewer))
    return Change(target, with_names(fleet, new))


def decrease(fleet: Fleet, delta: int) -> Change | None:
    """Returns the change that cancels up to `-delta` instances without a Node, but keeps the target
    at least at the minimum; None if it can cancel none.

    For instances that are in status already, it also puts their names into `nodesToDelete`, as the
    operator may be creating their Nodes now. Raises RefusedError if `delta` is not negative.
    """
    if delta >= 0:
        raise RefusedError(RefusalReason.INVALID, f"the decrease must be negative, and is {delta}")
    target = max(fleet.target + delta, fleet.min_size, fleet.staying)
    if target >= fleet.target:
        return None
    taken_back = fleet.waiting[target - fleet.staying :]
    given_out = {fleet.names.name(s) for s in taken_back if s < fleet.next_serial}
    return Change(target, with_names(fleet, given_out) if given_out else None)


def _goes(fleet: Fleet, victim: Victim) -> bool:
    """Whether the victim must be added to `nodesToDelete`: it isn't named there yet, and its Node
    exists or may still be created. Raises RefusedError if it is no instance of the group."""
    serial = fleet.names.serial(victim.name)
    if serial is None or (serial >= fleet.next_serial and not fleet.is_waiting(serial)):
        raise RefusedError(
            RefusalReason.INVALID,
            f"{victim.name} is no instance of group {fleet.group}; nothing is done",
        )
    there = fleet.present.get(serial) == victim.name or fleet.is_waiting(serial)
    return there and victim.name not in fleet.named


def with_names(fleet: Fleet, going: Iterable[str]) -> frozenset[str]:
    """Returns the names to delete: those in the spec whose nodes still exist, and `going`. Raises
    RefusedError if there are too many."""
    kept = {name for name in fleet.named if _is_known(fleet, name)}
    names = kept | set(going)
    if len(names) > MAX_NODES_TO_DELETE:
        raise RefusedError(
            RefusalReason.TOO_MANY,
            f"group {fleet.group} would have {len(names)} nodes to delete at once, of at most "
            f"{MAX_NODES_TO_DELETE}; try again when some are gone",
        )
    return frozenset(names)


def _is_known(fleet: Fleet, name: str) -> bool:
    """Whether a name in `nodesToDelete` still has an effect: its instance exists or may still be
    created, or its serial is not used yet (the operator will skip this serial)."""
    serial = fleet.names.serial(name)
    if serial is None:
        return False
    if serial in fleet.present or serial in fleet.leaving or serial >= fleet.next_serial:
        return True
    return serial not in fleet.gone and any(serial in batch for batch in fleet.batches)
