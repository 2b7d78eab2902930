"""What a running operator has not loaded: memory that nobody would use.

Looked at in a fresh interpreter, where nothing else has imported anything.
"""

import subprocess
import sys
from pathlib import Path

from tests.fakes.kubeconfigs import kubeconfig

HEAVY = (
    "kubernetes_asyncio",
    "kubernetes",
    "pykube",
    "grpc",
    "google.protobuf",
    "hpack",
    "kwok_operator.clusterapi.emulate",
    "kwok_operator.clusterapi.mirror",
    "kwok_operator.comparison",
    "kwok_operator.controlplane",
    "kwok_operator.importing",
    "kwok_operator.offline",
    "kwok_operator.rehearsal",
    "kwok_operator.shim",
)

LOADED = f"""
import sys
print(*(name for name in {HEAVY} if name in sys.modules))
"""


COMMAND_LINE = """
from contextlib import suppress
from kwok_operator.cli.main import main
with suppress(SystemExit):
    main(["run", "--help"])
"""


def loaded_after(program: str) -> list[str]:
    """The heavy libraries that are there when a program has run."""
    command = [sys.executable, "-c", program + LOADED]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return answer.stdout.splitlines()[-1].split()


def test_the_operator_starts_without_what_others_need() -> None:
    assert loaded_after(f"{COMMAND_LINE}\nimport kwok_operator.operator.run") == []


def test_usual_kubeconfigs_need_no_library(tmp_path: Path) -> None:
    users: list[dict[str, str]] = [{}, {"token": "t"}, {"username": "u", "password": "p"}]
    paths = [
        kubeconfig(tmp_path / f"config-{number}", user=user) for number, user in enumerate(users)
    ]
    program = f"""
import asyncio
from kwok_operator.kube.config import load_connection
for path in {paths}:
    asyncio.run(load_connection(kubeconfig=path, environ={{}}))
"""
    assert loaded_after(program) == []


def test_what_is_looked_for_would_be_found() -> None:
    assert loaded_after("import kubernetes_asyncio.client") == ["kubernetes_asyncio"]
