"""Two replicas: the leader dies, and stands still for longer than its Lease, in the middle of a
scale.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.replicas import Replicas, wait_for_another
from tests.chaos.world import World


@pytest.fixture
def replicas(world: World, tmp_path: Path) -> Iterator[Replicas]:
    world.stop()
    replicas = Replicas(kubeconfig=world.kubeconfig, directory=tmp_path, ledger=world.ledger)
    yield replicas
    replicas.stop()


def converges(world: World, replicas: Replicas) -> None:
    world.groups_converge()  # another may lead then: one that stands still for long loses the Lease
    world.take(replicas.leader())
    world.converges()
    assert not [log for log in replicas.logs() if "Traceback" in log]


def test_leader_is_killed_and_the_next_stands_still(world: World, replicas: Replicas) -> None:
    for size in world.ways():
        replicas.leader()
        with world.scaling(to=size):
            leader = replicas.kill_leader()
        print(f"another leads after {wait_for_another(replicas, leader):.1f} s")
        converges(world, replicas)
        size += world.scope.nodes
        with world.scaling(to=size), replicas.leader_frozen() as leader:
            print(f"another leads after {wait_for_another(replicas, leader):.1f} s")
            before = world.ledger.count(world.name)
            world.scale(to=size + 20)
            world.under_way(1, since=before)
        converges(world, replicas)
