"""What a profile has pods use, as Kubernetes sees it: by kwok's endpoint and a real metrics-server.

The sample of a day's wave, with pods that use ever more instead: its HorizontalPodAutoscaler adds
pods, `kubectl top` says what they use, and once the profile is changed to less there are fewer.
"""

from collections.abc import Iterator
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
