"""What Karpenter does through its provider `clusterapi`, and a program in its place.

Written from the provider's sources and those of Karpenter 1.5. `Standin` takes MachineDeployments
with the member label; a loop claims Machines for pods without a node, and ends empty Nodes: the
Node is deleted, a finalizer keeps it, its Machine is annotated and the replicas are lowered unless
the Machine is being deleted already, and once the Machine is gone the finalizer goes. It drains
nothing, has no NodePools, and knows one size of pod.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import EMULATED_NODE_GROUP, NODE_GROUP_LABEL
from tests.e2e.api import NODES, Refused, path_of
from tests.e2e.capi import CAPACITY, GROUP, Object, Provider, deployment
from tests.e2e.kubectl import PATIENCE, Kubectl, eventually
from tests.e2e.ports import free_port

MEMBER: Final = "node.cluster.x-k8s.io/karpenter-member"
FINALIZER: Final = "karpenter.sh/termination"
UNREGISTERED: Final = "karpenter.sh/unregistered"
DELETE: Final = f"{GROUP}/delete-machine"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
AGAIN: Final = 0.1
"""Seconds after which the stand-in looks again at what it ends. Karpenter mostly takes five, but
was seen to lower the replicas again after 0.3."""


def karpenters(name: str, *, cpu: int) -> Object:
    """A MachineDeployment that Karpenter takes for an instance type."""
    body = deployment(name, replicas=0)
    labels = {
        INSTANCE_TYPE: name,
        "topology.kubernetes.io/zone": "zone-a",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "karpenter.sh/capacity-type": "on-demand",
    }
    body["metadata"]["labels"] = {MEMBER: ""}
    body["metadata"]["annotations"] |= {
        f"{CAPACITY}cpu": str(cpu),
        f"{CAPACITY}memory": f"{4 * cpu}Gi",
        f"{CAPACITY}maxPods": "110",
        f"{CAPACITY}labels": ",".join(f"{key}={text}" for key, text in labels.items()),
        f"{CAPACITY}taints": f"{UNREGISTERED}:NoExecute",
    }
    return body


class Standin:
    """In Karpenter's place, for one MachineDeployment whose nodes take `pods` pods each."""

    def __init__(self, kubectl: Kubectl, name: str, *, pods: int) -> None:
        self._api = kubectl.api
        self._provider = Provider(kubectl.api)
        self._name, self._pods = name, pods
        self._looked: dict[str, float] = {}
        """When it last looked at a Node that it ends."""
        self.chosen: set[str] = set()
        """The Machines that it has annotated, so that they go when the replicas are lowered."""

    def loop(self) -> None:
        """Once; what conflicts is done again by the next one."""
        try:
            self._register()
            self._provision()
            self._end()
        except Refused as error:
            if error.status not in (404, 409):
                raise

    def _provision(self) -> None:
        machines = self._provider.machines(self._name)
        claimed = [m for m in machines if MEMBER in m["metadata"]["labels"] and not _goes(m)]
        free = [m for m in machines if MEMBER not in m["metadata"]["labels"] and not _goes(m)]
        pods = len(self._api.names(path_of("pods")))
        needed = -(-pods // self._pods) - len(claimed)
        body = self._provider.get("machinedeployments", self._name)
        # The Machines of the loop before may be still to come.
        if body["spec"]["replicas"] < len(claimed) + needed:
            body["spec"]["replicas"] = len(claimed) + needed
            self._put("machinedeployments", body)
        for machine in free[: max(0, needed)]:
            machine["metadata"]["labels"][MEMBER] = ""
            self._put("machines", machine)

    def _register(self) -> None:
        """Its finalizer comes on a Node, and the taint of an unregistered one goes."""
        for node in self._api.list(NODES)[0]:
            taints = node["spec"].get("taints") or []
            if any(taint["key"] == UNREGISTERED for taint in taints):
                node["spec"]["taints"] = [t for t in taints if t["key"] != UNREGISTERED]
                node["metadata"]["finalizers"] = [FINALIZER]
                self._api.run(
                    self._api.ask("PUT", f"{NODES}/{node['metadata']['name']}", body=node)
                )

    def _end(self) -> None:
        pods = self._api.list(path_of("pods"))[0]
        used = {pod["spec"].get("nodeName") for pod in pods}
        if None in used:
            return
        for node in self._api.list(NODES)[0]:
            name = node["metadata"]["name"]
            if "deletionTimestamp" in node["metadata"]:
                self._terminate(node)
            elif name not in used and FINALIZER in node["metadata"].get("finalizers", ()):
                self._api.delete(f"{NODES}/{name}")

    def _terminate(self, node: Object) -> None:
        name, now = node["metadata"]["name"], time.monotonic()
        if now - self._looked.get(name, 0.0) < AGAIN:
            return
        self._looked[name] = now
        machines = {m["spec"]["providerID"]: m for m in self._provider.machines(self._name)}
        machine = machines.get(node["spec"]["providerID"])
        if machine is None:
            finalizers: Object = {"metadata": {"finalizers": None}}
            self._api.patch(f"{NODES}/{name}", finalizers)
        elif "deletionTimestamp" not in machine["metadata"]:
            machine["metadata"].setdefault("annotations", {})[DELETE] = "2026-01-02"
            self._put("machines", machine)
            self.chosen.add(name)
            body = self._provider.get("machinedeployments", self._name)
            body["spec"]["replicas"] = max(0, body["spec"]["replicas"] - 1)
            self._put("machinedeployments", body)

    def _put(self, plural: str, body: Object) -> None:
        path = self._provider.path(plural, body["metadata"]["name"])
        self._api.run(self._api.ask("PUT", path, body=body))


def _goes(machine: Object) -> bool:
    metadata: dict[str, Any] = machine["metadata"]
    return "deletionTimestamp" in metadata or DELETE in metadata.get("annotations", {})


NODE_CLASS: Final = {
    "apiVersion": "karpenter.cluster.x-k8s.io/v1alpha1",
    "kind": "ClusterAPINodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}
NODE_POOL: Final = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                # Or the provider finds that the instance type, which has it, doesn't fit.
                "requirements": [
                    {"key": NODE_GROUP_LABEL, "operator": "In", "values": [EMULATED_NODE_GROUP]}
                ],
                "nodeClassRef": {
                    "group": "karpenter.cluster.x-k8s.io",
                    "kind": "ClusterAPINodeClass",
                    "name": "default",
                },
            }
        },
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "1s",
            "budgets": [{"nodes": "100%"}],
        },
    },
}


@contextmanager
def karpenter(kubectl: Kubectl, binary: Path, directory: Path) -> Iterator[None]:
    """A real one, with its CRDs from the folder `crds` beside it, and a NodePool."""
    kubectl("apply", f"--filename={binary.parent / 'crds'}")
    for each in (NODE_CLASS, NODE_POOL):
        eventually(lambda each=each: kubectl.apply(each), describe="CRDs are served")  # type: ignore[misc]
    environment = {
        "KUBECONFIG": str(kubectl.kubeconfig),
        "DISABLE_LEADER_ELECTION": "true",
        "HEALTH_PROBE_PORT": str(free_port()),
        "METRICS_PORT": "0",
        "LOG_LEVEL": "debug",
    }
    with (directory / "karpenter.log").open("wb") as log:
        process = subprocess.Popen(
            [str(binary)], env=os.environ | environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)
