"""Instances of a simulated cloud that have no Node, as cluster-autoscaler (CA) is told of them.

    status.cloud, status.pending, nodes, clock  --Arrivals.told-->  an Instance for each

The operator works out the same phases from the same record. Nothing is written here, and what was
worked out is kept while the record says the same, so that thousands that wait aren't drawn anew in
each loop of CA.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final

from kwok_operator.cloud.api import cloud
from kwok_operator.cloud.api.cloudstatus import CloudStatus
from kwok_operator.cloud.record import CloudRecord, outstanding
from kwok_operator.cloud.states import Fault, Phase
from kwok_operator.cloud.summary import InstanceState, autoscaler_state
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.serials import Batch
from kwok_operator.nodegroups.status import batches_of
from kwok_operator.shim.messages import (
    CREATING,
    DELETING,
    RUNNING,
    InstanceErrorClass,
    InstanceFailure,
)
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.store import Store

_STATES: Final = {
    InstanceState.CREATING: CREATING,
    InstanceState.RUNNING: RUNNING,
    InstanceState.DELETING: DELETING,
}
_OUT_OF_RESOURCES: Final = frozenset(
    {cloud.ErrorClass.OUT_OF_RESOURCES, cloud.ErrorClass.QUOTA_EXCEEDED}
)

Told = tuple[pb.InstanceStatus.InstanceState, InstanceFailure | None]


@dataclass(slots=True)
class _Kept:
    """What was worked out from a group as it was; `asked` is when each serial was asked for."""

    group: Group
    record: CloudRecord
    batches: tuple[Batch, ...]
    asked: Mapping[int, str]
    phases: dict[int, Phase]


class Arrivals:
    """Forget the groups that are gone: nobody else does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}

    @property
    def known(self) -> list[str]:
        """The uids of groups that something is kept of."""
        return list(self._kept)

    def told(self, group: Group) -> Callable[[int], Told]:
        """State and error of each serial of the group that has no Node.

        An error that is due to be tried again is one until the operator has written down how that
        went. What isn't known of is being created.
        """
        status = group.status.cloud
        if status is None or not group.status.pending:
            self._kept.pop(group.uid, None)
            return _creating
        kept = self._kept[group.uid] = self._current(group, status)
        # An outage is left out: it keeps from coming what is due, and either is being created.
        parts = outstanding(
            kept.record,
            kept.batches,
            group=group.name,
            arrived=self._store.arrived(group),
            now=int(self._store.now() * 1_000),
            known=kept.phases,
        )
        phases = kept.phases = {s: p for part in parts for s, p in part.items()}

        def one(serial: int) -> Told:
            phase = phases.get(serial)
            return _creating(serial) if phase is None else _told(phase)

        return one

    def keep(self, uids: Container[str]) -> None:
        """Forgets all groups but these."""
        for uid in [uid for uid in self._kept if uid not in uids]:
            del self._kept[uid]

    def _current(self, group: Group, status: CloudStatus) -> _Kept:
        """With the phases that hold for the group as it is now."""
        kept = self._kept.get(group.uid)
        if kept is not None and kept.group is group:
            return kept
        batches = batches_of(group.status)
        asked = {serial: batch.requested_at for batch in batches for serial in batch}
        known = kept.group.status.cloud if kept is not None else None
        if kept is None or (known and (known.terms, known.refused)) != (
            status.terms,
            status.refused,
        ):
            return _Kept(group, CloudRecord.read(status, batches), batches, asked, {})
        same = {s: p for s, p in kept.phases.items() if kept.asked.get(s) == asked.get(s)}
        return _Kept(group, kept.record, batches, asked, same)


def _creating(_: int) -> Told:
    return CREATING, None


def _told(phase: Phase) -> Told:
    state, fault = autoscaler_state(phase.state, phase.fault)
    return _STATES[state], None if fault is None else _failure(fault)


def _failure(fault: Fault) -> InstanceFailure:
    lacking = fault.error_class in _OUT_OF_RESOURCES
    kind = InstanceErrorClass.OUT_OF_RESOURCES if lacking else InstanceErrorClass.OTHER
    return InstanceFailure(fault.code, fault.message, kind)
