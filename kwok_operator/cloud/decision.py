"""What the simulated cloud adds to a pass: what it has seen before the plan, and what it decides.

Values only; `clouds` makes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kwok_operator.cloud.annotations import mark_on
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.api.cloudstatus import CloudStatus
from kwok_operator.cloud.desired import DesiredNodes
from kwok_operator.cloud.shaping import shows_notice
from kwok_operator.cloud.states import State
from kwok_operator.nodegroups.api.status import Verdict
from kwok_operator.nodegroups.observation import Observation
from kwok_operator.nodegroups.plan import Plan


@dataclass(frozen=True, slots=True)
class ObservedCloud:
    """What a pass knows of the group's cloud before it plans. `now` is milliseconds."""

    now: int
    cloud: Cloud
    outage_since: int | None
    outage: Verdict
    nodes: DesiredNodes


@dataclass(frozen=True, slots=True)
class CloudDecision:
    """What the simulated cloud makes of a plan.

    `plan` creates only what is due, and deletes only what is not put off. `due` is since when what
    is created is due, by serial; `reshape` has the nodes that don't show what they should,
    `postpone` those whose deletion is put off until a time. `look_again` is in seconds. `failures`
    are the tries that have failed since the pass before, by the class of the error.
    """

    observed: ObservedCloud
    plan: Plan
    status: CloudStatus
    provisioned: Verdict
    states: Mapping[State, int]
    failed: int
    due: Mapping[int, int]
    reshape: tuple[int, ...]
    postpone: Mapping[str, int]
    look_again: float | None
    failures: Mapping[str, int]

    @property
    def writes(self) -> bool:
        """Whether there is something to write beside what the plan says."""
        return bool(self.reshape or self.postpone)

    def undone(self, seen: Observation) -> Iterator[str]:
        """The nodes that are held not Ready, and are Ready."""
        for serial in self.reshape:
            record = seen.records[serial]
            mark = mark_on(record.mark)
            held = mark is not None and mark.hold
            if held and record.ready and not self.observed.nodes.desired[serial].ready:
                yield record.name

    def notices(self, seen: Observation) -> dict[str, list[str]]:
        """The nodes that get notice now, by reason."""
        found: dict[str, list[str]] = {}
        for serial in self.reshape:
            desired, record = self.observed.nodes.desired[serial], seen.records[serial]
            if desired.noticed and not shows_notice(mark_on(record.mark)):
                found.setdefault(desired.reason, []).append(record.name)
        return found
