"""Two replicas: the leader dies, or stands still for longer than its Lease, in the middle of a
scale.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.replicas import Replicas, wait_for_another
from tests.chaos.world import MANY, World


@pytest.fixture
def replicas(world: World, tmp_path: Path) -> Iterator[Replicas]:
    world.stop()
    replicas = Replicas(kubeconfig=world.kubeconfig, directory=tmp_path, ledger=world.ledger)
    yield replicas
    replicas.stop()


def rounds(world: World) -> list[int]:
    """The sizes to scale to."""
    there, back = world.scope.nodes, world.scope.nodes // 10
    return [there, back, there] if world.scope.nodes >= MANY else [there]


def converges(world: World, replicas: Replicas) -> None:
    world.take(replicas.leader())
    world.converges()
    assert not [log for log in replicas.logs() if "Traceback" in log]


def test_leader_is_killed_in_the_middle_of_a_scale(world: World, replicas: Replicas) -> None:
    for size in rounds(world):
        leader = replicas.leader()
        with world.scaling(to=size):
            replicas.kill_leader()
        print(f"another leads after {wait_for_another(replicas, leader):.1f} s")
        converges(world, replicas)


def test_leader_stands_still_and_goes_on_in_the_middle_of_a_scale(
    world: World, replicas: Replicas
) -> None:
    for size in rounds(world):
        with world.scaling(to=size), replicas.leader_frozen() as leader:
            print(f"another leads after {wait_for_another(replicas, leader):.1f} s")
            world.scale(to=size + 20)
            time.sleep(world.draw.uniform(0, world.scope.outage))
        converges(world, replicas)
