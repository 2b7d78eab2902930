"""The testbed of a rehearsal whose cluster is a fake API server, without kubectl and programs; and
a run on it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.beginning import header_of
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.logs import ProgramWarnings
from kwok_operator.rehearsal.recorder import BUDGETS_PATH, EVENTS_PATH, JOBS_PATH, PODS_PATH
from kwok_operator.rehearsal.runner import Rehearsal
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.testbed import Testbed
from tests.fakes.apiserver import FakeApiServer

NAMESPACES = "/api/v1/namespaces"
EXPECT = [{"figure": "pods.pending", "equals": 0}]
_KINDS = {
    PODS_PATH: "Pod",
    EVENTS_PATH: "Event",
    BUDGETS_PATH: "PodDisruptionBudget",
    JOBS_PATH: "Job",
    f"{NAMESPACES}/default/pods": "Pod",
    NAMESPACES: "Namespace",
}


def fake_testbed(
    client: KubeClient, folder: Path, *, report: Callable[[str], None] = print
) -> Testbed:
    unused: Any = None
    return Testbed(
        kubectl=unused,
        client=client,
        environment={},
        kubeconfig=folder,
        folder=folder,
        logs=folder,
        versions={},
        find_program=lambda name: None,
        report=report,
    )


def serve_quiet_cluster(server: FakeApiServer) -> None:
    """A cluster where nothing happens."""
    for path, kind in _KINDS.items():
        server.serve(path, kind=kind)
    server.create(NAMESPACES, {"metadata": {"name": "default"}})


async def play_on(testbed: Testbed, **fields: Any) -> Judged:
    """Plays a scenario with these fields, and judges its recording."""
    given = {"until": {"settledFor": "1s", "atMost": "20s"}, "expect": EXPECT, **fields}
    scenario = Scenario.model_validate({"name": "it", **given})
    path = testbed.folder / outputs.RECORDING
    warnings = ProgramWarnings(scenario, path.parent, report=print)
    header = await header_of(testbed, scenario)
    run = Rehearsal(testbed, scenario, path, header, warnings, report=print, show=lambda now: None)
    await run.play()
    return outputs.judge(path)
