"""The whole course of one instance: asked for, arrived, gone.

    Course(cloud, group, serial, requested at) --at--> Moment: state, since, until, reason

A pure function of these four, so it can be looked at at any time and in any order. It shows what a
spec does to an instance that meets no others and no edits; the operator works with the two halves,
`arrival` for what has no Node, `life` for what has one.
"""

from dataclasses import dataclass

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.arrival import phases, walk
from kwok_operator.cloud.draws import InstanceSeed, instance_seed
from kwok_operator.cloud.life import DesiredNode, Life, draw_life
from kwok_operator.cloud.states import Phase, State
from kwok_operator.cloud.terms import History


@dataclass(frozen=True, slots=True)
class Course:
    """`requested_at` is in milliseconds."""

    cloud: Cloud
    who: InstanceSeed
    requested_at: int

    @classmethod
    def of(cls, cloud: Cloud, *, group: str, serial: int, requested_at: int) -> "Course":
        return cls(cloud, instance_seed(cloud, group=group, serial=serial), requested_at)

    def at(self, now: int) -> Phase | DesiredNode:
        """A Phase before there is a Node, a DesiredNode after."""
        history = History.always(self.cloud)
        *_, phase = walk(history, self.who, requested_at=self.requested_at, now=now)
        if phase.state is not State.DUE or now < phase.since:
            return phase
        return self._born(phase.since).desired(now)

    def next_change(self, now: int) -> int | None:
        """When to look again: later than now; None where nothing changes any more."""
        return self.at(max(now, self.requested_at)).until

    def life(self) -> Life | None:
        """That of its Node; None where there never is one."""
        history = History.always(self.cloud)
        for phase in phases(history, self.who, requested_at=self.requested_at):
            if phase.state is State.DUE:
                return self._born(phase.since)
        return None

    def _born(self, at: int) -> Life:
        return draw_life(self.cloud, self.who, born=at)
