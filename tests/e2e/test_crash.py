"""The operator dies, or loses what it wrote down, at the worst moments.

- SIGKILL again and again while 600 nodes come and while they go: in the end exactly the target,
  each name used once, no node without its owner, a status that is right
- SIGKILL between writing down what is asked for and the first of it: the same nodes, no others
- SIGTERM in the middle, both ways: exit code 0, the nodes stay, the next start goes on
- the status is wiped, while the operator runs and while it doesn't: sizes stay, no name comes twice
"""

import asyncio
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from hack.controlplane import Cluster
from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION
from kwok_operator.core.naming import NodeNames
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.kube.decode import NODES, NodeView
from kwok_operator.kube.reflector import Reflector
from tests.e2e.groups import (
    apply_group,
    condition,
    group_of,
    names_of,
    nodes_of,
    scale,
    serial_of,
    status_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.operator import Harness, Process

SIZE = 600
STARTUP = 2.0
"""Seconds in which an operator starts, more or less: it is killed there, too."""
WITHIN_SECONDS = 15


class NameLog:
    """The uids of all nodes that were ever seen, by name."""

    def __init__(self) -> None:
        self.uids: dict[str, set[str]] = defaultdict(set)

    def replace(self, items: Sequence[NodeView], resource_version: int) -> None:
        for item in items:
            self.upsert(item)

    def upsert(self, item: NodeView) -> None:
        self.uids[item.name].add(item.uid)

    def remove(self, item: NodeView) -> None:
        self.upsert(item)


@contextmanager
def watched_names(cluster: Cluster, name: str) -> Iterator[NameLog]:
    """Watches a group's nodes in a thread. `kubectl get --watch` would not do: under load the API
    server closes the watches of slow readers, and kubectl does not go on where it was.
    """
    log, loop, stop = NameLog(), asyncio.new_event_loop(), asyncio.Event()

    async def watch() -> None:
        connection = await load_connection(kubeconfig=str(cluster.kubeconfig))
        async with KubeClient(connection=connection) as client:
            params = {"labelSelector": f"{NODE_GROUP_LABEL}={name}"}
            reflector = Reflector(
                client=client, path="/api/v1/nodes", params=params, decoder=NODES, sink=log
            )
            task = asyncio.create_task(reflector.run())
            await stop.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.3)  # for TLS to say good-bye, which nobody can wait for

    thread = threading.Thread(target=lambda: loop.run_until_complete(watch()))
    thread.start()
    try:
        yield log
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Instants to kill at; a failing test prints the seed that repeats them."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    return random.Random(seed)


def assert_exactly(kubectl: Kubectl, name: str, size: int) -> list[str]:
    """The group has `size` nodes, all its own, and its status tells so. Returns their names."""
    group, nodes = group_of(kubectl, name), nodes_of(kubectl, name)
    uid, status = group["metadata"]["uid"], group["status"]
    assert len(nodes) == size
    names = NodeNames.of(name, uid)
    serials = [names.serial(node["metadata"]["name"]) for node in nodes]
    assert None not in serials
    for node in nodes:
        meta = node["metadata"]
        assert [owner["uid"] for owner in meta["ownerReferences"]] == [uid]
        assert meta["annotations"][NODE_GROUP_UID_ANNOTATION] == uid
        assert "deletionTimestamp" not in meta
    counts = {
        key: status.get(key, 0)
        for key in ("replicas", "readyReplicas", "updatedReplicas", "targetSize")
    }
    assert set(counts.values()) == {size}, counts
    left = {key: status.get(key) or 0 for key in ("pendingReplicas", "failedReplicas", "pending")}
    assert set(left.values()) == {0}, left
    assert status.get("nextSerial", 0) > max((s for s in serials if s is not None), default=-1)
    return [node["metadata"]["name"] for node in nodes]


def count(kubectl: Kubectl, name: str) -> int:
    return len(names_of(kubectl, name))


def done(process: Process, name: str) -> float:
    """How many nodes of the group this operator has created and deleted by now."""
    numbers = re.findall(
        rf'^kwok_operator_nodes_(?:created|deleted)_total{{group="{name}"}} (\S+)$',
        process.get("/metrics")[1],
        re.MULTILINE,
    )
    return sum(map(float, numbers))


def wait_under_way(process: Process, name: str, *, least: int) -> None:
    """Returns in the middle of it; asks the operator itself, because kubectl is too slow here."""
    eventually(
        lambda: done(process, name),
        until=lambda n: n >= least,
        describe=f"{least} nodes are written",
        timeout=120,
        interval=0.01,
    )


def test_killed_at_any_instant_it_reaches_exactly_its_target(
    cluster: Cluster, kubectl: Kubectl, harness: Harness, group_name: str, chance: random.Random
) -> None:
    apply_group(kubectl, group_name, targetSize=SIZE)
    with watched_names(cluster, group_name) as log:
        kill_on_the_way(kubectl, harness, group_name, chance)
        harness.start()
        wait_ready(kubectl, group_name, timeout=300)
        grown = assert_exactly(kubectl, group_name, SIZE)

        harness.stop()
        scale(kubectl, group_name, 40)
        kill_on_the_way(kubectl, harness, group_name, chance)
        harness.start()
        wait_ready(kubectl, group_name, timeout=300)
        left = assert_exactly(kubectl, group_name, 40)
        assert left == grown[:40], "none is made while others are deleted, and the newest go first"

        scale(kubectl, group_name, 90)
        wait_ready(kubectl, group_name)
        again = assert_exactly(kubectl, group_name, 90)
        assert not (set(again) - set(left)) & set(grown), "a name is never used again"

        eventually(lambda: set(again) <= set(log.uids), describe="all nodes were watched")
    assert {name: uids for name, uids in log.uids.items() if len(uids) != 1} == {}
    assert len(log.uids) == SIZE + 50, "no node was made beyond those that were asked for"


def kill_on_the_way(kubectl: Kubectl, harness: Harness, name: str, chance: random.Random) -> None:
    """Starts the operator and kills it five times: thrice between two nodes, twice as it starts."""
    for _ in range(3):
        process = harness.start(ready=False)
        wait_under_way(process, name, least=chance.randrange(1, SIZE // 6))
        kill(process)
        print(f"killed under way with {count(kubectl, name)} nodes")
    for _ in range(2):
        process = harness.start(ready=False)
        time.sleep(chance.uniform(0, STARTUP))
        kill(process)
        print(f"killed while it starts with {count(kubectl, name)} nodes")


def kill(process: Process) -> None:
    assert process.running, process.log()
    process.kill()


@pytest.mark.parametrize(("first", "then"), [(0, SIZE), (SIZE, 10)], ids=["up", "down"])
def test_terminated_in_the_middle_it_leaves_the_rest_to_the_next_start(
    kubectl: Kubectl, harness: Harness, group_name: str, first: int, then: int
) -> None:
    process = harness.start()
    apply_group(kubectl, group_name, targetSize=first)
    wait_ready(kubectl, group_name)
    before = done(process, group_name)
    scale(kubectl, group_name, then)
    wait_under_way(process, group_name, least=int(before) + 100)

    assert process.terminate(timeout=WITHIN_SECONDS) == 0
    assert "Traceback" not in process.log()
    stopped = nodes_of(kubectl, group_name)
    low, high = sorted((first, then))
    assert low < len(stopped) < high, "it was interrupted"
    assert not [n for n in stopped if "deletionTimestamp" in n["metadata"]]
    # Nothing of it goes on once the program has ended.
    time.sleep(2)
    assert count(kubectl, group_name) == len(stopped)

    harness.start()
    wait_ready(kubectl, group_name, timeout=300)
    assert_exactly(kubectl, group_name, then)


@contextmanager
def refused_nodes(kubectl: Kubectl, prefix: str) -> Iterator[None]:
    """The API server refuses all new nodes whose names begin so."""
    name = f"refuse-{prefix}"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["nodes"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": f"!object.metadata.name.startsWith('{prefix}-')",
                    "message": "no nodes today",
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    probe = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{prefix}-probe"}}
    tried = ("create", "--filename=-", "--dry-run=server")
    try:
        for manifest in (policy, binding):
            kubectl.apply(manifest)
        eventually(lambda: kubectl.fails(*tried, stdin=probe), describe="nodes are refused")
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            kubectl("delete", kind, name, "--ignore-not-found")
    eventually(lambda: kubectl(*tried, stdin=as_text(probe)), describe="nodes are accepted")


def test_killed_before_the_first_of_many_it_makes_those_it_wrote_down(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    process = harness.start()
    apply_group(kubectl, group_name, targetSize=0)
    wait_ready(kubectl, group_name)
    with refused_nodes(kubectl, group_name):
        scale(kubectl, group_name, 50)
        asked = eventually(
            lambda: status_of(kubectl, group_name)["pending"], describe="nodes are asked for"
        )
        process.kill()
        assert names_of(kubectl, group_name) == []
    assert [(batch["first"], batch["last"]) for batch in asked] == [(0, 49)]

    harness.start()
    wait_ready(kubectl, group_name)
    assert list(map(serial_of, assert_exactly(kubectl, group_name, 50))) == list(range(50))
    assert status_of(kubectl, group_name)["nextSerial"] == 50


def test_refused_nodes_are_told_and_come_when_they_are_refused_no_longer(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=0)
    wait_ready(kubectl, group_name)
    with refused_nodes(kubectl, group_name):
        scale(kubectl, group_name, 5)
        stalled = eventually(
            lambda: condition(kubectl, group_name, "Stalled"),
            until=lambda c: c["status"] == "True",
            describe="the refusal is told",
        )
        assert "no nodes today" in stalled["message"]
    wait_ready(kubectl, group_name)
    assert_exactly(kubectl, group_name, 5)


def wipe_status(kubectl: Kubectl, name: str) -> None:
    patch = as_text({"op": "remove", "path": "/status"})
    options = ("--subresource=status", "--type=json", f"--patch=[{patch}]")
    kubectl("patch", "kng", name, *options)


def wait_status(kubectl: Kubectl, name: str) -> dict[str, Any]:
    return eventually(
        lambda: status_of(kubectl, name),
        until=lambda status: status.get("conditions"),
        describe="the status is back",
    )


def test_status_wiped_while_the_operator_runs_costs_nothing(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    first = names_of(kubectl, group_name)
    # The newest are gone, so only the status, or a good memory, knows that their names are used.
    scale(kubectl, group_name, 6)
    wait_ready(kubectl, group_name)

    wipe_status(kubectl, group_name)
    wait_status(kubectl, group_name)
    wait_ready(kubectl, group_name)
    assert assert_exactly(kubectl, group_name, 6) == first[:6]

    scale(kubectl, group_name, 12)
    wait_ready(kubectl, group_name)
    names = assert_exactly(kubectl, group_name, 12)
    assert not set(names) & set(first[6:])
    assert min(map(serial_of, set(names) - set(first))) >= 10


def test_status_wiped_while_the_operator_is_away_costs_nothing(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    kubectl("delete", "nodes", *names_of(kubectl, group_name)[:4])
    eventually(
        lambda: status_of(kubectl, group_name),
        until=lambda s: s["readyReplicas"] == 10 and s["nextSerial"] == 14,
        describe="the deleted are replaced",
    )
    before = names_of(kubectl, group_name)
    harness.stop()
    wipe_status(kubectl, group_name)

    harness.start()
    wait_status(kubectl, group_name)
    wait_ready(kubectl, group_name)
    assert assert_exactly(kubectl, group_name, 10) == before
    scale(kubectl, group_name, 12)
    wait_ready(kubectl, group_name)
    assert [serial_of(n) for n in assert_exactly(kubectl, group_name, 12)] == list(range(4, 16))


@pytest.mark.parametrize("running", [True, False], ids=["operator-runs", "operator-is-away"])
def test_status_wiped_where_nothing_else_tells_the_size_keeps_what_is_there(
    kubectl: Kubectl, harness: Harness, group_name: str, running: bool
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=7)
    wait_ready(kubectl, group_name)
    apply_group(kubectl, group_name, scaleDown={"order": "OldestFirst"})
    wait_ready(kubectl, group_name)
    before = names_of(kubectl, group_name)
    if not running:
        harness.stop()
    wipe_status(kubectl, group_name)
    if not running:
        harness.start()
    wait_status(kubectl, group_name)
    wait_ready(kubectl, group_name)
    assert assert_exactly(kubectl, group_name, 7) == before


def test_status_wiped_in_the_middle_of_a_scale_up_costs_no_node(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    process = harness.start()
    apply_group(kubectl, group_name, targetSize=300)
    wait_under_way(process, group_name, least=50)
    wipe_status(kubectl, group_name)
    wait_ready(kubectl, group_name, timeout=300)
    assert_exactly(kubectl, group_name, 300)
