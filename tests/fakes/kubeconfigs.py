"""kubeconfig files for tests, and what comes of them."""

import os
from pathlib import Path
from typing import Any, Final

import yaml

from kwok_operator.kube.config import load_connection
from kwok_operator.kube.connection import ApiConnection

EXEC_V1: Final = "client.authentication.k8s.io/v1"


def kubeconfig(
    path: Path,
    *,
    name: str = "dev",
    server: str = "http://k8s:8080",
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    **fields: Any,
) -> str:
    """Write a kubeconfig of one context, cluster and user of the same name."""
    config: dict[str, Any] = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        **fields,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({k: v for k, v in config.items() if v is not None}))
    return str(path)


async def load(path: str | None = None, **options: Any) -> ApiConnection:
    options = {"environ": {"PATH": os.environ["PATH"]}, **options}
    return await load_connection(kubeconfig=path, **options)


async def authorization(connection: ApiConnection) -> str | None:
    return (await connection.auth_headers()).get("Authorization")
