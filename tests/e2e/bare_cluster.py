"""A cluster in which nothing of ours is yet, for what puts things there itself.

It is made by us even where KWOK_OPERATOR_TEST_KUBECONFIG names a cluster.
"""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.controlplane import Cluster, Settings, create, delete
from tests.e2e.kubectl import Kubectl


@contextmanager
def bare_cluster(name: str, *, directory: Path) -> Iterator[tuple[Cluster, Kubectl]]:
    """A cluster, and its kubectl, there as long as the block."""
    settings = dataclasses.replace(Settings.from_environ(os.environ), borrowed_kubeconfig=None)
    name = f"e2e-{os.getpid()}-{name}"
    try:
        cluster = create(name, settings=settings)
        kubectl = Kubectl(
            program=cluster.kubectl, kubeconfig=cluster.kubeconfig, cache=directory / "cache"
        )
        yield cluster, kubectl
    finally:
        delete(name, settings=settings)
