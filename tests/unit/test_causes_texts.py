"""What schedulers and autoscalers write, read back."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.formats import autoscalertexts as texts
from kwok_operator.formats.autoscalertexts import (
    GroupFailure,
    GroupRefusal,
    GroupStatus,
    Nomination,
    ScaleUp,
    parse_status,
)
from kwok_operator.formats.schedulertexts import (
    NODE_AFFINITY,
    TOO_MANY_PODS,
    ReasonCount,
    SchedulerText,
    insufficient,
    parse_scheduler_text,
)

REASONS = st.sampled_from(
    [
        NODE_AFFINITY,
        TOO_MANY_PODS,
        insufficient("example.com/gpu.2"),
        "node(s) had untolerated taint {example.com/a.b: 3.5}",
        "node(s) had taint {a: }, that the pod didn't tolerate",
        "cannot allocate all claims",
    ]
)
COUNTED = st.dictionaries(REASONS, st.integers(1, 10_000), min_size=1)
AFTER = ["", " preemption: {}", " no new claims to deallocate, preemption: {}"]


def as_the_scheduler_writes(nodes: int, reasons: dict[str, int], after: str) -> str:
    """A second statement of FitError.Error in Kubernetes' pkg/scheduler/framework/types.go."""
    counts = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{nodes} nodes are available: {counts}.{after}"


@given(st.integers(1, 10_000), COUNTED, COUNTED, st.sampled_from(AFTER))
def test_reasons_are_read_as_they_were_written(
    nodes: int, reasons: dict[str, int], later: dict[str, int], after: str
) -> None:
    preemption = as_the_scheduler_writes(nodes, later, "")
    found = parse_scheduler_text(as_the_scheduler_writes(nodes, reasons, after.format(preemption)))
    assert found and found.nodes == nodes
    assert {each.text: each.count for each in found.reasons} == reasons
    assert {each.text: each.count for each in found.preemption} == (later if after else {})


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ("no nodes available to schedule pods", SchedulerText(0)),
        (
            '0/1 nodes are available: persistentvolumeclaim "x.y" not found. preemption: 0/1 nodes'
            " are available: 1 Preemption is not helpful for scheduling.",
            SchedulerText(
                1,
                pod='persistentvolumeclaim "x.y" not found',
                preemption=(ReasonCount(1, "Preemption is not helpful for scheduling"),),
            ),
        ),
        (
            "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory",
            SchedulerText(
                3, (ReasonCount(1, "Insufficient cpu"), ReasonCount(2, "Insufficient memory"))
            ),
        ),
        ("Scheduling is blocked due to non-empty scheduling gates", None),
        ("Successfully assigned default/a to b", None),
    ],
    ids=["no-nodes", "of-the-pod", "no-full-stop", "gates", "another"],
)
def test_other_messages_of_the_scheduler(message: str, read: SchedulerText | None) -> None:
    assert parse_scheduler_text(message) == read


@pytest.mark.parametrize(
    ("reader", "message", "read"),
    [
        (
            texts.triggered,
            "pod triggered scale-up: [{a 0->3 (max: 10)} {clusterapi/x/y 1->2 (max: 4)}]",
            (ScaleUp("a", 0, 3, 10), ScaleUp("clusterapi/x/y", 1, 2, 4)),
        ),
        (texts.triggered, "pod didn't trigger scale-up: 1 {a 0->3 (max: 10)}", ()),
        (
            texts.refused,
            "pod didn't trigger scale-up: 1 in backoff after failed scale-up, 2 exceeded quota:"
            ' "a", resources: cpu, memory',
            (
                GroupRefusal("in backoff after failed scale-up", 1),
                GroupRefusal('exceeded quota: "a", resources: cpu, memory', 2),
            ),
        ),
        (
            texts.refused,
            "pod didn't trigger scale-up (it wouldn't fit if a new node is added): 2 Too many pods",
            (GroupRefusal("Too many pods", 2),),
        ),
        (
            texts.refused,
            "pod didn't trigger scale-up: max total nodes in cluster reached",
            (GroupRefusal("max total nodes in cluster reached"),),
        ),
        (texts.refused, "pod didn't trigger scale-up: ", ()),
        (texts.refused, "pod triggered scale-up: [{a 0->3 (max: 10)}]", None),
        (
            texts.failure,
            "Failed adding 2 nodes to group a due to OutOfResource.stockout; source errors: none",
            GroupFailure("a", "OutOfResource.stockout; source errors: none"),
        ),
        (
            texts.failure,
            "Scale-up failed for group a: rpc error: code = Unknown",
            GroupFailure("a", "rpc error: code = Unknown"),
        ),
        (
            texts.failure,
            "Nodes added to group a failed to register within 15m0.1s",
            GroupFailure("a", "failed to register within 15m0.1s"),
        ),
        (texts.failure, "Scale-up: group a size set to 3 instead of 0 (max: 10)", None),
        (
            texts.nominated,
            "Pod should schedule on: nodeclaim/x, node/y",
            Nomination("x", "y"),
        ),
        (texts.nominated, "Pod should schedule on: node/y", Nomination("", "y")),
        (
            texts.refused_by_pools,
            'Failed to schedule pod, incompatible with nodepool "a", daemonset overhead={"cpu":"1"}'
            ", did not tolerate x:NoSchedule; did not tolerate y:NoSchedule; incompatible with"
            ' nodepool "b", daemonset overhead={"cpu":"1"}, did not tolerate x:NoSchedule; all'
            ' available instance types exceed limits for nodepool "c"',
            (
                GroupRefusal("did not tolerate x:NoSchedule", 2, ("a", "b")),
                GroupRefusal("did not tolerate y:NoSchedule", 1, ("a",)),
                GroupRefusal("all available instance types exceed limits", 1, ("c",)),
            ),
        ),
        (
            texts.refused_by_pools,
            "Failed to schedule pod, all available instance types exceed limits for nodepool"
            " (NodePool=a); did not tolerate taint (taint=x:NoSchedule)",
            (
                GroupRefusal("all available instance types exceed limits for nodepool", 1, ("a",)),
                GroupRefusal("did not tolerate taint (taint=x:NoSchedule)", 1),
            ),
        ),
        (texts.refused_by_pools, "0/1 nodes are available: 1 Insufficient cpu.", None),
    ],
)
def test_events_of_autoscalers(reader: Callable[[str], Any], message: str, read: Any) -> None:
    assert reader(message) == read


NEW = """\
time: 2026-11-26 11:00:00.1 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health: {status: Healthy}
nodeGroups:
- name: a
  health:
    status: Healthy
    nodeCounts: {registered: {total: 2, ready: 1}, unregistered: 0}
    cloudProviderTarget: 2
    minSize: 0
    maxSize: 10
  scaleUp:
    status: Backoff
    backoffInfo: {errorCode: timeout, errorMessage: Scale-up timed out}
- name: b
  health: {cloudProviderTarget: many, maxSize: [1]}
- 7
"""
OLD = """\
Cluster-autoscaler status at 2022-01-02 03:04:05.6 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=5 unready=0 notStarted=0 registered=5)
               LastProbeTime:      2022-01-02 03:04:05 +0000 UTC
  ScaleUp:     InProgress (ready=5 registered=5)

NodeGroups:
  Name:        a
  Health:      Healthy (ready=1 unready=0 cloudProviderTarget=2 (minSize=0, maxSize=10))
               LastTransitionTime: 2022-01-02 03:04:05 +0000 UTC
  ScaleUp:     Backoff (ready=1 cloudProviderTarget=2)
  ScaleDown:   NoCandidates (candidates=0)
"""


def test_status_of_cluster_autoscaler() -> None:
    status, old = parse_status(NEW), parse_status(OLD)
    assert status and old
    assert (status.state, status.health, status.written[:10]) == (
        "Running",
        "Healthy",
        "2026-11-26",
    )
    a = GroupStatus("a", "Healthy", 1, 2, 0, 10, "Backoff", "timeout: Scale-up timed out")
    assert status.groups == (a, GroupStatus("b"))
    assert old.groups == (GroupStatus("a", "Healthy", 1, 2, 0, 10, "Backoff", ""),)
    assert (old.health, old.written[:10]) == ("Healthy", "2022-01-02")
    assert [parse_status(text) for text in ("", "[", "7", "x" * 5_000_000)] == [None] * 4


def test_a_status_of_any_size_is_read_in_time() -> None:
    for text in (" \n" * 300_000, "  Name: a\n" * 100_000, "  Name: a\n" + "  x\n" * 100_000):
        parse_status("Cluster-wide:\n" + text)
