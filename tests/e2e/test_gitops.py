"""Who owns targetSize beside Argo CD and Flux, as the API server keeps the books.

- what Argo CD does (server-side apply by force, as argocd-controller) leaves what others scaled
- Flux' rule for fields that kubectl wrote spares `kubectl scale` and the shim, and takes `kubectl
  patch` and `kubectl edit` back, as docs/gitops.md says

Flux' rule is that of its library for server-side apply (fluxcd/pkg, ssa/patch.go in version 0.77):
the fields of an entry of managedFields become Flux' own where its manager begins with `kubectl` and
it belongs to no subresource; then Flux applies what is in Git, by force.
"""

import json
from typing import Any

import pytest

from kwok_operator.shim.writer import FIELD_MANAGER
from tests.e2e.groups import group_manifest
from tests.e2e.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("crds", "harness")  # nobody else writes

FLUX = "kustomize-controller"
BY_FORCE = ("--server-side", "--force-conflicts", "--field-manager")
PATCH = '{"spec": {"targetSize": 4}}'
WAYS = {
    "kubectl scale": ("scale", "--replicas=4"),
    "kubectl patch": ("patch", "--type=merge", "-p", PATCH),
    "kubectl edit": ("patch", "--type=merge", "-p", PATCH, "--field-manager=kubectl-edit"),
    "the shim": ("patch", "--type=merge", "-p", PATCH, f"--field-manager={FIELD_MANAGER}"),
}


def scale(kubectl: Kubectl, name: str, way: str) -> None:
    verb, *options = WAYS[way]
    kubectl(verb, "kng", name, *options)


def target(kubectl: Kubectl, name: str) -> Any:
    return kubectl.json("get", "kng", name)["spec"].get("targetSize")


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {key: merged(one.get(key, {}), other[key]) for key in other}


def flux_applies(kubectl: Kubectl, manifest: dict[str, Any]) -> None:
    """Git as Flux brings it in, after it has taken over what kubectl wrote."""
    name = manifest["metadata"]["name"]
    entries = kubectl.json("get", "kng", name, "--show-managed-fields")["metadata"]["managedFields"]
    (own,) = [e for e in entries if (e["manager"], e["operation"]) == (FLUX, "Apply")]
    others = [e for e in entries if e is not own]
    taken = [e for e in others if e["manager"].startswith("kubectl") and "subresource" not in e]
    for entry in taken:
        own["fieldsV1"] = merged(own["fieldsV1"], entry["fieldsV1"])
    books = [own, *(e for e in others if e not in taken)]
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": books}]
    kubectl("patch", "kng", name, "--type=json", "-p", json.dumps(patch), f"--field-manager={FLUX}")
    kubectl.apply(manifest, *BY_FORCE, FLUX)


@pytest.mark.parametrize("way", WAYS)
def test_argocd_leaves_a_target_that_is_not_in_git(
    kubectl: Kubectl, group_name: str, way: str
) -> None:
    kubectl.apply(group_manifest(group_name), *BY_FORCE, "argocd-controller")
    scale(kubectl, group_name, way)
    kubectl.apply(group_manifest(group_name, paused=True), *BY_FORCE, "argocd-controller")
    assert target(kubectl, group_name) == 4


@pytest.mark.parametrize(
    ("way", "left"),
    [("kubectl scale", 4), ("the shim", 4), ("kubectl patch", None), ("kubectl edit", None)],
)
def test_flux_takes_back_what_kubectl_wrote_but_not_what_it_scaled(
    kubectl: Kubectl, group_name: str, way: str, left: int | None
) -> None:
    kubectl.apply(group_manifest(group_name), *BY_FORCE, FLUX)
    scale(kubectl, group_name, way)
    flux_applies(kubectl, group_manifest(group_name, paused=True))
    assert target(kubectl, group_name) == left
