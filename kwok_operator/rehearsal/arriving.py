"""Creates the objects of a scenario's workloads when they are due."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Final

from kwok_operator.errors import ConflictError, KwokOperatorError
from kwok_operator.kube.retry import PATIENT
from kwok_operator.rehearsal.programs import Program, ProgramError
from kwok_operator.rehearsal.recorder import RunCourse
from kwok_operator.rehearsal.scenario.arrivals import arrivals_of
from kwok_operator.rehearsal.scenario.manifests import manifest
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.workload import ScenarioWorkload
from kwok_operator.rehearsal.testbed import Testbed

TRACE: Final = "trace:"
"""The prefix of the names of programs that replay a workload's trace."""
_MOST_AT_ONCE: Final = 50
_PATHS: Final = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
}


async def arrive(
    testbed: Testbed, course: RunCourse, scenario: Scenario, to_come: Counter[str]
) -> None:
    """Creates all objects of the workloads, and returns once the last one has been created. Raises
    KwokOperatorError for the first that can't be created.

    `to_come` counts the objects of each workload that aren't created yet; a workload's trace counts
    as one object. This function lowers the counts as it creates objects.
    """
    traces = [each for each in scenario.workloads if each.arrivals.trace is not None]
    async with asyncio.TaskGroup() as tasks:
        for workload in traces:
            played = _play(testbed, course, workload, seed=scenario.draws_from)
            tasks.create_task(_counted(played, workload.name, to_come))
        tasks.create_task(_create_all(testbed, course, scenario, to_come))


async def _counted(coming: Awaitable[None], name: str, to_come: Counter[str]) -> None:
    await coming
    to_come[name] -= 1


async def make_namespaces(testbed: Testbed, scenario: Scenario) -> None:
    for name in sorted({each.namespace for each in scenario.workloads} - {"default"}):
        body = testbed.marked({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        try:
            await testbed.client.request("POST", "/api/v1/namespaces", body=body)
        except ConflictError:
            continue


async def _create_all(
    testbed: Testbed, course: RunCourse, scenario: Scenario, to_come: Counter[str]
) -> None:
    workloads = {each.name: each for each in scenario.workloads}
    slots = asyncio.Semaphore(_MOST_AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        for arrival in arrivals_of(scenario):
            wait = arrival.at - course.now()
            if wait > 0:
                await asyncio.sleep(wait)
            await slots.acquire()
            body = testbed.marked(manifest(workloads[arrival.workload], arrival.number))
            created = _create(testbed, body)
            task = tasks.create_task(_counted(created, arrival.workload, to_come))
            task.add_done_callback(lambda _: slots.release())


async def _create(testbed: Testbed, body: dict[str, Any]) -> None:
    path = _PATHS[body["kind"]].format(body["metadata"]["namespace"])
    try:
        await testbed.client.request("POST", path, body=body, retries=PATIENT)
    except KwokOperatorError as error:
        name = f"{body['kind']} {body['metadata']['namespace']}/{body['metadata']['name']}"
        raise KwokOperatorError(f"creating {name}: {error}") from error


async def _play(
    testbed: Testbed, course: RunCourse, workload: ScenarioWorkload, *, seed: str
) -> None:
    await asyncio.sleep(max(workload.arrivals.at - course.now(), 0.0))
    program = Program(f"the trace of {workload.name}", log=testbed.logs / f"{workload.name}.log")
    testbed.programs[f"{TRACE}{workload.name}"] = program
    command = [sys.executable, "-P", "-m", "kwok_operator", "replay"]
    command += [f"--speed={workload.arrivals.speed:g}", f"--seed={seed}"]
    command += [f"--kubeconfig={testbed.kubeconfig}", "--into-recorded-cluster"]
    command.append(str(testbed.folder / (workload.arrivals.trace or "")))
    await program.start(command, env=testbed.environment, cwd=testbed.folder)
    if status := await program.wait():
        raise ProgramError(
            f"{program.name} has ended with exit status {status}: {program.last_words()}"
        )
    del testbed.programs[f"{TRACE}{workload.name}"]
