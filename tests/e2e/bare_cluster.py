"""A cluster in which nothing of ours is yet, for what puts things there itself.

It is made by us even where KWOK_OPERATOR_TEST_KUBECONFIG names a cluster.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kwok_operator.controlplane import Cluster, temporary
from tests.e2e.kubectl import Kubectl, eventually

NAMESPACES = {"default", "kube-node-lease", "kube-public", "kube-system"}
IN_EACH = {"serviceaccounts": "default", "configmaps": "kube-root-ca.crt"}
"""What Kubernetes makes in each namespace."""


@contextmanager
def bare_cluster(name: str, *, directory: Path) -> Iterator[tuple[Cluster, Kubectl]]:
    """A cluster, and its kubectl, there as long as the block. It has all that Kubernetes makes in
    it, so that what comes later was made by others.
    """
    with temporary(f"e2e-{name}") as cluster:
        kubectl = Kubectl(
            program=cluster.kubectl, kubeconfig=cluster.kubeconfig, cache=directory / "cache"
        )
        eventually(lambda: _has_all(kubectl), describe="Kubernetes has made what it makes")
        yield cluster, kubectl


def _has_all(kubectl: Kubectl) -> bool:
    found = {
        (kind, item["metadata"]["namespace"])
        for kind, name in IN_EACH.items()
        for item in kubectl.api.list(f"/api/v1/{kind}", metadata=True)[0]
        if item["metadata"]["name"] == name
    }
    return found >= {(kind, namespace) for kind in IN_EACH for namespace in NAMESPACES}
