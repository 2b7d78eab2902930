"""Two replicas, of which one works: who leads, how soon the other takes over, never both at once.

- one leads, the other stands by and is ready; one of them is named in the Lease
- SIGKILL: the other leads within 15 s; SIGTERM: it is at work within 2 s, the Lease is released
- a leader that is frozen in the midst of 5,000 nodes: the other one goes on and ends with exactly
  those, each made once; thawed, the first one writes nothing more and ends with an error
- a leader whose Lease is given to somebody else ends, with a line that says so
- without rights to Leases it does not start, and says which it needs
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import Cluster
from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.groups import apply_group, names_of, scale, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE, Harness, Process
from tests.e2e.test_crash import assert_exactly, watched_names
from tests.e2e.test_quiet import served

LEASE = "kwok-operator"
MANY = 5_000
FROZEN = float(os.environ.get("KWOK_OPERATOR_TEST_FREEZE", "20"))
"""Seconds; the Lease lasts 10."""

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
        replica.wait_ready(timeout=60)
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


def time_until_it_leads(replica: Process, *, since: float, timeout: float = 60) -> float:
    eventually(
        lambda: leads(replica),
        describe="the other replica is at work",
        timeout=timeout,
        interval=0.02,
    )
    return time.monotonic() - since


def test_one_leads_and_the_other_is_ready(kubectl: Kubectl, start: Start, group_name: str) -> None:
    first, second = start("first"), start("second")
    eventually(lambda: leads(first), describe="the first one leads")
    holder = lease(kubectl)["holderIdentity"]
    assert re.fullmatch(r"first_[0-9a-f]{16}", holder)
    assert first.get("/readyz") == (200, "ok\n")
    assert second.get("/readyz") == (200, f"ok\nstandby: {holder} leads\n")
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


def test_a_killed_leader_is_replaced_within_15_seconds(
    kubectl: Kubectl, start: Start, group_name: str
) -> None:
    first, second = start("first"), start("second")
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


def test_a_leader_that_is_told_to_end_is_replaced_within_2_seconds(
    kubectl: Kubectl, start: Start, group_name: str
) -> None:
    """The best of three: on a busy machine any process may have to wait for its turn."""
    apply_group(kubectl, group_name, targetSize=20)
    leader, standby = start("first"), start("second")
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


def test_a_frozen_leader_writes_nothing_after_its_time(
    cluster: Cluster, kubectl: Kubectl, start: Start, group_name: str
) -> None:
    # The garbage collector's deletions would be counted.
    eventually(
        lambda: kubectl("get", "nodes", f"--selector={NODE_GROUP_LABEL}", "--output=name"),
        until=lambda left: not left,
        describe="the nodes of other tests are gone",
        timeout=600,
    )
    first, second = start("first"), start("second")
    eventually(lambda: leads(first), describe="the first one leads")
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    with watched_names(cluster, group_name) as log:
        scale(kubectl, group_name, MANY)
        eventually(lambda: len(log.uids) > MANY / 5, describe="it is under way", interval=0.02)
        os.kill(first.pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        half = len(names_of(kubectl, group_name))
        assert half < MANY
        lasted = time_until_it_leads(second, since=frozen_at)
        print(f"SIGSTOP at {half} of {MANY} nodes: the other one leads after {lasted:.1f} s")
        wait_for_nodes(kubectl, group_name, MANY)
        time.sleep(max(0.0, frozen_at + FROZEN - time.monotonic()))

        before = nodes_written(kubectl)
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(timeout=60) == 1
        assert nodes_written(kubectl) == before, "not one write came after the thaw"
        last = first.log().splitlines()[-1]
        assert last.startswith("kwok-operator: lost the Lease kwok-operator/kwok-operator"), last
        assert "Traceback" not in first.log()

        names = names_of(kubectl, group_name)
        assert len(names) == MANY
        eventually(lambda: set(names) <= set(log.uids), describe="all nodes were watched")
        scale(kubectl, group_name, 0)
        wait_for_nodes(kubectl, group_name, 0)
    assert {name: uids for name, uids in log.uids.items() if len(uids) != 1} == {}
    assert set(log.uids) == set(names), "no node was made beyond those that were asked for"


def wait_for_nodes(kubectl: Kubectl, name: str, count: int) -> None:
    """Not until they are Ready: that is kwok's to do, and takes its time on a busy machine."""
    eventually(
        lambda: status_of(kubectl, name).get("replicas", 0),
        until=lambda found: found == count,
        describe=f"there are {count} nodes",
        timeout=600,
        interval=0.5,
    )


def nodes_written(kubectl: Kubectl) -> dict[tuple[str, ...], int]:
    """Creations and deletions of nodes, whoever asked for them."""
    return {key: count for key, count in served(kubectl).items() if key[1] == "nodes"}


def test_a_leader_whose_lease_was_taken_ends(kubectl: Kubectl, start: Start) -> None:
    first = start("first")
    eventually(lambda: leads(first), describe="the first one leads")
    taken = '{"spec": {"holderIdentity": "somebody-else"}}'
    kubectl("patch", "lease", LEASE, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={taken}")
    assert first.wait() == 1
    told = "lost the Lease kwok-operator/kwok-operator: it is held by somebody-else"
    assert first.log().splitlines()[-1] == f"kwok-operator: {told}"
    assert lease(kubectl)["holderIdentity"] == "somebody-else", "what is not ours is not released"


def test_an_account_that_may_not_hold_a_lease_is_told(
    harness: Harness, kubectl: Kubectl, tmp_path: Path
) -> None:
    replica = Process(
        kubeconfig=harness.kubeconfig,
        log=tmp_path / "replica.log",
        flags=("--leader-elect", "--leader-elect-resource-namespace=kube-system"),
    )
    assert replica.wait() == 1
    rights = "get, create, update".split(", ")
    lacking = ", ".join(
        f"{verb} leases.coordination.k8s.io in namespace kube-system" for verb in rights
    )
    assert f"this account may not: {lacking}. " in replica.log().splitlines()[-1]
