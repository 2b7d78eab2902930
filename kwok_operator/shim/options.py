"""Computes options, GPU types and pod prices for cluster-autoscaler (CA).

    CA's defaults + spec.autoscaling.options --merged_options, should_hide_options--> options
    spec.autoscaling, status.resolvedTemplate  --gpu_labels, gpu_types-->  the label, the types
    a pod's requests  --pod_cost_hourly-->  their price for an hour, at fixed rates

CA's price expander compares the prices of pods and of a node, to see how full the pods make it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.times import parse_duration
from kwok_operator.formats.untyped import text_at
from kwok_operator.nodegroups.api import autoscaling
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim.messages import SECOND, GroupOptions
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from kwok_operator.shim.store import Store

CPU_HOURLY: Final = 0.033
MEMORY_GIB_HOURLY: Final = 0.0045
GPU_HOURLY: Final = 0.7
_GIB: Final = 2**30
_GPU_SUFFIX: Final = "/gpu"
_SHARES: Final = frozenset(
    {"scale_down_utilization_threshold", "scale_down_gpu_utilization_threshold"}
)
_TIMES: Final = frozenset(
    {"scale_down_unneeded_time", "scale_down_unready_time", "max_node_provision_time"}
)


def merged_options(defaults: GroupOptions, wanted: autoscaling.AutoscalingOptions) -> GroupOptions:
    """Returns `defaults`, the options that CA sent for all groups, overridden by those that this
    group sets.
    """
    changes: dict[str, Any] = wanted.model_dump(exclude_none=True)
    for field in _SHARES & changes.keys():
        changes[field] = float(changes[field])
    for field in _TIMES & changes.keys():
        changes[field] = parse_duration(changes[field]) * SECOND
    return replace(defaults, **changes)


def should_hide_options(
    store: Store, group: Group, *, defaults: GroupOptions, wanted: GroupOptions
) -> bool:
    """Whether the shim should answer with no options for a moment, so that CA uses its own flags
    instead of the group's options.

    If CA 1.35 or later gets any options, it gives nodes no time to become Ready, and replaces nodes
    that are just starting. So the options are hidden while a node is starting. They aren't hidden
    if the group lets instances wait longer for their Nodes than CA's flags do, and one has waited
    longer than the flags allow: by the flags, CA would give that instance up.
    """
    if not store.is_starting(group):
        return False
    patience = defaults.max_node_provision_time
    longer = wanted.max_node_provision_time > patience
    return not (longer and store.waits_longer(group, patience / SECOND))


def gpu_labels(groups: Iterable[Group]) -> dict[str, str]:
    """Returns the GPU labels that groups set, by the groups' names."""
    return {group.name: label for group in groups if (label := _gpu_label(group))}


def gpu_types(groups: Iterable[Group]) -> list[str]:
    """Returns the GPU types in the groups' specs, and the values of the GPU labels in the groups'
    templates."""
    types: set[str] = set()
    for group in groups:
        if group.spec.autoscaling is not None:
            types |= group.spec.autoscaling.gpu_types
        if label := _gpu_label(group):
            types.add(_label_of_template(group, label))
    return sorted(types - {""})


def pod_cost_hourly(pod: k8s.Pod) -> float:
    """Returns the price of what a pod's containers request, for an hour."""
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


def _label_of_template(group: Group, key: str) -> str:
    """Returns the value of a label of the group's template; "" if there is none, or if it is no
    text, as any program may write odd values into the status."""
    return text_at(group.status.resolved_template, "metadata", "labels", key)


def _gpu_label(group: Group) -> str:
    return (group.spec.autoscaling.gpu_label or "") if group.spec.autoscaling else ""
