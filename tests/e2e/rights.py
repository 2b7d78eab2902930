"""The accounts of the operator and the shim, with the rights that deploy/ gives them and no others.

Rendered by kubectl from the overlay in rights/, so that a test runs with what is deployed. What
would run pods is left out: the operator and the shim are processes here.
"""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kwok_operator.constants import API_GROUP, PLURAL
from tests.e2e.kubectl import Kubectl, eventually

OVERLAY = Path(__file__).with_name("rights")
NAMESPACE = OPERATOR = "kwok-operator"
SHIM = "kwok-operator-shim"

_KINDS = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


def rights(kubectl: Kubectl) -> list[dict[str, Any]]:
    """The objects."""
    return [item for item in _rendered(kubectl) if item["kind"] in _KINDS]


def apply_rights(kubectl: Kubectl, *, policies: bool = True) -> None:
    """Returns when they are in force. Policies are not for those who compare speed."""
    items = [i for i in rights(kubectl) if policies or "Admission" not in i["kind"]]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    groups = f"{PLURAL}.{API_GROUP}"
    for account, verb, resource in ((OPERATOR, "create", "nodes"), (SHIM, "patch", groups)):
        user = f"--as={user_name(account)}"
        eventually(
            functools.partial(kubectl, "auth", "can-i", verb, resource, user),
            describe=f"the rights of {account} are in force",
        )


def kubeconfig_of(kubectl: Kubectl, account: str, *, namespace: str = NAMESPACE) -> str:
    """A kubeconfig with a token of a service account of ours."""
    token = kubectl("create", "token", account, f"--namespace={namespace}", "--duration=6h").strip()
    config = kubectl.json("config", "view", "--raw", "--minify", "--flatten")
    config["users"] = [{"name": account, "user": {"token": token}}]
    config["contexts"][0]["context"] |= {"user": account, "namespace": namespace}
    return json.dumps(config)


def user_name(account: str) -> str:
    """What the API server calls it."""
    return f"system:serviceaccount:{NAMESPACE}:{account}"


def _rendered(kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(kubectl("kustomize", str(OVERLAY)))
