"""Samples with workloads, as a reader applies and deletes them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.clouds import condition_of
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness
from tests.e2e.podlives import PODS
from tests.e2e.watching import Watch, each

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"
TWENTY_PODS = SAMPLES / "pods" / "slow-images.yaml"
WORKLOADS = [path for path in SAMPLES.rglob("*.yaml") if "containers:" in path.read_text()]


def test_no_pod_is_left_for_the_garbage_collector(kubectl: Kubectl, operator: Harness) -> None:
    """The collector of orphaned pods says so on each that it takes, 40 s later or more."""
    here: dict[str, dict[str, Any]] = {}
    collected: list[str] = []

    def seen(event: str, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if condition_of(pod["status"], "DisruptionTarget").get("reason") == "DeletionByPodGC":
            collected.append(name)
        if event == "DELETED":
            del here[name]
        else:
            here[name] = pod

    selector = "app=sample-slow"
    with Watch(kubectl.api, PODS, listed=each(seen), seen=seen, selector=selector) as watch:
        kubectl("apply", f"--filename={TWENTY_PODS}")
        eventually(
            lambda: [pod["spec"].get("nodeName") for pod in [*here.values()]],
            until=lambda nodes: len(nodes) == 20 and all(nodes),
            describe="20 pods are on nodes",
        )
        kubectl("delete", f"--filename={TWENTY_PODS}")
        eventually(lambda: not here, describe="no pod is left")
        assert watch.lists == 1, "the watch has a gap"
    assert collected == []


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_no_pod_of_a_sample_waits_for_a_node_that_is_gone(path: Path) -> None:
    specs = [
        manifest["spec"]["template"]["spec"]
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest["kind"] in ("Deployment", "StatefulSet", "Job")
    ]
    assert specs
    assert all(spec["terminationGracePeriodSeconds"] == 0 for spec in specs)
