"""What templates are copied from, as the e2e tests lay it out: ConfigMaps, and real-looking nodes.

`Provider` is the pair of ConfigMaps of a provider config; there is one at a time. Real nodes are
posted by us with a status, and nobody keeps them: to the cluster they are nodes whose kubelet has
just told that it is Ready, and the operator must take them for real.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.e2e.api import GROUPS, NODES, STRATEGIC, path_of
from tests.e2e.groups import (
    condition,
    delete_group,
    status_of,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE

CONFIG, TEMPLATES = "kwok-provider-config", "kwok-provider-templates"
CA = "cluster-autoscaler.kwok.nodegroup"
TYPE = "node.kubernetes.io/instance-type"
NOW = "2026-01-02T03:04:05Z"


def configmap(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def template(
    name: str,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    cpu: int = 4,
    **spec: Any,
) -> dict[str, Any]:
    """A Node as people write it into a templates ConfigMap."""
    resources = {"cpu": str(cpu), "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations or {}},
        "spec": spec,
        "status": {"capacity": resources, "allocatable": resources},
    }


def documents(*objects: Mapping[str, Any]) -> str:
    return yaml.safe_dump_all(objects)


@dataclass
class Provider:
    """The ConfigMaps, and the Events on them."""

    kubectl: Kubectl

    def configure(self, text: str) -> None:
        self.kubectl.apply(configmap(CONFIG, config=text))

    def configure_for(self, key: str, *, read: str = "configmap", more: str = "") -> None:
        self.configure(
            f"apiVersion: v1alpha1\nreadNodesFrom: {read}\n"
            f"nodegroups:\n  fromNodeLabelKey: {key}\nconfigmap:\n  name: {TEMPLATES}\n{more}"
        )

    def templates(self, *nodes: Mapping[str, Any], key: str = "templates") -> None:
        self.kubectl.apply(configmap(TEMPLATES, **{key: documents(*nodes)}))

    def remove(self, name: str) -> None:
        self.kubectl.api.delete(path_of("configmap", namespace=NAMESPACE, name=name))

    def messages(self, reason: str, *, of: str = CONFIG) -> list[str]:
        """What the Events of that reason say about the ConfigMap that is there now."""
        found = self.kubectl.json("get", "configmap", of, f"--namespace={NAMESPACE}")
        selector = f"involvedObject.uid={found['metadata']['uid']},reason={reason}"
        events = self.kubectl.json(
            "get", "events", f"--namespace={NAMESPACE}", f"--field-selector={selector}"
        )
        return [event["message"] for event in events["items"]]

    def waits_for(self, reason: str, *parts: str, of: str = CONFIG) -> str:
        """The first message of that reason with all these parts."""

        def fitting() -> list[str]:
            return [m for m in self.messages(reason, of=of) if all(p in m for p in parts)]

        found = eventually(fitting, describe=f"an Event {reason} says {parts}")
        return found[0]


@pytest.fixture
def provider(kubectl: Kubectl, crds: None, operator_kubeconfig: object) -> Iterator[Provider]:
    """No provider config is there; what the test makes of one is gone afterwards."""
    provider = Provider(kubectl)
    yield provider
    for name in (CONFIG, TEMPLATES):
        provider.remove(name)
    for group in kubectl.api.names(GROUPS, selector="kwok-operator.io/derived=true"):
        delete_group(kubectl, group)


def real_node(
    name: str,
    *,
    labels: Mapping[str, str],
    cpu: int = 4,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
    unschedulable: bool = False,
) -> dict[str, Any]:
    """A node as a cloud's kubelet registers it."""
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": NOW,
        "lastTransitionTime": NOW,
    }
    capacity = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "ephemeral-storage": "80Gi"}
    allocatable = {"cpu": f"{cpu * 1000 - 80}m", "memory": f"{cpu * 3}Gi", "pods": "58"}
    spec: dict[str, Any] = {"providerID": f"aws:///eu-west-1a/i-{name}", "taints": list(taints)}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", **labels},
            "annotations": {"alpha.kubernetes.io/provided-node-ip": "10.0.0.9"}
            | dict(annotations or {}),
        },
        "spec": spec,
        "status": {
            "capacity": {**capacity, "pods": "58"},
            "allocatable": allocatable,
            "conditions": [condition],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "b",
                "containerRuntimeVersion": "containerd://1.7",
                "kernelVersion": "6.1.0",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.0",
                "machineID": "m",
                "operatingSystem": "linux",
                "osImage": "Bottlerocket",
                "systemUUID": "s",
            },
        },
    }


class RealNodes:
    """Real-looking nodes that a test made; they are gone afterwards."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._api = kubectl.api
        self.names: list[str] = []

    def add(self, name: str, **how: Any) -> None:
        self._api.create(NODES, real_node(name, **how))
        self.names.append(name)

    def status(self, name: str, patch: Mapping[str, Any]) -> None:
        """What the node's kubelet would write."""
        self._api.patch(f"{NODES}/{name}/status", {"status": patch}, kind=STRATEGIC)

    def delete(self, *names: str) -> None:
        for name in names:
            self._api.delete(f"{NODES}/{name}")

    def clean(self) -> None:
        self.delete(*self.names)


@pytest.fixture
def real_nodes(kubectl: Kubectl) -> Iterator[RealNodes]:
    nodes = RealNodes(kubectl)
    yield nodes
    nodes.clean()


def resolved(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = status_of(kubectl, name)["resolvedTemplate"]
    return found


def cpu_of(kubectl: Kubectl, name: str) -> str:
    return str(resolved(kubectl, name)["status"]["capacity"]["cpu"])


def wait_cpu(kubectl: Kubectl, name: str, cpu: str) -> None:
    eventually(
        lambda: cpu_of(kubectl, name), lambda c: c == cpu, describe=f"the template has {cpu} CPUs"
    )


def wait_reason(
    kubectl: Kubectl, name: str, reason: str, *, status: str, parts: tuple[str, ...] = ()
) -> dict[str, Any]:
    """TemplateResolved with that status and reason, once its message has all parts."""
    return eventually(
        lambda: condition(kubectl, name, "TemplateResolved"),
        lambda c: (
            (c["status"], c["reason"]) == (status, reason)
            and all(part in c["message"] for part in parts)
        ),
        describe=f"TemplateResolved is {status} because of {reason}",
    )
