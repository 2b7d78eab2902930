"""Whether cluster-autoscaler can drive a group: what operator and shim say."""

from typing import Any

import pytest

from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.e2e.autoscaler import Autoscaler
from tests.e2e.groups import apply_group, condition, patch_group, wait_condition, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

KEY = "example.com/gpu"


def gpu_label(autoscaler: Autoscaler) -> str:
    answer = autoscaler.call("GPULabel", pb.GPULabelRequest(), pb.GPULabelResponse)
    return str(answer.label)


def gpu_types(autoscaler: Autoscaler) -> set[str]:
    request = pb.GetAvailableGPUTypesRequest()
    answer = autoscaler.call("GetAvailableGPUTypes", request, pb.GetAvailableGPUTypesResponse)
    return set(answer.gpuTypes)


@pytest.mark.core
def test_groups_that_disagree_on_the_gpu_label(
    operator: Process, autoscaler: Autoscaler, kubectl: Kubectl, group_name: str
) -> None:
    groups = a, b = f"{group_name}-a", f"{group_name}-b"
    gpus: dict[str, Any] = {"maxSize": 5, "gpuLabel": KEY, "gpuTypes": ["k80"]}
    apply_group(kubectl, a, targetSize=0, autoscaling=gpus)
    shape = {"labels": {KEY: "a100"}}
    apply_group(kubectl, b, targetSize=1, template={"shape": shape}, autoscaling=gpus)
    for name in groups:
        wait_ready(kubectl, name)
        wait_condition(kubectl, name, "Autoscalable")
    eventually(lambda: gpu_types(autoscaler) == {"k80", "a100"}, describe="both types are known")

    patch_group(kubectl, b, autoscaling={"gpuLabel": f"{KEY}-2"})
    for name in groups:
        wait_condition(kubectl, name, "Autoscalable", status="False")
        found = condition(kubectl, name, "Autoscalable")
        assert found["reason"] == "GPULabelsDisagree"
        assert f"is told {gpu_label(autoscaler)}," in found["message"], "as the shim does"
        assert condition(kubectl, name, "Ready")["status"] == "True"

    kubectl("delete", "kng", b)
    wait_condition(kubectl, a, "Autoscalable")
