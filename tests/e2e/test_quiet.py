"""Nothing is written where nothing changes, and little while much does.

Writes are counted twice: by the API server, of groups, nodes and Events whoever wrote them, and by
the operator, of all it sent. The groups are in every state that lasts: as they should be, empty,
clamped, paused off their target, waiting for room, with a refused template, with unknown names to
delete, with nodes of others and nodes that can't go.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kwok_operator.constants import NODE_GROUP_LABEL, PLURAL
from tests.e2e.groups import (
    apply_group,
    names_of,
    patch_group,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.writes import sent, served, settled, traces

RESYNCS = 8


@contextmanager
def a_node_of_someone_else(kubectl: Kubectl, name: str, *, group: str) -> Iterator[None]:
    metadata = {"name": name, "labels": {NODE_GROUP_LABEL: group}}
    kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    try:
        yield
    finally:
        kubectl("delete", "node", name)


@contextmanager
def a_node_that_cannot_go(kubectl: Kubectl, node: str) -> Iterator[None]:
    def finalizers(*names: str) -> None:
        patch = as_text({"metadata": {"finalizers": list(names) or None}})
        kubectl("patch", "node", node, "--type=merge", f"--patch={patch}")

    finalizers("example.com/hold")
    kubectl("delete", "node", node, "--wait=false")
    try:
        yield
    finally:
        finalizers()


@contextmanager
def groups_in_every_state(kubectl: Kubectl, name: str) -> Iterator[None]:
    """Under a limit of 30 nodes for all groups."""
    refused: dict[str, Any] = {"node": {"metadata": {"labels": {"not a label": "x"}}}}
    apply_group(kubectl, f"{name}-plain", targetSize=5)
    apply_group(kubectl, f"{name}-empty")
    apply_group(kubectl, f"{name}-clamped", targetSize=4, autoscaling={"minSize": 1})
    apply_group(kubectl, f"{name}-paused", targetSize=2)
    apply_group(kubectl, f"{name}-refused", targetSize=2, template=refused)
    unknown = {"nodesToDelete": ["no-such-node"]}
    apply_group(kubectl, f"{name}-unknown", targetSize=1, scaleDown=unknown)
    for state in ("plain", "empty", "clamped", "paused", "unknown"):
        wait_ready(kubectl, f"{name}-{state}")
    patch_group(kubectl, f"{name}-clamped", autoscaling={"maxSize": 3})
    patch_group(kubectl, f"{name}-paused", targetSize=4, paused=True)
    apply_group(kubectl, f"{name}-waiting", targetSize=1000)
    held = names_of(kubectl, f"{name}-plain")[0]
    with (
        a_node_of_someone_else(kubectl, f"{name}-else", group=f"{name}-plain"),
        a_node_that_cannot_go(kubectl, held),
    ):
        for state, kind, status in (
            ("plain", "ForeignNodes", "True"),
            ("clamped", "ScalingLimited", "True"),
            ("paused", "Paused", "True"),
            ("refused", "TemplateResolved", "False"),
            ("waiting", "ScalingLimited", "True"),
        ):
            wait_condition(kubectl, f"{name}-{state}", kind, status=status)
        yield


def test_a_settled_cluster_is_quiet(kubectl: Kubectl, harness: Harness, group_name: str) -> None:
    operator = harness.start("--max-total-nodes=30", "--resync-interval=1")
    with groups_in_every_state(kubectl, group_name):
        # A refused template is tried again in a dry run, which is sent and writes nothing.
        before = settled(kubectl, operator, attempts=False)
        assert len(before.groups) >= 7 and len(before.nodes) >= 30
        reads, attempts = sent(operator, reads=True).total(), sent(operator).total()
        eventually(
            lambda: sent(operator, reads=True).total(),
            lambda now: now >= reads + RESYNCS,
            describe="all groups have been read several times",
        )
        assert traces(kubectl, operator, attempts=False) == before
        assert sent(operator).total() - attempts <= sent(operator, reads=True).total() - reads


def test_status_is_written_sparingly_while_a_group_grows(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    key, before, started = ("PATCH", PLURAL, "status"), served(kubectl), time.monotonic()
    apply_group(kubectl, group_name, targetSize=400)
    wait_ready(kubectl, group_name)
    lasted = time.monotonic() - started
    written = served(kubectl)[key] - before[key]
    # Besides the counts: what is asked for, and each change of a condition.
    assert 2 <= written <= lasted + 8
