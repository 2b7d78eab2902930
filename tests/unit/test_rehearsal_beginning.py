"""Waiting until a cluster is steady."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal import beginning
from kwok_operator.rehearsal.beginning import Objects, until_steady
from kwok_operator.rehearsal.testbed import Testbed, TestbedError
from tests.fakes.apiserver import GROUPS, FakeApiServer
from tests.fakes.rehearsaltestbed import fake_testbed

PODS = "/api/v1/pods"
REFUSED = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
READY = {"status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}}
RETRIED = 1.0


@pytest.fixture
async def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FakeApiServer, Testbed, list[str]]]:
    """A server with an unschedulable pod, the testbed, and what it has reported."""
    monkeypatch.setattr(beginning, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(beginning, "_RETRIED_SECONDS", RETRIED)
    reported: list[str] = []
    async with FakeApiServer() as server:
        for kind, path in beginning._CONTROLLERS.items():
            server.serve(path, kind=kind)
        server.serve(PODS, kind="Pod", status_on_create=True)
        server.create(PODS, {"metadata": {"name": "p", "namespace": "x"}, "status": REFUSED})
        async with KubeClient(connection=server.connection()) as client:
            yield server, fake_testbed(client, tmp_path, report=reported.append), reported


async def test_a_refused_pod_is_tried_again_after_nodes_have_come(
    served: tuple[FakeApiServer, Testbed, list[str]],
) -> None:
    server, testbed, reported = served
    server.create(GROUPS, {"metadata": {"name": "a"}, "spec": {"targetSize": 1}})
    clock, first = asyncio.get_running_loop(), asyncio.Event()

    def report(line: str) -> None:
        reported.append(line)
        first.set()

    waiting = asyncio.create_task(until_steady(replace(testbed, report=report), within=20))
    await asyncio.wait_for(first.wait(), 60)
    assert reported == [
        "waiting until the cluster is steady: 0 of 1 groups are Ready, but not a (the operator"
        " has not reported on it yet)"
    ]
    came = clock.time()
    server.patch(GROUPS, "a", READY, subresource="status")
    await waiting
    # The last look that saw no node was somewhat before.
    assert clock.time() - came >= RETRIED / 2


async def test_where_no_node_was_to_come_nothing_is_waited_for(
    served: tuple[FakeApiServer, Testbed, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, testbed, reported = served
    monkeypatch.setattr(beginning, "_RETRIED_SECONDS", 60.0)
    server.create(GROUPS, {"metadata": {"name": "a"}, "spec": {"targetSize": 0}})
    server.patch(GROUPS, "a", READY, subresource="status")
    await asyncio.wait_for(until_steady(testbed, within=20), 60)
    assert reported == []


@pytest.mark.parametrize(
    ("reason", "within", "said"),
    [
        ("Paused", 600, "can never be steady: a (Paused: 0 of 1.); set spec.paused to false, or"),
        ("Outage", 0.1, "not steady after 0.1 s: 0 of 1 groups are Ready, but not a (Outage: 0 of"),
    ],
)
async def test_what_never_comes_is_refused(
    served: tuple[FakeApiServer, Testbed, list[str]], reason: str, within: float, said: str
) -> None:
    server, testbed, _ = served
    server.create(GROUPS, {"metadata": {"name": "a"}, "spec": {"targetSize": 1}})
    ready = {"type": "Ready", "status": "False", "observedGeneration": 1}
    conditions = [ready | {"reason": reason, "message": "0 of 1."}]
    server.patch(GROUPS, "a", {"status": {"conditions": conditions}}, subresource="status")
    with pytest.raises(TestbedError) as refused:
        await asyncio.wait_for(until_steady(testbed, within=within), 60)
    assert said in str(refused.value) and "begin: atOnce" in str(refused.value)


async def test_without_a_scheduler_pods_are_bound_until_none_comes(
    served: tuple[FakeApiServer, Testbed, list[str]],
) -> None:
    server, testbed, _ = served
    coming = ["b", "c"]
    for name in ("a", "left"):
        server.create(PODS, {"metadata": {"name": name, "namespace": "x"}})

    async def bind(_: Objects, unbound: Objects) -> int:
        names = {pod["metadata"]["name"] for pod in unbound} - {"p", "left"}
        for name in names:
            server.delete(PODS, name)
            if coming:  # as of a StatefulSet: once the one before runs
                server.create(PODS, {"metadata": {"name": coming.pop(0), "namespace": "x"}})
        return len(names)

    await asyncio.wait_for(until_steady(testbed, within=20, bind=bind), 60)
    assert server.objects(PODS).keys() == {"p", "left"}
