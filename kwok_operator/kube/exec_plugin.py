"""Runs an exec plugin, such as `aws eks get-token` or `kubelogin`, to get credentials.

The protocol is client.authentication.k8s.io: the plugin gets an ExecCredential in
KUBERNETES_EXEC_INFO and prints one to stdout, with a token, a client certificate, or both, and when
they expire. kubernetes_asyncio has this, too, but without the cluster's data, certificates that
expire, token and certificate together, and a time-out.

A plugin may prompt its user only if stdin is a terminal, as with kubectl.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from kwok_operator.errors import ConnectionConfigError, one_line

TIMEOUT: Final = 60.0
INTERACTIVE_TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """The credentials that a plugin returned."""

    token: str | None = field(repr=False)
    certificate: str | None
    private_key: str | None = field(repr=False)
    expires: float | None


async def run_plugin(
    spec: Mapping[str, Any],
    *,
    cluster: Mapping[str, Any],
    environ: Mapping[str, str],
    terminal: bool | None = None,
) -> ExecCredential:
    """Runs the plugin that the `exec` section of a kubeconfig describes. `cluster` is what the
    plugin gets if that section has provideClusterInfo."""
    command, version = str(spec.get("command") or ""), str(spec.get("apiVersion") or "")
    if not command or not version:
        raise ConnectionConfigError("the exec plugin needs a command and an apiVersion")
    mode = spec.get("interactiveMode") or "IfAvailable"
    interactive = mode != "Never" and (sys.stdin.isatty() if terminal is None else terminal)
    if mode == "Always" and not interactive:
        raise ConnectionConfigError(
            f"the exec plugin {command} wants a terminal (interactiveMode: Always): "
            "use another identity for a program that runs alone"
        )
    info: dict[str, Any] = {"interactive": interactive}
    if spec.get("provideClusterInfo"):
        info["cluster"] = cluster
    request = {"kind": "ExecCredential", "apiVersion": version, "spec": info}
    env = {
        **environ,
        **{str(item["name"]): str(item["value"]) for item in spec.get("env") or ()},
        "KUBERNETES_EXEC_INFO": json.dumps(request),
    }
    output = await _output(
        [
            _program(command, env=env, hint=spec.get("installHint")),
            *map(str, spec.get("args") or ()),
        ],
        env=env,
        interactive=interactive,
    )
    return _credential(output, command=command, version=version)


def _program(command: str, *, env: Mapping[str, str], hint: object) -> str:
    path = shutil.which(command, path=env.get("PATH", os.defpath))
    if path is None:
        problem = f"the exec plugin {command} is not installed, or is not on PATH"
        raise ConnectionConfigError(one_line(f"{problem}: {hint}" if hint else problem))
    return path


async def _output(argv: list[str], *, env: Mapping[str, str], interactive: bool) -> bytes:
    """Runs a program to its end and returns its stdout. The process never outlives this call."""
    timeout = INTERACTIVE_TIMEOUT if interactive else TIMEOUT
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if interactive else PIPE,
        )
    except OSError as error:
        raise ConnectionConfigError(f"the exec plugin {argv[0]} can't be run: {error}") from error
    try:
        async with asyncio.timeout(timeout):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise ConnectionConfigError(
            f"the exec plugin {argv[0]} gave no answer within {timeout:g} s"
        ) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        said = one_line((errors or b"").decode(errors="replace"), limit=500)
        raise ConnectionConfigError(
            f"the exec plugin {argv[0]} failed with exit code {process.returncode}: "
            f"{said or 'it said nothing'}"
        )
    return output


def _credential(output: bytes, *, command: str, version: str) -> ExecCredential:
    try:
        answer = json.loads(output)
        status = answer["status"]
        answered = answer["apiVersion"]
        until = status.get("expirationTimestamp")
        expires = datetime.fromisoformat(until).timestamp() if until else None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConnectionConfigError(
            f"the exec plugin {command} gave no ExecCredential with a status: {error}"
        ) from error
    if answered != version:
        raise ConnectionConfigError(
            f"the exec plugin {command} speaks {answered}, but the kubeconfig says {version}"
        )
    credential = ExecCredential(
        token=status.get("token") or None,
        certificate=status.get("clientCertificateData") or None,
        private_key=status.get("clientKeyData") or None,
        expires=expires,
    )
    if bool(credential.certificate) != bool(credential.private_key):
        raise ConnectionConfigError(
            f"the exec plugin {command} gave a certificate without its key, or the reverse"
        )
    if credential.token is None and credential.certificate is None:
        raise ConnectionConfigError(
            f"the exec plugin {command} gave neither a token nor a certificate"
        )
    return credential
