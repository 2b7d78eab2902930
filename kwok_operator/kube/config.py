"""Finds the API server and the credentials: kubeconfig files, or the pod's service account.

    --kubeconfig / --context ─┐
    service account of a pod ─┼─> Endpoint ──> Connection, which repeats this for new credentials
    $KUBECONFIG, ~/.kube ─────┘

It chooses as kubectl does, and merges files as kubectl merges them (kubeconfig.py). It handles
tokens, token files, certificates, passwords and exec plugins (exec_plugin.py). Only the old
auth-providers are left to kubernetes_asyncio, which is imported only for them, as it costs 35 MB of
memory.

Not supported, and refused with a message: SOCKS proxies, auth-providers other than oidc and gcp,
impersonation of more than a user, a uid and one group.
"""

import base64
import functools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import ConnectionConfigError, one_line
from kwok_operator.kube.connection import ApiConnection, Endpoint, read_token
from kwok_operator.kube.exec_plugin import ExecCredential, run_plugin
from kwok_operator.kube.kubeconfig import Choice, merge, pick, read_kubeconfig
from kwok_operator.kube.proxy import checked, proxy_for
from kwok_operator.userfiles import read_bytes

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
AUTH_PROVIDERS: Final = ("oidc", "gcp")


async def load_connection(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    in_cluster: bool = False,
    flag: str = "--kubeconfig",
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Callable[[], float] = time.time,
) -> ApiConnection:
    """Finds the API server to use, and logs in there. With `in_cluster`, only that of this pod's
    cluster is accepted.

    `flag` is the name of the flag that gave the file, for messages. Raises ConnectionConfigError
    with one line: what was searched for, and what to do.
    """
    env = os.environ if environ is None else environ
    # KWOK_PROVIDER_MODE=local makes cluster-autoscaler's kwok provider use a kubeconfig. A terminal
    # set up for it may have a KUBERNETES_SERVICE_HOST that is not the API server's.
    local = env.get("KWOK_PROVIDER_MODE") == "local"
    given = kubeconfig or context or env.get("KUBECONFIG") or local
    host = env.get("KUBERNETES_SERVICE_HOST")
    in_pod = bool(host) and (service_account / "token").is_file()
    if in_cluster and not in_pod:
        raise ConnectionConfigError(
            f"this is no pod: no KUBERNETES_SERVICE_HOST, or no token in {service_account}"
        )
    if in_cluster or (not given and in_pod):
        load = functools.partial(_from_pod, service_account, env)
    else:
        load = functools.partial(_from_files, kubeconfig_paths(kubeconfig, env, flag), context, env)
    return ApiConnection(await load(), load=load, clock=clock)


async def _from_pod(service_account: Path, env: Mapping[str, str]) -> Endpoint:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT") or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    ca, token = str(service_account / "ca.crt"), str(service_account / "token")
    _must_exist(ca, "the service account's ca.crt")
    return Endpoint(
        server=server,
        description=f"in-cluster at {server}",
        namespace=_pod_namespace(service_account / "namespace"),
        ca_path=ca,
        token=read_token(token),
        token_file=token,
        proxy=proxy_for(server, env),
    )


def _pod_namespace(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else "default"


def own_namespace(connection: ApiConnection, *, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Returns the namespace of the pod in which this program runs, whatever cluster it connects to;
    outside a pod, the namespace of the kubeconfig's context."""
    path = service_account / "namespace"
    return _pod_namespace(path) if path.is_file() else connection.namespace


def kubeconfig_paths(kubeconfig: str | None, env: Mapping[str, str], flag: str) -> list[Path]:
    """Returns the kubeconfig files that kubectl would merge; at least one of them exists."""
    if kubeconfig:
        wanted, remedy = [kubeconfig], f"check {flag}"
    elif env.get("KUBECONFIG"):
        wanted, remedy = env["KUBECONFIG"].split(os.pathsep), "check KUBECONFIG"
    else:
        wanted = [os.path.join(env.get("HOME") or "~", ".kube", "config")]
        remedy = "give --kubeconfig, set KUBECONFIG, or run in a pod with a service account"
    paths = [Path(path).expanduser() for path in wanted if path]
    existing = [path for path in paths if path.exists()]
    if not existing:
        names = ", ".join(map(str, paths))
        raise ConnectionConfigError(f"there is no kubeconfig at {names}: {remedy}")
    return existing


async def _from_files(paths: list[Path], context: str | None, env: Mapping[str, str]) -> Endpoint:
    choice = pick(merge([read_kubeconfig(path) for path in paths]), context)
    try:
        return await _endpoint(choice, env)
    except ConnectionConfigError as error:
        raise ConnectionConfigError(f"context {choice.name}: {error}") from error


async def _endpoint(choice: Choice, env: Mapping[str, str]) -> Endpoint:
    """Logs in to the cluster of a context."""
    cluster, user = choice.cluster, choice.user
    credential = ExecCredential(token=None, certificate=None, private_key=None, expires=None)
    if user.get("exec"):
        credential = await run_plugin(user["exec"], cluster=_cluster_info(cluster), environ=env)
    token_file = user.get("tokenFile") if credential.token is None else None
    token = read_token(token_file) if token_file else credential.token
    server, proxy = server_url(cluster, user), cluster.get("proxy-url")
    scheme, token = ("Bearer", token) if token else await _credentials(choice, server)
    ca_path, ca_data = _path_or_data(cluster, "certificate-authority")
    certificate_path, certificate_data = _path_or_data(user, "client-certificate")
    key_path, key_data = _path_or_data(user, "client-key")
    if bool(certificate_path or certificate_data) != bool(key_path or key_data):
        raise ConnectionConfigError("a client-certificate and a client-key go together")
    if credential.certificate is not None:
        certificate_path = key_path = None
        certificate_data, key_data = credential.certificate, credential.private_key
    return Endpoint(
        server=server,
        description=one_line(f"context {choice.name} at {server}"),
        namespace=choice.namespace,
        ca_path=ca_path,
        ca_data=ca_data,
        certificate_path=certificate_path,
        certificate_data=certificate_data,
        private_key_path=key_path,
        private_key_data=key_data,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.get("tls-server-name"),
        proxy=checked(proxy, "proxy-url") if proxy else proxy_for(server, env),
        scheme=scheme,
        token=token,
        token_file=token_file,
        expires=credential.expires,
        impersonate=impersonation(user),
    )


async def _credentials(choice: Choice, server: str) -> tuple[str, str | None]:
    """Returns the scheme of the Authorization header ("Bearer", "Basic"), and the text after it."""
    user = choice.user
    provider = user.get("auth-provider") or {}
    if not isinstance(provider, dict):
        raise ConnectionConfigError("auth-provider has no name, or no fields")
    if provider.get("name"):
        return "Bearer", await _token_of_provider(choice.name, server, provider)
    if user.get("token"):
        return "Bearer", str(user["token"])
    if "username" in user and "password" in user:
        pair = f"{user['username']}:{user['password']}"
        return "Basic", base64.b64encode(pair.encode()).decode()
    return "Bearer", None


async def _token_of_provider(context: str, server: str, provider: Mapping[str, Any]) -> str:
    """Logs in by an OIDC or GCP auth-provider of kubernetes_asyncio, and returns the token."""
    if provider["name"] not in AUTH_PROVIDERS:
        raise ConnectionConfigError(
            f"the auth-provider {provider['name']} is not supported: use its exec plugin, as "
            "kubectl does"
        )
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    loader = KubeConfigLoader(
        {
            "current-context": context,
            "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"auth-provider": provider}}],
        }
    )
    configuration = Configuration()
    try:
        await loader.load_and_set(configuration)
    except Exception as error:  # kubernetes_asyncio doesn't say which errors it raises
        raise ConnectionConfigError(f"logging in: {one_line(error, limit=300)}") from error
    token: str = configuration.api_key["BearerToken"]
    return token.removeprefix("Bearer ")


def server_url(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> str:
    server = cluster["server"]
    if not isinstance(server, str):
        raise ConnectionConfigError(f"the server {one_line(server, limit=100)} is not a URL")
    server = server.rstrip("/")
    if "://" in server:
        return server
    secure = any(key.startswith("certificate-authority") or "tls" in key for key in cluster)
    secure = secure or any(key.startswith("client-certificate") for key in user)
    return f"{'https' if secure else 'http'}://{server}"


def _path_or_data(body: Mapping[str, Any], key: str) -> tuple[str | None, str | None]:
    """Returns (path, None) for a file, (None, PEM text) for data, or (None, None). Data takes
    precedence, as with kubectl."""
    data, path = body.get(f"{key}-data"), body.get(key)
    if data:
        try:
            return None, base64.b64decode(data, validate=False).decode("ascii")
        except ValueError as error:
            raise ConnectionConfigError(f"{key}-data is not PEM text in base64: {error}") from error
    if path:
        _must_exist(path, key)
    return path or None, None


def _must_exist(path: str, what: str) -> None:
    if not Path(path).is_file():
        raise ConnectionConfigError(f"{what} {path} is not a file")


def _cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the cluster of a kubeconfig in the form that an exec plugin with provideClusterInfo
    gets. If the CA is in a file, the form has the file's content, not its path."""
    info = {
        key: cluster[key]
        for key in ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        if key in cluster
    }
    path, data = _path_or_data(cluster, "certificate-authority")
    pem = read_bytes(path) if path else (data or "").encode()
    if pem:
        info["certificate-authority-data"] = base64.b64encode(pem).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return info


def impersonation(user: Mapping[str, Any]) -> dict[str, str]:
    groups = user.get("as-groups") or []
    if len(groups) > 1 or user.get("as-user-extra"):
        raise ConnectionConfigError("only one of as-groups, and no as-user-extra, is supported")
    headers = {
        "Impersonate-User": user.get("as"),
        "Impersonate-Uid": user.get("as-uid"),
        "Impersonate-Group": groups[0] if groups else None,
    }
    return {name: str(value) for name, value in headers.items() if value}
