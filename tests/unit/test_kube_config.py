"""Where is the API server, and who are we.

Logins that are carried out, over TLS and with plugins, are in test_kube_config_login.py.
"""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.kube.config import own_namespace
from tests.fakes.certificates import Certificates
from tests.fakes.kubeconfigs import EXEC_V1, authorization, kubeconfig, load

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def pod(tmp_path: Path, certificates: Certificates) -> Path:
    """A service account's directory."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "ca.crt").write_text(certificates.text("ca.crt"))
    (directory / "token").write_text("pod-token\n")
    (directory / "namespace").write_text("kwok\n")
    return directory


async def test_service_account(pod: Path) -> None:
    connection = await load(environ=IN_POD, service_account=pod)
    assert connection.server == "https://10.96.0.1:443"
    assert connection.description == "in-cluster at https://10.96.0.1:443"
    assert connection.namespace == "kwok"
    assert connection.endpoint.ca_path == str(pod / "ca.crt")
    assert connection.endpoint.token_file == str(pod / "token")
    assert connection.ssl is not None
    assert await authorization(connection) == "Bearer pod-token"


async def test_the_own_namespace_is_the_pods_whatever_the_cluster(
    pod: Path, tmp_path: Path
) -> None:
    file = kubeconfig(
        tmp_path / "config",
        contexts=[{"name": "dev", "context": {"cluster": "dev", "namespace": "ns"}}],
    )
    connection = await load(file)
    assert own_namespace(connection, service_account=pod) == "kwok"
    assert own_namespace(connection, service_account=tmp_path / "none") == "ns"


async def test_service_account_rotates(pod: Path) -> None:
    connection = await load(environ=IN_POD, service_account=pod)
    (pod / "token").write_text("next")
    assert await authorization(connection) == "Bearer pod-token"
    await connection.reload()  # as after a 401
    assert await authorization(connection) == "Bearer next"


async def test_ipv6_and_proxy_of_a_pod(pod: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "HTTPS_PROXY": "http://p"}
    connection = await load(environ=environ, service_account=pod)
    assert (connection.server, connection.proxy) == ("https://[fd00::1]:443", "http://p")
    direct = await load(environ={**environ, "NO_PROXY": "fd00::/8"}, service_account=pod)
    assert direct.proxy is None


async def test_which_source_counts(tmp_path: Path, pod: Path) -> None:
    home = tmp_path / "home"
    kubeconfig(home / ".kube" / "config", name="home")
    flag, env = kubeconfig(tmp_path / "flag", name="flag"), kubeconfig(tmp_path / "env", name="env")

    async def source(path: str | None = None, *, context: str | None = None, **env: str) -> str:
        environ = {"HOME": str(home), **IN_POD, **env}
        connection = await load(path, context=context, environ=environ, service_account=pod)
        return connection.description.partition(" at ")[0]

    assert await source() == "in-cluster"
    assert await source(flag, KUBECONFIG=env) == "context flag"
    assert await source(KUBECONFIG=env) == "context env"
    assert await source(context="home") == "context home"
    assert await source(KUBERNETES_SERVICE_HOST="") == "context home"
    # As cluster-autoscaler's kwok provider is told to leave the pod's own account alone.
    assert await source(KWOK_PROVIDER_MODE="local") == "context home"
    assert await source(KWOK_PROVIDER_MODE="local", KUBECONFIG=env) == "context env"
    assert await source(flag, KWOK_PROVIDER_MODE="local") == "context flag"
    assert await source(KWOK_PROVIDER_MODE="") == "in-cluster"
    assert await source(KWOK_PROVIDER_MODE="incluster") == "in-cluster"
    (pod / "token").unlink()
    assert await source() == "context home"


async def test_files_are_merged(tmp_path: Path) -> None:
    """Who comes first is right; what is missing elsewhere is found; empty files are fine."""
    other: Any = {"current-context": "b"}
    shared = {"name": "b", "context": {"cluster": "shared", "user": "a"}}
    one = kubeconfig(
        tmp_path / "one" / "config",
        name="a",
        contexts=[{"name": "a", "context": {"cluster": "shared", "user": "a"}}],
        clusters=None,
        users=[{"name": "a", "user": {"tokenFile": "secret/token"}}],
    )
    two = kubeconfig(
        tmp_path / "two",
        name="a",
        contexts=[shared],
        clusters=[{"name": "shared", "cluster": {"server": "http://right"}}],
        user={"token": "wrong"},
        **other,
    )
    three = kubeconfig(
        tmp_path / "three",
        name="a",
        clusters=[{"name": n, "cluster": {"server": "http://wrong"}} for n in ("a", "shared")],
        **other,
    )
    (tmp_path / "empty").write_text("")
    (tmp_path / "one" / "secret").mkdir()
    (tmp_path / "one" / "secret" / "token").write_text("right\n")
    paths = [tmp_path / "missing", tmp_path / "empty", one, two, three]
    environ = {"KUBECONFIG": os.pathsep.join(map(str, paths))}
    connection = await load(environ=environ)
    assert connection.description == "context a at http://right"
    assert await authorization(connection) == "Bearer right"
    assert (await load(environ=environ, context="b")).description == "context b at http://right"


async def test_first_of_a_name_counts_within_a_file(tmp_path: Path) -> None:
    clusters = [{"name": "dev", "cluster": {"server": f"http://{n}"}} for n in ("first", "second")]
    assert (await load(kubeconfig(tmp_path / "c", clusters=clusters))).server == "http://first"


async def test_users(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("file\n")
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 3_600}).encode()).decode()
    oidc, gcp = f"h.{claims.rstrip('=')}.s", {"access-token": "of-gcp"}
    rows: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"token": "t"}, "Bearer t"),
        ({"username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({"token": "t", "username": "u", "password": "p"}, "Bearer t"),
        ({"token": None, "username": "u", "password": 1}, "Basic dTox"),
        ({"token": 12}, "Bearer 12"),
        ({"username": "u"}, None),
        ({"token": "t", "tokenFile": "token"}, "Bearer file"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": oidc}}}, f"Bearer {oidc}"),
        ({"auth-provider": {"name": "gcp", "config": gcp}}, "Bearer of-gcp"),
        ({"token": "t", "auth-provider": {"config": {}}}, "Bearer t"),
    ]
    for user, header in rows:
        connection = await load(kubeconfig(tmp_path / "c", user=user))
        assert await authorization(connection) == header, user


async def test_context_without_a_user(tmp_path: Path, certificates: Certificates) -> None:
    path = kubeconfig(
        tmp_path / "c",
        server="https://k8s",
        cluster={"certificate-authority": certificates.path("ca.crt")},
        contexts=[{"name": "dev", "context": {"cluster": "dev", "namespace": "ns"}}],
        users=None,
    )
    connection = await load(path)
    assert connection.namespace == "ns"
    assert await authorization(connection) is None


async def test_impersonation(tmp_path: Path) -> None:
    user = {"token": "t", "as": "me", "as-uid": "7", "as-groups": ["g"]}
    connection = await load(kubeconfig(tmp_path / "c", user=user))
    assert await connection.auth_headers() == {
        "Authorization": "Bearer t",
        "Impersonate-User": "me",
        "Impersonate-Uid": "7",
        "Impersonate-Group": "g",
    }


async def test_proxies_and_servers_without_a_scheme(tmp_path: Path) -> None:
    environ = {"HTTP_PROXY": "http://env"}
    told = kubeconfig(tmp_path / "told", cluster={"proxy-url": "http://told"})
    assert (await load(told, environ=environ)).proxy == "http://told"
    assert (await load(kubeconfig(tmp_path / "c"), environ=environ)).proxy == "http://env"
    for cluster, server in (
        ({}, "http://k8s:1"),
        ({"insecure-skip-tls-verify": True}, "https://k8s:1"),
    ):
        path = kubeconfig(tmp_path / "c", server="k8s:1/", cluster=cluster)
        assert (await load(path)).server == server


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"current-context": None}, "no current-context is set: give --context, one of: dev$"),
        ({"current-context": "x"}, "there is no context 'x', only: dev$"),
        ({"clusters": None}, "there is no cluster 'dev', only: none$"),
        ({"users": None}, "there is no user 'dev', only: none$"),
        ({"clusters": [{"name": "dev", "cluster": None}]}, "cluster of context dev has no server"),
        ({"contexts": {}}, "contexts is not a list$"),
        ({"users": [{"user": {}}]}, "an entry of users has no name"),
        ({"users": ["x"]}, "an entry of users has no name"),
        (
            {"server": "https://me@k8s"},
            "context dev: a user or password in .* URL",
        ),
        ({"users": [{"name": "x", "user": "y"}]}, "an entry of users has no name, or no fields"),
        ({"user": {"tokenFile": "nowhere"}}, "context dev: the token file .*nowhere can't be read"),
        ({"user": {"client-key": "k"}}, "context dev: client-key .*/k is not a file$"),
        (
            {"user": {"client-key-data": "aw=="}},
            "client-certificate and a client-key go together",
        ),
        ({"user": {"client-key-data": "/"}}, "client-key-data is not PEM text in base64"),
        ({"user": {"as-groups": ["a", "b"]}}, "only one of as-groups"),
        ({"user": {"auth-provider": {"name": "azure"}}}, "auth-provider azure is not supported"),
        (
            {"user": {"auth-provider": "oidc"}},
            "context dev: auth-provider has no name, or no field",
        ),
        ({"user": {"auth-provider": {"name": "oidc"}}}, "logging in: oidc: missing configuration"),
        ({"server": 6443}, "context dev: the server 6443 is not a URL$"),
        (
            {"user": {"exec": {"command": "nope", "apiVersion": EXEC_V1}}},
            "nope is not installed",
        ),
        ({"cluster": {"certificate-authority": "ca"}}, "certificate-authority .*/ca is not a file"),
        ({"cluster": {"proxy-url": "socks5://p"}}, "proxy-url socks5://p is not supported"),
        (
            {"server": "https://k8s", "cluster": {"certificate-authority-data": "eA=="}},
            "context dev at https://k8s: the CA or the client certificate can't be used",
        ),
    ],
)
async def test_mistakes(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConnectionConfigError, match=words) as caught:
        await load(kubeconfig(tmp_path / "c", **fields))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [", "c is not YAML: while parsing"),
        (b"text", "c is not a kubeconfig"),
        (b"\xff\xfe\xff", "c can't be read"),
        (None, "c can't be read: .*directory"),
    ],
)
async def test_broken_files(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "c"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConnectionConfigError, match=words) as caught:
        await load(str(path))
    assert "\n" not in str(caught.value)


async def test_nothing_there(tmp_path: Path, pod: Path) -> None:
    home = {"HOME": str(tmp_path)}
    with pytest.raises(ConnectionConfigError, match=r"no kubeconfig at /nowhere: check --kubeconf"):
        await load("/nowhere")
    with pytest.raises(ConnectionConfigError, match=r"at /a, /b: check KUBECONFIG$"):
        await load(environ={"KUBECONFIG": f"/a{os.pathsep}/b", **home})
    with pytest.raises(ConnectionConfigError, match=r"\.kube/config: give --kubeconfig, set KUBE"):
        await load(environ=home, service_account=pod)
    with pytest.raises(ConnectionConfigError, match=r"no kubeconfig at .*\.kube/config"):
        await load(environ={**home, **IN_POD, "KWOK_PROVIDER_MODE": "local"}, service_account=pod)
    (pod / "ca.crt").unlink()
    with pytest.raises(ConnectionConfigError, match=r"the service account's ca\.crt .* is not a"):
        await load(environ=IN_POD, service_account=pod)


async def test_many_contexts_are_not_all_named(tmp_path: Path) -> None:
    contexts = [{"name": f"c{i:02}", "context": {"cluster": "dev"}} for i in range(30)]
    with pytest.raises(ConnectionConfigError, match=r"c19 and 10 more$"):
        await load(kubeconfig(tmp_path / "c", contexts=contexts), context="x")
