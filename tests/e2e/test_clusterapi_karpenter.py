"""Karpenter's provider `clusterapi` scales MachineDeployments whose Machines are emulated.

Up and down, with Nodes that Karpenter's finalizer keeps, and with instances that are slow to come
and slow to go: each Machine goes once, and nothing comes in its place. A stand-in does as the
provider does; where KARPENTER_CLUSTERAPI names a real one (its CRDs are in the folder `crds` beside
it), it does, too.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e import capi
from tests.e2e.api import NODES, path_of
from tests.e2e.capi import Provider
from tests.e2e.capi_karpenter import MEMBER, Standin, karpenter, karpenters
from tests.e2e.emulated import EMULATE, group_of
from tests.e2e.groups import patch_group
from tests.e2e.kubectl import eventually
from tests.e2e.own_cluster import OwnCluster, own_cluster

REAL: Final = os.environ.get("KARPENTER_CLUSTERAPI", "")
NAME: Final = "large"
SOLD_OUT: Final = {"stock": 0, "retryAfter": "1s"}
CLOUD: Final = {
    "stock": None,
    "provisioningDelay": {"fixed": "1s"},
    "failures": {"slowDeletion": {"serials": "1,3", "delay": {"fixed": "7s"}}},
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with own_cluster("karpenter", directory=tmp_path_factory.mktemp("karpenter")) as own:
        capi.install_crds(own.kubectl)
        own.harness.start(EMULATE, kubeconfig=own.cluster.kubeconfig)
        yield own


def pods(count: int) -> dict[str, Any]:
    """A pod of 1 CPU each; a deployment, so that those of a node that is drained come again."""
    resources = {"requests": {"cpu": "1"}}
    container = {"name": "main", "image": "pause", "resources": resources}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }


@pytest.mark.parametrize("real", [False, True] if REAL else [False])
def test_karpenter_scales_up_and_down(own: OwnCluster, tmp_path: Path, real: bool) -> None:
    api, provider = own.kubectl.api, Provider(own.kubectl.api)
    standin = Standin(own.kubectl, NAME, pods=4)
    work: Callable[[], object] = (lambda: None) if real else standin.loop
    provider.create(karpenters(NAME, cpu=4))
    eventually(
        lambda: patch_group(own.kubectl, group_of(NAME), cloud=SOLD_OUT),
        lambda _: True,
        describe="there is a group",
    )

    def waiting() -> int:
        """Returns how many Machines wait for stock, if no other is there, and no Node."""
        work()
        machines = provider.machines(NAME)
        ready = [
            condition
            for machine in machines
            for condition in machine["status"]["conditions"]
            if condition["type"] == "Ready"
        ]
        assert [each["reason"] for each in ready] == ["OutOfResources"] * len(machines)
        assert all(MEMBER in machine["metadata"]["labels"] for machine in machines)
        assert not api.list(NODES)[0]
        return len(machines)

    def settled(count: int) -> set[str]:
        """Returns the Nodes if so many pods are placed, and each Node is a living Machine's."""
        work()
        found = api.list(path_of("pods"))[0]
        placed = [pod for pod in found if pod["spec"].get("nodeName")]
        nodes, machines = api.list(NODES)[0], provider.objects("machines")
        assert len(found) == len(placed) == count
        assert not [each for each in (*nodes, *machines) if _goes(each)]
        there = {node["metadata"]["name"] for node in nodes}
        assert there == {machine["metadata"]["name"] for machine in machines}
        assert len(there) == provider.size(NAME)
        assert {pod["spec"]["nodeName"] for pod in placed} == there
        return there

    with ExitStack() as stack:
        own.kubectl.apply(pods(20))
        # Before Karpenter counts them: five Machines are enough only for all of them.
        eventually(
            lambda: api.list(path_of("pods"))[0],
            lambda listed: len(listed) == 20,
            describe="20 pods wait",
        )
        if real:
            stack.enter_context(karpenter(own.kubectl, Path(REAL).expanduser(), tmp_path))
        eventually(waiting, lambda count: count == 5, describe="all Machines wait for stock")
        patch_group(own.kubectl, group_of(NAME), cloud=CLOUD)
        first = eventually(lambda: settled(20), describe="20 pods run")
        own.kubectl("scale", "deployment/web", "--replicas=3")
        left = eventually(lambda: settled(3), describe="3 pods run, and no node is empty")
        assert left < first, "none comes in the place of one that goes"
        own.kubectl("delete", "deployment", "web")
        eventually(lambda: settled(0), lambda _: True, describe="no Node and no Machine is left")
    if not real:
        assert standin.chosen == first
    provider.delete("machinedeployments", NAME)
    eventually(lambda: not provider.objects("machinesets"), describe="all is gone")


def _goes(body: dict[str, Any]) -> bool:
    return "deletionTimestamp" in body["metadata"]
