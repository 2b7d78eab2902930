"""Credentials from exec plugins, run for real as small shell scripts."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.kube import exec_plugin
from kwok_operator.kube.exec_plugin import ExecCredential, run_plugin
from tests.fakes.waiting import until

V1 = "client.authentication.k8s.io/v1"
ENV = {"PATH": os.environ["PATH"]}


def plugin(directory: Path, script: str, *, shell: str = "/bin/sh") -> dict[str, Any]:
    path = directory / "plugin"
    path.write_text(f"#!{shell}\n{script}\n")
    path.chmod(0o755)
    return {"command": str(path), "apiVersion": V1}


def saying(
    directory: Path, status: object, *, before: str = "", **fields: object
) -> dict[str, Any]:
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": status, **fields}
    return plugin(directory, f"{before}\ncat <<'EOF'\n{json.dumps(answer)}\nEOF")


async def run(spec: dict[str, Any], **options: Any) -> ExecCredential:
    return await run_plugin(spec, **{"cluster": {}, "environ": ENV, "terminal": False, **options})


@pytest.mark.parametrize(
    ("status", "credential"),
    [
        ({"token": "t"}, ExecCredential("t", None, None, None)),
        (
            {"token": "t", "expirationTimestamp": "1970-01-01T01:00:00Z"},
            ExecCredential("t", None, None, 3_600.0),
        ),
        (
            {
                "clientCertificateData": "c",
                "clientKeyData": "k",
                "expirationTimestamp": "1970-01-01T01:00:00+00:00",
            },
            ExecCredential(None, "c", "k", 3_600.0),
        ),
        (
            {"token": "t", "clientCertificateData": "c", "clientKeyData": "k"},
            ExecCredential("t", "c", "k", None),
        ),
    ],
    ids=["token", "expiry", "certificate", "both"],
)
async def test_credentials(
    tmp_path: Path, status: dict[str, str], credential: ExecCredential
) -> None:
    assert await run(saying(tmp_path, status)) == credential


@pytest.mark.parametrize("terminal", [False, True])
async def test_what_the_plugin_gets(tmp_path: Path, terminal: bool) -> None:
    spec = plugin(
        tmp_path, f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/told; echo "$@ $WHO"; exit 3'
    )
    spec |= {"args": ["get", 5], "env": [{"name": "WHO", "value": "me"}]}
    for provide, told in ((True, {"cluster": {"server": "s"}}), (False, {})):
        with pytest.raises(ConnectionConfigError, match="exit code 3"):
            await run(
                spec | {"provideClusterInfo": provide}, cluster={"server": "s"}, terminal=terminal
            )
        info = json.loads((tmp_path / "told").read_text())
        assert info == {
            "kind": "ExecCredential",
            "apiVersion": V1,
            "spec": {"interactive": terminal, **told},
        }


async def test_arguments_and_environment(tmp_path: Path) -> None:
    answer = {"apiVersion": V1, "status": {"token": "TOKEN"}}
    spec = plugin(
        tmp_path, f"printf '%s' '{json.dumps(answer)}' | sed \"s/TOKEN/$1-$2-$WHO-$BASE/\""
    )
    spec |= {"args": ["a", 5], "env": [{"name": "WHO", "value": "me"}]}
    credential = await run(spec, environ={**ENV, "WHO": "other", "BASE": "b"})
    assert credential.token == "a-5-me-b"


async def test_useless_answers_and_failures(tmp_path: Path) -> None:
    answers: list[tuple[object, dict[str, str], str]] = [
        ({}, {}, "gave neither a token nor a certificate"),
        ({"clientCertificateData": "c"}, {}, "a certificate without its key"),
        (None, {}, "gave no ExecCredential"),
        ("text", {}, "gave no ExecCredential"),
        ({"token": "t", "expirationTimestamp": "soon"}, {}, "gave no ExecCredential"),
        ({"token": "t"}, {"apiVersion": "v0"}, f"speaks v0, but the kubeconfig says {V1}"),
    ]
    scripts = {
        "echo no JSON": "gave no ExecCredential",
        "echo 'log in\nfirst' >&2; exit 2": "failed with exit code 2: log in first",
        "exit 1": "it said nothing",
    }

    async def refused(spec: dict[str, Any], words: str) -> None:
        with pytest.raises(ConnectionConfigError, match=words) as caught:
            await run(spec)
        assert str(tmp_path / "plugin") in str(caught.value)
        assert "\n" not in str(caught.value)

    for status, fields, words in answers:
        await refused(saying(tmp_path, status, **fields), words)
    for script, words in scripts.items():
        await refused(plugin(tmp_path, script), words)


async def test_talkative_plugin(tmp_path: Path) -> None:
    spec = saying(tmp_path, {"token": "t"}, before="head -c 200000 /dev/zero >&2")
    assert (await run(spec)).token == "t"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"command": "no-such-plugin", "apiVersion": V1}, "no-such-plugin is not installed"),
        (
            {"command": "no-such-plugin", "apiVersion": V1, "installHint": "get it\nat x"},
            "on PATH: get it at x",
        ),
        ({"command": "sh"}, "needs a command and an apiVersion"),
        ({"apiVersion": V1}, "needs a command and an apiVersion"),
        (
            {"command": "sh", "apiVersion": V1, "interactiveMode": "Always"},
            "sh wants a terminal",
        ),
    ],
)
async def test_what_can_not_be_run(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ConnectionConfigError, match=words):
        await run(spec)


async def test_no_program_at_all(tmp_path: Path) -> None:
    spec = plugin(tmp_path, "", shell="/no/such/shell")
    with pytest.raises(ConnectionConfigError, match="can't be run"):
        await run(spec)


async def test_a_timeout_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "TIMEOUT", 0.2)
    pid = tmp_path / "pid"
    spec = plugin(tmp_path, f"echo $$ > {pid}; exec sleep 600")
    while not (pid.exists() and pid.read_text().strip()):  # a busy machine may not come so far
        with pytest.raises(ConnectionConfigError, match=r"no answer within 0\.2 s"):
            await run(spec)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_cancelling_leaves_nothing_behind(tmp_path: Path) -> None:
    spec = plugin(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    task = asyncio.create_task(run(spec))
    pid = tmp_path / "pid"
    await until(lambda: pid.exists() and pid.read_text().strip())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
