"""A cluster comes back from a snapshot of the real cluster-autoscaler (CA), by each provider.

Its nodes are made by the operator and served by the shim, by CA's own kwok provider, or by CA's
provider for Cluster API. The import of CA's snapshot has the groups, their templates and bounds,
the nodes, and the pods where they were; a rehearsal of it has them, too.

CLUSTER_AUTOSCALER names a CA, without which nothing is tested: what stands in for it elsewhere
serves no snapshot. SNAPSHOT_NODES is how many nodes there are (default 20). From 1,000 on, the copy
isn't played.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kwok_operator.constants import HOSTNAME_LABEL, ZONE_LABEL
from tests.e2e import capi
from tests.e2e.api import NODES
from tests.e2e.autoscaler import Shim
from tests.e2e.groups import apply_group
from tests.e2e.incidents import KINDS, workload
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import OwnCluster, own_cluster
from tests.e2e.ports import free_address
from tests.e2e.rehearsals import play

Json = dict[str, Any]
REAL: Final = os.path.expanduser(os.environ.get("CLUSTER_AUTOSCALER", ""))
NUMBER: Final = int(os.environ.get("SNAPSHOT_NODES", "20"))
MOST_PLAYED: Final = 1_000
POOL: Final = "example.com/pool"
NAMESPACE: Final = "shop"
SYSTEM: Final = "kube-system"
HUGE: Final = 3
LONG: Final = 1_500.0
FEW_HEARTBEATS: Final = ("--heartbeat-factor", "100")
"""kwokctl: renewals of Leases shall take no CPU."""
pytestmark = pytest.mark.skipif(not REAL, reason="CLUSTER_AUTOSCALER names no cluster-autoscaler")


@dataclass(frozen=True)
class Pool:
    """A group of nodes, each with one pod of the pool's Deployment."""

    size: int
    most: int
    cpu: int
    zone: str

    @property
    def memory(self) -> str:
        return f"{4 * self.cpu}Gi"


THIRD: Final = NUMBER * 3 // 10
POOLS: Final = {
    **{f"web-{zone}": Pool(THIRD, 2 * THIRD, 4, f"eu-1{zone}") for zone in "abc"},
    "batch": Pool(NUMBER - 3 * THIRD, NUMBER, 16, "eu-1a"),
    "edge": Pool(0, 5, 8, "eu-1b"),
}
FLAGS: Final = {
    "leader-elect": "false",
    "namespace": SYSTEM,
    "v": "1",
    "scan-interval": "2s",
    "debugging-snapshot-enabled": "true",
    "scale-down-enabled": "false",
    "kube-client-qps": "100",
    "kube-client-burst": "200",
}


@contextmanager
def autoscaler(own: OwnCluster, directory: Path, **flags: str) -> Iterator[str]:
    """A running CA; its address."""
    address = free_address()
    given = {"kubeconfig": str(own.cluster.kubeconfig), "address": address, **FLAGS}
    given |= {name.replace("_", "-"): value for name, value in flags.items()}
    environ = {
        "KWOK_PROVIDER_MODE": "local",
        "KUBECONFIG": str(own.cluster.kubeconfig),
        "POD_NAMESPACE": SYSTEM,
    }
    with (directory / "ca.log").open("wb") as log:
        command = [REAL, *(f"--{name}={value}" for name, value in given.items())]
        process = subprocess.Popen(command, env=os.environ | environ, stdout=log, stderr=log)
    try:
        yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def by_shim(own: OwnCluster, directory: Path) -> Iterator[str]:
    own.harness.start()
    for name, pool in POOLS.items():
        shape = {"cpu": pool.cpu, "memory": pool.memory, "zone": pool.zone, "labels": {POOL: name}}
        bounds = {"minSize": 0, "maxSize": pool.most}
        template = {"shape": shape}
        apply_group(own.kubectl, name, targetSize=pool.size, template=template, autoscaling=bounds)
    settle(own.kubectl)
    shim = Shim(kubeconfig=own.cluster.kubeconfig, directory=directory)
    shim.start()
    config = directory / "cloud-config.yaml"
    config.write_text(f"address: unix:{shim.socket}\n")
    flags = {"cloud_provider": "externalgrpc", "cloud_config": str(config)}
    try:
        with autoscaler(own, directory, **flags) as address:
            yield address
    finally:
        shim.stop()


@contextmanager
def by_kwok(own: OwnCluster, directory: Path) -> Iterator[str]:
    config = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": POOL},
        "configmap": {"name": "kwok-provider-templates"},
    }
    items = [kwok_template(name, pool) for name, pool in POOLS.items()]
    templates = {"apiVersion": "v1", "kind": "List", "items": items}
    for name, data in (
        ("kwok-provider-config", {"config": json.dumps(config)}),
        ("kwok-provider-templates", {"templates": json.dumps(templates)}),
    ):
        metadata = {"name": name, "namespace": SYSTEM}
        own.kubectl.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )
    with autoscaler(own, directory, cloud_provider="kwok") as address:
        settle(own.kubectl)
        yield address


def kwok_template(name: str, pool: Pool) -> Json:
    amounts = {"cpu": str(pool.cpu), "memory": pool.memory, "pods": "110"}
    prefix = "cluster-autoscaler.kwok.nodegroup/"
    annotations = {f"{prefix}min-count": "0", f"{prefix}max-count": str(pool.most)}
    labels = {
        POOL: name,
        ZONE_LABEL: pool.zone,
        HOSTNAME_LABEL: name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


@contextmanager
def by_cluster_api(own: OwnCluster, directory: Path) -> Iterator[str]:
    capi.install_crds(own.kubectl)
    own.harness.start("--clusterapi=emulate", kubeconfig=own.cluster.kubeconfig)
    provider = capi.Provider(own.kubectl.api)
    for name, pool in POOLS.items():
        body = capi.deployment(name, replicas=pool.size)
        sizes = f"{capi.GROUP}/cluster-api-autoscaler-node-group-"
        body["metadata"]["annotations"] |= {
            f"{sizes}max-size": str(pool.most),
            f"{capi.CAPACITY}cpu": str(pool.cpu),
            f"{capi.CAPACITY}memory": pool.memory,
            f"{capi.CAPACITY}labels": f"{POOL}={name},{ZONE_LABEL}={pool.zone}",
        }
        provider.create(body)
    settle(own.kubectl)
    with autoscaler(own, directory, cloud_provider="clusterapi") as address:
        yield address


def settle(kubectl: Kubectl) -> None:
    """Brings the workloads, and returns when all nodes and pods are there."""
    kubectl("create", "namespace", NAMESPACE)
    items = [
        workload("Deployment", name, pool.size, cpu=f"{pool.cpu - 1}", nodeSelector={POOL: name})
        for name, pool in POOLS.items()
        if pool.size
    ]
    items.append(workload("Deployment", "huge", HUGE, cpu="200"))
    items.append(workload("DaemonSet", "agent", 0, cpu="100m", nodeSelector={POOL: "batch"}))
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    wanted = NUMBER + POOLS["batch"].size
    eventually(
        lambda: sum(bool(pod["spec"].get("nodeName")) for pod in pods(kubectl)),
        lambda found: found == wanted,
        describe=f"{wanted} pods have nodes",
        timeout=LONG,
        interval=1,
    )


def pods(kubectl: Kubectl) -> list[Json]:
    return list(kubectl.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")[0])


def save(kubectl: Kubectl, address: str, folder: Path) -> None:
    """What people would save of it."""
    events = f"/api/v1/namespaces/{NAMESPACE}/events"
    eventually(
        lambda: any(e["reason"] == "NotTriggerScaleUp" for e in kubectl.api.list(events)[0]),
        describe="CA has looked at all groups",
        timeout=LONG,
        interval=1,
    )
    with urllib.request.urlopen(f"http://{address}/snapshotz", timeout=LONG) as answer:
        (folder / "snapshotz.json").write_bytes(answer.read())
    for name, what in KINDS.items():
        text = kubectl("get", *what, "--all-namespaces", "--output=json", timeout=LONG)
        (folder / f"{name}.json").write_text(text)


def imported(folder: Path) -> Path:
    """The folder of the import."""
    copy = folder / "copy"
    files = [folder / "snapshotz.json", *(folder / f"{name}.json" for name in KINDS)]
    command = [sys.executable, "-m", "kwok_operator", "import", f"--output={copy}"]
    given = [f"--from={file}" for file in files]
    done = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


@dataclass(frozen=True)
class Snapshot:
    """A copy, and where the pods were: by their workload and the place of their node."""

    copy: Path
    stood: Counter[tuple[str, str]]


def standing(items: list[Json]) -> Counter[Any]:
    """Pods by their app, and by the pool and number of their node."""
    by_pool: dict[str, list[str]] = {}
    for each in items:
        if each["kind"] == "Node":
            pool = each["metadata"]["labels"][POOL]
            by_pool.setdefault(pool, []).append(each["metadata"]["name"])
    place = {
        name: f"{pool}/{number}"
        for pool, names in by_pool.items()
        for number, name in enumerate(sorted(names))
    }
    return Counter(
        (each["metadata"]["labels"]["app"], place.get(each["spec"].get("nodeName", ""), ""))
        for each in items
        if each["kind"] == "Pod" and each["metadata"]["namespace"] == NAMESPACE
    )


WAYS: Final = {"shim": by_shim, "kwok": by_kwok, "clusterapi": by_cluster_api}


@pytest.fixture(scope="module", params=list(WAYS))
def snapshot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp(request.param)
    name = f"snapshot-{request.param}"
    with own_cluster(name, directory=folder, extra_args=FEW_HEARTBEATS) as own:
        with WAYS[request.param](own, folder) as address:
            save(own.kubectl, address, folder)
        nodes = [{**each, "kind": "Node"} for each in own.kubectl.api.list(NODES)[0]]
        found = [*nodes, *({**each, "kind": "Pod"} for each in pods(own.kubectl))]
    return Snapshot(imported(folder), standing(found))


@pytest.mark.timeout(3_000)
def test_groups_are_those_of_cluster_autoscaler(snapshot: Snapshot) -> None:
    text = (snapshot.copy / "nodegroups.yaml").read_text()
    groups = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(text)}
    assert groups.keys() == POOLS.keys()
    for name, pool in POOLS.items():
        spec = groups[name]
        assert spec["targetSize"] == pool.size
        assert spec["autoscaling"] == {"minSize": 0, "maxSize": pool.most}
        shape = spec["template"]["shape"]
        assert (shape["cpu"], shape["memory"]) == (str(pool.cpu), pool.memory)
        assert (shape["zone"], shape["labels"][POOL]) == (pool.zone, name)


@pytest.mark.timeout(3_000)
def test_pods_are_where_they_were(snapshot: Snapshot) -> None:
    placement = json.loads((snapshot.copy / "placement.json").read_text())["pods"]
    found = Counter[tuple[str, str]]()
    for each in placement:
        app = each["what"].partition("/")[2]
        found.update({(app, node): count for node, count in each.get("on", {}).items()})
        if each.get("pending"):
            found[app, ""] = len(each["pending"])
    assert found == snapshot.stood


@pytest.mark.skipif(NUMBER >= MOST_PLAYED, reason="that takes long")
@pytest.mark.timeout(1_500)
def test_a_rehearsal_begins_as_it_was(snapshot: Snapshot, tmp_path: Path) -> None:
    scenario = yaml.safe_load((snapshot.copy / "scenario.yaml").read_text())
    path = snapshot.copy.parent / "again.yaml"
    look = 'kubectl get pods,nodes -A -o json > "$REHEARSAL/seen.json"'
    scenario["apply"] = [str(Path("copy", each)) for each in scenario["apply"]]
    scenario["placement"] = "copy/placement.json"
    scenario["timeline"] = [{"at": "1s", "run": {"command": ["sh", "-c", look]}}]
    path.write_text(yaml.safe_dump(scenario))
    done = play(path, tmp_path / "out", patience=1_400)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "out" / "seen.json").read_text())["items"]
    assert standing(seen) == snapshot.stood
