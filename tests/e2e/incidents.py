"""Five incidents of cluster-autoscaler (CA) in a small cluster, and what people have of them later.

    scenario(incident)  --rehearse-->  its last step is `main`  -->  a folder: snapshotz.json,
                                                                     ca.log, KINDS

The cause of each is known. Around it are 17 nodes with ten workloads that have nothing to do with
it.
"""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import ZONE_LABEL
from tests.e2e.deploying import ROOT
from tests.e2e.kubectl import eventually

Json = dict[str, Any]
POOL: Final = "example.com/pool"
NAMESPACE: Final = "shop"
KINDS: Final = {
    "pods": ["pods"],
    "pdbs": ["poddisruptionbudgets"],
    "workloads": ["deployments,replicasets,statefulsets,daemonsets"],
    "status": ["configmaps", "--field-selector=metadata.name=cluster-autoscaler-status"],
}
"""What is saved with kubectl, by the names of the files."""
_FLAGS: Final = {"v": "4", "debugging-snapshot-enabled": "true"}
_TOLERATIONS: Final = [{"key": "kwok-provider", "operator": "Exists"}]
_EVERYWHERE: Final = [{"operator": "Exists"}]
_HOSTNAME: Final = "kubernetes.io/hostname"
_NEVER: Final = "30m"
"""A boot that the snapshot comes before."""


@dataclass(frozen=True)
class Incident:
    """What is planted, and what CA says once it has decided."""

    name: str
    objects: Sequence[Json]
    says: str
    """A pattern for a line of CA's log, or for an Event."""
    keeps: Sequence[str]
    """What must come out the same in what is left of it, as `shrink` takes it."""
    cause: str
    """A text that what is left of it has, as nothing would go wrong without it."""
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def planted(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.objects}

    @property
    def needed(self) -> set[str]:
        """What can't be left out: of two groups that are alike, one will do."""
        return self.planted - {"quorum-e", "quorum-d"}


def incidents() -> Iterator[Incident]:
    yield Incident(
        "expander",
        [
            group("plain", "d", cpu=4, memory="32Gi", price="0.20", delay=_NEVER),
            group("pricey", "d", cpu=4, memory="16Gi", price="3.00", pool="plain", delay=_NEVER),
            pod("report", cpu="3", memory="14Gi", pool="plain"),
        ],
        says=r"Scale-up: setting group pricey size to 1|\{pricey 0->1",
        # With the first alone, there need not be another group to choose.
        keeps=["scale-up of pricey", "{figure: nodes.max, of: {group: plain}, equals: 0}"],
        cause="14Gi",
        flags={"expander": "least-waste"},
    )
    yield Incident(
        "anti-affinity",
        [
            group("quorum-d", "d", size=1, pool="quorum"),
            group("quorum-e", "e", size=1, pool="quorum"),
            workload(
                "StatefulSet",
                "ledger",
                3,
                pool="quorum",
                podManagementPolicy="Parallel",
                affinity=_apart("ledger", ZONE_LABEL),
            ),
        ],
        says=r"didn't match pod anti-affinity rules",
        keeps=["anti-affinity"],
        cause="podAntiAffinity",
    )
    yield Incident(
        "daemonset",
        [
            group("edge", "d"),
            workload("DaemonSet", "probe", 0, cpu="1500m", pool="edge"),
            pod("render", cpu="3", pool="edge"),
        ],
        says=r"render.*Insufficient cpu",
        keeps=["Insufficient cpu"],
        cause="1500m",
    )
    yield Incident(
        "budget",
        [
            group("sessions", "d", size=2),
            workload("Deployment", "session", 2, pool="sessions"),
            budget("session", minAvailable=2),
        ],
        says=r"not enough pod disruption budget to move shop/session",
        keeps=["{figure: nodes.final, of: {group: sessions}, equals: 2}"],
        # Kubernetes allows no disruption, either, by a budget without minAvailable.
        cause="kind: PodDisruptionBudget",
    )
    yield Incident(
        "stock-out",
        [group("scarce", "d", cloud={"stock": 0}), pod("train", cpu="3", pool="scarce")],
        says=r"in backoff after failed scale-up",
        keeps=["in backoff"],
        cause="OutOfResources",
        flags={"initial-node-group-backoff-duration": "10m"},
    )


def production() -> Iterator[Json]:
    """What runs besides. CA leaves it alone: groups are as small as they may be."""
    for name in (NAMESPACE, "data", "infra"):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for zone in "abc":
        yield group(f"general-{zone}", zone, size=4, least=4, most=8, pool="general")
    yield group("memory-a", "a", cpu=8, memory="64Gi", size=3, least=3, most=3, pool="memory")
    yield group("system-b", "b", cpu=2, memory="8Gi", size=2, least=2, most=3, pool="system")
    yield group("batch-b", "b", cpu=16, memory="64Gi", pool="batch")
    everywhere: Json = {"namespace": "infra", "tolerations": _EVERYWHERE}
    yield workload("DaemonSet", "agent", 0, cpu="100m", **everywhere)
    yield workload("DaemonSet", "logs", 0, cpu="50m", **everywhere)
    yield workload("Deployment", "web", 12, cpu="500m", memory="1Gi", pool="general")
    yield workload("Deployment", "api", 8, cpu="300m", pool="general")
    yield workload("Deployment", "cart", 6, cpu="250m", pool="general")
    yield workload("Deployment", "cache", 3, cpu="2", memory="12Gi", pool="memory")
    yield workload("Deployment", "dns", 2, cpu="200m", pool="system", namespace="infra")
    yield workload("Deployment", "metrics", 1, cpu="300m", pool="system", namespace="infra")
    db: Json = {"pool": "general", "namespace": "data", "affinity": _apart("db")}
    yield workload("StatefulSet", "db", 3, podManagementPolicy="Parallel", **db)
    yield pod("debug", cpu="100m", pool="general")
    yield budget("web", maxUnavailable="10%")
    yield budget("db", maxUnavailable=0, namespace="data")


def scenario(incident: Incident, directory: Path, *, autoscaler: str, keep: Path) -> Json:
    """One that leaves in the folder `keep` what there is of the incident; `autoscaler` is a path of
    CA. A program goes to `directory`, where the scenario has to be.
    """
    program = directory / "ca"
    # Nobody else knows at which address it listens.
    program.write_text(f'#!/bin/sh\necho "$@" > {directory}/ca.flags\nexec {autoscaler} "$@"\n')
    program.chmod(0o755)
    flags = {**_FLAGS, **incident.flags}
    process = {"name": "ca", "clusterAutoscaler": {"binary": "./ca", "flags": flags}}
    command = [sys.executable, "-m", "tests.e2e.incidents", str(directory), str(keep)]
    capture = {"command": [*command, incident.says], "env": {"PYTHONPATH": str(ROOT)}}
    return {
        "apply": [{"object": each} for each in (*production(), *incident.objects)],
        "processes": [process],
        "timeline": [{"at": "1s", "run": {**capture, "within": "4m"}}],
        "until": {"settledFor": "1s", "atMost": "5m"},
        "expect": [{"figure": "pods.running", "atLeast": 1}],
    }


def group(
    name: str,
    zone: str,
    *,
    cpu: int = 4,
    memory: str = "16Gi",
    size: int = 0,
    least: int = 0,
    most: int = 3,
    price: str = "0.20",
    pool: str = "",
    delay: str = "",
    cloud: Json | None = None,
) -> Json:
    labels = {POOL: pool or name}
    shape = {"cpu": cpu, "memory": memory, "zone": f"eu-1{zone}", "labels": labels}
    cloud = cloud or ({"provisioningDelay": {"fixed": delay}} if delay else {})
    return {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {"name": name},
        "spec": {
            "targetSize": size,
            "template": {"shape": shape},
            "autoscaling": {"minSize": least, "maxSize": most},
            "price": {"hourly": price},
            **({"cloud": cloud} if cloud else {}),
        },
    }


def pod(name: str, *, namespace: str = NAMESPACE, **needs: Any) -> Json:
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pods(**needs)}


def workload(
    kind: str,
    name: str,
    replicas: int,
    *,
    namespace: str = NAMESPACE,
    podManagementPolicy: str = "",
    **needs: Any,
) -> Json:
    labels = {"app": name}
    spec: Json = {"selector": {"matchLabels": labels}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": _pods(**needs)}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": podManagementPolicy}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def budget(name: str, *, namespace: str = NAMESPACE, **limit: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**limit, "selector": {"matchLabels": {"app": name}}},
    }


def _pods(*, cpu: str = "1", memory: str = "512Mi", pool: str = "", **more: Any) -> Json:
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    return {
        "containers": [container],
        "tolerations": _TOLERATIONS,
        **({"nodeSelector": {POOL: pool}} if pool else {}),
        **more,
    }


def _apart(app: str, key: str = _HOSTNAME) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def main(directory: str, keep: str, says: str) -> None:
    """Waits until CA has decided, and keeps what there is."""
    log, folder = Path(os.environ["REHEARSAL"], "logs", "ca.log"), Path(keep)
    folder.mkdir(exist_ok=True)

    def get(*what: str) -> str:
        command = ["kubectl", "get", *what, "--all-namespaces", "--output=yaml"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    eventually(
        lambda: re.search(says, log.read_text()) or re.search(says, get("events")),
        describe=f"CA says {says}",
        timeout=180,
        interval=1,
    )
    flags = Path(directory, "ca.flags").read_text()
    (address,) = re.findall(r"--address=(\S+)", flags)
    with urllib.request.urlopen(f"http://{address}/snapshotz", timeout=60) as answer:
        (folder / "snapshotz.json").write_bytes(answer.read())
    for name, what in KINDS.items():
        (folder / f"{name}.yaml").write_text(get(*what))
    (folder / "ca.log").write_bytes(log.read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
