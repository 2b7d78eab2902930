"""Why pods waited, by a recording."""

import asyncio
import gzip
import os
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kwok_operator.causes.model import CauseKind, Chain, StepKind
from kwok_operator.causes.podfilter import PodFilter
from kwok_operator.causes.recorded import Explainer
from kwok_operator.cli.main import main
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    BudgetState,
    CallLine,
    EventLine,
    GroupLine,
    GroupState,
    NodeClaimLine,
    NodeClaimState,
    PodLine,
    RecordedLine,
    RecordingHeader,
)
from kwok_operator.rehearsal.judge.verdict import junit_xml, summary
from kwok_operator.rehearsal.recorder import EVENTS_PATH, PODS_PATH, RunRecorder
from kwok_operator.rehearsal.scenario.expectation import Expectation
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.rehearsaltestbed import serve_quiet_cluster
from tests.fakes.rehearsed import NAME, content, gone, node, pod, run
from tests.randomrecording import random_recording

WEB = "Pod/default/web-1"
FULL = "0/1 nodes are available: 1 Insufficient cpu."
ANTI = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
SOLD_OUT = "1 instance has no Node yet: 1 OutOfStock (OutOfStock: no instances of this type left)."


def chains(lines: Iterable[RecordedLine], **header: Any) -> list[Chain]:
    explainer, now = Explainer(RecordingHeader(**header)), 0.0
    found = list[Chain]()
    for line in lines:
        found += explainer.apply(line)
        now = line.t
    return [*found, *explainer.finish(now)]


def says(t: float, reason: str, message: str, about: str = WEB, *, by: str = "") -> EventLine:
    component = "karpenter" if reason in ("Nominated", "FailedScheduling") else "cluster-autoscaler"
    return EventLine(t, "Normal", reason, about, component, message, by=by)


def refused(t: float, reasons: str) -> EventLine:
    return says(t, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reasons}")


def scaled(t: float, group: str = "a") -> EventLine:
    message = f"pod triggered scale-up: [{{{group} 1->2 (max: 5)}}]"
    return says(t, "TriggeredScaleUp", message)


def waits(why: str = FULL, **state: Any) -> list[RecordedLine]:
    return [pod(1, "web-1", created=1), pod(1.5, "web-1", created=1, why=why, **state)]


def runs(t: float = 40.0, **state: Any) -> list[RecordedLine]:
    placed = {"node": "n", "bound": t - 1}
    return [
        pod(t - 1, "web-1", created=1, **placed),
        pod(t, "web-1", created=1, **{"phase": "Running", "running": t} | placed | state),
    ]


def evicted(reason: str) -> PodLine:
    (_, last) = runs(disrupted=reason, deleting=True)
    assert isinstance(last, PodLine)
    return PodLine(60.0, last.name, last.state)


def kept(t: float, by: str = "p") -> EventLine:
    text = f"Pdb prevents pod evictions (default/{by})"
    return says(t, "DisruptionBlocked", text, "Node//n")


def claim(t: float, **state: Any) -> NodeClaimLine:
    return NodeClaimLine(t, "c-1", NodeClaimState(created=3.0, pool="p", **state))


def group(t: float, **state: Any) -> GroupLine:
    return GroupLine(t, "a", GroupState(**state))


PLANTED: dict[str, tuple[list[RecordedLine], CauseKind, str]] = {
    "no autoscaler": (waits(), CauseKind.NO_AUTOSCALER, "1 Insufficient cpu"),
    "no decision yet": (
        [pod(80, "web-1", created=80, why=FULL), CallLine(0, "NodeGroups")],
        CauseKind.UNDECIDED,
        "hasn't decided yet",
    ),
    "a decision that nothing shows": (
        [*waits(), CallLine(0, "NodeGroups"), group(2, says=SOLD_OUT)],
        CauseKind.UNKNOWN,
        "no Event is seen .*decided; a: 1 instance has no Node yet",
    ),
    "it can't know of nodes under way": (
        [*waits(), CallLine(0, "NodeGroups"), group(2, states={"Creating": 2})],
        CauseKind.UNKNOWN,
        "2 nodes of a under way",
    ),
    "max size": (
        [
            *waits(),
            group(0, target=3, maximum=3),
            refused(9, "1 in backoff, 1 max node group size reached"),
        ],
        CauseKind.REFUSED,
        "now: a: max node group size reached.* raise the group's maximum size",
    ),
    "back-off after a sold-out zone": (
        [
            *waits(),
            group(8, says=SOLD_OUT),
            scaled(5),
            refused(9, "1 in backoff after failed scale-up, 1 Insufficient cpu"),
        ],
        CauseKind.REFUSED,
        "a: in backoff after failed scale-up .*no instances of this type left.*Insufficient cpu",
    ),
    "groups that aren't looked at say nothing about the pod": (
        [
            node(0, "n"),
            node(0, "m", "b"),
            *waits(requests={"cpu": 64000.0}),
            refused(9, "1 in backoff after failed scale-up, 1 Insufficient cpu"),
        ],
        CauseKind.NEVER,
        "64 CPUs.*1 group: Insufficient cpu; not looked at: 1 group: in backoff.* let the pod",
    ),
    "groups for others are named last": (
        [*waits(), refused(9, "4 node(s) didn't match Pod's node affinity/selector, 1 in backoff")],
        CauseKind.REFUSED,
        "now: 1 group: in backoff; 4 groups: .*selector end what makes",
    ),
    "a silent autoscaler": (
        [*waits(), CallLine(0, "NodeGroups")],
        CauseKind.UNKNOWN,
        "for 99.0 s no Event is seen",
    ),
    "two autoscalers": (
        [
            *waits(),
            scaled(5),
            says(6, "FailedScheduling", "Failed to schedule pod, incompatible requirements"),
        ],
        CauseKind.CREATING,
        "its node of a was requested",
    ),
    "one autoscaler refuses for ever, the other for now": (
        [
            node(0, "n"),
            *waits(requests={"cpu": 64_000.0}),
            refused(5, "9 max node group size reached"),
            says(6, "FailedScheduling", "Failed to schedule pod, incompatible requirements"),
        ],
        CauseKind.REFUSED,
        "9 groups: max node group size reached",
    ),
    "the group at its maximum is the one that was when it refused": (
        [
            *waits(),
            group(0, target=5, maximum=5),
            GroupLine(0, "b", GroupState(target=1, maximum=5)),
            refused(9, "1 max node group size reached"),
            group(10, target=1, maximum=5),
            GroupLine(11, "b", GroupState(target=5, maximum=5)),
        ],
        CauseKind.REFUSED,
        "now: a: max",
    ),
    "a node that was broken before": (
        [
            node(0, "old", ready=False, created=-500.0, requested=-501.0),
            *waits(),
            scaled(5),
            group(8, says=SOLD_OUT),
        ],
        CauseKind.NO_STOCK,
        "no inst",
    ),
    "its node came and went": (
        [
            *waits(),
            scaled(5),
            node(20, "n", ready=False, created=20.0, requested=5.2),
            node(22, "n", created=20.0, requested=5.2),
            gone(40, "n"),
        ],
        CauseKind.UNKNOWN,
        "n of a has gone 60.0 s ago",
    ),
    "its node becomes usable": (
        [
            *waits(),
            scaled(5),
            node(20, "n", ready=False, created=20.0, requested=5.2),
            node(22, "n", created=20.0, requested=5.2),
        ],
        CauseKind.UNSCHEDULED,
        "n has been usable for 78.0 s",
    ),
    "a failure that is over isn't that of a back-off": (
        [
            *waits(),
            group(0),
            says(2, "FailedToScaleUpGroup", "Scale-up failed for group a: quota", "ConfigMap/k/s"),
            node(6, "n", created=6.0),
            refused(50, "1 in backoff after failed scale-up"),
        ],
        CauseKind.REFUSED,
        "1 group: in backoff",
    ),
    "a limit of the cluster": (
        [*waits(), refused(9, "max total nodes in cluster reached")],
        CauseKind.REFUSED,
        "--max-nodes-total",
    ),
    "a label whose name is like a limit": (
        [
            *waits(),
            says(
                6,
                "FailedScheduling",
                "Failed to schedule pod, incompatible requirements, label"
                ' "team/limits" does not have known values',
            ),
        ],
        CauseKind.REFUSED,
        "correct the pod's selector",
    ),
    "a pod of a DaemonSet": (
        [*waits(workload="DaemonSet/default/agent"), CallLine(0, "NodeGroups")],
        CauseKind.NO_AUTOSCALER,
        "for pods of a DaemonSet",
    ),
    "it was deleted while it waited": (
        [*waits(), refused(5, "1 Insufficient cpu"), PodLine(9, "default/web-1", None)],
        CauseKind.ENDED,
        "deleted after 8.0 s, while it waited: no node that could be added.*Insufficient",
    ),
    "an autoscaler that names no group": (
        [node(0, "n"), *waits(requests={"cpu": 64_000.0}), refused(5, "")],
        CauseKind.REFUSED,
        "names no group .*requests 64 CPUs",
    ),
    "it is being deleted": (
        [*waits(), pod(9, "web-1", created=1, why=FULL, deleting=True)],
        CauseKind.ENDED,
        "is being deleted",
    ),
    "devices of nodes under way come late": (
        [
            node(0, "n", ready=False),
            *waits(requests={"nvidia.com/gpu": 1.0}),
            refused(9, "1 Insufficient nvidia.com/gpu"),
        ],
        CauseKind.REFUSED,
        "requests nvidia.com/gpu",
    ),
    "sold out": ([*waits(), scaled(5), group(8, says=SOLD_OUT)], CauseKind.NO_STOCK, "no inst"),
    "a scale-up fails": (
        [
            *waits(),
            scaled(5),
            says(6, "FailedToScaleUpGroup", "Scale-up failed for group a: quota", "ConfigMap/k/s"),
        ],
        CauseKind.NO_STOCK,
        "requested of a: quota",
    ),
    "anti-affinity": (
        [*waits(ANTI), refused(9, "2 node(s) didn't match pod anti-affinity rules")],
        CauseKind.REFUSED,
        "2 groups: .*anti-affinity rules .*loosen the pod's anti-affinity",
    ),
    "a larger group that was chosen is in back-off": (
        [
            node(0, "n"),
            *waits(requests={"cpu": 64_000.0}),
            scaled(2, "big"),
            refused(9, "1 in backoff after failed scale-up, 1 Insufficient cpu"),
        ],
        CauseKind.REFUSED,
        "1 group: Insufficient cpu; not looked at: 1 group: in backoff.*largest node has 4 CPUs",
    ),
    "a group that has shown no node may have larger ones": (
        [
            node(0, "n"),
            group(0, maximum=1),
            GroupLine(0, "big", GroupState()),
            *waits(requests={"cpu": 64_000.0}),
            refused(9, "1 in backoff after failed scale-up, 1 Insufficient cpu"),
        ],
        CauseKind.REFUSED,
        "Insufficient cpu; not looked at: 1 group",
    ),
    "a node that exists would fit, once it has room": (
        [
            node(0, "n", allocatable={"cpu": 64_000.0}),
            *waits(requests={"cpu": 64_000.0}),
            refused(9, "1 Insufficient cpu"),
        ],
        CauseKind.REFUSED,
        r"fits the pod \(one that exists may, once it has room\): 1 group: Insufficient cpu",
    ),
    "no node has the label": (
        [
            *waits("0/9 nodes are available: 9 node(s) didn't match Pod's node affinity/selector."),
            refused(9, "2 node(s) didn't match Pod's node affinity/selector"),
        ],
        CauseKind.NEVER,
        "selector .*correct the pod's selector",
    ),
    "a claim that is not bound yet": (
        [*waits(), refused(9, "1 pod has unbound immediate PersistentVolumeClaims")],
        CauseKind.REFUSED,
        "unbound .* see the pod's claims, and the provisioner",
    ),
    "a volume's zone is no selector": (
        [
            *waits(),
            refused(
                9,
                "1 max node group size reached, 3 node(s) didn't match PersistentVolume's node"
                " affinity",
            ),
        ],
        CauseKind.REFUSED,
        "3 groups: .*not looked at: 1 group.* see the pod's volumes",
    ),
    "others' anti-affinity": (
        [*waits(), refused(9, "1 node(s) didn't satisfy existing pods anti-affinity rules")],
        CauseKind.REFUSED,
        "loosen the anti-affinity of the pods that run",
    ),
    "larger than any node": (
        [node(0, "n"), *waits(requests={"cpu": 64_000.0}), refused(9, "1 Insufficient cpu")],
        CauseKind.NEVER,
        "requests 64 CPUs, and the largest node has 4 CPUs.*request less",
    ),
    "larger than any node, without an autoscaler": (
        [node(0, "n"), *waits(requests={"cpu": 64_000.0})],
        CauseKind.NO_AUTOSCALER,
        "autoscaler runs; it requests 64 CPUs, and the largest node has 4 CPUs",
    ),
    "Karpenter refuses": (
        [
            *waits(),
            says(3, "FailedScheduling", "Failed to schedule pod, no instance type has enough"),
        ],
        CauseKind.REFUSED,
        "no instance type has enough",
    ),
    "requested": ([*waits(), scaled(10)], CauseKind.CREATING, "its node of a was requested 90.0 s"),
    "a NodeClaim": (
        [*waits(), claim(3), says(4, "Nominated", "Pod should schedule on: nodeclaim/c-1")],
        CauseKind.CREATING,
        "NodeClaim c-1 of p was requested 97.0 s",
    ),
    "a NodeClaim that failed": (
        [
            *waits(),
            claim(3),
            says(4, "Nominated", "Pod should schedule on: nodeclaim/c-1"),
            EventLine(5, "Warning", "InsufficientCapacity", "NodeClaim//c-1", "karpenter", "none"),
            NodeClaimLine(6, "c-1", None),
        ],
        CauseKind.NO_STOCK,
        "InsufficientCapacity: none",
    ),
    "a slow boot": (
        [*waits(), scaled(5), node(20, "n", ready=False, created=20.0, requested=5.2)],
        CauseKind.NOT_READY,
        "n has existed for 80.0 s",
    ),
    "a slow scheduler": (
        [*waits(), scaled(5), node(20, "n", created=20.0)],
        CauseKind.UNSCHEDULED,
        "n has been usable for 80.0 s",
    ),
    "its node was usable, and isn't now": (
        [*waits(), scaled(5), node(20, "n", created=20.0), node(30, "n", ready=False)],
        CauseKind.NOT_READY,
        "n was usable, and isn't now",
    ),
    "no scheduler": ([pod(1, "web-1", created=1)], CauseKind.UNSCHEDULED, "no scheduler .* 99.0 s"),
    "a slow start": (
        [*waits(), node(0, "n"), pod(9, "web-1", created=1, node="n", bound=9, reason="Pulling")],
        CauseKind.STARTING,
        r"bound to n 91.0 s ago.*\(Pulling\)",
    ),
    "its node is gone before it runs": (
        [*waits(), node(0, "n"), pod(9, "web-1", created=1, node="n", bound=9), gone(10, "n")],
        CauseKind.STARTING,
        "bound to n 91.0 s ago, and that node is gone",
    ),
    "its node is gone after it ran": (
        [*waits(), node(0, "n"), *runs(), gone(50, "n")],
        CauseKind.RUNNING,
        "ran after 39.0 s.*; its node n is gone",
    ),
    "evicted by the kubelet": (
        [node(0, "n"), *runs(), *runs(60, running=40, phase="Failed", reason="Evicted")[1:]],
        CauseKind.DISRUPTED,
        "evicted by the kubelet of its node",
    ),
    "it ran after a slow boot": (
        [
            *waits(),
            node(9, "n", ready=False, created=9.0, requested=6.0),
            *runs(),
            node(38, "n", created=9.0, requested=6.0),
        ],
        CauseKind.RUNNING,
        "ran after 39.0 s, 32.0 s of them until its node was usable",
    ),
    "it ran after a slow decision": (
        [*waits(), node(36, "n", created=36.0, requested=35.0), *runs()],
        CauseKind.RUNNING,
        "34.0 s of them until its node was requested",
    ),
    "a budget keeps its node": (
        [
            node(0, "n"),
            *waits(),
            *runs(),
            kept(60),
        ],
        CauseKind.HELD,
        r"evictions \(default/p\)",
    ),
    "cluster-autoscaler removes its node": (
        [
            node(0, "n"),
            *runs(),
            evicted("EvictionByEvictionAPI"),
            says(59, "ScaleDown", "deleting pod for node scale down"),
        ],
        CauseKind.DISRUPTED,
        r"evicted .* by cluster-autoscaler \(deleting pod for node scale down\)",
    ),
    "Karpenter ends its node": (
        [
            node(0, "n"),
            *runs(),
            evicted("EvictionByEvictionAPI"),
            claim(50, node="n", reason="Underutilized"),
        ],
        CauseKind.DISRUPTED,
        r"karpenter ends its node \(Underutilized\)",
    ),
    "preempted": (
        [
            node(0, "n"),
            *runs(),
            evicted("PreemptionByScheduler"),
            gone(62, "n"),
            PodLine(61, "default/web-1", None),
            says(62, "Preempted", "by u-1", by="shop/vip-1"),
        ],
        CauseKind.DISRUPTED,
        "preempted by the scheduler in favour of shop/vip-1",
    ),
    "failed": ([pod(5, "web-1", created=1, phase="Failed")], CauseKind.ENDED, "failed before"),
    "a budget kept its node before it ran": (
        [node(0, "n"), *waits(), *runs(), kept(20)],
        CauseKind.RUNNING,
        "ran after 39.0 s",
    ),
    "a budget kept its node until it went": (
        [node(0, "n"), *waits(), *runs(), kept(60), PodLine(70, "default/web-1", None)],
        CauseKind.RUNNING,
        "ran after 39.0 s",
    ),
    "it ran before the run": (
        [pod(0, "web-1", created=-5, phase="Running", running=-4, node="n")],
        CauseKind.ENDED,
        "ran before the run began",
    ),
    "it ran before it was seen": (
        [node(0, "n"), runs()[1]],
        CauseKind.RUNNING,
        "ran after 39.0 s",
    ),
    "it ran at once": (
        [node(0, "n"), pod(1, "web-1", created=1, node="n", bound=1, running=1.04)],
        CauseKind.RUNNING,
        r"ran after 0\.0 s $",
    ),
    "it is being deleted on its node": (
        [*waits(), node(0, "n"), pod(9, "web-1", created=1, node="n", bound=9, deleting=True)],
        CauseKind.STARTING,
        "bound to n 91.0 s ago",
    ),
    "cluster-autoscaler removes a node of Karpenter's": (
        [
            node(0, "n"),
            *runs(),
            evicted("EvictionByEvictionAPI"),
            claim(50, node="n", reason="Underutilized"),
            says(59, "ScaleDown", "deleting pod for node scale down"),
        ],
        CauseKind.DISRUPTED,
        "evicted .* by cluster-autoscaler",
    ),
    "scheduling gates": (
        waits("Scheduling is blocked due to non-empty scheduling gates"),
        CauseKind.UNSCHEDULED,
        "scheduling gates",
    ),
    "what hinders groups is no hint before a decision": (
        [pod(80, "web-1", created=80, why=FULL), CallLine(0, "NodeGroups"), group(2, says="no")],
        CauseKind.UNDECIDED,
        "hasn't decided yet wait",
    ),
    "some of the groups that are hindered": (
        [
            *waits(),
            CallLine(0, "NodeGroups"),
            group(2, target=3, maximum=3),
            *(GroupLine(2, name, GroupState(says="no")) for name in "bcde"),
        ],
        CauseKind.UNKNOWN,
        "decided; b: no; c: no; d: no; at its maximum: a see",
    ),
    "groups that aren't known may have larger nodes": (
        [
            node(0, "n"),
            *waits(requests={"cpu": 64_000.0}),
            refused(9, "2 in backoff after failed scale-up, 1 Insufficient cpu"),
        ],
        CauseKind.REFUSED,
        "not looked at: 2 groups.*largest node has 4 CPUs",
    ),
    "a known group that was chosen is in back-off": (
        [
            node(0, "n"),
            node(0, "m", "big"),
            *waits(requests={"cpu": 64_000.0}),
            scaled(2, "big"),
            refused(9, "1 in backoff after failed scale-up, 1 Insufficient cpu"),
        ],
        CauseKind.REFUSED,
        "not looked at: 1 group: in backoff",
    ),
    "some nodes have the label": (
        [
            *waits(
                "0/9 nodes are available: 1 Insufficient cpu, 8 node(s) didn't match Pod's node"
                " affinity/selector."
            ),
            refused(9, "2 node(s) didn't match Pod's node affinity/selector"),
        ],
        CauseKind.REFUSED,
        "affinity/selector",
    ),
    "a NodeClaim that was in trouble later": (
        [
            *waits(),
            claim(10, registered=10.0, node="n"),
            says(4, "Nominated", "Pod should schedule on: nodeclaim/c-1"),
            EventLine(12, "Warning", "Unhealthy", "NodeClaim//c-1", "karpenter", "no"),
        ],
        CauseKind.NOT_READY,
        "n has existed for 90.0 s",
    ),
    "what happened to the group before the decision": (
        [
            node(0, "old", created=0.0),
            node(0, "older", created=0.0),
            *waits(),
            gone(2, "older"),
            says(2, "FailedToScaleUpGroup", "Scale-up failed for group a: quota", "ConfigMap/k/s"),
            scaled(5),
        ],
        CauseKind.CREATING,
        "its node of a was requested 95.0 s",
    ),
    "which group is at its maximum isn't clear": (
        [
            *waits(),
            group(0, target=5, maximum=5),
            GroupLine(0, "b", GroupState(target=5, maximum=5)),
            refused(9, "1 max node group size reached"),
        ],
        CauseKind.REFUSED,
        "now: 1 group: max",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_cause_is_the_one_that_was_planted(planted: str) -> None:
    lines, kind, text = PLANTED[planted]
    (chain,) = chains(run(*lines))
    assert (chain.pod, chain.cause.kind) == ("default/web-1", kind)
    assert re.search(text, f"{chain.cause.sentence} {chain.cause.remedy}"), chain.cause


def failed(t: float, why: str) -> EventLine:
    text = f"Scale-up failed for group a: {why}"
    return says(t, "FailedToScaleUpGroup", text, "ConfigMap/k/s")


CREATED, BOUND, RUNNING = (1, "created"), (39, "bound"), (40, "running")
UNSCHEDULABLE = (1.5, "unschedulable")
COVERED = [node(0, "n"), *runs(covered=("p",))]
GONE = PodLine(60, "default/web-1", None)
STEPS: dict[str, tuple[list[RecordedLine], list[tuple[float, str]]]] = {
    "a node that was requested before the pod": (
        [*waits(), node(9, "n", created=9.0, requested=0.9), scaled(1.2), *runs()],
        [
            *(CREATED, (1, "requested"), (1.2, "decided"), UNSCHEDULABLE),
            *((9, "node"), (9, "usable"), BOUND, RUNNING),
        ],
    ),
    "a node that was there before the pod": (
        [node(0, "n"), *waits(), *runs()],
        [CREATED, UNSCHEDULABLE, BOUND, RUNNING],
    ),
    "failures of its group before, meanwhile and after": (
        [
            node(0, "n"),
            *waits(),
            failed(2, "1"),
            scaled(5),
            failed(8, "2"),
            *runs(),
            failed(50, "3"),
        ],
        [CREATED, UNSCHEDULABLE, (5, "decided"), (8, "failed"), BOUND, RUNNING],
    ),
    "a budget that allowed nothing before the pod ran": (
        [*COVERED, BudgetLine(10, "PodDisruptionBudget/default/p", BudgetState(0, 2, 2))],
        [CREATED, BOUND, RUNNING, (40, "held")],
    ),
    "a budget of a pod that is gone": (
        [*COVERED, BudgetLine(50, "PodDisruptionBudget/default/p", BudgetState(0, 2, 2)), GONE],
        [CREATED, BOUND, RUNNING, (60, "ended")],
    ),
    "its node was kept before, meanwhile and after": (
        [node(0, "n"), *runs(), kept(20), kept(50, "q"), GONE, kept(62)],
        [CREATED, BOUND, RUNNING, (50, "held"), (60, "ended")],
    ),
}


@pytest.mark.parametrize("planted", STEPS)
def test_the_steps_are_those_of_the_pod(planted: str) -> None:
    lines, steps = STEPS[planted]
    (chain,) = chains(run(*lines))
    assert [(step.at, step.kind) for step in chain.steps] == steps


@pytest.mark.parametrize(
    ("last", "waited"),
    [
        (pod(5, "web-1", created=1, phase="Failed"), 4),
        (PodLine(9, "default/web-1", None), 8),
        (gone(9, "n"), 99),
    ],
    ids=["failed", "deleted", "waits"],
)
def test_a_wait_ends_with_the_pod(last: RecordedLine, waited: float) -> None:
    (chain,) = chains(run(*waits(), last))
    assert chain.waited == waited


def test_only_what_nothing_shows_is_reported_as_unknown() -> None:
    by = says(59, "ScaleDown", "deleting pod for node scale down")
    evictions = [node(0, "n"), *runs(), evicted("EvictionByEvictionAPI")]
    karpenters = says(3, "FailedScheduling", "Failed to schedule pod, no instance type has enough")
    unknown = [
        "".join(chain.unknown)
        for lines in (evictions, [*evictions, by], [*waits(), karpenters])
        for chain in chains(run(*lines))
    ]
    assert "audit log" in unknown[0]
    assert unknown[1:] == ["", ""]


def test_what_is_said_of_groups_is_as_they_are_when_a_chain_is_made() -> None:
    other = pod(2, "web-2", created=2, why=FULL)
    deleted = PodLine(50, "default/web-1", None)
    lines = [*waits(), other, CallLine(0, "NodeGroups"), deleted, pod(60, "web-3", created=60)]
    before, after, _ = chains(run(*lines, group(70, says=SOLD_OUT)))
    assert "1 instance has" not in before.cause.sentence
    assert "1 instance has" in after.cause.sentence


def test_late_events_are_about_the_pod_that_was_there_before() -> None:
    lines = [
        node(0, "n"),
        *runs(),
        evicted("PreemptionByScheduler"),
        PodLine(61, "default/web-1", None),
        pod(61.1, "web-1", created=61),
        says(61.2, "Preempted", "by u-1", by="shop/vip-1"),
        refused(61.3, "1 max node group size reached"),
        pod(61.4, "web-1", created=61, why=FULL),
        refused(61.5, "1 Insufficient cpu"),
    ]
    before, later = chains(run(*lines))
    assert "in favour of shop/vip-1" in before.cause.sentence
    assert [each.reason for each in later.cause.refusals] == ["Insufficient cpu"]
    assert [step.text for step in later.steps if "max node" in step.text] == []


def test_a_decision_comes_before_what_came_of_it() -> None:
    boot = [node(9, "n", created=9.0, requested=4.9), *runs()]
    for lines in ([scaled(5.2)], [CallLine(5.2, "NodeGroupIncreaseSize", "a", "1", "OK")]):
        (chain,) = chains(run(*waits(), *lines, *boot))
        steps = [(step.at, step.kind) for step in chain.steps[2:4]]
        assert steps == [(4.9, StepKind.DECIDED), (4.9, StepKind.REQUESTED)]


def test_a_budget_that_allows_nothing_is_a_step() -> None:
    name = "PodDisruptionBudget/default/p"
    lines = [node(0, "n"), *runs(covered=("p",)), BudgetLine(50, name, BudgetState(0, 2, 2))]
    (chain,) = chains(run(*lines))
    assert "default/p allows no eviction" in chain.cause.sentence
    held = [step for step in chain.steps if step.kind is StepKind.HELD]
    assert [(step.at, "default/p allows no eviction" in step.text) for step in held] == [(50, True)]


@pytest.mark.parametrize("batch", range(4))
def test_phases_add_up_to_start_seconds(batch: int) -> None:
    for seed in range(batch, 200, 4):
        lines, ledger = random_recording(seed), ClusterLedger()
        for line in lines:
            ledger.apply(line)
        for chain in chains(lines):
            times = [step.at for step in chain.steps]
            assert times == sorted(times)
            record = ledger.pods.live.get(chain.pod)
            # A pod of the name of one that is gone is another pod.
            if record is None or any(step.text == "deleted" for step in chain.steps):
                continue
            if record.starting is None:
                assert not chain.phases, seed
            elif record.starting.seconds is not None:
                assert chain.waited == pytest.approx(record.starting.seconds), seed
                assert sum(chain.phases.values()) == pytest.approx(chain.waited), seed


def autoscaled(seed: int) -> Iterator[RecordedLine]:
    """A random recording, with what scheduler and autoscalers say about its pods."""
    draw = random.Random(seed)
    for line in random_recording(seed):
        state = line.state if isinstance(line, PodLine) else None
        if isinstance(line, PodLine) and state is not None and not state.node:
            why = draw.choice(("", FULL, ANTI, 'claim "data" not found, with C:\\'))
            line = replace(line, state=replace(state, why=why))
        yield line
        if isinstance(line, PodLine) and draw.random() < 0.5:
            no = says(0, "FailedScheduling", "Failed to schedule pod, no instance type", by="a/b")
            event = draw.choice((scaled(0), refused(0, "1 Insufficient cpu"), no))
            component = draw.choice((event.component, "default-scheduler"))
            yield replace(event, t=line.t, about=f"Pod/{line.name}", component=component)


@pytest.mark.parametrize("batch", range(4))
def test_without_the_lines_of_other_pods_the_answer_is_the_same(batch: int, tmp_path: Path) -> None:
    skipped = 0
    for seed in range(batch, 80, 4):
        data = content(autoscaled(seed))
        (tmp_path / NAME).write_bytes(data[: len(data) - seed % 3 * 40])
        for asked in ("web-1", "shop/web-", "job/shop/batch", "batch", "default/web-3", "nobody"):
            pods = PodFilter(asked)
            whole = [*outputs.chains(tmp_path, wanted=PodFilter(asked).wanted)]
            assert [*outputs.chains(tmp_path, wanted=pods.wanted, skips=pods.skips)] == whole
            skipped += sum(pods.skips(line) is not None for line in data.splitlines())
    assert skipped > 500


@pytest.mark.parametrize("asked", ["batch", "default/batch", "job/default/batch", 'a"b', "web-1"])
def test_a_line_that_matters_without_the_name_is_not_skipped(asked: str, tmp_path: Path) -> None:
    lines = [
        pod(1, "x-1", created=1, workload="Job/default/batch", why=FULL),
        PodLine(40, "default/x-1", None),
        pod(1, "y-1", created=1, workload='Job/default/a"b', why=FULL),
        *waits(),
        says(9, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff", "Pod/default/z"),
    ]
    (tmp_path / NAME).write_bytes(content(run(*lines)))
    pods = PodFilter(asked)
    whole = [*outputs.chains(tmp_path, wanted=PodFilter(asked).wanted)]
    assert [*outputs.chains(tmp_path, wanted=pods.wanted, skips=pods.skips)] == whole
    assert len(whole) == 1


def test_what_is_in_no_event_comes_from_the_calls() -> None:
    """cluster-autoscaler writes one Event of a kind about a pod in 5 minutes."""
    lines = [*waits(), scaled(3, "sold-out"), refused(4, "1 in backoff")]
    lines += [says(3.5, "OutOfStock", "none left. Do.", "KwokNodeGroup//sold-out")]
    lines += [CallLine(5.2, "NodeGroupIncreaseSize", "a", "1", "OK")]
    lines += [node(9, "n", created=9.0, requested=5.0), *runs()]
    (chain,) = chains(run(*lines))
    steps = [step.text for step in chain.steps]
    assert "sold-out: none left" in steps
    assert "cluster-autoscaler asks a for 1 more" in steps
    (chain,) = chains(run(*lines[:4]))
    assert "--record-duplicated-events" in "".join(chain.unknown)


def test_a_message_is_one_step_until_its_reasons_change() -> None:
    whole = f"0/9 nodes are available: {', '.join(f'1 reason {n}' for n in range(99))}."
    texts = [FULL, FULL.replace("1", "2"), whole, whole]
    lines = [pod(1 + n, "web-1", created=1, why=why) for n, why in enumerate(texts)]
    (chain,) = chains(run(*lines))
    steps = [(s.at, s.text) for s in chain.steps if s.kind is StepKind.UNSCHEDULABLE]
    assert steps == [(1, FULL), (3, whole)]


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    explainer = Explainer(RecordingHeader())
    for n in range(2_000):
        lines: list[RecordedLine] = [pod(n, f"web-{n}", created=n, why=FULL)]
        lines += [PodLine(n + 0.5, f"default/web-{n}", None)]
        found = [chain for line in lines for chain in explainer.apply(line)]
        assert len(found) == (n > 5)
    assert len(list(explainer.finish(2_000))) < 10


async def test_a_recording_has_the_name_of_the_pod_that_preempted_another() -> None:
    lines = asyncio.Queue[RecordedLine]()

    async def next_one(kind: type[RecordedLine]) -> RecordedLine:
        while not isinstance(line := await lines.get(), kind):
            pass
        return line

    async with FakeApiServer() as server:
        serve_quiet_cluster(server)
        async with KubeClient(connection=server.connection()) as client:
            recorder = RunRecorder(
                client=client, write=lines.put_nowait, clock=StampClock(0), now=lambda: 1.0
            )
            await recorder.start()
            vip = server.create(PODS_PATH, {"metadata": {"name": "vip", "namespace": "shop"}})
            await next_one(PodLine)
            message = f"Preempted by pod {vip['metadata']['uid']} on node n"
            event = {"metadata": {"name": "e", "namespace": "shop"}, "reason": "Preempted"}
            server.create(EVENTS_PATH, {**event, "message": message})
            found = await next_one(EventLine)
            await recorder.stop()
    assert isinstance(found, EventLine)
    assert found.by == "shop/vip"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    expect = Expectation.model_validate(
        {"figure": "pods.pending", "equals": 0, "of": {"workload": "web"}}
    )
    lines = run(node(0, "n"), *waits(ANTI), refused(9, "1 anti-affinity"))
    lines[1:1] = [pod(1, f"api-{n}", created=1, why=FULL) for n in range(30)]
    data = content(sorted(lines, key=lambda line: line.t), expect=[expect])
    (tmp_path / NAME).write_bytes(gzip.compress(data))
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "code", "texts"),
    [
        ([], 0, ["Deployment/default/api: 30 pods", "1 of 1: refused by the autoscaler"]),
        (["web-1"], 0, ["default/web-1 of Deployment", "unschedulable: 0/2 nodes", "9.0 s  clus"]),
        (["default/web-1"], 0, ["default/web-1 of Deployment"]),
        (["api"], 0, ["api: 30 pods", "default/api-0 of Deployment"]),
        (["deployment/web"], 0, ["default/web-1 of Deployment"]),
        (["statefulset/web"], 1, []),
        (["api-1"], 0, ["default/api-1 of Deployment"]),
        (["nobody\x1b[31m"], 1, []),
    ],
)
def test_why_answers(
    asked: list[str], code: int, texts: list[str], recorded: Path, capsys: Any
) -> None:
    assert main(["why", str(recorded), *asked]) == code
    out, err = capsys.readouterr()
    assert all(text in out for text in texts)
    assert bool(out) is (code == 0) and bool(err) is (code != 0)
    assert f"{out}{err}".replace("\n", "").isprintable()
    assert "default/api-11" not in out


def test_a_reader_that_has_seen_enough_is_no_error(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread, end = os.pipe()
    os.close(unread)
    with os.fdopen(end, "w") as shown:
        monkeypatch.setattr("sys.stdout", shown)
        assert main(["why", str(recorded)]) == 0


def test_a_recording_that_is_not_there_is_an_error(tmp_path: Path, capsys: Any) -> None:
    assert main(["why", str(tmp_path / "no\x1b[31mthing")]) == 2
    (tmp_path / NAME).write_bytes(b"{}")
    assert main(["why", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert not out and err.replace("\n", "").isprintable()


def test_a_recording_that_ends_before_its_run_is_answered_as_of_then(
    recorded: Path, capsys: Any
) -> None:
    data = gzip.decompress((recorded / NAME).read_bytes())
    for cut in (data[: data.rindex(b"{", 0, -2)], data[:-9]):
        (recorded / NAME).write_bytes(cut)
        assert main(["why", str(recorded), "web-1"]) == 0
        assert "ends at 9.0 s, before its run did" in capsys.readouterr().err


def test_a_failed_verdict_names_causes_of_what_it_is_about(recorded: Path) -> None:
    found = outputs.judge(recorded)
    (why,) = found.why
    assert re.search("default/web: 1 of 1: refused by the autoscaler.*to do: loosen", why)
    assert f"why    {why}" in summary(found)


def test_each_failed_expectation_has_its_own_causes_in_junit_xml(tmp_path: Path) -> None:
    lines = run(node(0, "n"), *waits(ANTI), pod(1, "api-1", created=1, why=FULL))
    none = {"figure": "pods.pending", "equals": 0}
    expect = [{**none, "of": {"workload": each}} for each in ("web", "api", "nobody")]
    expect += [none, {"figure": "nodes.final", "equals": 0}]
    parsed = [Expectation.model_validate(each) for each in expect]
    (tmp_path / NAME).write_bytes(content(lines, expect=parsed))
    found = outputs.judge(tmp_path)
    cases = ElementTree.fromstring(junit_xml(found)).iter("testcase")
    shown = {each.get("name"): each.findtext("failure", "").splitlines()[1:] for each in cases}
    workloads = [[line.partition(": ")[0] for line in each] for each in shown.values()]
    web, api = "Deployment/default/web", "Deployment/default/api"
    assert workloads == [[], [web], [api], [], [api, web], []]
    assert sorted(found.why) == sorted(shown["pods.pending: exactly 0, at the end"])
