"""What the kwok controller does for nodes, and what becomes of them without it.

Where kwok is harmed, it is that of a cluster whose Leases last 10 s, and it manages all nodes, as
kwokctl starts it by default; elsewhere it manages only those with its annotation.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from kwok_operator.constants import KWOK_NODE_ANNOTATION, NODE_GROUP_LABEL
from kwok_operator.controlplane.kubectl import KubectlError
from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    is_ready,
    names_of,
    nodes_of,
    scale,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness
from tests.e2e.own_cluster import SHORT_LEASES, OwnCluster, born_ready, own_cluster
from tests.e2e.ports import free_port
from tests.e2e.writes import looks, settled, traces

REASON = "KwokNotResponding"
LEASE = 10
SLOW = 60
FAKE = {KWOK_NODE_ANNOTATION: "fake"}
NO_CONNECTION = ("dial tcp", "connection refused", "no preferred addresses", "proxy error", "EOF")
LINE = "a line that kwok shows"
SHOW_LOGS_AND_EXEC = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {{name: all}}
spec: {{logs: [{{logsFile: {file}}}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {{name: all}}
spec: {{execs: [{{local: {{}}}}]}}
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """A cluster whose kwok manages all nodes, has logs to show, and runs commands."""
    directory = tmp_path_factory.mktemp("kubelet")
    logs, config = directory / "pod.log", directory / "kwok.yaml"
    logs.write_text(f"2026-01-01T00:00:00.000000000Z stdout F {LINE}\n")
    config.write_text(SHOW_LOGS_AND_EXEC.format(file=logs))
    flags = [*SHORT_LEASES, "--config", str(config)]
    with own_cluster(
        "kubelet", directory=directory, manage_all_nodes=True, extra_args=flags
    ) as cluster:
        yield cluster


@contextmanager
def node_by_hand(
    kubectl: Kubectl,
    name: str,
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Iterator[None]:
    metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    try:
        yield
    finally:
        kubectl("delete", "node", name)


@contextmanager
def pods_on(kubectl: Kubectl, nodes: list[str]) -> Iterator[None]:
    """A running pod on each node, called as the node."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": node},
            "spec": {
                "nodeName": node,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "none"}],
            },
        }
        for node in nodes
    ]
    names = [f"pod/{node}" for node in nodes]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": pods})
    try:
        kubectl("wait", *names, "--for=condition=Ready", "--timeout=240s", timeout=270)
        yield
    finally:
        kubectl("delete", *names, "--force", "--grace-period=0")


def answers(kubectl: Kubectl, pod: str) -> tuple[str, str]:
    """What `kubectl logs` and `kubectl exec` say of a pod, without its name."""

    def said(*command: str) -> str:
        try:
            return kubectl(*command).replace(pod, "POD")
        except KubectlError as err:
            return err.stderr.replace(pod, "POD")

    return said("logs", pod), said("exec", pod, "--", "echo", "hello")


def endpoint(node: dict[str, Any]) -> tuple[Any, Any]:
    """Where the API server looks for the kubelet of a node."""
    return node["status"].get("addresses"), node["status"]["daemonEndpoints"]


def port_of(node: dict[str, Any]) -> int:
    port: int = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    return port


def holder(kubectl: Kubectl, node: str) -> str:
    lease = kubectl.json("get", "lease", node, "--namespace=kube-node-lease")
    return str(lease["spec"]["holderIdentity"])


def test_born_ready_and_still_as_kwok_makes_them(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    hand = f"{group_name}-hand"
    with node_by_hand(kubectl, hand, annotations=FAKE):
        kubectl("wait", f"node/{hand}", "--for=condition=Ready", "--timeout=240s", timeout=270)
        apply_group(kubectl, group_name, targetSize=4)
        wait_ready(kubectl, group_name)
        nodes = names_of(kubectl, group_name)
        assert [born_ready(kubectl, node) for node in nodes] == [False, True, True, True]

        scale(kubectl, group_name, 6)
        wait_ready(kubectl, group_name)
        later = sorted(set(names_of(kubectl, group_name)) - set(nodes))
        assert [born_ready(kubectl, node) for node in later] == [True, True]

        by_kwok = endpoint(kubectl.json("get", "node", hand))
        assert by_kwok[0], "kwok has given its node an address"
        assert [endpoint(n) for n in nodes_of(kubectl, group_name)] == [by_kwok] * 6
        with pods_on(kubectl, [hand, nodes[0], nodes[-1], later[-1]]):
            logs, output = answers(kubectl, hand)
            assert not any(words in logs + output for words in NO_CONNECTION)
            for node in (nodes[0], nodes[-1], later[-1]):
                assert answers(kubectl, node) == (logs, output)


def test_a_kubelet_that_is_not_kwoks(kubectl: Kubectl, harness: Harness, group_name: str) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=0)
    wait_ready(kubectl, group_name)
    foreign = f"{group_name}-foreign"
    with node_by_hand(kubectl, foreign, labels={NODE_GROUP_LABEL: group_name}):
        wait_condition(kubectl, group_name, "ForeignNodes")

        def reports(address: str, *, group_size: int) -> None:
            status = {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            }
            patch = json.dumps({"status": status})
            kubectl("patch", "node", foreign, "--subresource=status", f"--patch={patch}")
            scale(kubectl, group_name, group_size)
            wait_ready(kubectl, group_name)

        reports("192.0.2.1", group_size=3)
        reports("192.0.2.2", group_size=6)
        ours = [n for n in nodes_of(kubectl, group_name) if n["metadata"]["name"] != foreign]
        scout, *others = [endpoint(node) for node in ours]
        assert "192.0.2." not in json.dumps(scout)
        assert others == [scout] * 5


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
        for size in (3, 4):
            own.harness.start()
            apply_group(kubectl, name, targetSize=size)
            wait_condition(kubectl, name, "Stalled")
            nodes = made_without_claim(kubectl, name, count=size)
            eventually(
                lambda: stalled_message(kubectl, name),
                lambda message: nodes[0] in message,  # noqa: B023 - read at once
                describe="the first node that waits is named",
                timeout=SLOW,
            )

    assert_all_well(kubectl, name)
    scale(kubectl, name, 5)
    wait_ready(kubectl, name)
    assert born_ready(kubectl, names_of(kubectl, name)[-1])
    kubectl("delete", "kng", name)


def test_kwok_stops_and_goes_on(own: OwnCluster) -> None:
    kubectl, name = own.kubectl, "kwok-stops"
    operator = own.harness.ensure()
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
        since = [renewed_last(kubectl, node).strftime("%Y-%m-%dT%H:%M:%SZ") for node in old]
        eventually(
            lambda: stalled_message(kubectl, name),
            lambda message: any(time in message for time in since),
            describe="the condition tells when a Lease that has run out was renewed last",
            timeout=SLOW,
        )
        before, looked = settled(kubectl, operator), looks(operator)
        eventually(lambda: looks(operator) >= looked + 2, describe="it has looked twice")
        assert traces(kubectl, operator) == before, "nothing is written while nothing happens"

    assert_all_well(kubectl, name)
    assert [e["type"] for e in events_of(kubectl, name) if e["reason"] == REASON] == ["Warning"]
    scale(kubectl, name, 7)
    wait_ready(kubectl, name)
    assert born_ready(kubectl, names_of(kubectl, name)[-1])
    kubectl("delete", "kng", name)


def test_all_nodes_are_kwoks(own: OwnCluster) -> None:
    kubectl, name, hand = own.kubectl, "all-managed", "all-managed-hand"
    own.harness.ensure()
    with node_by_hand(kubectl, hand):
        apply_group(kubectl, name, targetSize=3)
        wait_ready(kubectl, name)
        nodes = names_of(kubectl, name)
        assert [born_ready(kubectl, node) for node in nodes[1:]] == [True, True]
        with pods_on(kubectl, [hand, *nodes]):
            for node in (hand, *nodes):
                assert answers(kubectl, node) == (f"{LINE}\n", "hello\n")
    kubectl("delete", "kng", name)


def test_kwok_comes_back_on_another_port(own: OwnCluster) -> None:
    kubectl, name = own.kubectl, "another-port"
    own.harness.ensure()
    apply_group(kubectl, name, targetSize=2)
    wait_ready(kubectl, name)
    old = names_of(kubectl, name)
    before = {holder(kubectl, node) for node in old}

    port = free_port()
    own.kill_kwok()
    own.start_kwok(port=port)
    eventually(
        lambda: {holder(kubectl, node) for node in old},
        before.isdisjoint,
        describe="the new kwok has taken the Leases",
    )
    scale(kubectl, name, 5)
    wait_ready(kubectl, name)
    new = nodes_of(kubectl, name)[2:]
    assert [port_of(node) for node in new] == [port] * 3
    names = [node["metadata"]["name"] for node in new]
    with pods_on(kubectl, names):
        assert [answers(kubectl, node) for node in names] == [(f"{LINE}\n", "hello\n")] * 3
    kubectl("delete", "kng", name)


def test_a_kwok_without_a_kubelet_api(own: OwnCluster) -> None:
    kubectl, name = own.kubectl, "no-kubelet"
    own.kill_kwok()
    own.start_kwok(serving=False)
    own.harness.start()
    apply_group(kubectl, name, targetSize=4)
    wait_ready(kubectl, name)
    nodes = nodes_of(kubectl, name)
    assert [endpoint(node) for node in nodes] == [(None, {"kubeletEndpoint": {"Port": 0}})] * 4
    names = [node["metadata"]["name"] for node in nodes]
    assert [born_ready(kubectl, node) for node in names] == [False, True, True, True]
    assert "KwokNotResponding" not in {e["reason"] for e in events_of(kubectl, name)}
    kubectl("delete", "kng", name)
