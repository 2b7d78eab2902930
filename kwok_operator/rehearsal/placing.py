"""Binds pods to nodes at the beginning by a placement, even where the scheduler never would.

    the scheduler is halted -> apply -> groups are Ready -> nodes get their taints and the like
        -> pods that appear are bound (seats.py), until all controllers have created theirs
        -> the scheduler is restarted

It is restarted rather than continued: a continued one would at first know the pods only as they
were created, without their nodes. It would look for nodes for them, and could evict other pods.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from kwok_operator import controlplane
from kwok_operator.constants import NODE_GROUP_LABEL, NODES_PATH
from kwok_operator.errors import ConflictError, NotFoundError
from kwok_operator.formats.untyped import as_list, text_at, value_at
from kwok_operator.formats.words import few_names
from kwok_operator.kube.client import MERGE_PATCH
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.cleaning import merge_taints
from kwok_operator.rehearsal.beginning import Objects, until_steady
from kwok_operator.rehearsal.scenario.placement import PlacedNode, Placement, placement_in
from kwok_operator.rehearsal.seats import Seats, names_of_places, workloads_of
from kwok_operator.rehearsal.surroundings import MAX_TEXT
from kwok_operator.rehearsal.testbed import Testbed, TestbedError
from kwok_operator.userfiles import read_bytes

_SCHEDULER: Final = "kube-scheduler"
_MOST_AT_ONCE: Final = 50


async def place(
    testbed: Testbed,
    placement: Placement,
    *,
    apply: Callable[[], Awaitable[None]],
    within: float,
) -> None:
    """Calls `apply`, and returns once pods are bound by the placement, the scheduler runs, and the
    cluster is steady.

    Raises TestbedError if that takes more than `within` seconds; also raises the errors of `apply`
    and of the control plane.
    """
    placer = _Placer(testbed, _read(testbed, placement))
    async with _without_scheduler(testbed):
        await apply()
        await until_steady(testbed, within=within, bind=placer.bind)
    placer.report()
    await until_steady(testbed, within=within, tried=True)


def _read(testbed: Testbed, placement: Placement) -> Placement:
    if placement.path is None:
        return placement
    path = testbed.folder / placement.path
    try:
        return placement_in(read_bytes(path, limit=MAX_TEXT).decode())
    except (OSError, ValueError) as error:
        raise TestbedError(f"placement: {path}: {error}") from error


@asynccontextmanager
async def _without_scheduler(testbed: Testbed) -> AsyncIterator[None]:
    cluster = testbed.cluster
    if cluster is None:
        raise TestbedError(
            "placement: the scheduler of a cluster of others can't be halted; leave --kubeconfig"
            " out, or the placement"
        )
    pid = cluster.pid(_SCHEDULER)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)  # the cluster may be kept
        raise
    await controlplane.in_thread(partial(controlplane.restart, cluster, _SCHEDULER))


class _Placer:
    """Binds the pods of a placement as they are created."""

    def __init__(self, testbed: Testbed, placement: Placement) -> None:
        self._testbed = testbed
        self._client = testbed.client
        self._placement = placement
        self._seats: Seats | None = None
        self._bound = 0

    async def bind(self, objects: Objects, unbound: Objects) -> int:
        """Binds the pods of `unbound` for which the placement has a node, and returns how many.
        `objects` are ReplicaSets, by which a pod's Deployment is known. All groups must have their
        nodes.
        """
        if self._seats is None:
            nodes = await self._client.get_json(
                NODES_PATH, {"labelSelector": NODE_GROUP_LABEL}, retries=PATIENT
            )
            by_name = {text_at(node, "metadata", "name"): node for node in nodes["items"]}
            names = names_of_places(by_name.values())
            self._seats = Seats(self._placement, names)
            for place, mark in self._placement.nodes.items():
                if place in names:
                    await self._mark(by_name[names[place]], mark)
        placed = [
            (pod, node)
            for pod, workload in workloads_of(unbound, objects)
            if (node := self._seats.take(pod, workload)) is not None
        ]
        slots = asyncio.Semaphore(_MOST_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for pod, node in placed:
                tasks.create_task(self._bind(pod, node, slots))
        self._bound += len(placed)
        return len(placed)

    async def _bind(self, pod: Mapping[str, Any], node: str, slots: asyncio.Semaphore) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        async with slots:
            try:
                await self._client.request("POST", path, body=body, retries=PATIENT)
            except (NotFoundError, ConflictError):
                return  # it is gone, or a repeated request was carried out the first time

    async def _mark(self, node: Mapping[str, Any], mark: PlacedNode) -> None:
        new = [taint.model_dump(mode="json", by_alias=True) for taint in mark.taints]
        taints = merge_taints([*as_list(value_at(node, "spec", "taints")), *new])
        patch = {"spec": {"unschedulable": mark.cordoned, "taints": taints}}
        name = text_at(node, "metadata", "name")
        await self._client.request(
            "PATCH", f"{NODES_PATH}/{name}", body=patch, content_type=MERGE_PATCH, retries=PATIENT
        )

    def report(self) -> None:
        """Reports how many pods were bound by the placement, how many of its pods don't exist, and
        for how many of them the node doesn't exist.
        """
        assert self._seats is not None
        say, left, nowhere = self._testbed.report, self._seats.left, self._seats.nowhere
        say(f"pods on the nodes where they stood: {self._bound:,}")
        if left:
            few = few_names([f"{workload} ({count:,})" for workload, count in left.items()])
            say(f"{sum(left.values()):,} pods of the placement aren't there: {few}")
        if nowhere:
            pods = f"{sum(nowhere.values()):,} pods of the placement"
            say(f"{pods} are left to the scheduler, as there is no node {few_names(nowhere)}")
        since = [time for each in self._placement.pods for time in each.pending]
        if since:
            oldest = min(filter(None, since), default="an unknown time")
            say(f"pending where the placement is from: {len(since):,}, the oldest since {oldest}")
