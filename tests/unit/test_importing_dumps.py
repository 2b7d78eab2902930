"""`import --from`: files in place of a cluster.

The four forms give the same as the cluster itself; what is wrong with them is said.
"""

import asyncio
import gzip
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.cli.main import main
from kwok_operator.formats.times import parse_time
from kwok_operator.importing.dumpfacts import DumpForm
from kwok_operator.importing.incidents.dump import read_dump
from kwok_operator.importing.incidents.files import DumpError, files_in
from kwok_operator.importing.incidents.spool import Spool
from kwok_operator.importing.pods.objects import clean_object
from kwok_operator.importing.reading import Reading
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.reporter import Reporter

SECRET = "canary-9f3e"
EVICTED = {"effect": "NoExecute", "tolerationSeconds": 300}
AT = "2026-11-26T10:00:00Z"


def node(name: str, pool: str = "blue", *, cpu: str = "4", zone: str = "a") -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    labels = {"nodepool": pool, "topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    metadata = {"name": name, "uid": f"node-{name}", "labels": labels, "creationTimestamp": AT}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata | {"annotations": {"acme/password": SECRET}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
            "images": [{"names": [SECRET]}],
        },
    }


def pod(name: str, node: str = "", *, owner: str = "", template: bool = False) -> dict[str, Any]:
    """`owner` is KIND/NAME. A pod of CA's templates doesn't say the version of its owner."""
    kind, _, of = owner.partition("/")
    reference = {"apiVersion": "" if template else "apps/v1", "kind": kind, "name": of}
    container = {
        "name": SECRET,
        "image": SECRET,
        "env": [{"name": SECRET, "value": SECRET}],
        "args": [SECRET],
        "resources": {"requests": {"cpu": "1"}},
        "livenessProbe": {"exec": {"command": [SECRET]}},
    }
    metadata = {"name": name, "namespace": "shop", "uid": f"pod-{name}", "creationTimestamp": AT}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata
        | {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET}}
        | ({"ownerReferences": [reference | {"uid": owner, "controller": True}]} if of else {}),
        "spec": {
            "containers": [container],
            "volumes": [{"name": SECRET, "secret": {"secretName": SECRET}}],
            "serviceAccountName": SECRET,
            "priorityClassName": "urgent",
            "priority": 1000,
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", **EVICTED}
                for key in ("not-ready", "unreachable")
            ],
        }
        | ({"nodeName": node} if node else {}),
        "status": {"phase": "Running" if node else "Pending", "message": SECRET},
    }


def deployment(name: str) -> dict[str, Any]:
    made = pod("")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": f"Deployment/{name}"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": made["spec"]},
        },
    }


def replica_set(name: str, of: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": of, "uid": f"Deployment/{of}"}
    made = deployment(name)
    metadata = {"uid": f"ReplicaSet/{name}", "ownerReferences": [owner | {"controller": True}]}
    return {**made, "kind": "ReplicaSet", "metadata": made["metadata"] | metadata}


SECRETS = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "namespace": "shop"},
    "data": {"a": SECRET},
}
CLUSTER = [
    # Pods before what owns them, as in `kubectl get pods,rs,deploy`.
    pod("web-1", "n1", owner="ReplicaSet/web-x"),
    pod("web-2", owner="ReplicaSet/web-x"),
    pod("alone", "n2"),
    replica_set("web-x", "web"),
    deployment("web"),
    node("n1"),
    node("n2"),
    SECRETS,
]
SNAPSHOT = {
    "NodeList": [
        {"Node": node("n1"), "Pods": [pod("web-1", "n1", owner="ReplicaSet/web-x")]},
        {
            "Node": node("n2"),
            "Pods": [pod("alone", "n2"), pod("ds", "n2", owner="DaemonSet/agent")],
        },
        {"Node": node("template-node-for-asg-red-7-upcoming-0", "red"), "Pods": [pod("fake", "x")]},
    ],
    "UnscheduledPodsCanBeScheduled": [pod("web-2", owner="ReplicaSet/web-x")],
    "StartTimestamp": "2026-11-26T10:01:00.123456789Z",
    "EndTimestamp": "2026-11-26T10:01:30.123456789Z",
    "TemplateNodes": {
        "asg-blue": {"Node": node("template-node-for-asg-blue-7"), "Pods": None},
        "asg-red": {
            "Node": node("template-node-for-asg-red-7", "red"),
            "Pods": [
                pod("ds-7", "template-node-for-asg-red-7", owner="DaemonSet/agent", template=True)
            ],
        },
    },
}


def listed(objects: list[dict[str, Any]], kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "items": objects, "kind": kind, "metadata": {}}


def of_kind(kind: str) -> list[dict[str, Any]]:
    """Objects as a typed list has them: without their kind."""
    found = [each for each in CLUSTER if each["kind"] == kind]
    return [{k: v for k, v in each.items() if k not in ("kind", "apiVersion")} for each in found]


def cluster_info() -> str:
    """The stream of `kubectl cluster-info dump`: typed lists, and logs between them."""
    lists = [
        {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": of_kind(kind)}
        for kind, version in (
            *(("Node", "v1"), ("Event", "v1"), ("Deployment", "apps/v1")),
            *(("ReplicaSet", "apps/v1"), ("Pod", "v1")),
        )
    ]
    log = (
        f"==== START logs for container c of pod shop/a ====\n{{ {SECRET}\n==== END logs for ====\n"
    )
    return "\n".join(json.dumps(each, indent=4) for each in lists) + "\n" + log * 2


def must_gather(folder: Path) -> Path:
    """The folders of `oc adm must-gather`: lists whose kind comes last, and an object twice."""
    root = folder / "registry-sha256" / "namespaces" / "shop"
    files = {
        root / "core" / "pods.yaml": {
            "items": of_kind("Pod"),
            "apiVersion": "v1",
            "kind": "PodList",
        },
        root / "apps" / "deployments.yaml": listed(of_kind("Deployment"), "DeploymentList")
        | {"apiVersion": "apps/v1"},
        root / "apps" / "replicasets.yaml": listed(of_kind("ReplicaSet"), "ReplicaSetList")
        | {"apiVersion": "apps/v1"},
        root / "pods" / "alone" / "alone.yaml": CLUSTER[2],
        root / "core" / "secrets.yaml": listed([SECRETS], "SecretList"),
    }
    for name in ("n1", "n2"):
        path = folder / "registry-sha256" / "cluster-scoped-resources" / "core" / "nodes"
        files[path / f"{name}.yaml"] = next(n for n in CLUSTER if n["metadata"]["name"] == name)
    for path, value in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("---\n" + yaml.safe_dump(value, sort_keys=False))
    log = root / "pods" / "cluster-autoscaler-1" / "logs" / "current.log"
    log.parent.mkdir(parents=True)
    log.write_text(SECRET)
    return folder


def forms(folder: Path) -> dict[str, Path]:
    texts = {
        "list.json": json.dumps(listed(CLUSTER), indent=4),
        "list.yaml": yaml.safe_dump(listed(CLUSTER)),
        "documents.txt": yaml.safe_dump_all(CLUSTER),
        "lines.json": "\n".join(map(json.dumps, CLUSTER)),
        "array.json": json.dumps(CLUSTER),
        "windows.json": "\ufeff" + json.dumps(listed(CLUSTER)),
        "stream": cluster_info(),
    }
    paths = {name: folder / name for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text, encoding="utf-16-le" if name == "windows.json" else "utf-8")
    paths["gzip"] = folder / "gzip"
    paths["gzip"].write_bytes(gzip.compress(texts["list.yaml"].encode()))
    return paths | {"must-gather": must_gather(folder / "gathered")}


def run(*flags: str) -> int:
    return main(["import", *flags])


def written(folder: Path, *names: str) -> dict[str, str]:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name not in names]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def groups(folder: Path) -> dict[str, Mapping[str, Any]]:
    documents = yaml.safe_load_all((folder / "nodegroups.yaml").read_text())
    return {each["metadata"]["name"]: each["spec"] for each in documents}


def ledger(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "ledger.json").read_text())
    return found


async def read(*paths: Path) -> Reading:
    reading = Reading(ImportSettings(output=Path("unused"), dumps=paths))
    await read_dump(paths, reading, reporter=Reporter(io.StringIO()))
    return reading


def test_every_form_gives_the_same_and_no_secret(tmp_path: Path) -> None:
    outputs = {}
    for name, path in forms(tmp_path).items():
        output = tmp_path / f"out-{name}"
        assert run("--from", str(path), "--output", str(output)) == 0, name
        outputs[name] = written(output, "ledger.md", "ledger.json")
        assert SECRET not in "".join(written(output).values())
        # The API server there sets how long pods stay on nodes that are lost.
        assert "tolerationSeconds" not in "".join(written(output).values())
        assert ledger(output)["read"]["Pod"] == 3
    first = outputs["list.json"]
    assert "kind: Deployment" in first["namespaces/shop.yaml"]
    assert [name for name, files in outputs.items() if files != first] == []


def test_a_snapshot_has_the_groups_of_the_autoscaler(tmp_path: Path) -> None:
    path, output = tmp_path / "snapshotz", tmp_path / "out"
    path.write_text(json.dumps(SNAPSHOT))
    assert run("--from", str(path), "--output", str(output), "--max-size", "x2") == 0
    found = groups(output)
    assert {name: spec["targetSize"] for name, spec in found.items()} == {
        "asg-blue": 2,
        "asg-red": 0,
    }
    assert found["asg-red"]["template"]["shape"]["labels"] == {"nodepool": "red"}
    text = (output / "namespaces" / "shop.yaml").read_text()
    assert SECRET not in "".join(written(output).values())
    kinds = {each["kind"]: each for each in yaml.safe_load_all(text)}
    # The DaemonSet is known by its pods only: on a node, and in the template of an empty group.
    spec = kinds["DaemonSet"]["spec"]["template"]["spec"]
    assert "nodeSelector" not in spec and "affinity" not in spec
    assert kinds["ReplicaSet"]["spec"]["replicas"] == 2
    assert kinds["ReplicaSet"]["spec"]["template"]["spec"]["priorityClassName"] == "urgent"
    assert "value: 1000" in (output / "cluster.yaml").read_text()
    assert "PendingUnknown" in {note["reason"] for note in ledger(output)["changed"]}
    coming = next(n for n in ledger(output)["dropped"] if n["reason"] == "NodeComing")
    assert coming["name"] == "asg-red"


async def test_facts_say_form_and_moment_and_ages(tmp_path: Path) -> None:
    (tmp_path / "snapshot").write_text(json.dumps(SNAPSHOT))
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "shop"},
        "source": {"component": "cluster-autoscaler"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-2"},
        "reason": "NotTriggerScaleUp",
        "message": "pod didn't trigger scale-up: 1 max node group size reached",
        "lastTimestamp": AT,
        "count": 3,
    }
    (tmp_path / "events.yaml").write_text(yaml.safe_dump(listed([event])))
    facts = (await read(tmp_path / "snapshot", tmp_path / "events.yaml")).facts
    assert set(facts.forms.values()) == {DumpForm.SNAPSHOT, DumpForm.OBJECTS}
    assert facts.taken == parse_time(SNAPSHOT["EndTimestamp"])  # type: ignore[arg-type]
    assert [(each.name, each.schedulable) for each in facts.pending] == [("web-2", True)]
    assert [(e.reason, e.name, e.count, e.last) for e in facts.events] == [
        ("NotTriggerScaleUp", "web-2", 3, parse_time(AT))
    ]
    folder = must_gather(tmp_path / "gathered")
    (folder / "cluster-autoscaler.log").symlink_to("/dev/zero")
    gathered = (await read(folder)).facts
    assert [path.name for path in gathered.logs] == ["current.log"]
    assert gathered.forms == {tmp_path / "gathered": DumpForm.MUST_GATHER}
    assert gathered.taken == parse_time(AT)


async def test_a_snapshot_decides_which_nodes_there_are(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps(listed([node("n2", "green"), node("n3")])))
    (tmp_path / "snapshot").write_text(json.dumps(SNAPSHOT))
    reading = await read(tmp_path / "snapshot", tmp_path / "nodes.json")
    grouped = reading.nodes.finish()
    sizes = {m["metadata"]["name"]: m["spec"]["targetSize"] for m in grouped.manifests}
    assert sizes == {"asg-blue": 2, "asg-red": 0}
    assert [note.ref.name for note in grouped.notes if note.reason == "NotInSnapshot"] == ["n3"]


CUT = json.dumps(listed(CLUSTER), indent=1)
CUT_YAML = yaml.safe_dump(listed(CLUSTER))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CUT[: CUT.index('"alone"')], "cut off"),
        (CUT_YAML[: CUT_YAML.index("name: alone")], "cut off"),
        (CUT.replace('"alone"', "alone"), "is not JSON"),
        (gzip.compress(CUT.encode() + b" " * 2**17)[:-30], "cut off"),
    ],
)
def test_what_is_whole_of_a_damaged_file_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, said: str
) -> None:
    path, output = tmp_path / "dump", tmp_path / "out"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run("--from", str(path), "--output", str(output)) == 1
    assert said in "".join(capsys.readouterr())
    (unread,) = (each for each in ledger(output)["unread"] if each["needed"])
    assert said in unread["reason"]
    assert ledger(output)["read"]["Pod"] >= 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe\x00", "it is no text"),
        (b"PK\x03\x04 ", "unpack it"),
        (b"I1126 10:00:00 a.go:1] a log", "is no object, but a single value"),
        (b'{"a": 1}', "is no object of Kubernetes"),
        (b'{"kind": "Status", "status": "Failure", "message": "nodes is forbidden"}', "forbidden"),
        (
            b'{"NodeList":null,"Error":"Unable to collect any data","StartTimestamp":"x"}',
            "Unable to",
        ),
        (b"kind: Widget\nmetadata: {name: a}\n", "no file has an object"),
        (b"[" * 100_000, "nests too deep"),
        (b"a: &a [1,1]\nb: " + b"[*a]" * 1, "is no object of Kubernetes"),
    ],
)
def test_a_file_without_anything_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    path, output = tmp_path / "dump", tmp_path / "out"
    path.write_bytes(content)
    assert run("--from", str(path), "--output", str(output)) == 2
    error = "".join(capsys.readouterr())
    assert said in error and "cluster-info dump" in error and "Traceback" not in error
    assert not output.exists()


def test_flags_that_contradict_each_other_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--from", str(tmp_path / "no"), "--output", str(tmp_path / "out")) == 2
    assert "there is no such file" in capsys.readouterr().err
    flags = ("--from", "x", "--context", "y", "--output", "z")
    assert run(*flags) == 2
    assert "give only one" in capsys.readouterr().err


def test_no_name_is_left_after_anonymize(tmp_path: Path) -> None:
    names = ("n1", "n2", "web", "shop", "asg", "urgent", "agent", "red", "blue", "alone")
    for name, value in {"snapshot": SNAPSHOT, "list.json": listed(CLUSTER)}.items():
        path = tmp_path / name
        path.write_text(json.dumps(value))
        output = tmp_path / f"out-{name}"
        assert run("--from", str(path), "--output", str(output), "--anonymize") == 0
        text = "\n".join(f"{file}\n{text}" for file, text in written(output).items())
        words = set(re.findall(r"[A-Za-z0-9]+", re.sub(r"n-[a-z2-7]{8,}", "", text)))
        assert words.isdisjoint(names), words & set(names)


def test_an_output_in_the_folder_that_is_read_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(json.dumps(listed(CLUSTER)))
    flags = ("--from", str(tmp_path), "--output", str(tmp_path / "out"), "--anonymize")
    made = []
    for _ in range(2):
        assert run(*flags) == 0
        made.append(written(tmp_path / "out", "ledger.json", "ledger.md"))
    assert made[0] == made[1]


def test_an_autoscaler_of_a_dump_sees_what_it_saw(tmp_path: Path) -> None:
    cpu: dict[str, Any] = {"name": "cpu", "current": {"averageValue": "350m"}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    wanted = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    scaled = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": target,
            "maxReplicas": 9,
            "metrics": [{"type": "Resource", "resource": wanted}],
        },
        "status": {"currentMetrics": [{"type": "Resource", "resource": cpu}]},
    }
    path, output = tmp_path / "dump.json", tmp_path / "out"
    path.write_text(json.dumps(listed([*CLUSTER, scaled])))
    assert run("--from", str(path), "--output", str(output), "--hpas", "metrics") == 0
    assert ledger(output)["written"]["HorizontalPodAutoscaler"] == 1


def test_what_is_wrong_with_many_parts_of_a_file_is_said_once(tmp_path: Path) -> None:
    folder, output = tmp_path / "dump", tmp_path / "out"
    folder.mkdir()
    (folder / "all.json").write_text(json.dumps(listed(CLUSTER)))
    (folder / "more.json").write_text(json.dumps([{"name": "a"}] * 30))
    assert run("--from", str(folder), "--output", str(output)) == 0
    found = [each["reason"] for each in ledger(output)["unread"] if each["kind"] == "File"]
    assert found[0].endswith("it has no kind") and found[1].endswith("29 more of this kind")
    assert len(found) == 2


def test_objects_of_other_kinds_and_versions_are_named(tmp_path: Path) -> None:
    budget = {
        "apiVersion": "policy/v1beta1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    job = {"apiVersion": "batch.volcano.sh/v1", "kind": "Job", "metadata": {"name": "a"}}
    path, output = tmp_path / "dump.json", tmp_path / "out"
    moved = pod("alone", "n1")
    foreign = {"apiVersion": "acme.example/v1", "kind": "Node", "metadata": {"name": "n1"}}
    path.write_text(json.dumps(listed([foreign, *CLUSTER, budget, job, moved])))
    assert run("--from", str(path), "--output", str(output)) == 0
    found = ledger(output)
    notes = {(n["reason"], n["kind"]) for n in [*found["dropped"], *found["changed"]]}
    assert {("OtherVersion", "PodDisruptionBudget"), ("OtherKind", "Job")} <= notes
    assert ("TwoMoments", "Pod") in notes
    assert found["written"]["PodDisruptionBudget"] == 1
    assert found["read"]["Node"] == 2


AUTOSCALER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "ca", "namespace": "kube-system", "uid": "ca"},
    "spec": {
        "nodeName": "n1",
        "containers": [{"command": ["./cluster-autoscaler", "--nodes=1:9:asg-red"], "name": "ca"}],
    },
}
STATUS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
    "data": {
        "status": "nodeGroups:\n- name: asg-blue\n  health: {minSize: 1, maxSize: 7}\n",
        "other": SECRET,
    },
}


async def test_bounds_of_openshift_are_read(tmp_path: Path) -> None:
    size = "machine.openshift.io/cluster-api-autoscaler-node-group"
    machine_set = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {
            "name": "worker-a",
            "namespace": "openshift-machine-api",
            "annotations": {f"{size}-min-size": "1", f"{size}-max-size": "6"},
        },
        "spec": {"replicas": 2, "template": {"spec": {"providerSpec": {"value": {}}}}},
    }
    of_set = node("n1")
    of_set["metadata"]["labels"].pop("nodepool")
    machine = {"machine.openshift.io/machine": "openshift-machine-api/worker-a-x2b4c"}
    of_set["metadata"]["annotations"] = machine
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([machine_set, of_set]))
    reading = await read(tmp_path / "all.yaml")
    (group,) = reading.nodes.finish(bounds=reading.bounds).manifests
    assert group["spec"]["autoscaling"] == {"minSize": 1, "maxSize": 6}


def test_bounds_come_from_flags_and_status(tmp_path: Path) -> None:
    path, output = tmp_path / "snapshot", tmp_path / "out"
    path.write_text(json.dumps(SNAPSHOT))
    foreign = {"metadata": {"name": STATUS["metadata"]["name"], "namespace": "tenant"}}
    text = STATUS["data"]["status"].replace("7", "999")
    tenant = {**STATUS, **foreign, "data": {"status": text}}
    (tmp_path / "more.json").write_text(json.dumps([tenant, AUTOSCALER, STATUS, tenant]))
    more = ("--from", str(tmp_path / "more.json"))
    assert run("--from", str(path), *more, "--output", str(output)) == 0
    bounds = {name: spec["autoscaling"] for name, spec in groups(output).items()}
    assert bounds == {
        "asg-blue": {"minSize": 1, "maxSize": 7},
        "asg-red": {"minSize": 1, "maxSize": 9},
    }
    assert SECRET not in "".join(written(output).values())


async def test_a_signal_is_heard_while_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(listed([pod(f"p{n}", "n1") for n in range(2_000)])))
    task = asyncio.create_task(read(path))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_waits_has_no_secrets_and_is_cleaned_to_the_same() -> None:
    job = {"metadata": {"name": "j", "namespace": "shop"}, "spec": deployment("j")["spec"]}
    cron = {"metadata": job["metadata"], "spec": {"schedule": "* * * * *", "jobTemplate": job}}
    objects = [*CLUSTER[:5], {"kind": "Job", **job}, {"kind": "CronJob", **cron}]
    for each in objects:
        with Spool() as spool:
            spool.add(each["kind"], each)
            (kept,) = spool.taken(each["kind"])
        assert clean_object(each["kind"], kept) == clean_object(each["kind"], each)
        harmless = re.compile(f"'(name|image|serviceAccountName)': '{SECRET}'")
        assert SECRET not in harmless.sub("", str(kept))


async def test_hostile_objects_do_no_harm(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(240):
        deep = {"spec": {"template": deep}}
    odd: list[Any] = [
        {"kind": "Deployment", "metadata": {"name": "a", "namespace": "b"}} | deep,
        {"kind": "Pod", "metadata": [1], "spec": "x", "status": {"conditions": [1, None]}},
        {"kind": "Node", "metadata": {"name": {"a": 1}}},
        {"kind": "Event", "source": 3, "involvedObject": [], "count": "x"},
        {"kind": "Pod", "metadata": {"name": "\ud800", "namespace": "b", "annotations": 3}},
        {"kind": "MachineDeployment", "apiVersion": "cluster.x-k8s.io/v1beta1", "spec": 3},
        {"kind": "ConfigMap", "metadata": {"name": "cluster-autoscaler-status"}, "data": 3},
        *({"kind": f"Kind{n}", "apiVersion": "example.com/v1"} for n in range(2_000)),
        *range(2_000),
    ]
    snapshot = {
        "NodeList": [{"Node": None, "Pods": [3]}, 3],
        "UnscheduledPodsCanBeScheduled": [None],
        "TemplateNodes": {"": {"Node": node("x")}, "a/": 3, "y": {"Node": {"metadata": 3}}},
        "EndTimestamp": 3,
    }
    (tmp_path / "odd.json").write_text(json.dumps(listed([*odd, node("n1")])))
    (tmp_path / "snapshot.json").write_text(json.dumps(snapshot))
    reading = await read(tmp_path)
    assert len(reading.unread) < 20
    assert len(reading.notes) < 1_100
    grouped = reading.nodes.finish(bounds=reading.bounds)
    reading.workloads.finish(places=grouped.places)
    assert [group["spec"]["targetSize"] for group in grouped.manifests] == [1]


async def test_namespaces_that_are_not_wanted_are_left_out_of_all(tmp_path: Path) -> None:
    (tmp_path / "snapshot").write_text(json.dumps(SNAPSHOT))
    flags = ImportSettings(output=Path("unused"), namespaces=frozenset({"bank"}))
    reading = Reading(flags)
    await read_dump([tmp_path / "snapshot"], reading, reporter=Reporter(io.StringIO()))
    assert reading.facts.pending == []
    assert reading.workloads.finish(places=reading.nodes.finish().places).manifests == []


def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    files, _ = files_in(folder)
    folder.rmdir()
    with pytest.raises(DumpError, match="dump: No such file"):
        next(files)


@pytest.mark.parametrize("name", ["file.yaml", "file.yaml.gz"])
@pytest.mark.parametrize(
    ("text", "read_again"),
    [
        ("# Written by kwok-operator import, which replaces it\n", False),
        ('{\n  "writer": "kwok-operator import",\n', False),
        ("# of kwok-operator import\n", True),
        ('{"note": "kwok-operator import --from x",\n', True),
    ],
)
async def test_a_folder_s_files_of_an_import_are_named_but_not_read(
    tmp_path: Path, name: str, text: str, read_again: bool
) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps(listed([node("n1")])))
    content = text + json.dumps(node("n2")).removeprefix("{" if text.startswith("{") else "")
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(content.encode()))
    reading = await read(tmp_path)
    [group] = reading.nodes.finish(bounds=reading.bounds).manifests
    assert group["spec"]["targetSize"] == (2 if read_again else 1)
    assert [each.path for each in reading.unread if each.kind == "File"] == (
        [] if read_again else [name]
    )
