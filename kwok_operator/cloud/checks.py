"""What is wrong with a spec.cloud, and what goes badly together.

`CLOUD_RULES` are the rules that are more than a pattern, said again in Python for whatever
checks manifests without an API server: each rule of the models is found here by how its
message begins. They take a part of a manifest, and let pass what another rule reports.

`cautions` are for a group that cluster-autoscaler drives. Nothing of it is refused: each
can be what somebody wants to rehearse.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kwok_operator.api.base import QUALIFIED_NAME
from kwok_operator.cloud.draws import SECOND, span
from kwok_operator.formats.times import parse_duration
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec

_KINDS: Final = ("fixed", "uniform", "normal", "lognormal", "exponential", "samples")
_NAME = re.compile(QUALIFIED_NAME)


def _in_order(low: str, high: str, part: Mapping[str, Any]) -> bool:
    first, second = _seconds(part.get(low)), _seconds(part.get(high))
    return first is None or second is None or first <= second


def _seconds(text: Any) -> int | None:
    try:
        return parse_duration(text)
    except (TypeError, ValueError):
        return None


def _one_kind(delay: Mapping[str, Any]) -> bool:
    return sum(delay.get(kind) is not None for kind in _KINDS) == 1


def _names_somebody(chance: Mapping[str, Any]) -> bool:
    return any(chance.get(way) is not None for way in ("probability", "serials"))


def _one_lifetime(part: Mapping[str, Any]) -> bool:
    return part.get("lifetime") is None or part.get("hourlyRate") is None


def _resource_names(spec: Mapping[str, Any]) -> bool:
    return all(_NAME.fullmatch(name) for name in spec.get("resources") or {})


CLOUD_RULES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "uniform.min must not": partial(_in_order, "min", "max"),
    "lognormal.p50 must not": partial(_in_order, "p50", "p99"),
    "lognormal.p50 must be longer": lambda part: _seconds(part.get("p50")) != 0,
    "must have exactly one of fixed": _one_kind,
    "must have probability, serials": _names_somebody,
    "interruptions must have lifetime or": _one_lifetime,
    "resources: a name must": _resource_names,
}


_MOSTLY: Final = 0.99


def cautions(spec: KwokNodeGroupSpec) -> tuple[str, ...]:
    """None for a group without spec.cloud, or without autoscaling.options."""
    cloud, autoscaling = spec.cloud, spec.autoscaling
    options = autoscaling.options if autoscaling else None
    if cloud is None or options is None or not options.model_fields_set:
        return ()
    found = []
    fields = {
        "readinessDelay": cloud.readiness_delay,
        "startupTaints": cloud.startup_taints,
        "lateResources": cloud.late_resources,
    }
    if named := " and ".join(name for name, value in fields.items() if value):
        found.append(
            f"autoscaling.options don't hold while a node is starting, and cloud.{named} makes that"
            " long: with them, cluster-autoscaler 1.35 and later would ask for another in its"
            " place; give it these options as flags"
        )
    given, delay = options.max_node_provision_time, cloud.provisioning_delay
    if given is not None and delay is not None:
        longest = span(delay, _MOSTLY) // SECOND
        if parse_duration(given) < longest:
            found.append(
                f"autoscaling.options.maxNodeProvisionTime is {given}, and cloud.provisioningDelay"
                f" can be {longest}s: cluster-autoscaler gives up what is still coming; raise the"
                " one or lower the other"
            )
    return tuple(found)
