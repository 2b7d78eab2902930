"""HorizontalPodAutoscalers of another cluster."""

import copy
import json
from typing import Any

import pytest

from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.kinds import HPA
from kwok_operator.importing.notes import Reason
from kwok_operator.importing.pods.workloads import Imported, Workloads
from tests.importedpods import SELECTOR, body_of, found, reasons

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
QUEUE = {"type": "External", "external": {"metric": {"name": "CANARY"}}}
SPEC: dict[str, Any] = {
    "scaleTargetRef": TARGET,
    "minReplicas": 2,
    "maxReplicas": 9,
    "metrics": [{"type": "Resource", "resource": CPU}],
    "behavior": {"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1}]}},
}
SEEN = {"currentMetrics": [{"resource": {"name": "cpu", "current": {"averageValue": "301m"}}}]}
WEB = body_of("web", {"replicas": 5, "selector": SELECTOR, "template": {"spec": {}}})


def of(spec: dict[str, Any], status: dict[str, Any] = SEEN, *, kept: bool = True) -> Imported:
    workloads = Workloads(hpas=kept)
    workloads.add("Deployment", WEB)
    workloads.add(HPA, body_of("hpa", spec, status=status))
    return workloads.finish(places={})


def annotations(result: Imported) -> Any:
    (deployment,) = found(result, "Deployment")
    assert deployment["spec"]["replicas"] == 5
    return deployment["spec"]["template"]["metadata"].get("annotations")


def test_by_default_a_workload_keeps_its_size() -> None:
    result = of(SPEC, kept=False)
    assert (found(result, HPA), annotations(result)) == ([], None)
    assert reasons(result)[Reason.HPA_FIXED] == 1


def test_one_that_is_kept_sees_the_usage_that_it_saw() -> None:
    result = of({**SPEC, "metrics": [*SPEC["metrics"], QUEUE], "CANARY": "CANARY"})
    (hpa,) = found(result, HPA)
    assert hpa["spec"] == SPEC
    assert annotations(result) == {"kwok.x-k8s.io/usage-cpu": "301m"}
    assert {Reason.HPA_METRICS, Reason.HPA_USAGE} <= reasons(result).keys()
    assert "CANARY" not in json.dumps(result.manifests)
    anonymous = Anonymizer(b"0" * 32).manifests(result.manifests)
    renamed = {each["kind"]: each for each in anonymous}
    spec = renamed[HPA]["spec"]
    assert spec["scaleTargetRef"]["name"] == renamed["Deployment"]["metadata"]["name"] != "web"
    assert {**spec, "scaleTargetRef": TARGET} == SPEC
    of_pods = renamed["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert of_pods == annotations(result)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"metrics": [QUEUE]}, SEEN),
        ({}, {}),
        ({}, {"currentMetrics": [{"resource": {"name": "cpu", "current": {"averageValue": "x"}}}]}),
        ({"scaleTargetRef": {**TARGET, "name": "gone"}}, SEEN),
        ({"scaleTargetRef": {**TARGET, "kind": "Rollout"}}, SEEN),
        ({"behavior": {"scaleUp": {"selectPolicy": "CANARY"}}}, SEEN),
    ],
    ids=["metrics", "no usage", "usage", "no target", "kind", "text"],
)
def test_one_that_could_not_scale_as_before_is_left_out(
    change: dict[str, Any], status: dict[str, Any]
) -> None:
    result = of(copy.deepcopy(SPEC) | change, status)
    assert (found(result, HPA), annotations(result)) == ([], None)
    assert reasons(result)[Reason.HPA_FIXED] == 1
