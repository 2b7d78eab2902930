"""Two replicas, one works: who leads, how soon the other takes over, never both at once."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.api import NODES
from tests.e2e.crashes import assert_exactly, watched_names
from tests.e2e.groups import apply_group, names_of, scale, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE, Harness, Process
from tests.e2e.writes import served

LEASE = "kwok-operator"
MANY = 100
SLOWLY = "--max-qps=10"
"""So that it is in the midst of them, however fast the machine, and however late it is seen."""

Start = Callable[..., Process]


@pytest.fixture
def start(harness: Harness, kubectl: Kubectl, tmp_path: Path) -> Iterator[Start]:
    """Starts replicas; whatever of them is left is killed in the end."""
    replicas: list[Process] = []

    def start(name: str, *flags: str) -> Process:
        replica = Process(
            kubeconfig=harness.kubeconfig,
            log=tmp_path / f"{name}-{len(replicas)}.log",
            flags=("--leader-elect", *flags),
            environ={"POD_NAME": name},
        )
        replicas.append(replica)
        replica.wait_ready()
        return replica

    yield start
    for replica in replicas:
        if replica.running:
            os.kill(replica.pid, signal.SIGCONT)
            replica.kill()
    kubectl("delete", "lease", LEASE, f"--namespace={NAMESPACE}", "--ignore-not-found")


def lease(kubectl: Kubectl) -> dict[str, Any]:
    spec: dict[str, Any] = kubectl.json("get", "lease", LEASE, f"--namespace={NAMESPACE}")["spec"]
    return spec


def leads(replica: Process) -> bool:
    return "kwok_operator_leader 1.0" in replica.get("/metrics")[1]


def pair(start: Start, *flags: str) -> tuple[Process, Process]:
    """Two replicas of which the first leads. Both are ready before anybody leads."""
    first = start("first", *flags)
    eventually(lambda: leads(first), describe="the first one leads")
    return first, start("second")


def time_until_it_leads(replica: Process, *, since: float) -> float:
    eventually(lambda: leads(replica), describe="the other replica is at work", interval=0.02)
    return time.monotonic() - since


@pytest.mark.core
def test_one_leads_and_the_other_is_ready(kubectl: Kubectl, start: Start, group_name: str) -> None:
    first, second = pair(start)
    holder = lease(kubectl)["holderIdentity"]
    assert re.fullmatch(r"first_[0-9a-f]{16}", holder)
    assert first.get("/readyz") == (200, "ok\n")
    eventually(
        lambda: second.get("/readyz"),
        lambda said: said == (200, f"ok\nstandby: {holder} leads\n"),
        describe="the second one has read who leads",
    )
    assert second.get("/healthz") == (200, "ok\n")

    apply_group(kubectl, group_name, targetSize=20)
    wait_ready(kubectl, group_name)
    renewed = lease(kubectl)["renewTime"]
    eventually(lambda: lease(kubectl)["renewTime"] != renewed, describe="the Lease is renewed")
    assert lease(kubectl)["holderIdentity"] == holder
    assert leads(first) and not leads(second)
    written = re.findall(
        r'_request_duration_seconds_count{[^}]*method="(POST|PUT|PATCH|DELETE)"[^}]*resource="(\w+)"',
        second.get("/metrics")[1],
    )
    assert {resource for _, resource in written} == {"selfsubjectaccessreviews"}


@pytest.mark.serial
def test_a_killed_leader_is_replaced_within_15_seconds(
    kubectl: Kubectl, start: Start, group_name: str
) -> None:
    first, second = pair(start)
    apply_group(kubectl, group_name, targetSize=20)
    wait_ready(kubectl, group_name)
    killed_at = time.monotonic()
    first.kill()
    lasted = time_until_it_leads(second, since=killed_at)
    print(f"SIGKILL: the other one leads after {lasted:.1f} s")
    assert lasted < 15
    assert lease(kubectl)["holderIdentity"].startswith("second_")
    assert lease(kubectl)["leaseTransitions"] == 1
    scale(kubectl, group_name, 25)
    wait_ready(kubectl, group_name)
    assert_exactly(kubectl, group_name, 25)


@pytest.mark.serial
def test_a_leader_that_is_terminated_is_replaced_within_2_seconds(
    kubectl: Kubectl, start: Start, group_name: str
) -> None:
    """The best of three: on a busy machine any process may have to wait for its turn."""
    apply_group(kubectl, group_name, targetSize=20)
    leader, standby = pair(start)
    took = []
    for name in ("third", "fourth", "fifth"):
        wait_ready(kubectl, group_name)
        told_at = time.monotonic()
        os.kill(leader.pid, signal.SIGTERM)
        took.append(time_until_it_leads(standby, since=told_at))
        assert leader.wait() == 0, leader.log()
        assert "released: lease=kwok-operator/kwok-operator" in leader.log()
        if min(took) < 2:
            break
        leader, standby = standby, start(name)
    print(f"SIGTERM: the other one is at work after {[round(t, 2) for t in took]} s")
    assert min(took) < 2


@pytest.mark.core
def test_a_frozen_leader_writes_nothing_after_its_time(
    kubectl: Kubectl, start: Start, group_name: str
) -> None:
    # The garbage collector's deletions would be counted.
    eventually(
        lambda: kubectl.api.names(NODES, selector=NODE_GROUP_LABEL),
        until=lambda left: not left,
        describe="the nodes of other tests are gone",
        timeout=240,
    )
    first, second = pair(start, SLOWLY)
    with watched_names(kubectl, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=MANY)
        eventually(lambda: len(seen) > MANY / 10, describe="it is under way", interval=0.02)
        os.kill(first.pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        half = len(names_of(kubectl, group_name))
        assert half < MANY
        lasted = time_until_it_leads(second, since=frozen_at)
        print(f"SIGSTOP at {half} of {MANY} nodes: the other one leads after {lasted:.1f} s")
        wait_ready(kubectl, group_name)

        before = nodes_written(kubectl)
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait() == 1
        assert nodes_written(kubectl) == before, "not one write came after the thaw"
        last = first.log().splitlines()[-1]
        assert last.startswith("kwok-operator: lost the Lease kwok-operator/kwok-operator"), last
        assert "Traceback" not in first.log()

        names = names_of(kubectl, group_name)
        assert len(names) == MANY
        eventually(lambda: set(names) <= set(seen), describe="all nodes were watched")
    assert {name: uids for name, uids in seen.items() if len(uids) != 1} == {}
    assert set(seen) == set(names), "no node was made beyond those that were asked for"


def nodes_written(kubectl: Kubectl) -> dict[tuple[str, ...], int]:
    """Creations and deletions of nodes, whoever asked for them."""
    return {key: count for key, count in served(kubectl).items() if key[1] == "nodes"}


def test_a_leader_whose_lease_was_taken_ends(kubectl: Kubectl, start: Start) -> None:
    first = start("first")
    eventually(lambda: leads(first), describe="the first one leads")
    taken = '{"spec": {"holderIdentity": "somebody-else"}}'
    kubectl("patch", "lease", LEASE, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={taken}")
    assert first.wait() == 1
    last = first.log().splitlines()[-1]
    assert last.startswith("kwok-operator: lost the Lease") and "somebody-else" in last
    assert lease(kubectl)["holderIdentity"] == "somebody-else", "what is not ours is not released"
