"""Samples with workloads, as a reader applies and deletes them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"
TWENTY_PODS = SAMPLES / "pods" / "slow-images.yaml"
WORKLOADS = [path for path in SAMPLES.rglob("*.yaml") if "containers:" in path.read_text()]


def pods(kubectl: Kubectl) -> list[Any]:
    found = kubectl.json("get", "pods", "--namespace=default", "--selector=app=sample-slow")
    return list(found["items"])


def test_no_pod_is_left_for_the_garbage_collector(kubectl: Kubectl, operator: Harness) -> None:
    kubectl("apply", f"--filename={TWENTY_PODS}")
    eventually(
        lambda: [pod["spec"].get("nodeName") for pod in pods(kubectl)],
        until=lambda nodes: len(nodes) == 20 and all(nodes),
        describe="20 pods are on nodes",
    )
    kubectl("delete", f"--filename={TWENTY_PODS}")
    eventually(
        lambda: pods(kubectl),
        until=lambda left: not left,
        describe="no pod is left",
        timeout=30,  # the collector of orphaned pods takes its first 40 s later
    )


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_no_pod_of_a_sample_waits_for_a_node_that_is_gone(path: Path) -> None:
    specs = [
        manifest["spec"]["template"]["spec"]
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest["kind"] in ("Deployment", "StatefulSet", "Job")
    ]
    assert specs
    assert all(spec["terminationGracePeriodSeconds"] == 0 for spec in specs)
