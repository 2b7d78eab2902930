"""An import says where pods stood; what a rehearsal makes of that is the same again."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.importing import folder
from kwok_operator.importing.anonymizing import anonymized
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.incidents.placement import ImportedPlacement, as_json, placement_of
from kwok_operator.importing.incidents.scenario import ScenarioParts, scenario_of
from kwok_operator.importing.ledger import ledger_of
from kwok_operator.importing.nodes.grouping import Nodes
from kwok_operator.importing.notes import Note, Reason
from kwok_operator.importing.pods.workloads import Workloads
from kwok_operator.rehearsal.loading import load_scenario
from kwok_operator.rehearsal.scenario.placement import Placement, placement_in
from kwok_operator.rehearsal.seats import Seats, names_of_places, workloads_of
from kwok_operator.rehearsal.surroundings import LocalSurroundings
from tests.importedpods import SELECTOR, body_of, owned_by, pod

Object = tuple[str, Any]
SINCE = "2026-01-02T03:04:05Z"
POOL = "cloud.google.com/gke-nodepool"
STEP = {"delete": {"what": "pod/alone", "namespace": "shop"}}
TAINT = {"key": "maintenance", "value": "disk", "effect": "NoSchedule"}


def pool_node(name: str, pool: str, **spec: Any) -> Object:
    offered = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    status = {"capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    return "Node", {
        "metadata": {"name": name, "labels": {POOL: pool}},
        "spec": spec,
        "status": {**status, "allocatable": offered},
    }


def workload(kind: str, name: str, replicas: int = 1, **more: Any) -> Object:
    template: dict[str, Any] = {"spec": {"containers": [{}]}}
    spec = {"replicas": replicas, "selector": SELECTOR, "template": template}
    return kind, body_of(name, spec, **more)


def of(kind: str, owner: str, name: str, at: str = "", **more: Any) -> Object:
    phase = "Running" if at else "Pending"
    owned = owned_by(kind, owner)
    return pod(
        name, owner=owned, spec={"nodeName": at, **more.pop("spec", {})}, phase=phase, **more
    )


def read(
    *objects: Object,
) -> tuple[list[dict[str, Any]], ImportedPlacement, list[Note]]:
    nodes, workloads = Nodes(), Workloads()
    for kind, body in objects:
        if kind == "Node":
            nodes.add(body)
        else:
            workloads.add(kind, body)
    grouped = nodes.finish()
    imported = workloads.finish(places=grouped.places)
    placement, notes = placement_of(imported.locations, nth=grouped.nth, barriers=grouped.barriers)
    return [*grouped.manifests, *imported.manifests], placement, notes


CLUSTER: list[Object] = [
    pool_node("x-2", "a", taints=[TAINT]),
    pool_node("x-1", "a"),
    pool_node("x-3", "a", unschedulable=True),
    pool_node("w-1", "b", taints=[TAINT]),
    pool_node("master", "c", taints=[
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    ]),
    workload("Deployment", "web", 4),
    workload("ReplicaSet", "web-1", 4, owner=owned_by("Deployment", "web")),
    workload("StatefulSet", "db", 3),
    of("ReplicaSet", "web-1", "web-1-a", "x-2"),
    of("ReplicaSet", "web-1", "web-1-b", "x-2"),
    of("ReplicaSet", "web-1", "web-1-c", creationTimestamp="2026-01-02T04:04:05+01:00"),
    of("ReplicaSet", "web-1", "web-1-d", "master"),
    of("StatefulSet", "db", "db-2", "w-1"),
    of("StatefulSet", "db", "db-10", "x-1"),
    of("StatefulSet", "db", "db-0", creationTimestamp="canary"),
    pod("alone", spec={"nodeName": "x-3"}),
    pod("ended", spec={"nodeName": "x-3"}, phase="Succeeded"),
]  # fmt: skip


def test_each_pod_has_the_nth_node_of_its_group() -> None:
    _, placement, notes = read(*CLUSTER)
    assert as_json(placement) == {
        "writer": "kwok-operator import",
        "format": 1,
        "nodes": {"a/1": {"taints": [TAINT]}, "a/2": {"cordoned": True}},
        "pods": [
            {"what": "deployment/web", "namespace": "shop", "on": {"a/1": 2}, "pending": [SINCE]},
            {"what": "pod/alone", "namespace": "shop", "on": {"a/2": 1}},
            {
                "what": "statefulset/db",
                "namespace": "shop",
                "ordinals": {"2": "b/0", "10": "a/0"},
                "pending": [""],
            },
        ],
    }
    said = {(str(note.ref), note.reason): (note.count, note.detail) for note in notes}
    assert said == {
        ("Deployment shop/web", Reason.STOOD_ELSEWHERE): (1, ""),
        ("Deployment shop/web", Reason.PENDING): (1, f"the oldest since {SINCE}"),
        ("StatefulSet shop/db", Reason.PENDING): (1, ""),
    }


def test_pods_of_owners_that_are_not_there_stand_as_what_they_become() -> None:
    """A snapshot of cluster-autoscaler has neither DaemonSets nor their templates."""

    def of_daemon(at: str) -> Object:
        fields = [{"key": "metadata.name", "operator": "In", "values": [at]}]
        required = {"nodeSelectorTerms": [{"matchFields": fields}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return of("DaemonSet", "agent", f"agent-{at}", at, spec={"affinity": affinity})

    manifests, placement, _ = read(
        *CLUSTER[:4],
        pool_node("without-daemons", "c"),
        *(of_daemon(at) for at in ("x-1", "x-2", "w-1")),
        *(of("SparkJob", "spark", f"spark-{n}", "w-1") for n in range(2)),
        *(of("StatefulSet", "db", f"db-{n}", at) for n, at in ((3, "x-1"), (1, ""), (2, "w-1"))),
    )
    made = {m["kind"]: m for m in manifests}
    on = {each["what"].partition("/")[0]: each for each in as_json(placement)["pods"]}
    assert on["daemonset"]["what"] == "daemonset/agent"
    assert on["daemonset"]["on"] == {"a/0": 1, "a/1": 1, "b/0": 1}
    assert on["replicaset"]["on"] == {"b/0": 2}
    assert on["statefulset"] == {
        "what": "statefulset/db",
        "namespace": "shop",
        "ordinals": {"2": "b/0", "3": "a/0"},
        "pending": [""],
    }
    assert made["StatefulSet"]["spec"]["replicas"] == 3
    assert made["StatefulSet"]["spec"]["ordinals"] == {"start": 1}
    affinity = made["DaemonSet"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    ((term,),) = (each["nodeSelectorTerms"] for each in affinity.values())
    assert term == {
        "matchExpressions": [{"key": NODE_GROUP_LABEL, "operator": "In", "values": ["a", "b"]}]
    }


def made_anew(manifests: list[dict[str, Any]], sets: list[str]) -> list[dict[str, Any]]:
    """The pods that controllers make of the manifests, in any order."""
    pods = []
    for each in manifests:
        if each["kind"] in ("KwokNodeGroup", "Namespace"):
            continue
        name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
        if each["kind"] == "Pod":
            pods.append(each)
            continue
        owner = {"kind": each["kind"], "name": name, "uid": name, "controller": True}
        for number in range(each["spec"]["replicas"]):
            suffix = number if each["kind"] == "StatefulSet" else random.randrange(10**9)
            owners = {"ownerReferences": [owner]}
            if each["kind"] == "Deployment":
                sets.append(name)
                owners = {"ownerReferences": [owner | {"kind": "ReplicaSet", "uid": f"{name}-rs"}]}
            pods.append(
                {"metadata": {"name": f"{name}-{suffix}", "namespace": namespace, **owners}}
            )
    random.shuffle(pods)
    return pods


@pytest.mark.parametrize("seed", range(20))
def test_a_rehearsal_puts_as_many_pods_of_a_workload_on_each_node(seed: int) -> None:
    draws = random.Random(seed)
    names = [f"{pool}-{n}" for pool in ("a", "b") for n in range(draws.randrange(1, 5))]
    objects = [pool_node(name, name[0]) for name in names]
    stood: Counter[tuple[str, str]] = Counter()
    for number in range(draws.randrange(1, 8)):
        kind = draws.choice(["Deployment", "StatefulSet", "Pod", "ReplicaSet"])
        name, replicas = f"w{number}", draws.randrange(1, 6)
        at = [draws.choice([*names, ""]) for _ in range(1 if kind == "Pod" else replicas)]
        stood.update((name if kind != "StatefulSet" else f"{name}-{n}", each)
                     for n, each in enumerate(at) if each)  # fmt: skip
        if kind == "Pod":
            objects.append(pod(name, spec={"nodeName": at[0]}))
            continue
        objects.append(workload(kind, name, replicas))
        owner = (kind, name)
        if kind == "Deployment":
            objects.append(workload("ReplicaSet", f"{name}-rs", 1, owner=owned_by(*owner)))
            owner = ("ReplicaSet", f"{name}-rs")
        objects += [of(*owner, f"{name}-{n}", each) for n, each in enumerate(at)]
    manifests, placement, _ = read(*objects)
    # Other names, in the same order.
    nodes = [
        {"metadata": {"name": f"{n[0]}-xyz-{n[2:]}", "labels": {NODE_GROUP_LABEL: n[0]}}}
        for n in draws.sample(names, len(names))
    ]
    seats = Seats(placement_in(json.dumps(as_json(placement))), names_of_places(nodes))
    sets: list[str] = []
    pods = made_anew(manifests, sets)
    replica_sets = [body_of(f"{name}-rs", owner=owned_by("Deployment", name)) for name in set(sets)]
    stand: Counter[tuple[str, str]] = Counter()
    for each, owner_of in workloads_of(pods, replica_sets):
        if found := seats.take(each, owner_of):
            of_set = owner_of.kind == "statefulset"
            named = each["metadata"]["name"] if of_set else owner_of.name
            stand[named, found.replace("-xyz", "")] += 1
    assert stand == stood
    assert not seats.left and not seats.nowhere


def test_what_is_not_there_is_left_to_the_scheduler() -> None:
    value = {"pods": [{"what": "deployment/web", "on": {"a/0": 2, "a/1": 3}}]}
    nodes = [{"metadata": {"name": "a-0", "labels": {NODE_GROUP_LABEL: "a"}}}]
    seats = Seats(Placement.model_validate(value), names_of_places(nodes))
    owner = owned_by("Deployment", "web")
    pods = [body_of("web-1", owner=owner, namespace="default"), body_of("x", namespace="default")]
    found = [seats.take(each, workload) for each, workload in workloads_of(pods, [])]
    assert found == ["a-0", None]
    assert seats.nowhere == {"a/1": 3}
    assert {str(workload): count for workload, count in seats.left.items()} == {
        "deployment default/web": 1
    }


def test_under_other_names_the_same_pods_stand_together(tmp_path: Path) -> None:
    manifests, placement, notes = read(*CLUSTER)
    others, _, _, renamed = anonymized(manifests, notes, [], placement, Anonymizer(b"k" * 32))
    before, after = as_json(placement), as_json(renamed)
    assert not {"web", "db", "alone", "maintenance"} & set(json.dumps(after).split('"'))
    names = {(m["kind"].lower(), m["metadata"]["name"]) for m in others}
    assert {tuple(each["what"].split("/")) for each in after["pods"]} <= names
    groups = {name for kind, name in names if kind == "kwoknodegroup"}
    assert {place.split("/")[0] for each in after["pods"] for place in each.get("on", {})} <= groups
    shapes = [
        sorted((sorted(e.get("on", {}).values()), len(e.get("ordinals", ()))) for e in v["pods"])
        for v in (before, after)
    ]
    assert shapes[0] == shapes[1]


def test_a_long_file_that_continues_in_another_is_applied_whole() -> None:
    files = ["karpenter.yaml", "ledger.md", "namespaces/shop.yaml", "namespaces/shop.2.yaml"]
    files += ["nodegroups.yaml", "nodegroups.2.yaml"]
    scenario = scenario_of(files, placement=ImportedPlacement((), {}), parts=ScenarioParts())
    assert scenario["apply"] == ["nodegroups.2.yaml", "nodegroups.yaml", "namespaces"]


def test_the_scenario_of_a_folder_can_be_played(tmp_path: Path) -> None:
    manifests, placement, notes = read(*CLUSTER)
    files = folder.files_of(
        manifests, ledger_of(read={}, manifests=manifests, notes=notes, unread=[])
    )
    remarks = [f"May differ: {number}." for number in range(300)]
    parts = ScenarioParts(autoscaler={"expander": "price"}, steps=[STEP], remarks=remarks)
    scenario = scenario_of(files, placement=placement, parts=parts)
    assert "May differ: 99." in scenario["teaches"]
    files |= folder.scenario_files(scenario, as_json(placement))
    for _ in range(2):  # the second replaces the first
        folder.write(tmp_path / "out", files)
    path = tmp_path / "out" / "scenario.yaml"
    found = load_scenario(path, LocalSurroundings(path, programs_later=True))
    assert found.findings == ()
    written = yaml.safe_load(path.read_text())
    assert written["apply"] == ["cluster.yaml", "nodegroups.yaml", "namespaces"]
    assert written["expect"] == [{"figure": "pods.pending", "atMost": 2}]
    others = LocalSurroundings(path, own_cluster=False, programs_later=True)
    (finding,) = load_scenario(path, others).findings
    assert "placement: is for a cluster that is made" in finding.message
    (tmp_path / "out" / "placement.json").write_text('{"pods": [{"what": "web"}]}')
    (finding,) = load_scenario(path, LocalSurroundings(path, programs_later=True)).findings
    assert "placement: 'placement.json' has a mistake: pods[0].what: 'web' must be KIND/NAME" in (
        finding.message
    )
