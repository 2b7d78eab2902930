"""What a group says to cluster-autoscaler about options and prices, in the units of its protocol.

A pod's price is what it asks for at usual prices for CPU, memory and GPUs: cluster-autoscaler's
price expander compares it with the price of nodes, to see how well they would be used.
"""

from dataclasses import replace
from typing import Any, Final

from kwok_operator.core.durations import parse_duration
from kwok_operator.core.quantity import parse_quantity
from kwok_operator.models import autoscaling
from kwok_operator.shim.messages import SECOND, AutoscalingOptions
from kwok_operator.shim.proto import kubernetes_pb2 as k8s

CPU_HOURLY: Final = 0.033
MEMORY_GIB_HOURLY: Final = 0.0045
GPU_HOURLY: Final = 0.7
_SHARES: Final = frozenset(
    {"scale_down_utilization_threshold", "scale_down_gpu_utilization_threshold"}
)
_TIMES: Final = frozenset(
    {"scale_down_unneeded_time", "scale_down_unready_time", "max_node_provision_time"}
)
_GIB: Final = 2**30
_GPU_SUFFIX: Final = "/gpu"


def merged_options(
    defaults: AutoscalingOptions, wanted: autoscaling.AutoscalingOptions
) -> AutoscalingOptions:
    """What holds for all groups, with what this one sets."""
    changes: dict[str, Any] = wanted.model_dump(exclude_none=True)
    for field in _SHARES & changes.keys():
        changes[field] = float(changes[field])
    for field in _TIMES & changes.keys():
        changes[field] = parse_duration(changes[field]) * SECOND
    return replace(defaults, **changes)


def pod_cost_hourly(pod: k8s.Pod) -> float:
    """What the requests of a pod's containers cost for an hour."""
    cost = 0.0
    for container in pod.spec.containers:
        for name, quantity in container.resources.requests.items():
            try:
                amount = float(parse_quantity(quantity.string))
            except ValueError:
                continue
            if name == "cpu":
                cost += amount * CPU_HOURLY
            elif name == "memory":
                cost += amount / _GIB * MEMORY_GIB_HOURLY
            elif name.endswith(_GPU_SUFFIX):
                cost += amount * GPU_HOURLY
    return cost
