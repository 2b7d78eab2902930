"""Makes one ClusterResourceUsage for all profiles: how much CPU and memory pods use.

kwok uses the first ClusterResourceUsage that selects a pod, and selects only by names and
namespaces. So there is a single object, whose CEL expression finds the pod's profile, by rank. Pods
of no profile, and resources that a profile doesn't name, use what the pods' annotations say, as
with kwok's own object. A pod that doesn't run uses nothing.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from kwok_operator.api.selectors import SelectorOperator, SelectorRequirement
from kwok_operator.cloud.draws import SECOND, milliseconds
from kwok_operator.podprofiles.api import Ramp, ResourceUse, Wave
from kwok_operator.podprofiles.compile import STAGE_API_VERSION, Profile
from kwok_operator.podprofiles.selectors import Scope

USAGE_KIND: Final = "ClusterResourceUsage"
USAGE_NAME: Final = "kwok-operator.pod-profiles"
RESOURCES: Final = ("cpu", "memory")
_OTHERWISE: Final = {"cpu": "1m", "memory": "1Mi"}
_NOW: Final = "UnixSecond(Now())"
_MOST_PROFILES: Final = 90
_MOST_CHARACTERS: Final = 90_000
"""The most characters of the CEL expression. kwok's CEL allows 250 levels and 100,000 characters;
beyond them every pod would use 0."""


def compile_usage(profiles: Sequence[Profile]) -> dict[str, Any] | None:
    """Returns the ClusterResourceUsage. None if no profile has a usage, or if no profile with a
    usage selects any namespace."""
    ranked = sorted(profiles, key=lambda profile: profile.rank)
    used = [each for each in ranked if each.spec.usage.cpu or each.spec.usage.memory]
    if not used:
        return None
    spec: dict[str, Any] = {
        "usages": [
            {"usage": {name: {"expression": _expression(name, ranked)} for name in RESOURCES}}
        ]
    }
    namespaces = [each.scope.namespaces for each in used]
    if None not in namespaces:
        selected = sorted({name for names in namespaces for name in names or ()})
        # An empty list would select all namespaces.
        if not selected:
            return None
        spec["selector"] = {"matchNamespaces": selected}
    return {
        "apiVersion": STAGE_API_VERSION,
        "kind": USAGE_KIND,
        "metadata": {"name": USAGE_NAME},
        "spec": spec,
    }


def without_usage(profiles: Sequence[Profile]) -> set[str]:
    """Returns the names of profiles whose usage is left out of the CEL expression, as it would
    become too long."""
    ranked = sorted(profiles, key=lambda profile: profile.rank)
    included = {name: {profile.name for profile in _included(name, ranked)} for name in RESOURCES}
    return {
        profile.name
        for name in RESOURCES
        for profile in ranked
        if _use(profile, name) and profile.name not in included[name]
    }


def _use(profile: Profile, resource: str) -> ResourceUse | None:
    use: ResourceUse | None = getattr(profile.spec.usage, resource)
    return use


def _included(resource: str, ranked: Sequence[Profile]) -> list[Profile]:
    """Returns the profiles in the CEL expression of a resource, by rank, as many as fit. A profile
    that doesn't set the resource is included only if a profile of lower rank sets it, perhaps for
    some of the same pods."""
    included: list[Profile] = []
    size = 0
    for place, profile in enumerate(ranked):
        below = (each for each in ranked[place + 1 :] if _use(each, resource))
        if not _use(profile, resource) and not any(
            each.scope.may_overlap(profile.scope) for each in below
        ):
            continue
        more = len(_link(profile, resource, ""))
        if len(included) < _MOST_PROFILES and size + more <= _MOST_CHARACTERS:
            included.append(profile)
            size += more
    return included


def _link(profile: Profile, resource: str, otherwise: str) -> str:
    use = _use(profile, resource)
    amount = _by_annotation(resource) if use is None else _amount(use, resource)
    return f"({_holds(profile.scope)} ? {amount} : {otherwise})"


def _by_annotation(resource: str) -> str:
    annotation = _text(f"kwok.x-k8s.io/usage-{resource}")
    return (
        f"({annotation} in pod.metadata.annotations"
        f" ? Quantity(pod.metadata.annotations[{annotation}])"
        f" : Quantity({_text(_OTHERWISE[resource])}))"
    )


def _expression(resource: str, ranked: Sequence[Profile]) -> str:
    chain = _by_annotation(resource)
    for profile in reversed(_included(resource, ranked)):
        chain = _link(profile, resource, chain)
    return f'pod.status.phase != "Running" ? Quantity("0") : {chain}'


def _amount(use: ResourceUse, resource: str) -> str:
    if use.constant is not None:
        return f"Quantity({_text(use.constant)})"
    if use.share_of_requests is not None:
        return _of_requests(float(use.share_of_requests), resource)
    if use.ramp is not None:
        return _between(use.ramp.start, use.ramp.to, _ramped(use.ramp), resource)
    if use.wave is not None:
        return _between(use.wave.min, use.wave.max, _waved(use.wave), resource)
    return 'Quantity("0")'


def _of_requests(factor: float, resource: str) -> str:
    return f"(container.resources.requests[{_text(resource)}] * {factor:.6f})"


def _level(level: str, resource: str) -> str:
    if level.endswith("%"):
        return _of_requests(int(level[:-1]) / 100, resource)
    return f"Quantity({_text(level)})"


def _between(low: str, high: str, part: str, resource: str) -> str:
    a, b = _level(low, resource), _level(high, resource)
    return f"({a} * (1.0 - {part}) + {b} * {part})"


def _ramped(ramp: Ramp) -> str:
    """Returns CEL that rises from 0 at the pod's start to 1. It counts from the pod's start, as CEL
    can't see when containers started."""
    over = max(1, milliseconds(ramp.over) // SECOND)
    part = f"(({_NOW} - UnixSecond(pod.status.startTime)) / {over}.0)"
    return f"({part} >= 1.0 ? 1.0 : {part})"


def _waved(wave: Wave) -> str:
    """Returns CEL that is 1 at the peak and 0 half a period later, as smooth as a cosine (CEL has
    none)."""
    period = max(1, milliseconds(wave.period) // SECOND)
    peak = milliseconds(wave.peak_at) // SECOND % period
    since = f"(double((int({_NOW}) + {period - peak}) % {period}) / {period}.0)"
    part = f"({since} < 0.5 ? 1.0 - 2.0 * {since} : 2.0 * {since} - 1.0)"
    return f"({part} * {part} * (3.0 - 2.0 * {part}))"


def _holds(scope: Scope) -> str:
    conditions = [_label(key, "==", [value]) for key, value in scope.match_labels().items()]
    if scope.namespaces is not None:
        conditions.append(f"pod.metadata.namespace in {json.dumps(scope.namespaces)}")
    conditions += [_required(each) for each in (scope.pods.match_expressions if scope.pods else ())]
    if scope.node_groups:
        groups = "|".join(re.escape(group) for group in scope.node_groups)
        conditions.append(f"pod.spec.nodeName.matches({_text(f'^({groups})-[^-]*-[^-]*$')})")
    return f"({' && '.join(conditions) or 'true'})"


def _required(requirement: SelectorRequirement) -> str:
    key = _text(requirement.key)
    match requirement.operator:
        case SelectorOperator.EXISTS:
            return f"({key} in pod.metadata.labels)"
        case SelectorOperator.DOES_NOT_EXIST:
            return f"!({key} in pod.metadata.labels)"
        case SelectorOperator.IN:
            return _label(requirement.key, "in", requirement.values)
    return f"!{_label(requirement.key, 'in', requirement.values)}"


def _label(key: str, operator: str, values: Sequence[str]) -> str:
    wanted = json.dumps(list(values)) if operator == "in" else _text(values[0])
    name = _text(key)
    return f"({name} in pod.metadata.labels && pod.metadata.labels[{name}] {operator} {wanted})"


def _text(value: str) -> str:
    # Characters beyond ASCII stay: JSON escapes some by a pair, which CEL doesn't accept.
    return json.dumps(value, ensure_ascii=False)
