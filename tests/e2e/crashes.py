"""Killing an operator in the middle, and what must be there afterwards."""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION
from kwok_operator.nodegroups.naming import NodeNames
from tests.e2e.api import NODES
from tests.e2e.groups import (
    group_of,
    nodes_of,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process
from tests.e2e.watching import Watch

SLOWLY = "--max-qps=20"
"""So that there is a middle in which to die, however fast the machine, and however late a test sees
that it has come."""


@contextmanager
def watched_names(kubectl: Kubectl, group: str) -> Iterator[dict[str, set[str]]]:
    """The uids of all nodes that were ever seen, by name."""
    uids: dict[str, set[str]] = defaultdict(set)

    def note(*nodes: dict[str, Any]) -> None:
        for node in nodes:
            uids[node["metadata"]["name"]].add(node["metadata"]["uid"])

    with Watch(
        kubectl.api,
        NODES,
        selector=f"{NODE_GROUP_LABEL}={group}",
        metadata=True,
        listed=lambda items: note(*items),
        seen=lambda _, node: note(node),
    ):
        yield uids


def assert_exactly(kubectl: Kubectl, name: str, size: int) -> list[str]:
    """The group has `size` nodes, all its own, and its status tells so. Returns their names."""
    group, nodes = group_of(kubectl, name), nodes_of(kubectl, name)
    uid, status = group["metadata"]["uid"], group["status"]
    assert len(nodes) == size
    names = NodeNames.of(name, uid)
    serials = [names.serial(node["metadata"]["name"]) for node in nodes]
    assert None not in serials
    for node in nodes:
        meta = node["metadata"]
        assert [owner["uid"] for owner in meta["ownerReferences"]] == [uid]
        assert meta["annotations"][NODE_GROUP_UID_ANNOTATION] == uid
        assert "deletionTimestamp" not in meta
    counts = {
        key: status.get(key, 0)
        for key in ("replicas", "readyReplicas", "updatedReplicas", "targetSize")
    }
    assert set(counts.values()) == {size}, counts
    left = {key: status.get(key) or 0 for key in ("pendingReplicas", "failedReplicas", "pending")}
    assert set(left.values()) == {0}, left
    assert status.get("nextSerial", 0) > max((s for s in serials if s is not None), default=-1)
    return [node["metadata"]["name"] for node in nodes]


def done(process: Process, name: str) -> float:
    """How many nodes of the group this operator has created and deleted by now."""
    numbers = re.findall(
        rf'^kwok_operator_nodes_(?:created|deleted)_total{{group="{name}"}} (\S+)$',
        process.get("/metrics")[1],
        re.MULTILINE,
    )
    return sum(map(float, numbers))


def wait_under_way(process: Process, name: str, *, least: float) -> None:
    """Returns in the middle of it; asks the operator itself: to list nodes would be too slow."""
    eventually(
        lambda: done(process, name),
        until=lambda n: n >= least,
        describe=f"{least} nodes are written",
        interval=0.01,
    )


def kill(process: Process) -> None:
    assert process.running, process.log()
    process.kill()
