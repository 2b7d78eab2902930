"""Plays groups of a simulated cloud, step by step, by the rules of `kwok_operator.cloud`.

    groups + pools + who wants how many when  --rehearse-->  tracks: an instance's spans of state

Only what the operator does with these rules is told again here, as simply as can be: it asks for
what is missing, takes back what has not come, and deletes the newest Nodes. No API server takes
time here, so what is drawn is what is drawn by lot, and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hack.cloudpictures.course import Course
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.arrival import retry_span
from kwok_operator.cloud.desired import give_notice
from kwok_operator.cloud.draws import SECOND, instance_seed
from kwok_operator.cloud.life import DesiredNode, Life, deletion_delay
from kwok_operator.cloud.states import Phase, State
from kwok_operator.cloud.stock import Amounts, CapacityPool, Holder, StockRequest, decide
from kwok_operator.cloud.terms import in_force
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.template import resolve

_WITHOUT_NODE = frozenset(
    {State.WAITING, State.CREATING, State.FAILED, State.UNREGISTERED, State.DUE}
)


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its cloud as it is in force, and what one of its nodes takes of a pool."""

    name: str
    target: int
    cloud: Cloud
    each: Amounts

    @classmethod
    def of(cls, name: str, spec: KwokNodeGroupSpec) -> "Group":
        capacity = resolve(spec.template, guard=spec.guard_taint)["status"]["capacity"]
        each = {resource: parse_quantity(amount) for resource, amount in capacity.items()}
        return cls(name, spec.target_size or 0, in_force(spec) or Cloud(), each)


@dataclass(frozen=True, slots=True)
class Wish:
    """That a group has another target from a second on."""

    at: int
    group: str
    target: int


@dataclass(slots=True)
class Span:
    """A state for a time, in milliseconds."""

    state: State
    start: int
    end: int


@dataclass(slots=True)
class Track:
    """An instance; what it was not yet, or is no more, has no span."""

    group: Group
    serial: int
    requested_at: int
    spans: list[Span] = field(default_factory=list)
    granted_at: int | None = None
    refused_at: int | None = None
    noticed_at: int | None = None
    delete_at: int | None = None
    gone: bool = False
    _course: Course | None = None
    _life: Life | None = None
    _moment: Phase | DesiredNode | None = None
    """As it was last looked at: it holds until it says."""

    def grant(self, at: int) -> None:
        self.granted_at, self.refused_at = at, None
        name, serial = self.group.name, self.serial
        self._course = Course.of(self.group.cloud, group=name, serial=serial, requested_at=at)
        self._life = self._course.life()

    @property
    def life(self) -> Life | None:
        """That of its Node, with the notice that it was given where others decide on it."""
        interruptions = self.group.cloud.interruptions
        if self._life is None or interruptions is None or interruptions.at_a_time is None:
            return self._life
        return self._life.noticed(self.noticed_at)

    def asks(self, now: int) -> bool:
        """Whether it is to be decided now if it gets room."""
        if self.granted_at is not None or self.gone:
            return False
        retry = retry_span(self.group.cloud)
        return self.refused_at is None or (retry is not None and now >= self.refused_at + retry)

    def state(self, now: int) -> State:
        if self.delete_at is not None:
            return State.DELETING if now < self.delete_at else State.GONE
        if self._course is None:
            return State.WAITING if self.refused_at is None else State.FAILED
        if self._moment is None or now >= (self._moment.until or now + 1):
            moment, life = self._course.at(now), self.life
            self._moment = life.desired(now) if isinstance(moment, DesiredNode) and life else moment
        return self._moment.state

    def give_notice(self, now: int) -> None:
        self.noticed_at, self._moment = now, None

    def due_for_notice(self, now: int) -> Life | None:
        """Its life, if it has a Node that has not been given notice."""
        there = self.state(now) not in _WITHOUT_NODE | {State.GONE, State.DELETING}
        return self._life if there and self.noticed_at is None else None

    def delete(self, now: int) -> None:
        who = instance_seed(self.group.cloud, group=self.group.name, serial=self.serial)
        stuck = 0 if self.state(now) in _WITHOUT_NODE else deletion_delay(self.group.cloud, who)
        self.delete_at = now + stuck
        self.gone = not stuck

    def note(self, state: State, now: int, step: int) -> None:
        if self.spans and self.spans[-1].state is state:
            self.spans[-1].end = now + step
        else:
            self.spans.append(Span(state, now, now + step))


def rehearse(
    groups: Sequence[Group],
    pools: Mapping[str, CapacityPool],
    wishes: Iterable[Wish] = (),
    *,
    end: int,
    step: int = SECOND,
) -> list[Track]:
    """From the moment that the groups are applied until `end`; both in milliseconds.

    Gives all instances there were, by group and serial.
    """
    targets = {group.name: group.target for group in groups}
    tracks: dict[str, list[Track]] = {group.name: [] for group in groups}
    coming = sorted(wishes, key=lambda wish: wish.at)
    for now in range(0, end, step):
        while coming and coming[0].at * SECOND <= now:
            wish = coming.pop(0)
            targets[wish.group] = wish.target
        for group in groups:
            _bring_to_target(group, tracks[group.name], targets[group.name], now)
        every = [track for name in tracks for track in tracks[name]]
        _decide(groups, [track for track in every if not track.gone], pools, now)
        for group in groups:
            _give_notice(group, [t for t in tracks[group.name] if not t.gone], now)
        for track in every:
            if not track.gone:
                state = track.state(now)
                track.gone = state is State.GONE
                if not track.gone:
                    track.note(state, now, step)
    return [track for group in groups for track in tracks[group.name]]


def _bring_to_target(group: Group, tracks: list[Track], target: int, now: int) -> None:
    for track in tracks:
        track.gone = track.gone or track.state(now) is State.GONE
    staying = [track for track in tracks if not track.gone and track.delete_at is None]
    while len(staying) < target:
        new = Track(group, len(tracks), now)
        tracks.append(new)
        staying.append(new)
    for track in sorted(staying, key=lambda track: _last_to_go(track, now))[target:]:
        track.delete(now)


def _last_to_go(track: Track, now: int) -> tuple[bool, int]:
    """Sorts those that have no Node to the end, and before them the newest."""
    return track.state(now) in _WITHOUT_NODE, track.serial


def _decide(
    groups: Sequence[Group], tracks: Sequence[Track], pools: Mapping[str, CapacityPool], now: int
) -> None:
    for group in sorted(groups, key=lambda group: group.name):
        asking = {t.serial: t for t in tracks if t.group is group and t.asks(now)}
        cloud = group.cloud
        request = StockRequest(
            group.name, [*asking], group.each, cloud.capacity_pools, cloud.stock, cloud.outage
        )
        decision = decide(request, pools=pools, holders=_holders(groups, tracks))
        for serial in decision.granted:
            asking[serial].grant(now)
        refused = decision.refused
        for serial in refused.serials if refused is not None and refused.fault else ():
            asking[serial].refused_at = now


def _holders(groups: Sequence[Group], tracks: Sequence[Track]) -> Iterator[Holder]:
    for group in groups:
        held = [t.serial for t in tracks if t.group is group and t.granted_at is not None]
        yield Holder(group.name, held, group.each, group.cloud.capacity_pools)


def _give_notice(group: Group, tracks: Sequence[Track], now: int) -> None:
    interruptions = group.cloud.interruptions
    if interruptions is None or interruptions.at_a_time is None:
        return
    lives = {track.serial: life for track in tracks if (life := track.due_for_notice(now))}
    under_way = sum(track.noticed_at is not None for track in tracks)
    told = give_notice(lives, at_a_time=interruptions.at_a_time, under_way=under_way, now=now)
    for track in tracks:
        if track.serial in told:
            track.give_notice(now)
