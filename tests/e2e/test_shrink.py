"""`kwok-operator shrink`, as people run it, and the control plane that its tries share."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.cli.rehearsing import checked
from kwok_operator.controlplane import Settings
from kwok_operator.controlplane.tools import find_kubectl
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.keptcluster import KeptCluster, kept_cluster
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.outputs import RECORDING, begun, judge
from kwok_operator.rehearsal.runner import play
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.shrinking.documents import in_yaml, inlined, read_again
from kwok_operator.rehearsal.shrinking.parts import tidied
from tests.e2e.deploying import ROOT
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.rehearsals import cluster_of, is_there, karpenter_in, kueue_in

COMMAND = [sys.executable, "-m", "kwok_operator", "shrink"]
PATIENCE = 900.0
TOLERATIONS = [{"operator": "Exists"}]
PRIORITY = "system-cluster-critical"
PENDING = {"figure": "pods.pending", "equals": 0}
REMEMBERED = ("kube-scheduler", "kube-controller-manager", "kwok-controller")


def group(name: str, size: int, zone: str) -> dict[str, Any]:
    shape = {"cpu": 8, "memory": "32Gi", "zone": zone, "labels": {"example.com/pool": name}}
    return {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {"name": name},
        "spec": {"targetSize": size, "template": {"shape": shape}},
    }


def deployment(name: str, *, replicas: int = 10, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    requests = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "c0", "image": "fake", "resources": {"requests": requests}}
    pods = {"containers": [container], "tolerations": TOLERATIONS, **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": {**labels, "tier": "web"}}, "spec": pods},
        },
    }


def scenario() -> dict[str, Any]:
    """Two workloads with 13 pods, and two groups in two zones. Of `ledger`, one pod may be in each
    zone.
    """
    term = {
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": {"app": "ledger"}},
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        *(group(name, 2, f"zone-{name[-1]}") for name in ("p-a", "q-b")),
    ]
    later = [
        deployment("ledger", replicas=3, affinity=apart, priorityClassName=PRIORITY),
        deployment("noise", terminationGracePeriodSeconds=5),
    ]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "noise", "namespace": "shop"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "noise"}}},
    }
    return {
        "apply": [{"object": each} for each in (*objects, budget, *later)],
        "timeline": [{"at": 0, "cordon": {"group": "q-b", "count": 1}}],
        "until": {"settledFor": "2s", "atMost": "2m"},
        "expect": [PENDING, {"figure": "nodes.ready", "equals": 4}],
    }


def shrink(path: Path, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, str(path), f"--output={output}", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


SCENARIOS = sorted((ROOT / "deploy" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_a_scenario_is_the_same_as_one_document(path: Path, tmp_path: Path) -> None:
    karpenter_in(tmp_path)
    kueue_in(tmp_path)
    for arm in yaml.safe_load(path.read_text()).get("arms") or [None]:
        given = RehearseSettings(scenario=path, arm=arm)
        read = checked(given, programs_later=True)
        assert read.scenario is not None and read.document is not None and not read.findings
        kubectl = AsyncKubectl(find_kubectl(Settings.from_environ(os.environ)), {})
        doc = asyncio.run(inlined(read, kubectl, folder=path.parent))
        text = in_yaml(tidied(doc))
        alone = tmp_path / path.name
        alone.write_text(text)
        # Karpenter has the folder of its CRDs beside it, Kueue that of its manifests.
        programs = dict.fromkeys(read.scenario.programs, tmp_path / "karpenter" / "karpenter")
        programs["kueue"] = tmp_path / "kueue" / "kueue"
        again = read_again(yaml.safe_load(text), alone, binaries=programs)
        assert again.scenario is not None and not again.findings
        assert again.scenario.expect == read.scenario.expect
        assert len(text.splitlines()) <= 300


@pytest.mark.timeout(PATIENCE)
def test_one_cause_among_many_pods_is_what_is_left(tmp_path: Path) -> None:
    path, output = tmp_path / "noisy.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(scenario()))
    _interrupted(path, output)
    assert (output / "shrunk.yaml").exists()
    tried = (output / "tries.jsonl").read_text()
    # What is known needs no control plane.
    spent = shrink(path, output, "--keeps=pods.pending", "--minutes=0.0001")
    assert spent.returncode == 3, spent.stdout + spent.stderr
    assert "creating cluster" not in spent.stderr
    done = shrink(path, output, "--keeps=pods.pending")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "anti-affinity" in done.stdout
    assert (output / "tries.jsonl").read_text().startswith(tried)
    text = (output / "shrunk.yaml").read_text()
    left = [each["object"] for each in yaml.safe_load(text)["apply"]]
    assert text.count("\n") <= 100
    (ledger,) = (each for each in left if each["kind"] == "Deployment")
    groups = [each for each in left if each["kind"] == "KwokNodeGroup"]
    assert len(left) == len(groups) + 2 and ledger["metadata"]["name"] == "ledger"
    # A pod for each zone that has a node, and one more.
    nodes = [each["spec"]["targetSize"] for each in groups]
    assert nodes == [1] and ledger["spec"]["replicas"] == 2
    assert ledger["spec"]["template"]["spec"].keys() == {"containers", "tolerations", "affinity"}
    assert not is_there(cluster_of(done.stderr))
    test = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_shrunk.py"]
    held = subprocess.run(test, cwd=output, capture_output=True, text=True, check=False)
    assert held.returncode == 0, held.stdout


def _interrupted(path: Path, output: Path) -> None:
    """Begins, and ends it by Ctrl-C within a run."""
    command = [*COMMAND, str(path), f"--output={output}", "--keeps=pods.pending"]
    going = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert going.stderr is not None
    for line in going.stderr:
        if ": the same (" in line:  # what is left is not the whole
            break
    recording = output / ".try" / RECORDING
    eventually(lambda: not recording.exists(), describe="the next try is set up")
    eventually(recording.exists, describe="its clock has started")
    going.send_signal(signal.SIGINT)
    said, _ = going.communicate(timeout=120)
    assert going.returncode == 130, said
    assert "interrupted" in said


async def test_nothing_of_a_try_reaches_the_next(tmp_path: Path) -> None:
    played = Scenario.model_validate({"name": "noisy", **scenario()})
    async with kept_cluster(played, "shrink") as kept:
        kubectl = Kubectl(program=kept.cluster.kubectl, kubeconfig=kept.cluster.kubeconfig)
        before, pids, names = _everything(kubectl), [], []
        for number in range(2):
            found = await _played(played, kept, tmp_path / str(number))
            assert not found.broken_off
            assert [outcome.value for outcome in found.outcomes] == [1, 4]
            assert kubectl.json("get", "events", "-A")["items"]
            pids += [kept.cluster.pid(name) for name in REMEMBERED]
            nodes = kubectl.json("get", "nodes")["items"]
            names.append(sorted(node["metadata"]["name"] for node in nodes))
        # Serials begin anew; the letters before them are those of the group's UID.
        assert [[name[-6:] for name in some] for some in names] == [["000000", "000001"] * 2] * 2
        assert len(set(pids)) == 2 * len(REMEMBERED)
        written = kept.cluster.kubeconfig.read_text()
        kubectl("config", "set-context", "--current", "--namespace=kube-public")
        kept.cluster.kubectl_cache.mkdir(exist_ok=True)
        await kept.fresh()
        assert kept.cluster.kubeconfig.read_text() == written
        assert not kept.cluster.kubectl_cache.exists()
        assert kept.differences() == []
        assert _everything(kubectl) == before
        events = kubectl.json("get", "events", "-A")["items"]
        assert [each for each in events if each["metadata"]["namespace"] == "shop"] == []
        # The holder of a Lease that was noted has ended.
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        kubectl.apply({**lease, "metadata": {"name": "held", "namespace": "default"}})
        await kept.note()
        await kept.fresh()
        assert "held" not in kubectl("get", "leases", "--namespace=default", "--output=name")


async def _played(scenario: Scenario, kept: KeptCluster, folder: Path) -> Judged:
    with begun(folder):
        await play(
            scenario,
            RehearseSettings(scenario=folder / "noisy.yaml"),
            folder=folder,
            find_program=lambda name: None,
            report=print,
            kept=kept,
        )
        return judge(folder / RECORDING)


def _everything(kubectl: Kubectl) -> set[str]:
    """Returns all objects that the API server serves, but Events, and those that it renews."""
    kinds = kubectl("api-resources", "--verbs=list", "--output=name").split()
    text = kubectl(
        "get", ",".join(kinds), "--all-namespaces", "--output=json", "--ignore-not-found"
    )
    return {
        f"{each['kind']} {each['metadata'].get('namespace')}/{each['metadata']['name']}"
        f" {each['metadata'].get('uid')} {json.dumps(each.get('spec'))}"
        for each in json.loads(text)["items"]
        if each["kind"] not in ("Lease", "ComponentStatus", "Event")
    }
