"""Nodes that are to be NotReady stay so, against a real kwok, and come back when they are let go.

- with nothing to hold it, kwok makes a node Ready whatever was written
- with the Stage of deploy/, applied as the condition says, a node with the label is NotReady as
  long as it has it, from its birth or later; kwok keeps its Lease. Whether kwok manages all nodes
  or those with its annotation is all the same
- pods on a node that is NotReady for a while stay Ready and run on, but for those that don't
  tolerate it
- pods that Kubernetes has marked as not Ready are Ready again: those that came too early, and all
  of a node whose kwok was away

Nodes are written by hand, as the operator writes them.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from kwok_operator.constants import HOLD_LABEL, HOLD_LABEL_VALUE, KWOK_NODE_ANNOTATION
from kwok_operator.controller.cloud.hold import REMEDY, HoldLink
from kwok_operator.core.cloud.shaping import Hold
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from tests.e2e.deploying import ROOT
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import SHORT_LEASES, OwnCluster, own_cluster

LONG = 20.0
"""Seconds for which a node is watched: two durations of a Lease here, and kwok needs 2."""
PATIENCE = 240
NOT_READY_TAINT = "node.kubernetes.io/not-ready"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """As kwokctl starts it: without Stages in the API, and kwok manages all nodes."""
    directory = tmp_path_factory.mktemp("hold")
    with own_cluster(
        "hold", directory=directory, manage_all_nodes=True, extra_args=SHORT_LEASES
    ) as own:
        yield own


@pytest.fixture(scope="module")
def kwoks_own_stages(plain: OwnCluster) -> dict[str, Any]:
    """What a kwok release has in stage-fast.yaml; kwokctl keeps them in a file."""
    assert plain.cluster.directory is not None
    documents = yaml.safe_load_all((plain.cluster.directory / "kwok.yaml").read_text())
    stages = [item for item in documents if item and item["kind"] == "Stage"]
    assert {"node-initialize", "pod-ready"} <= {stage["metadata"]["name"] for stage in stages}
    return {"apiVersion": "v1", "kind": "List", "items": stages}


@pytest.fixture(scope="module", params=["annotated", "all"])
def staged(
    request: pytest.FixtureRequest,
    kwoks_own_stages: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OwnCluster]:
    """As on an ordinary cluster: Stages are in the API, and kwok takes them from there. Ours is
    applied as the condition CloudSimulated says."""
    directory = tmp_path_factory.mktemp("staged")
    flags = [*SHORT_LEASES, "--enable-crds=Stage"]
    with own_cluster(
        "staged",
        directory=directory,
        manage_all_nodes=request.param == "all",
        extra_args=flags,
    ) as own:
        own.kubectl.apply(kwoks_own_stages)
        remedy = REMEDY.partition(",")[0].replace("deploy/", f"{ROOT}/deploy/")
        own.kubectl(*remedy.split()[1:])
        eventually(lambda: way(own), lambda w: w is Hold.STAGE, describe="the Stage is seen")
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
        timeout=PATIENCE,
        interval=0.5,
    )


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


def seen_meanwhile(kubectl: Kubectl, *names: str, seconds: float = LONG) -> set[str]:
    """All that the condition Ready of these nodes was in that time."""
    seen = set()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen |= {ready_node(kubectl, name) for name in names}
        time.sleep(0.5)
    return seen


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
        timeout=PATIENCE,
    )


def run(kubectl: Kubectl, *pods: dict[str, Any]) -> None:
    """Returns when they run."""
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": list(pods)})
    for found in pods:
        wait_pod(kubectl, found["metadata"]["name"])


def way(own: OwnCluster) -> Hold:
    """As the operator's account finds it."""

    async def find() -> Hold:
        connection = await load_connection(kubeconfig=str(own.harness.kubeconfig), environ={})
        async with KubeClient(connection=connection) as client:
            return await HoldLink(client=client, clock=time.monotonic).way()

    return asyncio.run(find())


def test_the_stage_holds_nodes_and_lets_them_go(staged: OwnCluster) -> None:
    kubectl = staged.kubectl
    # One that nobody holds: Kubernetes evicts nobody where all nodes are NotReady.
    post(kubectl, node("never-held", hold=False))
    wait_node(kubectl, "never-held")
    # Two: of three in a small cluster, Kubernetes would evict nobody.
    post(kubectl, node("boots", hold=True), node("out", hold=False))
    wait_node(kubectl, "out")
    run(kubectl, pod("stays", on="out", tolerates=600), pod("goes", on="out", tolerates=1))
    before = {name: lease(kubectl, name) for name in ("boots", "out")}
    stays = kubectl.json("get", "pod", "stays")

    # An outage: held before it is made not Ready, as kwok would be quicker.
    label(kubectl, "out", hold=True)
    write_ready(kubectl, "out", status="False")
    assert seen_meanwhile(kubectl, "boots", "out") == {"False"}
    for name, spec in before.items():
        now = lease(kubectl, name)
        assert now["holderIdentity"] == spec["holderIdentity"]
        assert now["renewTime"] > spec["renewTime"]
    eventually(
        lambda: kubectl("get", "pods", "--output=name").split(),
        lambda names: names == ["pod/stays"],
        describe="a pod that does not tolerate it is evicted",
        timeout=PATIENCE,
    )
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
    assert seen_meanwhile(kubectl, "boots", "out", seconds=3) == {"True"}
    after = kubectl.json("get", "pod", "stays")
    assert after["metadata"]["uid"] == stays["metadata"]["uid"]
    assert after["status"] == stays["status"]
    eventually(
        lambda: [t["key"] for t in spec_of(kubectl, "out").get("taints", ())],
        lambda keys: NOT_READY_TAINT not in keys,
        describe="pods may come again",
        timeout=PATIENCE,
    )
    run(kubectl, *(pod(f"new-{name}", on=name, tolerates=1) for name in ("boots", "out")))


@pytest.mark.parametrize("staged", ["annotated"], indirect=True)
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


def spec_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = kubectl.json("get", "node", name)["spec"]
    return spec


def test_without_the_stage_nothing_holds_a_node(plain: OwnCluster) -> None:
    assert way(plain) is Hold.NONE
    post(plain.kubectl, node("unheld", hold=False))
    wait_node(plain.kubectl, "unheld")
