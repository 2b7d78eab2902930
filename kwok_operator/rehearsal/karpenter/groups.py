"""Groups as Karpenter's kwok provider can offer them, and which of their fields it can't follow.

    KwokNodeGroup and its resolved node  --offering_of-->  GroupOffering
    specs of groups  --common_delay--> the registration delay of the class
                     --unheeded-->     the fields that have no effect

Only groups with spec.autoscaling count, as with cluster-autoscaler: by this field, the user allows
an autoscaler to create a group's nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.api.delay import Delay
from kwok_operator.constants import (
    ALIKE_LABEL,
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BETA_OS_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_PRICE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODE_GROUP_LABEL,
    OS_LABEL,
)
from kwok_operator.formats.times import parse_duration
from kwok_operator.formats.untyped import as_map
from kwok_operator.importing.nodes.pools import capacity_type
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.cleaning import Node

CAPACITY_TYPES: Final = frozenset({"on-demand", "spot", "reserved"})
_OF_THE_TYPE: Final = frozenset(
    {
        ALIKE_LABEL,
        ARCH_LABEL,
        BETA_ARCH_LABEL,
        BETA_OS_LABEL,
        HOSTNAME_LABEL,
        INSTANCE_TYPE_LABEL,
        NODE_GROUP_LABEL,
        OS_LABEL,
        "beta.kubernetes.io/instance-type",
        "kwok-partition",
        "kwok.x-k8s.io/node",
        INSTANCE_PRICE_LABEL,
    }
)
"""Labels of nodes that no offering has: the type, the node or the provider sets them."""
_KARPENTERS: Final = ("karpenter.sh", "karpenter.kwok.sh")
"""Domains of labels that Karpenter and its provider set themselves."""
_NO_CLOUD: Final = Cloud()
_DELAYS: Final = ("provisioningDelay", "readinessDelay")
_ACTING: Final = frozenset({"seed", "retryAfter", "interruptions"})
"""Fields of spec.cloud whose changes apply to existing nodes, or don't matter."""
_UNHEEDED: Final = ("autoscaling", "price", "targetSize", "template")
"""Fields of spec whose changes have no effect. Nodes by targetSize stay beside Karpenter's."""


@dataclass(frozen=True, slots=True)
class GroupOffering:
    """A group's nodes, as an offering of a Karpenter instance type."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]
    """Key, value and effect of each taint, sorted."""
    price: float
    architecture: str = "amd64"
    system: str = "linux"
    instance_type: str = ""
    capacity_type: str = "on-demand"
    most: int | None = None
    """How many nodes Karpenter may make; None for any number."""


def offering_of(name: str, spec: KwokNodeGroupSpec, node: Node) -> GroupOffering:
    """Makes a group's offering from its resolved node. The group must have bounds and a price."""
    assert spec.autoscaling is not None and spec.price is not None
    labels: Mapping[str, str] = node["metadata"]["labels"]
    interrupted = spec.cloud is not None and spec.cloud.interruptions is not None
    most = spec.autoscaling.max_size
    return GroupOffering(
        name=name,
        labels={key: value for key, value in labels.items() if not _is_set_elsewhere(key)},
        allocatable={key: str(value) for key, value in node["status"]["allocatable"].items()},
        taints=tuple(sorted(_taints(node))),
        price=float(spec.price.hourly),
        architecture=labels.get(ARCH_LABEL, "amd64"),
        system=labels.get(OS_LABEL, "linux"),
        instance_type=labels.get(INSTANCE_TYPE_LABEL, ""),
        capacity_type="spot" if interrupted else capacity_type(labels),
        most=None if most is None else max(most - kept(spec), 0),
    )


def kept(spec: KwokNodeGroupSpec) -> int:
    """Returns how many nodes of a group the operator itself creates: the larger of targetSize and
    minSize. Karpenter never changes these nodes.
    """
    least = spec.autoscaling.min_size if spec.autoscaling is not None else 0
    return max(spec.target_size or 0, least)


def _is_set_elsewhere(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    own = any(domain == each or domain.endswith(f".{each}") for each in _KARPENTERS)
    return own or key in _OF_THE_TYPE


def _taints(node: Node) -> Iterator[tuple[str, str, str]]:
    for taint in node["spec"].get("taints") or ():
        yield str(taint["key"]), str(taint.get("value") or ""), str(taint["effect"])


def common_delay(specs: Mapping[str, KwokNodeGroupSpec]) -> int | None:
    """Returns the seconds from the request of a node until it accepts pods; None if they aren't
    constant, or differ between these groups.
    """
    delays = {_delay(spec) for spec in specs.values()}
    return delays.pop() if len(delays) == 1 else None if delays else 0


def _delay(spec: KwokNodeGroupSpec) -> int | None:
    cloud = spec.cloud or _NO_CLOUD
    parts = [_constant(each) for each in (cloud.provisioning_delay, cloud.readiness_delay)]
    return None if None in parts else sum(each or 0 for each in parts)


def _constant(delay: Delay | None) -> int | None:
    if delay is None:
        return 0
    return parse_duration(delay.fixed) if delay.fixed is not None else None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that differ, with their present values; None for removed fields."""
    return {k: now.get(k) for k in {**before, **now} if before.get(k) != now.get(k)}


def unheeded_changes(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yields the fields of a group's changed spec that have no effect: Karpenter has made its
    instance types and NodePools already, and its nodes exist.
    """
    for field in _UNHEEDED:
        if field in spec:
            yield f"spec.{field}"
    for field in as_map(spec.get("cloud")):
        if field not in _ACTING:
            yield f"spec.cloud.{field}"


def unheeded(specs: Mapping[str, KwokNodeGroupSpec], *, delay_given: bool) -> dict[str, list[str]]:
    """Returns the fields of groups that have no effect on Karpenter's nodes, each with its groups.

    With `delay_given`, the scenario sets the one delay that all of Karpenter's nodes have.
    """
    groups_by_field: dict[str, list[str]] = {}
    delays = not delay_given and common_delay(specs) is None
    for name, spec in sorted(specs.items()):
        cloud = spec.cloud or _NO_CLOUD
        given = differences(_NO_CLOUD.dump(), cloud.dump())
        fields = [f"cloud.{each}" for each in given if each not in _ACTING.union(_DELAYS)]
        if delays:
            fields += [f"cloud.{each}" for each in _DELAYS if each in given][:1]
        if spec.template.companions is not None:
            fields.append("template.companions")
        if spec.template.shape.gpu is not None and spec.template.shape.gpu.dra:
            fields.append("template.shape.gpu.dra")
        for field in fields:
            groups_by_field.setdefault(f"spec.{field}", []).append(name)
    return groups_by_field
