"""Many groups, three clients who do at random what one can do to groups, and an operator that dies
among them.
"""

import threading
import time

from tests.chaos.clients import Client
from tests.chaos.plans import CLIENTS, chance, steps
from tests.chaos.world import World, manifest
from tests.e2e.api import GROUPS, Refused

RATE = 4.0
"""Steps of one client a second."""


def test_many_groups_edited_at_random_by_three_clients(world: World) -> None:
    scope, draw = world.scope, world.draw
    names = [f"{world.name}-{number}" for number in range(scope.groups)]
    world.groups = set(names)
    world.start()
    for name in names[::2]:
        world.ledger.asked(name, 5)
        world.api.create(GROUPS, manifest(name, {"targetSize": 5}))
    world.converges()
    seconds = scope.minutes * 60
    plans = [steps(draw, groups=len(names), seconds=seconds, rate=RATE) for _ in range(CLIENTS)]
    clients = [
        Client(world.api, world.ledger, groups=names, draw=chance(number, world.name))
        for number in range(CLIENTS)
    ]
    threads = [
        threading.Thread(target=client.run, args=(plan,))
        for client, plan in zip(clients, plans, strict=True)
    ]
    for thread in threads:
        thread.start()
    deaths = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(draw.uniform(2, 12))
        world.kill()
        world.start(ready=False)
        deaths += 1
    for thread in threads:
        thread.join()
    with_all_resumed(world, names)
    world.converges()
    with world.memory_flat():
        for size in (0, 10):
            for name in names:
                world.scale(size, group=name)
            world.converges()
    world.is_quiet()
    done = sum((client.done for client in clients), start=clients[0].done.__class__())
    print(f"{len(names)} groups, {deaths} deaths, {world.ledger.names} names, {dict(done)}")


def with_all_resumed(world: World, names: list[str]) -> None:
    """Nobody is paused or held by bounds any more; who was deleted stays deleted."""
    for name in names:
        try:
            spec = world.api.get(f"{GROUPS}/{name}")["spec"]
            world.ledger.asked(name, spec.get("targetSize") or 0)
            world.api.patch(f"{GROUPS}/{name}", {"spec": {"paused": None, "autoscaling": None}})
        except Refused as error:
            assert error.status == 404, error
