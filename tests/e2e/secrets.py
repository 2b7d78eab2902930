"""The kubeconfig Secrets from which templates of other clusters are read."""

import base64
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.operator import NAMESPACE, Process

READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-reader}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
"""


class Secrets:
    """The Secret that is called like the group."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self._kubectl = kubectl
        self.name = name

    def put(self, config: dict[str, Any], *, key: str = "kubeconfig") -> None:
        data = {key: base64.b64encode(json.dumps(config).encode()).decode()}
        metadata = {"name": self.name, "namespace": NAMESPACE}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        self._kubectl.apply(secret)

    def delete(self) -> None:
        self._kubectl(
            "delete", "secret", self.name, f"--namespace={NAMESPACE}", "--ignore-not-found"
        )


@pytest.fixture
def secret(kubectl: Kubectl, group_name: str, operator: Process) -> Iterator[Secrets]:
    secret = Secrets(kubectl, group_name)
    yield secret
    secret.delete()


def with_user(config: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    changed["users"][0]["user"] = user
    return changed
