"""How to log in to a cluster: the context as kubectl picks it, the rest by kubernetes_asyncio.

Tokens, certificates, exec plugins and the old auth-providers are its to understand. The choice is
made by kube/kubeconfig.py, as kubernetes_asyncio lets the last of several files win, kubectl the
first: they would mean different clusters.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import ConnectionConfigError, one_line
from kwok_operator.kube.client import USER_AGENT
from kwok_operator.kube.config import (
    SERVICE_ACCOUNT,
    impersonation,
    kubeconfig_paths,
    server_url,
)
from kwok_operator.kube.kubeconfig import Choice, merge, pick, read_kubeconfig

_MAX_ERROR: Final = 300


@dataclass(frozen=True, slots=True)
class Login:
    """`choice` is None in a pod, which uses its service account."""

    choice: Choice | None
    server: str
    description: str
    service_account: Path = SERVICE_ACCOUNT

    @classmethod
    def find(
        cls,
        *,
        kubeconfig: str | None,
        context: str | None,
        environ: Mapping[str, str] = os.environ,
        service_account: Path = SERVICE_ACCOUNT,
    ) -> "Login":
        """Raises ConnectionConfigError."""
        told = kubeconfig or context or environ.get("KUBECONFIG")
        host = environ.get("KUBERNETES_SERVICE_HOST")
        if not told and host and (service_account / "token").is_file():
            described = f"the cluster of this pod, at {host}"
            return cls(None, f"https://{host}", described, service_account)
        paths = kubeconfig_paths(kubeconfig, environ, "--kubeconfig")
        choice = pick(merge([read_kubeconfig(path) for path in paths]), context)
        server = server_url(choice.cluster, choice.user)
        return cls(choice, server, one_line(f"context {choice.name} at {server}"))

    async def client(self) -> Any:
        """A client of kubernetes_asyncio, logged in anew; raises ConnectionConfigError."""
        from kubernetes_asyncio.client import ApiClient, Configuration
        from kubernetes_asyncio.config import load_incluster_config
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        configuration = Configuration()
        # Python 3.13 refuses CAs that name no key usage, as kwokctl's and those of old clusters.
        configuration.disable_strict_ssl_verification = True
        headers: dict[str, str] = {}
        try:
            if self.choice is None:
                load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=configuration,
                    token_filename=str(self.service_account / "token"),
                    cert_filename=str(self.service_account / "ca.crt"),
                )
            else:
                headers = impersonation(self.choice.user)
                loader = KubeConfigLoader(
                    _kubeconfig(self.choice, self.server), config_base_path=""
                )
                await loader.load_and_set(configuration)
            client = ApiClient(configuration)
        except ConnectionConfigError:
            raise
        except Exception as error:  # its own, KeyError, ValueError, ssl's: it doesn't say which
            said = one_line(error, limit=_MAX_ERROR) or type(error).__name__
            raise ConnectionConfigError(f"logging in, {self.description}: {said}") from error
        client.user_agent = USER_AGENT
        for name, value in headers.items():
            client.set_default_header(name, value)
        return client


def _kubeconfig(choice: Choice, server: str) -> dict[str, Any]:
    name = "chosen"
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {**choice.cluster, "server": server}}],
        "users": [{"name": name, "user": dict(choice.user)}],
    }
