"""Whether cluster-autoscaler can drive a group: what the operator says, and what the shim answers.

- groups whose GPU labels disagree say so, name the label that the shim tells, and stay Ready
- when one of them is changed, or goes, the other is all right again
- the types of GPU are those that groups name, and those of their templates
"""

from typing import Any

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


def test_groups_that_disagree_on_the_gpu_label(
    operator: Process, autoscaler: Autoscaler, kubectl: Kubectl, group_name: str
) -> None:
    a, b = f"{group_name}-a", f"{group_name}-b"
    gpus: dict[str, Any] = {"maxSize": 5, "gpuLabel": KEY, "gpuTypes": ["k80"]}
    apply_group(kubectl, a, targetSize=0, autoscaling=gpus)
    shape = {"labels": {KEY: "a100"}}
    apply_group(kubectl, b, targetSize=1, template={"shape": shape}, autoscaling=gpus)
    for name in (a, b):
        wait_ready(kubectl, name)
        wait_condition(kubectl, name, "Autoscalable")
    eventually(lambda: gpu_types(autoscaler) == {"k80", "a100"}, describe="both types are known")

    patch_group(kubectl, b, autoscaling={"gpuLabel": f"{KEY}-2"})
    for name, other in ((a, b), (b, a)):
        wait_condition(kubectl, name, "Autoscalable", status="False", timeout=20)
        found = condition(kubectl, name, "Autoscalable")
        assert found["reason"] == "GPULabelsDisagree"
        assert f"is told {gpu_label(autoscaler)}, that of group {a}." in found["message"]
        assert f"another is set by {other}." in found["message"]
        assert "autoscaling.gpuLabel" in found["message"]
        assert condition(kubectl, name, "Ready")["status"] == "True"

    patch_group(kubectl, b, autoscaling={"gpuLabel": KEY})
    for name in (a, b):
        wait_condition(kubectl, name, "Autoscalable", timeout=20)

    patch_group(kubectl, b, autoscaling={"gpuLabel": f"{KEY}-2"})
    wait_condition(kubectl, a, "Autoscalable", status="False", timeout=20)
    kubectl("delete", "kng", b)
    wait_condition(kubectl, a, "Autoscalable", timeout=20)


def test_it_is_there_with_the_consent_only(
    operator: Process, kubectl: Kubectl, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=0, autoscaling={})
    wait_condition(kubectl, group_name, "Autoscalable")
    patch_group(kubectl, group_name, paused=True)
    wait_condition(kubectl, group_name, "Autoscalable", status="False", timeout=20)
    assert condition(kubectl, group_name, "Autoscalable")["reason"] == "SpecPaused"
    patch_group(kubectl, group_name, paused=None, autoscaling=None)

    def gone() -> bool:
        try:
            condition(kubectl, group_name, "Autoscalable")
        except LookupError:
            return True
        return False

    eventually(gone, describe="the condition has gone with spec.autoscaling")
    wait_ready(kubectl, group_name)
