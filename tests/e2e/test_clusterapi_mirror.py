"""Groups of Cluster API's objects, of another cluster, with a token that may only read there."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.api import GROUPS, Refused
from tests.e2e.deploying import ROOT
from tests.e2e.groups import nodes_of, scale
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.own_cluster import OwnCluster, own_cluster
from tests.e2e.rights import NAMESPACE, OPERATOR, kubeconfig_of

CAPI = "cluster.x-k8s.io"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
READER = ROOT / "deploy" / "components" / "clusterapi-mirror" / "rbac.yaml"


def crd(group: str, kind: str) -> dict[str, Any]:
    """The least that is one; every field is kept."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta2", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version | {"schema": {"openAPIV3Schema": anything}}],
        },
    }


def install(kubectl: Kubectl, group: str, *kinds: str) -> None:
    items = [crd(group, kind) for kind in kinds]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    for name in (item["metadata"]["name"] for item in items):
        get = partial(kubectl, "get", name, "--output=json")
        eventually(get, describe=f"{name} are served")


class Fleet:
    """MachineDeployments in a management cluster."""

    def __init__(self, kubectl: Kubectl, group: str = CAPI) -> None:
        self._kubectl = kubectl
        self._group = group

    def apply(
        self,
        name: str,
        *,
        replicas: int,
        namespace: str = "default",
        cluster: str = "prod",
        labels: dict[str, str] | None = None,
        handed_on: dict[str, str] | None = None,
        template: str = "",
        capacity: dict[str, str] | None = None,
    ) -> None:
        own = {
            f"{self._group}/cluster-api-autoscaler-node-group-min-size": "0",
            f"{self._group}/cluster-api-autoscaler-node-group-max-size": "9",
            f"{CAPACITY}/cpu": "4",
            f"{CAPACITY}/memory": "16Gi",
        }
        own |= {f"{CAPACITY}/{key}": text for key, text in (capacity or {}).items()}
        machine: dict[str, Any] = {}
        if template:
            ref = {"apiGroup": INFRASTRUCTURE, "kind": "DockerMachineTemplate", "name": template}
            machine["infrastructureRef"] = ref
            own = {key: text for key, text in own.items() if not key.startswith(CAPACITY)}
        self._kubectl.apply(
            {
                "apiVersion": f"{self._group}/v1beta2",
                "kind": "MachineDeployment",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": labels or {},
                    "annotations": own,
                },
                "spec": {
                    "clusterName": cluster,
                    "replicas": replicas,
                    "template": {"metadata": {"labels": handed_on or {}}, "spec": machine},
                },
            }
        )

    def annotate(self, name: str, text: str) -> None:
        self._kubectl("annotate", "--overwrite", f"machinedeployments.{self._group}", name, text)

    def scale(self, name: str, replicas: int) -> None:
        patch = json.dumps({"spec": {"replicas": replicas}})
        kind = f"machinedeployments.{self._group}"
        self._kubectl("patch", kind, name, "--type=merge", f"--patch={patch}")

    def delete(self, *names: str) -> None:
        self._kubectl("delete", f"machinedeployments.{self._group}", *names, "--ignore-not-found")


@pytest.fixture(scope="module")
def management(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with own_cluster("management", directory=tmp_path_factory.mktemp("management")) as own:
        install(own.kubectl, CAPI, "MachineDeployment", "MachineSet", "MachinePool")
        install(own.kubectl, INFRASTRUCTURE, "DockerMachineTemplate")
        own.kubectl("create", "namespace", "other")
        yield own


@pytest.fixture(scope="module")
def cloud_config(management: OwnCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an account that may read what mirroring needs, and nothing else."""
    kubectl = management.kubectl
    kubectl("create", "serviceaccount", "reader", f"--namespace={NAMESPACE}")
    role, binding = yaml.safe_load_all(READER.read_text())
    binding["subjects"][0]["name"] = "reader"
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": [role, binding]})
    path = tmp_path_factory.mktemp("reader") / "kubeconfig"
    path.write_text(kubeconfig_of(kubectl, "reader"))
    return path


@pytest.fixture
def fleet(management: OwnCluster, kubectl: Kubectl) -> Iterator[Fleet]:
    yield Fleet(management.kubectl)
    for namespace in ("default", "other"):
        of = f"--namespace={namespace}"
        management.kubectl("delete", f"machinedeployments.{CAPI}", "--all", of)
    remove_groups(kubectl)


def remove_groups(kubectl: Kubectl) -> None:
    for name in kubectl.api.names(GROUPS):
        kubectl.api.delete(f"{GROUPS}/{name}")
    eventually(lambda: kubectl.api.names(GROUPS) == [], describe="the groups are gone")


def mirror(harness: Harness, cloud_config: Path, *flags: str) -> Process:
    return harness.start("--clusterapi=mirror", f"--cloud-config={cloud_config}", *flags)


def wait_group(kubectl: Kubectl, name: str, fits: Any) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        with suppress(Refused):
            found: dict[str, Any] = kubectl.api.get(f"{GROUPS}/{name}")
            return found
        return None

    found = eventually(look, lambda g: g is not None and fits(g), describe=f"{name} is as wanted")
    assert found is not None
    return found


def wait_usable(kubectl: Kubectl, name: str, count: int) -> None:
    def has(group: dict[str, Any]) -> bool:
        status = group.get("status", {})
        return bool(status.get("replicas") == status.get("readyReplicas") == count)

    wait_group(kubectl, name, has)


def is_offered(group: dict[str, Any]) -> bool:
    return group["spec"].get("autoscaling") is not None


def targets(size: int) -> Any:
    return lambda group: group["spec"].get("targetSize") == size


def events_of(kubectl: Kubectl, name: str) -> set[str]:
    events = kubectl.json("get", "events", "--field-selector", f"involvedObject.name={name}")
    return {event["reason"] for event in events["items"]}


@pytest.mark.core
def test_a_group_has_what_its_object_says_and_follows_its_replicas(
    kubectl: Kubectl, crds: None, harness: Harness
) -> None:
    # In the same cluster, under an API group that is nobody else's.
    group = "capi.example.com"
    install(kubectl, group, "MachineDeployment", "MachineSet")
    reader = yaml.safe_load(READER.read_text().partition("---")[0].replace(CAPI, group))
    bound = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    kubectl.apply(reader)
    kubectl.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "capi-example"},
            "roleRef": {**ref, "name": reader["metadata"]["name"]},
            "subjects": [bound],
        }
    )
    machines = Fleet(kubectl, group)
    harness.start("--clusterapi=mirror", environ={"CAPI_GROUP": group})
    try:
        said = {"labels": "tier=web", "taints": "a=b:NoSchedule"}
        machines.apply("web", replicas=2, capacity=said)
        wait_usable(kubectl, "default.web", 2)
        node = nodes_of(kubectl, "default.web")[0]
        assert (
            node["status"]["capacity"] | {"cpu": "4", "memory": "16Gi"}
            == node["status"]["capacity"]
        )
        assert node["metadata"]["labels"]["tier"] == "web"
        assert [t["key"] for t in node["spec"]["taints"]] == ["a"]
        machines.scale("web", 3)
        wait_usable(kubectl, "default.web", 3)
        # Who scales the group keeps it, until the object is scaled.
        scale(kubectl, "default.web", 1)
        wait_usable(kubectl, "default.web", 1)
        assert wait_group(kubectl, "default.web", targets(1))["spec"]["autoscaling"]["maxSize"] == 9
    finally:
        machines.delete("web")
        eventually(lambda: kubectl.api.names(GROUPS) == [], describe="the group went with it")


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        (["clusterapi:namespace=other"], {"other.c"}),
        (["clusterapi:clusterName=test", "clusterapi:owner=ann"], {"default.b", "other.c"}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_discovery(
    fleet: Fleet,
    kubectl: Kubectl,
    harness: Harness,
    cloud_config: Path,
    flags: list[str],
    seen: set[str],
) -> None:
    jim, ann = {"owner": "jim"}, {"owner": "ann"}
    fleet.apply("a", replicas=0, labels=jim, handed_on=jim)
    fleet.apply("b", replicas=0, labels=jim, cluster="test")
    fleet.apply("c", replicas=0, labels=ann, handed_on=ann, namespace="other")
    mirror(harness, cloud_config, *(f"--node-group-auto-discovery={flag}" for flag in flags))
    eventually(lambda: set(kubectl.api.names(GROUPS)) == seen, describe=f"groups are {seen}")


def test_once_is_a_first_size_and_what_others_own_stays(
    fleet: Fleet, kubectl: Kubectl, harness: Harness, cloud_config: Path
) -> None:
    mirror(harness, cloud_config, "--clusterapi-replicas=once")
    fleet.apply("a", replicas=1)
    wait_group(kubectl, "default.a", targets(1))
    own = {"spec": {"guardTaint": {"enabled": True}, "price": {"hourly": "2"}}}
    patch = f"--patch={json.dumps(own)}"
    kubectl("patch", "kng", "default.a", "--type=merge", "--field-manager=me", patch)
    fleet.scale("a", 3)
    fleet.annotate("a", f"{CAPACITY}/cpu=8")
    found = wait_group(
        kubectl, "default.a", lambda group: group["spec"]["template"]["shape"]["cpu"] == "8"
    )
    assert found["spec"]["targetSize"] == 1
    assert found["spec"]["guardTaint"]["enabled"] is True
    assert found["spec"]["price"] == {"hourly": "2"}
    eventually(lambda: "FieldOwned" in events_of(kubectl, "default.a"), describe="it says so")


def test_a_management_cluster_that_is_away_removes_nothing(
    fleet: Fleet, management: OwnCluster, kubectl: Kubectl, harness: Harness, cloud_config: Path
) -> None:
    fleet.apply("a", replicas=1)
    operator = mirror(harness, cloud_config)
    wait_usable(kubectl, "default.a", 1)
    with management.stopped("kube-apiserver"):
        operator = mirror(harness, cloud_config)
        assert operator.running
        wait_usable(kubectl, "default.a", 1)
    fleet.scale("a", 2)
    wait_usable(kubectl, "default.a", 2)
    fleet.delete("a")
    eventually(lambda: kubectl.api.names(GROUPS) == [], describe="it goes with its object")


def test_rights_in_one_namespace_and_a_right_that_is_missing(
    fleet: Fleet, management: OwnCluster, kubectl: Kubectl, harness: Harness, tmp_path: Path
) -> None:
    there = management.kubectl
    there("create", "serviceaccount", "local", f"--namespace={NAMESPACE}")
    path = tmp_path / "local.kubeconfig"
    path.write_text(kubeconfig_of(there, "local"))
    flags = "--clusterapi=mirror", f"--cloud-config={path}"

    def grant(name: str, *resources: str) -> None:
        place, verbs = "--namespace=other", "--verb=get,list,watch"
        there("create", "role", name, place, verbs, f"--resource={','.join(resources)}")
        account = f"--serviceaccount={NAMESPACE}:local"
        there("create", "rolebinding", name, place, f"--role={name}", account)

    grant("scalables", *(f"{kind}.{CAPI}" for kind in SCALABLES))
    operator = harness.start(*flags, ready=False)
    assert operator.wait() != 0
    assert "deploy/components/clusterapi-mirror/rbac.yaml" in operator.log()
    assert all(f"list {kind}.{CAPI}" in operator.log() for kind in SCALABLES)

    harness.start(*flags, "--node-group-auto-discovery=clusterapi:namespace=other")
    fleet.apply("c", replicas=0, namespace="other", template="large")
    wait_group(kubectl, "other.c", lambda group: not is_offered(group))
    told = "TemplateUnreadable"
    eventually(lambda: told in events_of(kubectl, "other.c"), describe="it is told")
    template = {
        "apiVersion": f"{INFRASTRUCTURE}/v1beta2",
        "kind": "DockerMachineTemplate",
        "metadata": {"name": "large", "namespace": "other"},
        "status": {"capacity": {"cpu": "64", "memory": "1Ti"}},
    }
    there.apply(template)
    grant("templates", f"dockermachinetemplates.{INFRASTRUCTURE}")
    found = wait_group(kubectl, "other.c", is_offered)
    assert found["spec"]["template"]["shape"]["cpu"] == "64"


SCALABLES = ("machinedeployments", "machinesets", "machinepools")
