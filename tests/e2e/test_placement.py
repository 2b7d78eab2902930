"""Pods stand at the beginning of a rehearsal as its placement says, and the scheduler goes on."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from kwok_operator.formats.untyped import condition_of
from tests.e2e.rehearsals import GROUP, play

TOLERATED = [{"key": "kwok-provider", "operator": "Exists"}]
LATER = {"key": "later", "effect": "NoSchedule"}


def group(name: str, size: int, **shape: Any) -> dict[str, Any]:
    template = {"shape": {"cpu": 4, "memory": "16Gi", **shape}}
    return {**GROUP, "metadata": {"name": name}, "spec": {"targetSize": size, "template": template}}


def pods(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "fake", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"tolerations": TOLERATED, "containers": [container], **spec},
    }


def workload(kind: str, name: str, template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": template["spec"]}
    selector = {"matchLabels": template["metadata"]["labels"]}
    whole = {"selector": selector, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": whole}


HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1_000,
}
PAST = {"nodeSelector": {"pool": "of-the-past"}}
APPLY = [
    HIGH,
    group("general", 4),
    group("tainted", 1, taints=[LATER]),
    workload("ReplicaSet", "low", pods("low", "1"), replicas=4),
    workload("Deployment", "web", pods("web", "1", priorityClassName="high"), replicas=5),
    workload("StatefulSet", "db", pods("db", "100m"), replicas=3, serviceName="db"),
    workload("DaemonSet", "agent", pods("agent", "100m")),
    workload("Pod", "elsewhere", pods("elsewhere", "100m", **PAST)),
    workload("Pod", "alone", pods("alone", "100m", tolerations=[])),
    workload("Deployment", "huge", pods("huge", "7"), replicas=2),
]
PLACED: dict[str, Any] = {
    # Room for four of them: today's scheduler would evict the pods of `low`, or go elsewhere.
    "replicaset/low": {"general/0": 4},
    "deployment/web": {"general/0": 4, "general/1": 1},
    "daemonset/agent": {f"general/{n}": 1 for n in range(4)},
    "pod/elsewhere": {"general/3": 1},
    "pod/alone": {"tainted/0": 1},
    "deployment/huge": {"general/2": 1},
}
ORDINALS = {"0": "general/1", "1": "general/1", "2": "general/0"}
PLACEMENT = {
    "nodes": {"general/3": {"cordoned": True, "taints": [{"key": "own", "effect": "NoSchedule"}]}},
    "pods": [
        *({"what": what, "on": on} for what, on in PLACED.items()),
        {"what": "statefulset/db", "ordinals": ORDINALS},
    ],
}
LOOK = 'kubectl get pods,nodes,events -o json > "$REHEARSAL/seen.json"'
SCENARIO = {
    "apply": [{"object": each} for each in APPLY],
    "placement": PLACEMENT,
    "timeline": [
        {
            "after": {"figure": "pods.running", "of": {"workload": "late"}, "atLeast": 6},
            "run": {"command": ["sh", "-c", LOOK]},
        }
    ],
    "workloads": [{"name": "late", "count": 6, "pods": {"cpu": "100m"}}],
    "until": {"settledFor": "2s", "atMost": "3m"},
    "expect": [
        {"figure": "pods.pending", "equals": 1},
        {"figure": "preemptions", "equals": 0},
        {"figure": "warnings", "equals": 0},
    ],
}


def test_pods_stand_where_they_stood_and_the_scheduler_goes_on(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    path, output = tmp_path / "scenario.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(SCENARIO))
    played = play(path, output, reuse=own_cache)
    assert played.returncode == 0, played.stdout + played.stderr
    placed = sum(sum(on.values()) for on in PLACED.values()) + len(ORDINALS)
    assert f"pods on the nodes where they stood: {placed}" in played.stderr
    found = json.loads((output / "seen.json").read_text())["items"]
    nodes = sorted(each["metadata"]["name"] for each in found if each["kind"] == "Node")
    place = {name: f"{name.split('-')[0]}/{int(name[-6:])}" for name in nodes}
    stand: Counter[tuple[str, str]] = Counter()
    ordinals, late, pending = {}, set(), []
    for each in found:
        if each["kind"] != "Pod":
            continue
        name, at = each["metadata"]["name"], place.get(each["spec"].get("nodeName"))
        app = each["metadata"].get("labels", {}).get("app", name)
        if at is None:
            pending.append((app, condition_of(each, "PodScheduled").get("reason")))
        elif app == "db":
            ordinals[name.removeprefix("db-")] = at
        elif name.startswith("late"):
            late.add(at)
        else:
            stand[app, at] += 1
    assert stand == {
        (what.split("/")[1], at): count for what, on in PLACED.items() for at, count in on.items()
    }
    assert ordinals == ORDINALS
    assert pending == [("huge", "Unschedulable")]
    refused = (e["involvedObject"]["name"] for e in found if e.get("reason") == "FailedScheduling")
    # A scheduler that went on from where it was would look for places for pods that stand.
    assert {name.partition("-")[0] for name in refused} == {"huge"}
    # The node that is cordoned, full or tainted gets none.
    assert late <= {"general/1", "general/2"}
