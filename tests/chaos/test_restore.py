"""etcd is put back to what it was some time ago, under an operator and a shim that know more."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from kwok_operator.constants import NODE_GROUP_LABEL, PLACE_ANNOTATION
from tests.chaos.watcher import Watcher
from tests.chaos.world import World, manifest
from tests.e2e import capi
from tests.e2e.api import GROUPS, NODES
from tests.e2e.autoscaler import ACCOUNT, Autoscaler, Shim
from tests.e2e.emulated import EMULATE, RIGHTS, allowed, wait_running
from tests.e2e.kubectl import eventually
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.rights import kubeconfig_of

MOST = 1_000
RACK = "example.com/rack"


@pytest.fixture
def autoscaler(own: OwnCluster, tmp_path: Path) -> Iterator[Autoscaler]:
    """A client of a shim that runs beside the operator."""
    kubeconfig = tmp_path / "shim.kubeconfig"
    kubeconfig.write_text(kubeconfig_of(own.kubectl, ACCOUNT))
    shim = Shim(kubeconfig=kubeconfig, directory=tmp_path)
    shim.start()
    client = Autoscaler(shim.socket)
    yield client
    client.close()
    shim.stop()
    assert "Traceback" not in shim.log, shim.log


def told(autoscaler: Autoscaler, groups: dict[str, int]) -> None:
    """Waits until the shim serves exactly these groups, with these targets and no other nodes."""

    def seen() -> dict[str, int]:
        with suppress(grpc.RpcError):
            return {
                name: autoscaler.target(name)
                for name in autoscaler.loop()
                if len(autoscaler.instances(name)) == autoscaler.target(name)
            }
        return {}

    eventually(seen, lambda found: found == groups, describe=f"the shim tells {groups}")


def test_what_is_put_back_is_what_holds(
    world: World, watcher: Watcher, autoscaler: Autoscaler
) -> None:
    size = world.scope.nodes // 3
    world.start()
    world.scale(to=size)
    world.api.patch(f"{GROUPS}/{world.name}", {"spec": {"autoscaling": {"maxSize": MOST}}})
    world.converges()
    told(autoscaler, {world.name: size})
    first = world.ledger.names_of(world.name)
    snapshot = world.faults.snapshot()

    since = f"{world.name}-since"
    world.ledger.asked(since, 3)
    world.groups.add(since)
    spec = {"targetSize": 3, "autoscaling": {"maxSize": MOST}}
    world.api.create(GROUPS, manifest(since, spec))
    for node in world.draw.sample(first, 5):
        world.api.delete(f"{NODES}/{node}")
    world.scale(to=2 * size)
    world.converges()
    second = set(world.ledger.names_of(world.name)) - set(first)
    world.scale(to=size // 2)
    world.converges()
    told(autoscaler, {world.name: size // 2, since: 3})

    world.ledger.asked(world.name, size)
    with world.faults.restored(snapshot):
        watcher.forget()
    world.converges()
    assert world.ledger.names_of(world.name) == first, "five of them had been deleted"
    told(autoscaler, {world.name: size})
    lost = world.draw.sample(first, 5)
    for node in lost:
        world.api.delete(f"{NODES}/{node}")
    world.scale(to=size + 60)
    world.converges()
    third = set(world.ledger.names_of(world.name)) - set(first)
    assert not third & second, "the operator knows which it had given out"
    told(autoscaler, {world.name: size + 60})
    world.ledger.asked(world.name, size + 61)
    autoscaler.increase(world.name, 1)
    world.converges()
    told(autoscaler, {world.name: size + 61})
    world.is_quiet()


def test_racks_that_are_put_back_have_one_node_in_each_place(
    world: World, watcher: Watcher
) -> None:
    """The operator goes on, or is another one afterwards, and knows nothing of what was since."""
    killed = world.draw.random() < 0.5
    a, b, size = world.name, f"{world.name}-b", world.scope.nodes // 6
    topology = {"domain": f"{world.name}-racks", "levels": [{"label": RACK, "of": 4}]}
    world.start()
    for group in (a, b):
        world.ledger.asked(group, size)
        world.groups.add(group)
        spec = {"targetSize": size, "template": {"topology": topology}}
        world.api.create(GROUPS, manifest(group, spec))
    world.converges()
    first = standing(world)
    assert sorted(first.values()) == list(range(2 * size))
    # Places where nodes come and go until then, too.
    for node in world.draw.sample(sorted(first), 5):
        world.api.delete(f"{NODES}/{node}")
    snapshot = world.faults.snapshot()
    for node in world.draw.sample(sorted(standing(world)), 5):
        world.api.delete(f"{NODES}/{node}")
    world.scale(to=2 * size, group=b)
    world.converges()
    world.scale(to=size // 3, group=a)
    world.scale(to=size // 2, group=b)
    world.converges()
    for group in (a, b):
        world.ledger.asked(group, size)
    if killed:
        world.stop()
    with world.faults.restored(snapshot):
        watcher.forget()
        # Five of the snapshot's nodes were just being made.
        world.ledger.restored()
    if killed:
        world.start()
    world.converges()
    assert len(standing(world)) == 2 * size
    for group in (a, b):
        world.scale(to=size + 7, group=group)
    world.converges()
    assert sorted(standing(world).values()) == list(range(2 * size + 14))


def standing(world: World) -> dict[str, int]:
    """The places of all our nodes, by name: no two have one, and the labels agree."""
    selector = f"{NODE_GROUP_LABEL} in ({','.join(sorted(world.groups))})"
    nodes, _ = world.api.list(NODES, selector=selector, metadata=True)
    found = dict[str, int]()
    for node in (n["metadata"] for n in nodes if n["metadata"].get("ownerReferences")):
        domain, _, text = node["annotations"][PLACE_ANNOTATION].partition("/")
        assert int(text) not in found.values(), node
        assert node["labels"][RACK] == f"{domain}-{int(text) // 4}", node
        found[node["name"]] = int(text)
    return found


def test_machines_that_are_put_back_keep_their_nodes(
    world: World, watcher: Watcher, own: OwnCluster
) -> None:
    size, name = world.scope.nodes // 3, f"{world.name}-md"
    capi.install_crds(own.kubectl)
    own.kubectl("apply", f"--filename={RIGHTS}")
    allowed(own.kubectl, capi.GROUP)
    provider = capi.Provider(world.api)
    world.ledger.asked(f"default.{name}", size)
    world.start(EMULATE)
    provider.create(capi.deployment(name, replicas=size))
    first = wait_running(own.kubectl, provider, name, size)
    snapshot = world.faults.snapshot()
    provider.set_size(name, size // 4)
    wait_running(own.kubectl, provider, name, size // 4)
    with world.faults.restored(snapshot):
        watcher.forget()
    assert wait_running(own.kubectl, provider, name, size) == first
    provider.set_size(name, size + 5)
    assert set(wait_running(own.kubectl, provider, name, size + 5)) > set(first)
    provider.delete("machinedeployments", name)
    eventually(lambda: not provider.objects("machines"), describe="the machines are gone")
