"""What a pod costs, to be compared with what groups say of their nodes.

A pod's price is what it asks for at usual prices for CPU, memory and GPUs: cluster-autoscaler's
price expander compares it with the price of nodes, to see how well they would be used.
"""

from typing import Final

from kwok_operator.core.quantity import parse_quantity
from kwok_operator.shim.proto import kubernetes_pb2 as k8s

CPU_HOURLY: Final = 0.033
MEMORY_GIB_HOURLY: Final = 0.0045
GPU_HOURLY: Final = 0.7
_GIB: Final = 2**30
_GPU_SUFFIX: Final = "/gpu"


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
