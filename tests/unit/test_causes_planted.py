"""The cause of a pod whose wait was planted in a recording."""

import re

import pytest

from kwok_operator.causes.model import CauseKind
from kwok_operator.rehearsal.judge.recording import (
    CallLine,
    EventLine,
    GroupLine,
    GroupState,
    NodeClaimLine,
    PodLine,
    RecordedLine,
)
from tests.fakes.explained import (
    ANTI,
    FULL,
    SOLD_OUT,
    WEB,
    chains,
    claim,
    evicted,
    group,
    kept,
    refused,
    runs,
    says,
    scaled,
    waits,
)
from tests.fakes.rehearsed import gone, node, pod, run

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
            node(0, "older", created=0.0),
            node(0, "old", created=0.0),
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
    "a node of the name of its own": (
        [
            *waits(),
            node(0, "n"),
            pod(9, "web-1", created=1, node="n", bound=9),
            gone(10, "n"),
            node(20, "n", created=20.0),
            pod(30, "web-1", created=1, node="n", bound=9),
        ],
        CauseKind.STARTING,
        "that node is gone",
    ),
    "a failure after the last node came": (
        [
            *waits(),
            node(6, "n", ready=False, created=6.0),
            says(8, "FailedToScaleUpGroup", "Scale-up failed for group a: quota", "ConfigMap/k/s"),
            node(9, "n", created=6.0),
            refused(50, "1 in backoff after failed scale-up"),
        ],
        CauseKind.REFUSED,
        r"a: in backoff after failed scale-up \(quota\)",
    ),
    "the largest node isn't the last one": (
        [
            node(0, "n", allocatable={"cpu": 64_000.0}),
            node(0, "m"),
            *waits(requests={"cpu": 64_000.0}),
            refused(9, "1 Insufficient cpu"),
        ],
        CauseKind.REFUSED,
        "once it has room",
    ),
    "a node that was usable for longer isn't now": (
        [
            *waits(),
            scaled(5),
            node(20, "n1", created=20.0),
            node(22, "n2", created=22.0),
            node(30, "n1", created=20.0, schedulable=False),
        ],
        CauseKind.UNSCHEDULED,
        "n2 has been usable",
    ),
    "a NodeClaim of the same name": (
        [
            *waits(),
            claim(3),
            says(4, "Nominated", "Pod should schedule on: nodeclaim/c-1"),
            NodeClaimLine(6, "c-1", None),
            claim(8),
            EventLine(9, "Normal", "Launched", "NodeClaim//c-1", "karpenter", "fine"),
        ],
        CauseKind.CREATING,
        "NodeClaim c-1",
    ),
    "its node is kept for another reason": (
        [node(0, "n"), *runs(), says(60, "ScaleDownFailed", "timed out", "Node//n")],
        CauseKind.RUNNING,
        "ran after",
    ),
    "who reports an eviction isn't who evicts": (
        [
            node(0, "n"),
            *runs(),
            evicted("EvictionByEvictionAPI"),
            EventLine(59, "Normal", "Evicted", WEB, "kubelet", "no memory"),
        ],
        CauseKind.DISRUPTED,
        "through the eviction API $",
    ),
    "an autoscaler that speaks of others": (
        [*waits(), says(3, "ScaleDownEmpty", "removed", "Node//z")],
        CauseKind.UNKNOWN,
        "no Event is seen",
    ),
    "groups for others are named last of those that don't fit": (
        [
            *waits(),
            refused(9, "4 node(s) didn't match Pod's node affinity/selector, 1 Too many pods"),
        ],
        CauseKind.REFUSED,
        "fits the pod: 1 group: Too many pods; 4 groups",
    ),
    "the group that was chosen is named first": (
        [
            *waits(),
            scaled(5),
            group(8, says=SOLD_OUT),
            refused(9, "1 max node group size reached, 1 in backoff after failed scale-up"),
        ],
        CauseKind.REFUSED,
        "now: a: in backoff .*; 1 group: max .* end what makes [^;]*$",
    ),
    "a group without room for pods, and a large pod": (
        [
            node(0, "n"),
            *waits(requests={"cpu": 64_000.0}),
            refused(9, "1 in backoff after failed scale-up, 1 Too many pods"),
        ],
        CauseKind.REFUSED,
        "in backoff after failed scale-up add a group whose nodes take more pods$",
    ),
    "no node has the label, and a reason that may end": (
        [
            *waits("0/9 nodes are available: 9 node(s) didn't match Pod's node affinity/selector."),
            refused(9, "2 node(s) didn't match pod anti-affinity rules"),
        ],
        CauseKind.REFUSED,
        "anti-affinity",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_cause_is_the_one_that_was_planted(planted: str) -> None:
    lines, kind, text = PLANTED[planted]
    (chain,) = chains(run(*lines))
    assert (chain.pod, chain.cause.kind) == ("default/web-1", kind)
    assert re.search(text, f"{chain.cause.sentence} {chain.cause.remedy}"), chain.cause
    assert chain.waits is (kind not in {"running", "held", "disrupted", "ended"})
