"""Nodes that somebody is missing for: kwok, or who else would let pods onto them.

Without kube-controller-manager nodes are usable all the same. Without a kwok controller nobody
keeps the nodes; the group says so, and nodes claim nothing.

- a cluster that never had kwok: nodes are made, none claims to be Ready, the conditions name what
  is missing and what to do, after a restart of the operator too
- kwok comes later: it takes over the nodes that wait; nodes made from then on are born Ready
- kwok stops: nodes made once it has not been heard of for a while claim nothing, even before the
  Leases have run out; then the conditions tell since when, and an Event does, once; after that
  nothing is written any more
- it goes on: the nodes are Ready again and the condition clears

On a cluster whose Leases last 10 s.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    group_of,
    is_ready,
    names_of,
    nodes_of,
    scale,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import SHORT_LEASES, OwnCluster, born_ready, own_cluster

REASON = "KwokNotResponding"
SAID = (
    "No kwok controller keeps the nodes: {}. Nodes stay NotReady until one runs that manages nodes "
    "with the annotation kwok.x-k8s.io/node=fake."
)
LEASE = 10
TWO_LOOKS = 11
"""Seconds in which the operator looks twice at a group whose nodes are not Ready."""
SLOW = 60


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    directory = tmp_path_factory.mktemp("absent")
    with own_cluster("absent", directory=directory, extra_args=SHORT_LEASES) as cluster:
        yield cluster


def renewed_last(kubectl: Kubectl, node: str) -> datetime:
    lease = kubectl.json("get", "lease", node, "--namespace=kube-node-lease")
    return datetime.fromisoformat(lease["spec"]["renewTime"])


def never_claimed(node: dict[str, Any]) -> bool:
    """Whether no Ready condition was ever written by anybody who keeps the node.

    After a while the node controller adds one to a node that has none, and says so; what it makes
    of one that was there has another reason.
    """
    ready = [c for c in node["status"].get("conditions", ()) if c["type"] == "Ready"]
    return not ready or [c["reason"] for c in ready] == ["NodeStatusNeverUpdated"]


def made_without_claim(kubectl: Kubectl, name: str, *, count: int) -> list[str]:
    """Waits for so many nodes that never claimed to be Ready; returns their names."""

    def enough() -> list[str]:
        return [n["metadata"]["name"] for n in nodes_of(kubectl, name) if never_claimed(n)]

    return eventually(
        enough,
        lambda names: len(names) == count,
        describe=f"{count} nodes are made and claim nothing",
        timeout=SLOW,
    )


def stalled_message(kubectl: Kubectl, name: str) -> str:
    stalled, ready = (condition(kubectl, name, kind) for kind in ("Stalled", "Ready"))
    assert (stalled["status"], stalled["reason"]) == ("True", REASON)
    assert (ready["status"], ready["reason"]) == ("False", REASON)
    assert ready["message"] == stalled["message"]
    message: str = stalled["message"]
    return message


def assert_silence(kubectl: Kubectl, name: str) -> None:
    before = group_of(kubectl, name)
    time.sleep(TWO_LOOKS)
    assert group_of(kubectl, name) == before, "nothing is written while nothing happens"


def assert_all_well(kubectl: Kubectl, name: str) -> None:
    wait_ready(kubectl, name)
    assert condition(kubectl, name, "Stalled")["status"] == "False"
    assert all(map(is_ready, nodes_of(kubectl, name)))


def test_nodes_take_pods_without_kube_controller_manager(own: OwnCluster) -> None:
    kubectl, name = own.kubectl, "by-the-operator-alone"
    own.harness.ensure()
    with own.stopped("kube-controller-manager"):
        apply_group(kubectl, name, targetSize=20)
        wait_ready(kubectl, name)
        taints = [node["spec"]["taints"] for node in nodes_of(kubectl, name)]
    assert [[t["key"] for t in each] for each in taints] == [["kwok-provider"]] * 20
    kubectl("delete", "kng", name)


def test_a_cluster_that_never_had_kwok(own: OwnCluster) -> None:
    kubectl, name = own.kubectl, "never-had-kwok"
    with own.kwok_killed():
        own.harness.start()
        apply_group(kubectl, name, targetSize=3)
        wait_condition(kubectl, name, "Stalled")
        nodes = made_without_claim(kubectl, name, count=3)
        scout = f"the node {nodes[0]} was not initialised in 5 s"
        no_lease = SAID.format(f"nobody has taken the Lease of {nodes[0]}")
        assert stalled_message(kubectl, name) in (SAID.format(scout), no_lease)

        own.harness.start()
        eventually(
            lambda: stalled_message(kubectl, name),
            lambda message: message == no_lease,
            describe="an operator that never knew kwok finds out by itself",
            timeout=SLOW,
        )

    assert_all_well(kubectl, name)
    scale(kubectl, name, 5)
    wait_ready(kubectl, name)
    assert born_ready(kubectl, names_of(kubectl, name)[-1])
    kubectl("delete", "kng", name)


def test_kwok_stops_and_goes_on(own: OwnCluster) -> None:
    kubectl, name = own.kubectl, "kwok-stops"
    own.harness.ensure()
    apply_group(kubectl, name, targetSize=3)
    wait_ready(kubectl, name)
    old = names_of(kubectl, name)

    with own.kwok_stopped():
        eventually(
            lambda: max(renewed_last(kubectl, node) for node in old),
            lambda renewed: (datetime.now(UTC) - renewed).total_seconds() > 0.8 * LEASE,
            describe="kwok has been silent for a while",
        )
        scale(kubectl, name, 5)
        made_without_claim(kubectl, name, count=2)
        since = {node: renewed_last(kubectl, node).strftime("%Y-%m-%dT%H:%M:%SZ") for node in old}
        ran_out = "the Lease of {} was last renewed at {}, for {} s"
        eventually(
            lambda: stalled_message(kubectl, name),
            {SAID.format(ran_out.format(*each, LEASE)) for each in since.items()}.__contains__,
            describe="the condition tells which Lease has run out, and when it was renewed last",
            timeout=SLOW,
        )
        assert_silence(kubectl, name)

    assert_all_well(kubectl, name)
    assert [e["type"] for e in events_of(kubectl, name) if e["reason"] == REASON] == ["Warning"]
    scale(kubectl, name, 7)
    wait_ready(kubectl, name)
    assert born_ready(kubectl, names_of(kubectl, name)[-1])
    kubectl("delete", "kng", name)
