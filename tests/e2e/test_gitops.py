"""Who owns targetSize beside Argo CD and Flux, as the API server keeps the books.

Flux' rule is that of its library for server-side apply (fluxcd/pkg, ssa/patch.go in version 0.77):
the fields of an entry of managedFields become Flux' own where its manager begins with `kubectl` and
it belongs to no subresource; then Flux applies what is in Git, by force.
"""

import json
from typing import Any

import pytest

from kwok_operator.shim.writer import FIELD_MANAGER
from tests.e2e.groups import group_manifest, group_of
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


def scaled(kubectl: Kubectl, prefix: str, *, by: str) -> dict[str, str]:
    """Groups that are in Git without a target, and got one, each in its way; their names."""
    names = {way: f"{prefix}-{way.replace(' ', '-')}" for way in WAYS}
    apply_all(kubectl, names, by=by)
    for way, (verb, *options) in WAYS.items():
        kubectl(verb, "kng", names[way], *options)
    return names


def apply_all(kubectl: Kubectl, names: dict[str, str], *, by: str, **spec: Any) -> None:
    groups = [group_manifest(name, **spec) for name in names.values()]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": groups}, *BY_FORCE, by)


def targets(kubectl: Kubectl, names: dict[str, str]) -> dict[str, Any]:
    return {way: group_of(kubectl, name)["spec"].get("targetSize") for way, name in names.items()}


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {key: merged(one.get(key, {}), other[key]) for key in other}


def flux_takes_over(kubectl: Kubectl, name: str) -> None:
    """What kubectl wrote is Flux' own from now on."""
    entries = kubectl.json("get", "kng", name, "--show-managed-fields")["metadata"]["managedFields"]
    (own,) = [e for e in entries if (e["manager"], e["operation"]) == (FLUX, "Apply")]
    others = [e for e in entries if e is not own]
    taken = [e for e in others if e["manager"].startswith("kubectl") and "subresource" not in e]
    for entry in taken:
        own["fieldsV1"] = merged(own["fieldsV1"], entry["fieldsV1"])
    books = [own, *(e for e in others if e not in taken)]
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": books}]
    kubectl("patch", "kng", name, "--type=json", "-p", json.dumps(patch), f"--field-manager={FLUX}")


def test_argocd_leaves_a_target_that_is_not_in_git(kubectl: Kubectl, group_name: str) -> None:
    names = scaled(kubectl, group_name, by="argocd-controller")
    apply_all(kubectl, names, by="argocd-controller", paused=True)
    assert targets(kubectl, names) == dict.fromkeys(WAYS, 4)


def test_flux_takes_back_what_kubectl_wrote_but_not_what_it_scaled(
    kubectl: Kubectl, group_name: str
) -> None:
    names = scaled(kubectl, group_name, by=FLUX)
    for name in names.values():
        flux_takes_over(kubectl, name)
    apply_all(kubectl, names, by=FLUX, paused=True)
    left = {"kubectl scale": 4, "the shim": 4, "kubectl patch": None, "kubectl edit": None}
    assert targets(kubectl, names) == left
