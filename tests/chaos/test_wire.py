"""The wire to the API server is bad, in every way that a wire and a busy API server can be."""

import time
from collections.abc import Iterator

import pytest

from tests.chaos.proxy import ALL, READS, WATCHES, WRITES, Fault
from tests.chaos.world import World

STORMS = {
    "slow": [Fault("late", share=0.9, seconds=0.4)],
    "429": [Fault("refused", WRITES, share=0.5, status=429, retry_after=1)],
    "429-of-reads": [Fault("refused", READS | WATCHES, share=0.7, status=429, retry_after=1)],
    "500": [Fault("refused", ALL, share=0.4, status=500)],
    "answers-lost": [Fault("lost", WRITES, share=0.3)],
    "half-answers": [Fault("half", READS | WRITES, share=0.3)],
    "410-on-watch": [Fault("history-gone", WATCHES)],
}

CUTS = 10
HITS = 5
"""Requests that meet a storm before the target changes."""


@pytest.fixture(autouse=True)
def wired(world: World) -> Iterator[None]:
    """The operator reaches the API server through the wire."""
    world.go_on(wired=True)
    yield


def test_watches_are_cut_again_and_again(world: World) -> None:
    cut = 0
    with world.scaling(to=world.scope.nodes):
        while cut <= CUTS:
            cut += world.wire.cut_watches()
            time.sleep(world.draw.uniform(0, 0.5))
    world.converges()
    # Nothing was missed: what happens now is seen.
    world.scale(to=3)
    world.converges()


def test_all_connections_are_cut_again_and_again(world: World) -> None:
    before = world.wire.cutter.connections
    with world.scaling(to=world.scope.nodes):
        while world.wire.cutter.connections - before <= CUTS:
            world.ledger.crashed()
            world.wire.cut()
            time.sleep(world.draw.uniform(0, 1))
    world.converges()


def test_network_is_away(world: World) -> None:
    with world.scaling(to=world.scope.nodes), world.wire.unplugged():
        time.sleep(world.scope.outage / 4)
        world.scale(to=world.scope.nodes // 2)
        time.sleep(world.scope.outage / 4)
    world.converges()


def test_network_swallows_everything(world: World) -> None:
    with world.scaling(to=world.scope.nodes), world.wire.stuck():
        time.sleep(world.scope.outage / 4)
        world.scale(to=world.scope.nodes // 2)
        time.sleep(world.scope.outage / 4)
    world.wire.cut()  # or TCP would have us wait for minutes, as it has everybody
    world.converges()


def test_nothing_but_errors(world: World) -> None:
    """As from a load balancer with nobody behind it: for longer than anybody's patience."""
    with (
        world.scaling(to=world.scope.nodes),
        world.wire.suffering(Fault("refused", ALL, status=503)),
    ):
        world.wire.cut_watches()
        time.sleep(world.scope.outage * 1.2)
    world.converges()
    world.scale(to=3)
    world.converges()


@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
def test_storm_in_the_middle_of_a_scale(world: World, storm: list[Fault]) -> None:
    with world.memory_flat():
        with world.scaling(to=world.scope.nodes // 2), world.wire.suffering(*storm):
            world.wire.hits(HITS)
            world.scale(to=world.scope.nodes // 10)
            time.sleep(world.scope.outage / 4)
        world.converges()
