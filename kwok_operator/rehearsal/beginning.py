"""Waits until the cluster is steady: then processes, clock and recording of a rehearsal start.

    groups, controllers, pods without a node --each check--> rehearsal/judge/steady.py --> goes on,
                                                             reports what it waits for, or refuses

Each check lists objects rather than watching them: this wait takes only seconds, and the lists are
short, as pods with a node are left out. If a check takes longer, as in a large cluster, the next
one comes later. The header of the recording is made here, too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kwok_operator import __version__
from kwok_operator.constants import GROUPS_PATH, NODES_PATH, REHEARSAL_LABEL
from kwok_operator.formats.untyped import as_map
from kwok_operator.kube.retry import PATIENT
from kwok_operator.rehearsal.judge.recording import RecordingHeader
from kwok_operator.rehearsal.judge.steady import (
    MOST_GROUPS,
    UnderWay,
    groups_under_way,
    held_back,
    not_scheduled,
    wants_nodes,
    without_their_pods,
)
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.racks import recorded
from kwok_operator.rehearsal.testbed import Testbed, TestbedError

_LOOK_SECONDS: Final = 0.3
_LOOKS: Final = 2
"""The cluster must be steady in this many checks in a row: a controller may be about to react to
the last node.
"""
_REPORT_SECONDS: Final = 5.0
_RETRIED_SECONDS: Final = 11.0
"""Seconds. The scheduler retries a pod at most 10 s after a new node (podMaxBackoffSeconds)."""
_RUNNING_WITHIN: Final = 60.0
_PODS_PATH: Final = "/api/v1/pods"
_CONTROLLERS: Final = {
    "Deployment": "/apis/apps/v1/deployments",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Job": "/apis/batch/v1/jobs",
}


Objects = Sequence[dict[str, Any]]
Bind = Callable[[Objects, Objects], Awaitable[int]]
"""Binds pods, given the ReplicaSets and the pods without a node. Returns how many it has bound."""


async def until_steady(
    testbed: Testbed, *, within: float, bind: Bind | None = None, tried: bool = False
) -> None:
    """Returns once the cluster is steady. Raises TestbedError if it isn't after `within` seconds,
    and the errors of KubeClient.

    `bind` is called in place of a halted scheduler; pods that it leaves unbound aren't waited for.
    With `tried`, pods that the scheduler has refused aren't waited for either, as all nodes existed
    before it tried any pod.
    """
    began, nodes_came, reported, steady = time.monotonic(), None, "", 0
    reported_at = -_REPORT_SECONDS
    while True:
        looked = time.monotonic()
        testbed.check_cluster()
        groups = await _objects(testbed, GROUPS_PATH, ours=False)
        not_ready = groups_under_way(groups)
        if held := held_back(groups):
            raise TestbedError(
                f"the cluster can never be steady: {', '.join(held[:MOST_GROUPS])}; set spec.paused"
                " to false, or begin: atOnce to start without waiting"
            )
        if wants_nodes(groups) and (not_ready or nodes_came is None):
            nodes_came = looked
        retried = tried or nodes_came is None or looked - nodes_came > _RETRIED_SECONDS
        under_way = UnderWay(len(groups), not_ready, [], [])
        if not not_ready:
            under_way = await _look_at_pods(testbed, under_way, retried=retried, bind=bind)
        steady = steady + 1 if under_way.is_steady else 0
        now = time.monotonic()
        if steady == _LOOKS:
            return
        if not under_way.is_steady and now - began > within:
            raise TestbedError(
                f"the cluster is not steady after {within:g} s: {under_way}; correct that, raise"
                " steadyWithin, or set begin: atOnce to start without waiting"
            )
        if (
            not under_way.is_steady
            and str(under_way) != reported
            and now - reported_at > _REPORT_SECONDS
        ):
            reported, reported_at = str(under_way), now
            testbed.report(f"waiting until the cluster is steady: {under_way}")
        await asyncio.sleep(max(_LOOK_SECONDS, 2 * (now - looked)))


async def until_running(testbed: Testbed) -> None:
    """Returns once no bound pod is Pending, but after at most _RUNNING_WITHIN seconds, as profiles
    may delay pods for longer. Raises the errors of KubeClient.
    """
    deadline = time.monotonic() + _RUNNING_WITHIN
    placed = "status.phase=Pending,spec.nodeName!="
    while time.monotonic() < deadline:
        if not await _objects(testbed, _PODS_PATH, fieldSelector=placed, limit="1"):
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def header_of(testbed: Testbed, scenario: Scenario) -> RecordingHeader:
    """Returns the header of the recording of a run that begins now. Raises KwokOperatorError."""
    groups = []
    if scenario.topology is None or scenario.topology.levels is None:
        groups = await _objects(testbed, GROUPS_PATH)
    return RecordingHeader(
        scenario=scenario.name,
        teaches=scenario.teaches,
        seed=scenario.draws_from,
        started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        versions={"kwok-operator": __version__, **testbed.versions},
        expect=scenario.expect,
        currency=scenario.currency,
        clock=testbed.borrowed.clock if testbed.borrowed is not None else None,
        topology=recorded(scenario.topology, (as_map(group.get("spec")) for group in groups)),
    )


async def _look_at_pods(
    testbed: Testbed, under_way: UnderWay, *, retried: bool, bind: Bind | None
) -> UnderWay:
    # In this order: if a controller has created all its pods, they are in the list read later.
    bodies = {kind: await _objects(testbed, path) for kind, path in _CONTROLLERS.items()}
    unbound = await _objects(testbed, _PODS_PATH, fieldSelector="spec.nodeName=")
    missing = [
        name for kind, some in bodies.items() for name in without_their_pods(kind, some, unbound)
    ]
    if bind is not None:
        placed = await bind(bodies["ReplicaSet"], unbound)
        return under_way._replace(without_pods=missing, placed=placed)
    waiting = not_scheduled(unbound, retried=retried)
    if waiting and not retried:
        waiting = not_scheduled(unbound, retried=False, nodes=await _count_nodes(testbed))
    return under_way._replace(without_pods=missing, not_scheduled=waiting)


async def _count_nodes(testbed: Testbed) -> int:
    body = await testbed.client.get_json(NODES_PATH, {"limit": "1"}, retries=PATIENT)
    return len(body["items"]) + int(as_map(body["metadata"]).get("remainingItemCount") or 0)


async def _objects(
    testbed: Testbed, path: str, *, ours: bool = True, **params: str
) -> list[dict[str, Any]]:
    """Lists the objects at a path. In a borrowed cluster, `ours` restricts the list to objects of
    the rehearsal.
    """
    if ours and testbed.borrowed is not None:
        params["labelSelector"] = REHEARSAL_LABEL
    listed = await testbed.client.get_json(path, params, retries=PATIENT)
    items: list[dict[str, Any]] = listed["items"]
    return items
