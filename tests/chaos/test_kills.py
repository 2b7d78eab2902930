"""The operator is killed, again and again, at drawn instants of a scale up and down."""

import time

from tests.chaos.plans import kills
from tests.chaos.world import World

STARTUP = 3.0
"""Seconds in which an operator starts and begins to work, more or less."""


def test_killed_at_random_instants_of_scales_up_and_down(world: World) -> None:
    low, high = world.scope.nodes // 10, world.scope.nodes
    target = high
    world.scale(to=target)
    scales = 0
    plan = kills(world.draw, count=world.scope.kills, startup=STARTUP, nodes=high)
    for kill in plan:
        before = world.ledger.count(world.name)
        world.start(ready=False)
        if kill.after is not None:
            time.sleep(kill.after)
        else:
            left = abs(target - before)
            world.under_way(min(kill.nodes or 1, left), since=before)
        world.kill()
        if world.ledger.count(world.name) == target:
            scales += 1
            world.start()
            world.converges()
            target = low if target == high else high
            world.scale(to=target)
    world.start()
    world.converges()
    assert world.ledger.most[world.name] <= high
    world.is_quiet()
    print(f"{len(plan)} kills in {scales + 1} scales, {world.ledger.names} names")
