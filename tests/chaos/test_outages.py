"""What the operator stands on goes away in the middle of a scale, and comes back."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.chaos.faults import API_SERVER, ETCD, Faults
from tests.chaos.world import World
from tests.e2e.api import GROUPS

AWAY: dict[str, Callable[[Faults], AbstractContextManager[None]]] = {
    "api-server-frozen": lambda faults: faults.frozen(API_SERVER),
    "api-server-killed": lambda faults: faults.killed(API_SERVER),
    "etcd-frozen": lambda faults: faults.frozen(ETCD),
    "kwok-frozen": Faults.kwok_frozen,
    "kwok-killed": Faults.kwok_killed,
}


@pytest.mark.parametrize("what", AWAY)
def test_away_in_the_middle_of_a_scale(world: World, what: str) -> None:
    world.go_on()
    for size in world.ways():
        with world.scaling(to=size), AWAY[what](world.faults):
            time.sleep(world.scope.outage)
        world.converges()
    status = world.api.get(f"{GROUPS}/{world.name}")["status"]
    assert status["nextSerial"] == world.scope.nodes, "no node was asked for twice"
