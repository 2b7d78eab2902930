"""What a profile has pods use, as Kubernetes sees it: by kwok's endpoint and a real metrics-server.

The sample of a day's wave, with pods that use ever more instead: its HorizontalPodAutoscaler adds
pods, `kubectl top` says what they use, and once the profile is changed to less there are fewer.
Autoscalers of another cluster, imported with `--hpas metrics`, do what they were about to do there.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.constants import PROFILES_PATH
from kwok_operator.controlplane import Tools
from tests.e2e.clouds import staged_cluster
from tests.e2e.grants import DEPLOY, PROFILES
from tests.e2e.kubectl import eventually
from tests.e2e.metrics_server import metrics_server_tools as metrics_server_tools
from tests.e2e.metrics_server import running_metrics_server
from tests.e2e.own_cluster import OwnCluster

SAMPLE = DEPLOY / "samples" / "pods" / "days-wave.yaml"
NAME = "sample-wave"
FEWEST, MOST = 2, 6
SYNC = "horizontal-pod-autoscaler"
QUICK = (
    f"{SYNC}-sync-period=2s",
    # Else the usage of pods that are younger than five minutes doesn't count.
    f"{SYNC}-cpu-initialization-period=1s",
    f"{SYNC}-initial-readiness-delay=1s",
)


@pytest.fixture(scope="module")
def metered(
    metrics_server_tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnCluster]:
    directory = tmp_path_factory.mktemp("usage")
    extra = [f"--extra-args=kube-controller-manager={flag}" for flag in QUICK]
    with staged_cluster("usage", directory=directory, extra_args=extra) as own:
        own.kubectl("apply", f"--filename={DEPLOY / PROFILES}")
        own.harness.start()
        with running_metrics_server(own, metrics_server_tools, directory):
            yield own


def use(cpu: dict[str, Any]) -> dict[str, Any]:
    """All in one shape: a merge patch would else leave the one of before."""
    shapes = dict.fromkeys(("wave", "ramp", "constant", "shareOfRequests"))
    return {"spec": {"usage": {"cpu": {**shapes, **cpu}}}}


def test_an_autoscaler_follows_what_a_profile_has_pods_use(metered: OwnCluster) -> None:
    kubectl = metered.kubectl
    manifests = {each["kind"]: each for each in yaml.safe_load_all(SAMPLE.read_text())}
    autoscaler = manifests["HorizontalPodAutoscaler"]["spec"]
    autoscaler |= {"minReplicas": FEWEST, "maxReplicas": MOST}
    autoscaler["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    manifests["Deployment"]["spec"]["replicas"] = FEWEST
    growing = {"ramp": {"from": "10%", "to": "140%", "over": "20s"}}
    manifests["KwokPodProfile"]["spec"]["usage"]["cpu"] = growing
    for manifest in manifests.values():
        kubectl.apply(manifest)

    def replicas(wanted: int) -> None:
        eventually(
            lambda: kubectl.json("get", "hpa", NAME).get("status", {}),
            lambda status: status.get("currentReplicas") == wanted,
            describe=f"there are {wanted} replicas",
        )

    eventually(
        lambda: kubectl("top", "pods", "--no-headers").split()[1],
        # From 10 % to 140 % of half a CPU.
        lambda cpu: 50 <= int(cpu.removesuffix("m")) <= 700,
        describe="kubectl top says what a pod uses",
    )
    replicas(MOST)
    kubectl.api.patch(f"{PROFILES_PATH}/{NAME}", use({"constant": "100m"}))
    replicas(FEWEST)
    eventually(
        lambda: kubectl("top", "pods", "--no-headers").splitlines(),
        lambda lines: [line.split()[1] for line in lines] == ["100m"] * FEWEST,
        describe="kubectl top says what they use now",
    )


USES = {
    "cpu": {"expression": 'Quantity(pod.metadata.annotations["kwok.x-k8s.io/usage-cpu"])'},
    "memory": {"expression": 'Quantity("1Mi")'},  # metrics-server leaves out pods that use none
}
ANNOTATED = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "ClusterResourceUsage",
    "metadata": {"name": "annotated"},
    "spec": {"selector": {"matchNamespaces": ["shop"]}, "usages": [{"usage": USES}]},
}


def scaled(name: str, uses: str) -> Iterator[dict[str, Any]]:
    """A Deployment of another cluster, and its autoscaler, which last saw what a pod uses."""
    manifests = {each["kind"]: each for each in yaml.safe_load_all(SAMPLE.read_text())}
    for kind in ("Deployment", "HorizontalPodAutoscaler"):
        made = manifests[kind]
        made["metadata"] = {"name": name, "namespace": "shop", "uid": f"{kind}-{name}"}
        spec = made["spec"]
        if kind == "Deployment":
            spec["replicas"] = FEWEST
            spec["template"]["spec"].pop("nodeSelector")
            spec["selector"]["matchLabels"] = {"app": name}
            spec["template"]["metadata"]["labels"] = {"app": name}
        else:
            spec |= {"minReplicas": 1, "maxReplicas": MOST}
            spec["scaleTargetRef"]["name"] = name
            seen = {"name": "cpu", "current": {"averageValue": uses}}
            made["status"] = {"currentMetrics": [{"type": "Resource", "resource": seen}]}
        yield made


def test_an_imported_autoscaler_sees_what_it_saw(metered: OwnCluster, tmp_path: Path) -> None:
    kubectl, dump, folder = metered.kubectl, tmp_path / "dump.json", tmp_path / "copy"
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"eks.amazonaws.com/nodegroup": "general"}},
        "status": {"capacity": amounts, "allocatable": amounts, **ready},
    }
    # Each pod requests 500m, and 70 % are wanted.
    items = [node, *scaled("content", "350m"), *scaled("busy", "490m")]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    command = [sys.executable, "-m", "kwok_operator", "import", f"--from={dump}"]
    subprocess.run([*command, "--hpas=metrics", f"--output={folder}"], check=True)
    kubectl.apply(ANNOTATED)
    kubectl("apply", f"--kustomize={folder}")

    def seen(hpa: dict[str, Any]) -> tuple[int, int] | None:
        status = hpa.get("status", {})
        utilization = [
            each["resource"]["current"].get("averageUtilization")
            for each in status.get("currentMetrics") or ()
        ]
        return (utilization[0], status["currentReplicas"]) if utilization else None

    eventually(
        lambda: {
            each["metadata"]["name"]: seen(each)
            for each in kubectl.json("get", "hpa", "--namespace=shop")["items"]
        },
        lambda found: found == {"content": (70, FEWEST), "busy": (98, MOST)},
        describe="one autoscaler is content, and the other is at its maximum",
    )
