"""One provider config mirrors the node groups of another cluster, through a Secret.

The other cluster is a control plane of its own. Its controller-manager stands still, which would
miss the kubelets.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.controlplane import Cluster
from tests.e2e.api import GROUPS
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.groups import group_of, nodes_of, scale, status_of, stopped, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE, Process
from tests.e2e.rights import kubeconfig_of
from tests.e2e.secrets import READER, Secrets, with_user
from tests.e2e.sources import Provider, RealNodes

KEY = "example.com/fleet"
FAKE = {"kwok.x-k8s.io/node": "fake"}
API_SERVER = "kube-apiserver"

pytestmark = pytest.mark.usefixtures("provider")


@dataclass
class Far:
    """The other cluster."""

    cluster: Cluster
    kubectl: Kubectl
    process: subprocess.Popen[bytes] | None = None
    """The API server that was started anew."""

    def kubeconfig(self) -> dict[str, Any]:
        """With a new token of somebody who may read nodes."""
        config: dict[str, Any] = json.loads(
            kubeconfig_of(self.kubectl, "reader", namespace="default")
        )
        return config

    @contextmanager
    def away(self) -> Iterator[None]:
        """Its API server is killed; afterwards it is there again, with all that it had."""
        pid = self.cluster.pid(API_SERVER)
        command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
        directory = Path(f"/proc/{pid}/cwd").resolve()
        os.kill(pid, signal.SIGKILL)
        try:
            yield
        finally:
            with self.cluster.log(API_SERVER).open("a") as log:
                self.process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
            eventually(self.cluster.answers, describe="it is there again")


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with bare_cluster("far", directory=tmp_path_factory.mktemp("far")) as (cluster, kubectl):
        kubectl.apply(READER)
        far = Far(cluster, kubectl)
        with stopped(cluster.pid("kube-controller-manager")):
            yield far
        if far.process is not None:
            far.process.kill()
            far.process.wait()


@pytest.fixture
def fleet(far: Far) -> Iterator[RealNodes]:
    nodes = RealNodes(far.kubectl)
    yield nodes
    nodes.clean()


def configure(provider: Provider, secret: Secrets, **more: Any) -> None:
    cluster = {"secretName": secret.name, **more}
    provider.configure_for(KEY, read="cluster", more=f"cluster: {json.dumps(cluster)}\n")


def wait_derived(kubectl: Kubectl, *names: str) -> None:
    def derived() -> set[str]:
        return set(kubectl.api.names(GROUPS, selector="kwok-operator.io/derived=true"))

    eventually(derived, lambda there: there == set(names), describe=f"the groups are {names}")


def wait_cpu(kubectl: Kubectl, name: str, cpu: str) -> None:
    eventually(
        lambda: status_of(kubectl, name)["resolvedTemplate"]["status"]["capacity"]["cpu"],
        lambda there: there == cpu,
        describe=f"the template has {cpu} CPUs",
    )


def test_the_node_groups_of_another_cluster_come_and_are_followed(
    far: Far,
    fleet: RealNodes,
    real_nodes: RealNodes,
    provider: Provider,
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
) -> None:
    a, b, c, fake, here = (f"{group_name}-{part}" for part in ("a", "b", "c", "fake", "here"))
    for name, pool, cpu in ((f"{a}-1", a, 4), (f"{a}-2", a, 4), (f"{b}-1", b, 16)):
        fleet.add(name, labels={KEY: pool}, cpu=cpu)
    fleet.add(f"{fake}-1", labels={KEY: fake}, annotations=FAKE)
    real_nodes.add(f"{here}-1", labels={KEY: here})
    secret.put(far.kubeconfig(), key="value")
    configure(provider, secret, copySizes=True)
    wait_derived(kubectl, a, b)
    nodes = group_of(kubectl, a)["spec"]["template"]["from"]["nodes"]
    assert nodes == {
        "selector": {"matchLabels": {KEY: a}},
        "cluster": {"secretName": secret.name},
    }
    eventually(
        lambda: [len(nodes_of(kubectl, name)) for name in (a, b)],
        lambda sizes: sizes == [2, 1],
        describe="there are as many as there",
    )
    wait_ready(kubectl, b)
    assert {n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, b)} == {"16"}
    scale(kubectl, a, 3)
    fleet.status(f"{b}-1", {"capacity": {"cpu": "32"}, "allocatable": {"cpu": "32"}})
    wait_cpu(kubectl, b, "32")
    fleet.add(f"{a}-3", labels={KEY: a}, cpu=4)
    fleet.delete(f"{a}-1", f"{b}-1")
    fleet.add(f"{c}-1", labels={KEY: c}, cpu=8)
    wait_derived(kubectl, a, b, c)
    wait_ready(kubectl, a)
    assert group_of(kubectl, a)["spec"]["targetSize"] == 3
    scale(kubectl, b, 2)
    wait_ready(kubectl, b)
    assert {n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, b)[1:]} == {"32"}
    there = far.kubectl.json("get", "nodes", "--show-managed-fields")["items"]
    assert {n["metadata"]["name"] for n in there} == set(fleet.names) - {f"{a}-1", f"{b}-1"}
    managers = {m["manager"] for n in there for m in n["metadata"]["managedFields"]}
    assert not [m for m in managers if m.startswith("kwok-operator")]


def test_trouble_with_the_other_cluster_is_reported_and_loses_nothing(
    far: Far,
    fleet: RealNodes,
    provider: Provider,
    secret: Secrets,
    kubectl: Kubectl,
    group_name: str,
    operator: Process,
) -> None:
    a, b, c = (f"{group_name}-{part}" for part in "abc")
    fleet.add(f"{a}-1", labels={KEY: a}, cpu=4)
    configure(provider, secret)

    def wait_problem(*parts: str) -> None:
        message = provider.waits_for("NodesUnreadable", "cluster.secretName", *parts)
        assert message in operator.log()

    wait_problem(f"Secret {NAMESPACE}/{secret.name} does not exist")
    good = far.kubeconfig()
    secret.put(good, key="other")
    wait_problem("has no key kubeconfig")
    nobody = far.kubectl("create", "token", "default", "--namespace=default").strip()
    secret.put(with_user(good, {"token": nobody}))
    wait_problem("403", "grant the verbs list and watch on nodes")
    assert 'provider_config_problems{reason="NodesUnreadable"} 1' in operator.get("/metrics")[1]
    secret.put(good)
    wait_derived(kubectl, a)
    provider.waits_for("ProviderConfigValid")
    scale(kubectl, a, 1)
    wait_ready(kubectl, a)
    before = group_of(kubectl, a)

    with far.away():
        wait_problem(good["clusters"][0]["cluster"]["server"])
        scale(kubectl, a, 2)
        wait_ready(kubectl, a)
    fleet.add(f"{b}-1", labels={KEY: b}, cpu=8)
    wait_derived(kubectl, a, b)

    secret.put(with_user(good, {"token": "no-longer-good"}))
    wait_problem("401")
    secret.put(far.kubeconfig())
    fleet.add(f"{c}-1", labels={KEY: c}, cpu=8)
    wait_derived(kubectl, a, b, c)
    after = group_of(kubectl, a)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"] | {"targetSize": 2}
