"""Plays groups of a simulated cloud, second by second, by the operator's own passes.

    manifests + who wants how many when  --rehearse-->  tracks: an instance's spans of state

No API server takes time here, so all that is drawn is by lot.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kwok_operator.cloud.annotations import Mark, mark_on
from kwok_operator.cloud.draws import SECOND
from kwok_operator.cloud.states import State
from kwok_operator.constants import POOL_KIND
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.template import resolve
from tests.cloudworld import World


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


@dataclass(frozen=True, slots=True)
class Track:
    """An instance; what it was not yet, or is no more, has no span."""

    group: str
    serial: int
    spans: list[Span] = field(default_factory=list)

    def note(self, state: State, now: int) -> None:
        if self.spans and self.spans[-1].state is state:
            self.spans[-1].end = now + SECOND
        else:
            self.spans.append(Span(state, now, now + SECOND))


def rehearse(
    manifests: Iterable[Mapping[str, Any]], wishes: Iterable[Wish] = (), *, end: int
) -> list[Track]:
    """From the moment that these are applied, for so many seconds.

    Gives all instances there were, by group and serial.
    """
    world = World()
    for manifest in manifests:
        name, spec = manifest["metadata"]["name"], manifest["spec"]
        if manifest["kind"] == POOL_KIND:
            world.set_pool(name, **spec)
        else:
            read = KwokNodeGroupSpec.model_validate(spec)
            world.templates[name] = resolve(read.template, guard=read.guard_taint)
            world.apply(name, **{"cloud": {}, **spec})
    begun, tracks = world.now, dict[tuple[str, int], Track]()
    for second in range(end):
        for wish in wishes:
            if wish.at == second:
                world.apply(wish.group, targetSize=wish.target)
        for group in world.bodies:
            world.one_pass(group)
            for serial, state in _states(world, group):
                track = tracks.setdefault((group, serial), Track(group, serial))
                track.note(state, world.now - begun)
        world.now += SECOND
    names = list(world.bodies)
    return sorted(tracks.values(), key=lambda track: (names.index(track.group), track.serial))


def _states(world: World, group: str) -> Iterator[tuple[int, State]]:
    """Of each instance that there is after a pass."""
    for serial, phase in world.clouds.phases(group).items():
        if phase.state is not State.DUE:
            yield serial, phase.state
    interruptions = world.bodies[group]["spec"]["cloud"].get("interruptions") or {}
    for node in world.nodes.values():
        if node.group == group and node.serial is not None:
            mark = mark_on(node.mark) or Mark()
            life = mark.lived(capped="atATime" in interruptions)
            yield node.serial, State.DELETING if mark.delete_at else life.desired(world.now).state
