"""A cluster in which nothing of ours is yet, for what puts things there itself.

It is made by us even where KWOK_OPERATOR_TEST_KUBECONFIG names a cluster.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kwok_operator.controlplane import Cluster, temporary
from tests.e2e.kubectl import Kubectl


@contextmanager
def bare_cluster(name: str, *, directory: Path) -> Iterator[tuple[Cluster, Kubectl]]:
    """A cluster, and its kubectl, there as long as the block."""
    with temporary(f"e2e-{name}") as cluster:
        kubectl = Kubectl(
            program=cluster.kubectl, kubeconfig=cluster.kubeconfig, cache=directory / "cache"
        )
        yield cluster, kubectl
