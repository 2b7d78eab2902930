"""What the operator stands on goes away in the middle of a scale, and comes back."""

import time

import pytest

from tests.chaos.faults import API_SERVER, ETCD
from tests.chaos.world import World


@pytest.mark.parametrize("component", [API_SERVER, ETCD])
def test_frozen_in_the_middle_of_a_scale(world: World, component: str) -> None:
    world.start("--max-qps=150")
    for size in world.ways():
        with world.scaling(to=size), world.faults.frozen(component):
            time.sleep(world.scope.outage)
        world.converges()


def test_api_server_killed_in_the_middle_of_a_scale(world: World) -> None:
    world.start("--max-qps=150")
    for size in world.ways():
        with world.scaling(to=size), world.faults.killed(API_SERVER):
            time.sleep(world.scope.outage)
        world.converges()
    world.is_quiet()


@pytest.mark.parametrize("end", ["killed", "frozen"])
def test_kwok_is_away_in_the_middle_of_a_scale(world: World, end: str) -> None:
    world.start("--max-qps=150")
    away = world.faults.kwok_killed() if end == "killed" else world.faults.kwok_frozen()
    with world.scaling(to=world.scope.nodes), away:
        time.sleep(world.scope.outage)
    world.converges()
