"""The course of a Node from its creation to its end: drawn at creation, and written on the Node.

    spec.cloud + instance + when it is born  --draw_life-->  Life  --dump_life-->  an annotation
    Life + now  --desired-->  how the Node should be, and when to look again

The annotation is part of the request that creates the Node. So the course survives edits and
restarts, and needs no room in status. Without delays, faults or an end there is no annotation.
Times and spans are milliseconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kwok_operator.cloud.api.cloud import Cloud, Flapping, Interruptions
from kwok_operator.cloud.arrival import happens
from kwok_operator.cloud.draws import (
    LONGEST,
    SECOND,
    InstanceSeed,
    drawn,
    milliseconds,
    span_by_rate,
)
from kwok_operator.cloud.states import State

LATE: Final = 60 * SECOND
SHORTEST_LIFE: Final = SECOND
INTERRUPTED: Final = "Interrupted"
"""The reason of an end that the cloud decides on."""


@dataclass(frozen=True, slots=True)
class PassingTaint:
    """A startup taint, removed when the Node is `after` milliseconds old."""

    key: str
    value: str
    effect: str
    after: int


@dataclass(frozen=True, slots=True)
class ComingResource:
    """A resource that appears when the Node is `after` ms old; `amount` is a quantity."""

    name: str
    amount: str
    after: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a Node at the age of `after` ms; notice is given `notice` ms before."""

    after: int
    notice: int
    reason: str

    @property
    def noticed_after(self) -> int:
        """The age at which notice is given. If the life is shorter than its notice, notice is given
        at once and lasts as long as configured: the Node then ends at `gone_after`, later than
        `after`.
        """
        return max(0, self.after - self.notice)

    @property
    def gone_after(self) -> int:
        return self.noticed_after + self.notice


@dataclass(frozen=True, slots=True)
class Spells:
    """How a Node flaps: it is not Ready for `length` in each `period`.

    The first spell begins `first` after the Node gets Ready."""

    period: int
    length: int
    first: int


@dataclass(frozen=True, slots=True)
class DesiredNode:
    """How a Node should be now, and until when that holds (None: for good).

    `since` is when it got into `state`. `taints` are the startup taints that it still has,
    `missing` the resources that it still lacks. `noticed`: it has notice of its end; `gone`: it is
    to be deleted.
    """

    state: State
    since: int
    until: int | None
    reason: str
    ready: bool
    taints: tuple[PassingTaint, ...] = ()
    missing: tuple[ComingResource, ...] = ()
    noticed: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """The course of a Node, drawn when it was created: delays, startup taints, flapping, its end.

    Spans count from `born`; `ready_after` is None if the Node is never Ready.
    """

    born: int
    ready_after: int | None = 0
    taints: tuple[PassingTaint, ...] = ()
    resources: tuple[ComingResource, ...] = ()
    end: End | None = None
    spells: Spells | None = None

    @property
    def notice_at(self) -> int | None:
        """When notice of the Node's end is due; None for never."""
        return None if self.end is None else self.born + self.end.noticed_after

    @property
    def is_perfect(self) -> bool:
        """Whether the cloud changes nothing about the Node (no delay, fault or end), so that
        nothing has to be recorded on it."""
        return self == Life(self.born)

    def noticed(self, at: int | None) -> "Life":
        """Returns this life with its notice moved to the time `at`; without an end if `at` is None.

        It is for groups that limit how many nodes may be under notice at a time.
        """
        if self.end is None or at is None:
            return replace(self, end=None)
        after = max(0, at - self.born) + self.end.notice
        return replace(self, end=replace(self.end, after=after))

    def desired(self, now: int, *, outage_since: int | None = None) -> DesiredNode:
        """Returns how the Node should be at `now`; a time before its birth counts as its birth."""
        age = max(0, now - self.born)
        end, spell = self.end, self._spell(age)
        if end is not None and age >= end.gone_after:
            return DesiredNode(
                State.GONE, self.born + end.gone_after, None, end.reason, ready=False, gone=True
            )
        taints = tuple(taint for taint in self.taints if age < taint.after)
        missing = tuple(resource for resource in self.resources if age < resource.after)
        state, since, reason = self._state(age, spell, taints, missing)
        ready = state in (State.READY, State.INITIALIZING)
        if ready and outage_since is not None:
            ready = False
            state, since, reason = State.NOT_READY, outage_since - self.born, "Outage"
        noticed = end is not None and age >= end.noticed_after
        if end is not None and noticed:
            state, since, reason = State.INTERRUPTED, end.noticed_after, end.reason
        changes = [taint.after for taint in taints] + [part.after for part in missing]
        changes += [end.noticed_after, end.gone_after] if end is not None else []
        changes += [c for c in (self.ready_after, spell and spell[1]) if c is not None]
        return DesiredNode(
            state=state,
            since=self.born + max(0, since),
            until=min((self.born + c for c in changes if c > age), default=None),
            reason=reason,
            ready=ready,
            taints=taints,
            missing=missing,
            noticed=noticed,
        )

    def _state(
        self,
        age: int,
        spell: tuple[int, int | None, bool] | None,
        taints: tuple[PassingTaint, ...],
        missing: tuple[ComingResource, ...],
    ) -> tuple[State, int, str]:
        """Returns the state, the age at which it began, and its reason. Interruptions are left
        aside."""
        if self.ready_after is None:
            return State.NOT_READY, 0, "NeverReady"
        if age < self.ready_after:
            return State.STARTING, 0, "Booting"
        if spell and spell[2]:
            return State.NOT_READY, spell[0], "Flapping"
        since = spell[0] if spell else self.ready_after
        if taints:
            return State.INITIALIZING, since, "StartupTaint"
        if missing:
            return State.INITIALIZING, since, "ResourcesMissing"
        passed = [taint.after for taint in self.taints] + [r.after for r in self.resources]
        return State.READY, max(since, *passed, 0), "Ready"

    def _spell(self, age: int) -> tuple[int, int | None, bool] | None:
        """Returns (begin, end, True) of the present spell of being not Ready, in ages of the Node;
        outside spells, (begin, end, False) of the time until the next one.

        Returns None before the Node is Ready for the first time, and for a Node that doesn't flap.
        """
        spells = self.spells
        if spells is None or self.ready_after is None or age < self.ready_after:
            return None
        first = self.ready_after + spells.first
        if age < first:
            return self.ready_after, first, False
        if spells.length >= spells.period:
            return first, None, True
        start = age - (age - first) % spells.period
        turn, end = start + spells.length, start + spells.period
        return (start, turn, True) if age < turn else (turn, end, False)


def born_at(due: int, *, now: int) -> int:
    """Returns when the life of a Node begins that should be created at `due`, and is created now.

    It begins at `due`, so that the course doesn't depend on how long writes take. But if `due` is
    more than a minute ago (the group was paused, had no template, or no operator ran), it begins
    `now`, as it could be over already otherwise.
    """
    return due if now - due <= LATE else now


def draw_life(
    cloud: Cloud, who: InstanceSeed, *, born: int, capacity: Mapping[str, str] | None = None
) -> Life:
    """Draws the life of a Node that is created now.

    `capacity` is that of the Node, as quantities: only resources in it can come late. Without it,
    all resources that the spec names can.
    """
    never = happens(cloud.failures.never_ready, who, what="never-ready")
    return Life(
        born=born,
        ready_after=None if never else drawn(cloud.readiness_delay, who, what="readiness"),
        taints=tuple(_taints(cloud, who)),
        resources=tuple(_resources(cloud, who, capacity)),
        end=_end(cloud.interruptions, who) if cloud.interruptions else None,
        spells=_spells(cloud.flapping, who) if cloud.flapping else None,
    )


def deletion_delay(cloud: Cloud, who: InstanceSeed) -> int:
    """Returns by how many milliseconds the DELETE of a Node is put off; mostly 0."""
    slow = cloud.failures.slow_deletion
    if slow is None or not happens(slow, who, what="slow-deletion"):
        return 0
    return drawn(slow.delay, who, what="deletion")


def _taints(cloud: Cloud, who: InstanceSeed) -> Iterable[PassingTaint]:
    for taint in cloud.startup_taints:
        what = f"startup-taint/{taint.key}:{taint.effect}"
        after = drawn(taint.removed_after, who, what=what)
        if after:
            yield PassingTaint(taint.key, taint.value, taint.effect.value, after)


def _resources(
    cloud: Cloud, who: InstanceSeed, capacity: Mapping[str, str] | None
) -> Iterable[ComingResource]:
    for resource in cloud.late_resources:
        after = drawn(resource.after, who, what=f"late-resource/{resource.name}")
        if after and (capacity is None or resource.name in capacity):
            yield ComingResource(resource.name, (capacity or {}).get(resource.name, ""), after)


def _end(interruptions: Interruptions, who: InstanceSeed) -> End | None:
    life = LONGEST
    if interruptions.lifetime is not None:
        life = drawn(interruptions.lifetime, who, what="lifetime")
    elif interruptions.hourly_rate is not None:
        life = span_by_rate(float(interruptions.hourly_rate), who.draw("lifetime"))
    most = interruptions.max_lifetime
    longest = milliseconds(most) if most is not None else LONGEST
    if min(life, longest) >= LONGEST and interruptions.lifetime is None:
        return None
    reason = INTERRUPTED if life <= longest else "MaxLifetime"
    after = max(min(life, longest), SHORTEST_LIFE)
    return End(after, milliseconds(interruptions.notice), reason)


def _spells(flapping: Flapping, who: InstanceSeed) -> Spells | None:
    if who.draw("flapping") >= float(flapping.nodes):
        return None
    period = max(milliseconds(flapping.period), SECOND)
    length = round(period * float(flapping.not_ready))
    if not length:
        return None
    return Spells(period, length, int(who.draw("flapping-phase") * period))
