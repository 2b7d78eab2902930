"""The names of figures in words: `churn.created` is "nodes created".

Scenarios and verdict.json have the raw names. A page shows both. A figure of an unknown family
keeps its raw name.
"""

from typing import Final

_FAMILIES: Final = {
    "pods.pending": "pods waiting",
    "pods.running": "pods running",
    "pods.succeeded": "pods that succeeded",
    "pods.failed": "pods that failed",
    "pods.orphaned": "pods on nodes that are gone",
    "pods.gone": "pods deleted",
    "pods.unserved": "pods that never had a node",
    "pendingSeconds": "wait for a node",
    "startSeconds": "wait to run",
    "wait.decision": "wait for the autoscaler's decision",
    "wait.boot": "wait for the node's boot",
    "wait.scheduling": "wait for the scheduler",
    "wait.start": "wait for containers to start",
    "gangs.completionSeconds": "time to complete a Job",
    "gangs.unfinished": "Jobs not completed",
    "gangs.waitingSeconds": "wait of a gang to run together",
    "gangs.broken": "gangs that lost pods",
    "gangs.crossRack": "pods outside of their gang's rack",
    "racks.total": "racks",
    "racks.free": "free racks",
    "largestGang.rack": "largest gang that would fit in one rack",
    "largestGang.block": "largest gang that would fit in one block",
    "largestGang.cluster": "largest gang that would fit in the cluster",
    "nodes": "nodes",
    "nodes.total": "nodes",
    "nodes.ready": "ready nodes",
    "nodes.notReady": "nodes not ready",
    "nodes.cordoned": "cordoned nodes",
    "nodes.deleting": "nodes being deleted",
    "nodeHours": "node-hours",
    "cost": "cost",
    "utilisation.cpu": "CPU in use",
    "utilisation.memory": "memory in use",
    "utilisation.gpu": "GPUs in use",
    "churn.created": "nodes created",
    "churn.deleted": "nodes deleted",
    "churn.replacedSameShape": "nodes replaced by a like one",
    "evictions": "pods evicted",
    "preemptions": "pods preempted",
    "losses": "pods lost with their node",
    "restarts": "restarts of containers",
    "disruptions.beyondBudget": "evictions beyond a budget",
    "disruptions.Underutilized": "NodeClaims ended as underutilized",
    "disruptions.Empty": "NodeClaims ended as empty",
    "disruptions.Drifted": "NodeClaims ended as drifted",
    "disruptions.Expired": "NodeClaims ended as expired",
    "nodeClaims.underWay": "NodeClaims under way",
    "nodeClaims.launched": "NodeClaims launched",
    "nodeClaims.registered": "NodeClaims registered",
    "nodeClaims.neverRegistered": "NodeClaims that never registered",
    "instances.NotReady": "instances no longer ready",
    "events": "Events",
    "warnings": "warnings",
}
_SUFFIXES: Final = {
    "max": "at most",
    "final": "at the end",
    "mean": "on average",
    "p50": "half of them at most",
    "p95": "95 % of them at most",
    "p99": "99 % of them at most",
}
_INSTANCES: Final = "instances."


def figure_in_words(name: str) -> str:
    """Returns the name of a figure in words, or the raw name if its family is unknown."""
    if name in _FAMILIES:
        return _FAMILIES[name]
    family, _, suffix = name.rpartition(".")
    if family and suffix in _SUFFIXES:
        return f"{figure_in_words(family)}, {_SUFFIXES[suffix]}"
    if name.startswith(_INSTANCES):
        return f"instances {name.removeprefix(_INSTANCES).lower()}"
    return name
