"""What cluster-autoscaler's provider `clusterapi` reads and writes, and nothing else.

Written from its sources (CA 1.33 to 1.37): instances and their states, from a Node to its group,
sizes through /scale, Machines annotated by GET and PUT of the whole object. Who scales by this is
independent of the operator's own rules.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kwok_operator.clusterapi.crds import emulated_crds
from kwok_operator.constants import CA_NODE_GROUP_ANNOTATION, NODE_GROUP_LABEL
from tests.e2e.api import MERGE, NODES, Api, Refused
from tests.e2e.kubectl import Kubectl, eventually

GROUP = "cluster.x-k8s.io"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"

Object = dict[str, Any]


def install_crds(kubectl: Kubectl, group: str = GROUP) -> None:
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": emulated_crds(group)})
    client = Provider(kubectl.api, group=group)
    for plural in ("machinedeployments", "machinesets", "machines"):
        eventually(
            lambda plural=plural: client.objects(plural) is not None,  # type: ignore[misc]
            describe=f"{plural} are served",
        )


def nodes_of(kubectl: Kubectl, group: str) -> list[str]:
    """The names of a group's nodes that are emulated."""
    found = kubectl.api.list(NODES, selector=NODE_GROUP_LABEL, metadata=True)[0]
    names = (each["metadata"] for each in found)
    return [
        each["name"]
        for each in names
        if each.get("annotations", {}).get(CA_NODE_GROUP_ANNOTATION) == group
    ]


def deployment(
    name: str,
    *,
    replicas: int | None,
    group: str = GROUP,
    kind: str = "MachineDeployment",
    **spec: Any,
) -> Object:
    """One that can be scaled from zero; without a webhook's help."""
    labels = {"pool": name}
    size = {} if replicas is None else {"replicas": replicas}
    return {
        "apiVersion": f"{group}/v1beta2",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {
                f"{group}/cluster-api-autoscaler-node-group-min-size": "0",
                f"{group}/cluster-api-autoscaler-node-group-max-size": "1000",
                f"{CAPACITY}cpu": "4",
                f"{CAPACITY}memory": "8Gi",
            },
        },
        "spec": {
            "clusterName": "fleet",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"clusterName": "fleet"}},
            **size,
            **spec,
        },
    }


class Provider:
    """One autoscaler's view; every read is fresh."""

    def __init__(self, api: Api, *, group: str = GROUP, version: str = "v1beta2") -> None:
        self._api = api
        self._group = group
        self._root = f"/apis/{group}/{version}"

    def path(self, plural: str, name: str = "") -> str:
        return f"{self._root}/namespaces/default/{plural}{f'/{name}' if name else ''}"

    def create(self, body: Object) -> None:
        self._api.create(self.path(_plural(body["kind"])), body)

    def objects(self, plural: str) -> Sequence[Object]:
        return self._api.list(self.path(plural))[0]

    def get(self, plural: str, name: str) -> Object:
        found: Object = self._api.get(self.path(plural, name))
        return found

    def delete(self, plural: str, name: str) -> None:
        self._api.delete(self.path(plural, name))

    def size(self, scalable: str, *, plural: str = "machinedeployments") -> int:
        scale = self._api.get(f"{self.path(plural, scalable)}/scale")
        return int(scale["spec"].get("replicas", 0))

    def set_size(self, scalable: str, size: int, *, plural: str = "machinedeployments") -> None:
        path = f"{self.path(plural, scalable)}/scale"
        self._api.patch(path, {"spec": {"replicas": size}}, kind=MERGE)

    def mark_for_deletion(self, machine: str) -> None:
        """GET, annotate, PUT; anew where somebody was faster."""
        while True:
            body = self.get("machines", machine)
            annotations = body["metadata"].setdefault("annotations", {})
            annotations[f"{self._group}/delete-machine"] = "2026-01-02 03:04:05 +0000 UTC"
            try:
                self._api.run(self._api.ask("PUT", self.path("machines", machine), body=body))
                return
            except Refused as error:
                if error.status != 409:
                    raise

    def delete_nodes(
        self, scalable: str, nodes: Sequence[str], *, plural: str = "machinedeployments"
    ) -> None:
        """As DeleteNodes does: one after the other, the annotation first."""
        size = self.size(scalable, plural=plural)
        for node in nodes:
            self.mark_for_deletion(self.machine_of(node)["metadata"]["name"])
            size -= 1
            self.set_size(scalable, size, plural=plural)

    def machines(self, scalable: str, *, plural: str = "machinedeployments") -> list[Object]:
        """Those in the namespace that match selector and clusterName."""
        body = self.get(plural, scalable)
        wanted: Mapping[str, str] = body["spec"]["selector"]["matchLabels"]
        return [
            machine
            for machine in self.objects("machines")
            if wanted.items() <= machine["metadata"].get("labels", {}).items()
            and machine["spec"].get("clusterName") == body["spec"]["clusterName"]
        ]

    def labels_from_zero(self, scalable: str) -> dict[str, str]:
        """Of a node that isn't there yet, but for its name."""
        annotations = self.get("machinedeployments", scalable)["metadata"]["annotations"]
        pieces = annotations.get(f"{CAPACITY}labels", "").split(",")
        labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
        return labels | dict(piece.split("=", 1) for piece in pieces if "=" in piece)

    def instances(self, scalable: str, *, plural: str = "machinedeployments") -> dict[str, str]:
        """Ids, and the state that CA makes of each."""
        return dict(_instance(each) for each in self.machines(scalable, plural=plural))

    def machine_of(self, node: str) -> Object:
        """By the providerID, else by the annotations."""
        body = self._api.get(f"{NODES}/{node}")
        last = body["spec"]["providerID"].rpartition("/")[2]
        machines = self.objects("machines")
        found = [m for m in machines if m["spec"].get("providerID", "").rpartition("/")[2] == last]
        annotations = body["metadata"]["annotations"]
        assert annotations[f"{self._group}/cluster-namespace"] == "default"
        named = annotations[f"{self._group}/machine"]
        assert [m["metadata"]["name"] for m in found] == [named]
        return found[0]

    def group_of(self, node: str) -> str:
        """NodeGroupForNode: Node, Machine, MachineSet, MachineDeployment."""
        machine = self.machine_of(node)
        name = _owner(machine, "MachineSet")
        owned = self.get("machinesets", name)
        deployment = _owner(owned, "MachineDeployment")
        if not deployment:
            return f"MachineSet/default/{name}"
        assert self.get("machinedeployments", deployment)["metadata"]["name"] == deployment
        return f"MachineDeployment/default/{deployment}"

    def rolls_out(self, scalable: str) -> bool:
        """Whether CA >= 1.35 takes the nodes out of scale-down: an older MachineSet has replicas,
        and one without a revision counts as older.
        """
        sets = [
            each
            for each in self.objects("machinesets")
            if each["metadata"].get("labels", {}).get(DEPLOYMENT_NAME) == scalable
        ]
        revisions = [int(s["metadata"]["annotations"].get(REVISION, -1)) for s in sets]
        return any(
            revision < max(revisions) or revision < 0
            for revision, each in zip(revisions, sets, strict=True)
            if each["spec"]["replicas"] or each.get("status", {}).get("replicas")
        )


def _instance(machine: Object) -> tuple[str, str]:
    metadata, status = machine["metadata"], machine.get("status", {})
    name = f"{metadata['namespace']}_{metadata['name']}"
    if status.get("failureMessage") and status.get("phase") == "Failed":
        return f"failed-machine-{name}", "" if status.get("nodeRef") else "ProvisioningFailed"
    if metadata.get("deletionTimestamp"):
        return f"deleting-machine-{name}", "Deleting"
    if not status.get("nodeRef"):
        return f"pending-machine-{name}", "Creating"
    return str(machine["spec"]["providerID"]), "Running"


def _owner(body: Object, kind: str) -> str:
    for reference in body["metadata"].get("ownerReferences") or ():
        if reference["kind"] == kind:
            return str(reference["name"])
    return ""


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"
