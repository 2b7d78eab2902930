"""Nodes that are to be NotReady stay so, against a real kwok, and come back when they are let go.

Nodes are written by hand, as the operator writes them. kwok manages all nodes here, in
test_cloud_outage.py those with its annotation.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from kwok_operator.constants import HOLD_LABEL, HOLD_LABEL_VALUE, KWOK_NODE_ANNOTATION
from tests.e2e.api import NODES, path_of
from tests.e2e.clouds import staged_cluster
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.watching import Watch

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
LEASES = ("--heartbeat-factor", "0.5")
"""Leases of 20 s: of shorter ones Kubernetes tells that they have run out while kwok, on a busy
machine, stands still for a few seconds."""


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    directory = tmp_path_factory.mktemp("hold")
    with staged_cluster(
        "hold", directory=directory, manage_all_nodes=True, extra_args=LEASES
    ) as own:
        yield own


def node(name: str, *, hold: bool) -> dict[str, Any]:
    """As it is born when it has yet to boot."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    condition = {"type": "Ready", "status": "False", "reason": "Booting", "message": "", **times}
    resources = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOLD_LABEL: HOLD_LABEL_VALUE} if hold else {},
            "annotations": {KWOK_NODE_ANNOTATION: "fake"},
        },
        "status": {"capacity": resources, "allocatable": resources, "conditions": [condition]},
    }


def post(kubectl: Kubectl, *nodes: dict[str, Any]) -> None:
    """Created with its status, in one write: `kubectl apply` does that too."""
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": list(nodes)})


def ready(found: dict[str, Any]) -> str:
    """The status of the condition Ready of a node or a pod; "" without one."""
    conditions = found["status"].get("conditions", ())
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")


def ready_node(kubectl: Kubectl, name: str) -> str:
    return ready(kubectl.json("get", "node", name))


def wait_node(kubectl: Kubectl, name: str, status: str = "True") -> None:
    eventually(
        lambda: ready_node(kubectl, name),
        lambda seen: seen == status,
        describe=f"Ready of {name} is {status}",
        interval=0.5,
    )


def taints(kubectl: Kubectl, name: str) -> set[str]:
    """The keys of a node's taints."""
    spec = kubectl.json("get", "node", name)["spec"]
    return {taint["key"] for taint in spec.get("taints", [])}


def label(kubectl: Kubectl, name: str, *, hold: bool) -> None:
    change = f"{HOLD_LABEL}={HOLD_LABEL_VALUE}" if hold else f"{HOLD_LABEL}-"
    kubectl("label", "node", name, change)


def write_ready(kubectl: Kubectl, name: str, *, status: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": status, "reason": "ByHand", "lastTransitionTime": now}
    patch = json.dumps({"status": {"conditions": [condition]}})
    kubectl("patch", "node", name, "--subresource=status", f"--patch={patch}")


def lease(kubectl: Kubectl, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = kubectl.json("get", "lease", name, "--namespace=kube-node-lease")["spec"]
    return spec


def wait_renewed(kubectl: Kubectl, name: str, before: dict[str, Any]) -> None:
    """Returns when the same kwok has renewed a node's Lease."""
    now = eventually(
        lambda: lease(kubectl, name),
        lambda now: now["renewTime"] > before["renewTime"],
        describe=f"the Lease of {name} is renewed",
    )
    assert now["holderIdentity"] == before["holderIdentity"]


@contextmanager
def watched(kubectl: Kubectl, *names: str) -> Iterator[set[str]]:
    """All that the condition Ready of these nodes was within the block."""
    seen: set[str] = set()

    def note(*nodes: dict[str, Any]) -> None:
        seen.update(ready(found) for found in nodes if found["metadata"]["name"] in names)

    with Watch(
        kubectl.api,
        NODES,
        listed=lambda items: note(*items),
        seen=lambda _, found: note(found),
    ):
        yield seen


def pod(name: str, *, on: str, tolerates: int) -> dict[str, Any]:
    """`tolerates` is for how many seconds it stays on a node that isn't Ready."""
    toleration = {
        "key": NOT_READY_TAINT,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": tolerates,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": on,
            "tolerations": [toleration],
            "containers": [{"name": "main", "image": "none"}],
        },
    }


def wait_pod(kubectl: Kubectl, name: str, status: str = "True") -> None:
    eventually(
        lambda: ready(kubectl.json("get", "pod", name)),
        lambda seen: seen == status,
        describe=f"Ready of the pod {name} is {status}",
    )


def run(kubectl: Kubectl, *pods: dict[str, Any]) -> None:
    """Returns when they run."""
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": list(pods)})
    for found in pods:
        wait_pod(kubectl, found["metadata"]["name"])


def test_the_stage_holds_nodes_and_lets_them_go(staged: OwnCluster) -> None:
    kubectl = staged.kubectl
    # One that nobody holds: Kubernetes evicts nobody where all nodes are NotReady.
    post(kubectl, node("never-held", hold=False))
    wait_node(kubectl, "never-held")
    # Two: of three in a small cluster, Kubernetes would evict nobody.
    post(kubectl, node("boots", hold=True), node("out", hold=False))
    wait_node(kubectl, "out")
    run(kubectl, pod("stays", on="out", tolerates=600), pod("goes", on="out", tolerates=1))
    before = {
        name: eventually(partial(lease, kubectl, name), describe=f"{name} has a Lease")
        for name in ("boots", "out")
    }
    stays = kubectl.json("get", "pod", "stays")

    # An outage: held before it is made not Ready, as kwok would be quicker.
    label(kubectl, "out", hold=True)
    write_ready(kubectl, "out", status="False")
    with watched(kubectl, "boots", "out") as seen:
        eventually(
            lambda: kubectl.api.names(path_of("pods")),
            lambda names: names == ["stays"],
            describe="a pod that does not tolerate it is evicted",
        )
        for name, spec in before.items():
            wait_renewed(kubectl, name, spec)
    assert seen == {"False"}
    assert ready(kubectl.json("get", "pod", "stays")) == "True"
    run(kubectl, pod("comes", on="out", tolerates=600))
    # Kubernetes does so only if it is slower than kwok.
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    patch = f"--patch={json.dumps(not_ready)}"
    marked = kubectl.json("patch", "pod", "comes", "--subresource=status", patch)
    assert ready(marked) == "False"
    wait_pod(kubectl, "comes")

    # Let go, kwok makes them Ready; or somebody else has, and kwok leaves it at that.
    label(kubectl, "boots", hold=False)
    write_ready(kubectl, "out", status="True")
    label(kubectl, "out", hold=False)
    for name in ("boots", "out"):
        wait_node(kubectl, name)
    with watched(kubectl, "boots", "out") as seen:
        for name in ("boots", "out"):
            eventually(
                partial(taints, kubectl, name),
                lambda found: NOT_READY_TAINT not in found,
                describe=f"pods may come to {name} again",
            )
        run(kubectl, *(pod(f"new-{name}", on=name, tolerates=1) for name in ("boots", "out")))
    assert seen == {"True"}
    after = kubectl.json("get", "pod", "stays")
    assert after["metadata"]["uid"] == stays["metadata"]["uid"]
    assert after["status"] == stays["status"]


def test_pods_are_ready_again_when_kwok_was_away(staged: OwnCluster) -> None:
    kubectl = staged.kubectl
    post(kubectl, node("left-alone", hold=False))
    wait_node(kubectl, "left-alone")
    run(kubectl, pod("left", on="left-alone", tolerates=600))
    with staged.kwok_stopped():
        wait_node(kubectl, "left-alone", "Unknown")
        wait_pod(kubectl, "left", "False")
    wait_node(kubectl, "left-alone")
    wait_pod(kubectl, "left")
