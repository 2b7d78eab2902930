"""The stage of a rehearsal whose cluster is a fake API server, without kubectl and programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal.stage import Stage


def fake_stage(client: KubeClient, folder: Path, *, tell: Callable[[str], None] = print) -> Stage:
    unused: Any = None
    return Stage(
        kubectl=unused,
        client=client,
        environment={},
        kubeconfig=folder,
        folder=folder,
        logs=folder,
        versions={},
        find_program=lambda name: None,
        tell=tell,
    )
