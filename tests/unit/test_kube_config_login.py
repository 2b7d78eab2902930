"""Logins as kubeconfigs describe them, carried out."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.errors import ApiUnreachableError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.connection import ApiConnection
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.certificates import SERVER_NAME, Certificates
from tests.fakes.kubeconfigs import EXEC_V1, authorization, kubeconfig, load


async def ask(connection: ApiConnection) -> str:
    async with KubeClient(connection=connection) as client:
        return (await client.request("GET", "/readyz")).decode()


@pytest.mark.parametrize("form", ["data", "files", "both"])
async def test_client_certificate(tmp_path: Path, certificates: Certificates, form: str) -> None:
    names = {
        "certificate-authority": "ca.crt",
        "client-certificate": "client.crt",
        "client-key": "client.key",
    }
    said: dict[str, str] = {}
    for key, name in names.items():
        if form != "data":
            said[key] = certificates.relative(name, tmp_path)
        if form == "both":
            said[key] = "/nowhere"
        if form != "files":
            said[f"{key}-data"] = certificates.data(name)
    ca = {key: value for key, value in said.items() if key.startswith("certificate")}
    user = {key: value for key, value in said.items() if key.startswith("client")}
    async with FakeApiServer(tls=certificates.server_context(ask_for_client=True)) as server:
        cluster = {**ca, "tls-server-name": SERVER_NAME}
        path = kubeconfig(tmp_path / "c", server=server.url, cluster=cluster, user=user)
        assert await ask(await load(path)) == "ok"
        path = kubeconfig(tmp_path / "c", server=server.url, cluster=cluster)
        with pytest.raises(ApiUnreachableError):
            await ask(await load(path))


async def test_server_that_is_not_trusted(tmp_path: Path, certificates: Certificates) -> None:
    ca = {"certificate-authority-data": certificates.data("ca.crt")}
    async with FakeApiServer(tls=certificates.server_context()) as server:
        wrong_name = await load(kubeconfig(tmp_path / "a", server=server.url, cluster=ca))
        with pytest.raises(ApiUnreachableError, match=r"is not trusted.*not valid for"):
            await ask(wrong_name)
        unknown = await load(kubeconfig(tmp_path / "b", server=server.url))
        with pytest.raises(ApiUnreachableError, match="certificate is not trusted"):
            await ask(unknown)
        careless = {"insecure-skip-tls-verify": True}
        trusting = await load(kubeconfig(tmp_path / "c", server=server.url, cluster=careless))
        assert trusting.endpoint.insecure
        assert await ask(trusting) == "ok"


def exec_user(directory: Path, script: str, **fields: Any) -> dict[str, Any]:
    """A user whose plugin lies next to the kubeconfig."""
    path = directory / "plugin.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"command": "./plugin.sh", "apiVersion": EXEC_V1, **fields}}


async def test_exec_plugin_until_the_token_expires(tmp_path: Path) -> None:
    """Each run of the plugin gives another token, which lives for half a minute or for ever."""
    said = f'{{"apiVersion": "{EXEC_V1}", "status": {{"token": "t%s"%s}}}}'
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 30))
    script = f"""cd {tmp_path}; echo run >> runs; n=$(wc -l < runs | tr -d ' ')
[ "$n" = 1 ] && end=', "expirationTimestamp": "{until}"'
printf '{said}' "$n" "$end" """
    path = kubeconfig(tmp_path / "c", user=exec_user(tmp_path, script))
    now = [time.time()]
    connection = await load(path, clock=lambda: now[0])
    assert await authorization(connection) == "Bearer t1"
    assert connection.endpoint.expires == pytest.approx(now[0] + 30, abs=2)
    now[0] += 29
    assert await authorization(connection) == "Bearer t2"
    assert connection.endpoint.expires is None


async def test_exec_plugin_runs_again_after_401(tmp_path: Path) -> None:
    said = f'{{"apiVersion": "{EXEC_V1}", "status": {{"token": "t%s"}}}}'
    script = f"cd {tmp_path}; echo >> runs; printf '{said}' $(wc -l < runs)"
    async with FakeApiServer() as server:
        server.tokens = {"t2"}
        path = kubeconfig(tmp_path / "c", server=server.url, user=exec_user(tmp_path, script))
        assert await ask(await load(path)) == "ok"
    assert len(server.seen) == 2


async def test_exec_plugin_with_certificate(tmp_path: Path, certificates: Certificates) -> None:
    status = {
        "clientCertificateData": certificates.text("client.crt"),
        "clientKeyData": certificates.text("client.key"),
    }
    (tmp_path / "answer").write_text(json.dumps({"apiVersion": EXEC_V1, "status": status}))
    script = f'cd {tmp_path}; echo "$KUBERNETES_EXEC_INFO" > told; cat answer'
    async with FakeApiServer(tls=certificates.server_context(ask_for_client=True)) as server:
        cluster = {
            "certificate-authority": certificates.path("ca.crt"),
            "tls-server-name": SERVER_NAME,
            "extensions": [
                {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
            ],
        }
        user = exec_user(tmp_path, script, provideClusterInfo=True)
        path = kubeconfig(tmp_path / "c", server=server.url, cluster=cluster, user=user)
        assert await ask(await load(path)) == "ok"
    told = json.loads((tmp_path / "told").read_text())["spec"]["cluster"]
    assert told == {
        "server": server.url,
        "tls-server-name": SERVER_NAME,
        "certificate-authority-data": certificates.data("ca.crt"),
        "config": {"audience": "a"},
    }
