"""etcd has forgotten what the operator has not yet seen: what was cut off is listed anew."""

from tests.chaos.faults import API_SERVER
from tests.chaos.world import World
from tests.e2e.api import NODES


def test_history_is_compacted_while_the_operator_is_cut_off(world: World) -> None:
    world.go_on(wired=True)
    world.scale(to=world.scope.nodes // 3)
    world.converges()
    with world.wire.unplugged():
        lost = world.draw.sample(world.ledger.names_of(world.name), 5)
        for node in lost:
            world.api.delete(f"{NODES}/{node}")
        world.scale(to=world.scope.nodes // 3 + 7)
        world.faults.compact()
        # A new API server has no events in its memory, and etcd has none any more.
        with world.faults.killed(API_SERVER):
            pass
    world.converges()
    assert not set(lost) & set(world.ledger.names_of(world.name))
