"""`kwok-operator explain-pod`: of a pod that is there, and a word where kwok may do otherwise."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.cli.main import main
from kwok_operator.constants import PROFILES_PATH
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.kubeconfigs import kubeconfig

PODS = "/api/v1/namespaces/default/pods"
NAMESPACES = "/api/v1/namespaces"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"StagesPresent": "True", "Overlapping": "False"}, ""),
        ({"StagesPresent": "False"}, "StagesPresent is False: of StagesPresent"),
        ({}, "has not brought its Stages"),
    ],
)
async def test_it_says_where_kwok_may_do_otherwise(
    status: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = [{"type": k, "status": v, "message": f"of {k}"} for k, v in status.items()]
    profile: dict[str, Any] = {
        "metadata": {"name": "slow"},
        "spec": {"start": {"delay": {"fixed": "7s"}}},
    }
    async with FakeApiServer() as server:
        for path, kind in ((PODS, "Pod"), (PROFILES_PATH, "P"), (NAMESPACES, "Namespace")):
            server.serve(path, kind=kind)
        stored = server.create(PROFILES_PATH, profile)
        if status:
            told = {"observedGeneration": stored["metadata"]["generation"]}
            patch = {"status": {**told, "conditions": conditions}}
            server.patch(PROFILES_PATH, "slow", patch, subresource="status")
        server.create(NAMESPACES, {"metadata": {"name": "default"}})
        server.create(PODS, {"metadata": {"name": "web", "namespace": "default"}, "spec": {}})
        config = f"--kubeconfig={kubeconfig(tmp_path / 'config', server=server.url)}"
        assert await asyncio.to_thread(main, ["explain-pod", "default/web", config]) == 0
    printed = capsys.readouterr()
    assert "0:00:07.000  Running" in printed.out
    assert said in printed.err and bool(printed.err) is bool(said)
