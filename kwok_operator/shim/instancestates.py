"""The state of each instance that has no Node, as reported to cluster-autoscaler (CA).

    status.cloud, status.pending, Nodes, clock  --InstanceStates.read-->  states and errors

States are computed from `status.cloud`, as in the operator. Results are kept while it is unchanged,
so that thousands of waiting instances aren't computed again in each loop of CA.
"""

import asyncio
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from kwok_operator.cloud.api import cloud
from kwok_operator.cloud.api.cloudstatus import CloudStatus
from kwok_operator.cloud.record import CloudRecord, outstanding
from kwok_operator.cloud.states import Fault, Phase
from kwok_operator.cloud.summary import InstanceState, autoscaler_state
from kwok_operator.cloud.units import Units
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
from kwok_operator.topology.record import recorded_places

_STATES: Final = {
    InstanceState.CREATING: CREATING,
    InstanceState.RUNNING: RUNNING,
    InstanceState.DELETING: DELETING,
}
_OUT_OF_RESOURCES: Final = frozenset(
    {cloud.ErrorClass.OUT_OF_RESOURCES, cloud.ErrorClass.QUOTA_EXCEEDED}
)

State = tuple[pb.InstanceStatus.InstanceState, InstanceFailure | None]
UNKNOWN: Final[State] = (CREATING, None)
"""The state of an instance that the record (`status.cloud`) doesn't mention."""


@dataclass(slots=True)
class _Kept:
    """The phases (state and error) computed for a group's instances, by serial, and what they were
    computed from. `dates`: when the instance with each serial was requested."""

    group: Group
    record: CloudRecord
    batches: tuple[Batch, ...]
    dates: Mapping[int, str]
    phases: dict[int, Phase]
    units: Units


class InstanceStates:
    """The states of the instances of all groups. Its owner must call `keep` from time to time, or
    deleted groups are never forgotten."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}

    @property
    def known(self) -> list[str]:
        """Returns the uids of the groups whose states are cached."""
        return list(self._kept)

    async def read(self, group: Group) -> dict[int, State]:
        """Returns the states of instances without a Node, by serial. The state of an instance that
        is left out is UNKNOWN.

        After a failed try to create an instance, the error is reported until the operator has
        recorded the result of the next try.
        """
        status = group.status.cloud
        if status is None or not group.status.pending:
            self._kept.pop(group.uid, None)
            return {}
        kept = self._kept[group.uid] = self._current(group, status)
        # Outages are ignored: during one, instances that are due wait, and CA sees both as being
        # created.
        parts = outstanding(
            kept.record,
            kept.batches,
            group=group.name,
            arrived=self._store.arrived(group),
            now=int(self._store.now() * 1_000),
            known=kept.phases,
            units=kept.units,
        )
        phases: dict[int, Phase] = {}
        for part in parts:
            if phases:
                await asyncio.sleep(0)  # the first time takes seconds after many tries
            phases |= part
        kept.phases = phases
        return {serial: _state(phase) for serial, phase in phases.items()}

    def keep(self, uids: Container[str]) -> None:
        """Forgets all groups but those with these uids."""
        for uid in [uid for uid in self._kept if uid not in uids]:
            del self._kept[uid]

    def _current(self, group: Group, status: CloudStatus) -> _Kept:
        """Returns what is cached of the group, for its present status: without the phases of
        instances for which the status has changed."""
        kept = self._kept.get(group.uid)
        if kept is not None and kept.group is group:
            return kept
        batches = batches_of(group.status)
        dates = {serial: batch.requested_at for batch in batches for serial in batch}
        units = Units.of(group.status.resolved_template, recorded_places(group.status))
        known = kept.group.status.cloud if kept is not None else None
        if kept is None or (known and (known.terms, known.refused)) != (
            status.terms,
            status.refused,
        ):
            return _Kept(group, CloudRecord.read(status, batches), batches, dates, {}, units)
        same = {s: p for s, p in kept.phases.items() if kept.dates.get(s) == dates.get(s)}
        return _Kept(group, kept.record, batches, dates, same, units)


def _state(phase: Phase) -> State:
    state, fault = autoscaler_state(phase.state, phase.fault)
    return _STATES[state], None if fault is None else _failure(fault)


def _failure(fault: Fault) -> InstanceFailure:
    lacking = fault.error_class in _OUT_OF_RESOURCES
    kind = InstanceErrorClass.OUT_OF_RESOURCES if lacking else InstanceErrorClass.OTHER
    return InstanceFailure(fault.code, fault.message, kind)
