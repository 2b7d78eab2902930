"""Reads the parts of pods' manifests that schedulers and statistics of rehearsals use: requests,
selectors, owners.

Amounts are whole numbers: CPU in thousandths, everything else in its own unit. Unreadable values
are left out.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Final

from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.untyped import as_list, as_map, text_at

_ORDERS: Final = {"Gt": gt, "Gte": ge, "Lt": lt, "Lte": le}
MAX_AMOUNT: Final = 2.0**80
"""Larger amounts are left out; sums are at most this."""


def selects(selector: object, labels: Mapping[str, Any]) -> bool:
    """Whether a selector selects these labels. As in policy/v1, an empty selector selects all pods,
    and a missing one selects none.
    """
    if not isinstance(selector, Mapping):
        return False
    wanted = as_map(selector.get("matchLabels"))
    return wanted.items() <= labels.items() and all(
        meets(labels.get(text_at(each, "key")), each)
        for each in dicts(selector.get("matchExpressions"))
    )


def meets(value: object, requirement: Mapping[str, Any]) -> bool:
    """Whether a label's value (None: no such label) meets a requirement of a selector. Gt and Lt
    are for nodes; Gte and Lte exist in Karpenter only."""
    values = as_list(requirement.get("values"))
    match requirement.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case str(name) if name in _ORDERS and len(values) == 1:
            one, other = _integer(value), _integer(values[0])
            return one is not None and other is not None and _ORDERS[name](one, other)
    return False


def _integer(text: object) -> int | None:
    match = isinstance(text, str) and re.fullmatch(r"[+-]?[0-9]{1,30}", text)
    return int(match[0]) if match else None


def workload(metadata: Mapping[str, Any]) -> str:
    """Returns the owner of a pod as Kind/NAMESPACE/NAME; for a ReplicaSet of a Deployment, the
    Deployment.
    """
    namespace = text_at(metadata, "namespace")
    for owner in dicts(metadata.get("ownerReferences")):
        if owner.get("controller") is True:
            kind, name = text_at(owner, "kind"), text_at(owner, "name")
            digest = text_at(metadata, "labels", "pod-template-hash")
            if kind == "ReplicaSet" and digest and name.endswith(f"-{digest}"):
                kind, name = "Deployment", name.removesuffix(f"-{digest}")
            return f"{kind}/{namespace}/{name}"
    prefix = text_at(metadata, "generateName").rstrip("-")
    return f"Pod/{namespace}/{prefix or text_at(metadata, 'name')}"


def gang(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, int]:
    """Returns a pod's gang (pods that must run together) as Kind/NAMESPACE/NAME, and how many of
    the gang's pods must run at once.

    The pod's fields, labels or annotations name the gang; without one, the result is ("", 0). The
    number is 0 if the pod doesn't give it. These APIs count, in this order: scheduling.k8s.io
    (core/v1 PodSchedulingGroup), coscheduling of scheduler-plugins (apis/scheduling/v1alpha1),
    Volcano (apis/scheduling/v1beta1), Kueue's groups of plain pods
    (pkg/controller/jobs/pod/constants), LeaderWorkerSet (api/leaderworkerset/v1).
    """
    labels, notes = as_map(metadata.get("labels")), as_map(metadata.get("annotations"))
    namespace = text_at(metadata, "namespace")
    name = text_at(spec, "schedulingGroup", "podGroupName") or (
        text_at(labels, "scheduling.x-k8s.io/pod-group")
        or text_at(notes, "scheduling.k8s.io/group-name")
        or text_at(notes, "scheduling.volcano.sh/group-name")
    )
    if name:
        return f"PodGroup/{namespace}/{name}", 0
    if name := text_at(labels, "kueue.x-k8s.io/pod-group-name"):
        size = _integer(notes.get("kueue.x-k8s.io/pod-group-total-count"))
        return f"PodGroup/{namespace}/{name}", max(size or 0, 0)
    if name := text_at(labels, "leaderworkerset.sigs.k8s.io/name"):
        index = text_at(labels, "leaderworkerset.sigs.k8s.io/group-index")
        size = _integer(notes.get("leaderworkerset.sigs.k8s.io/size"))
        return f"LeaderWorkerSet/{namespace}/{name}-{index}", max(size or 0, 0)
    return "", 0


def amounts(quantities: object) -> dict[str, float]:
    """Converts a map of quantities to amounts. Values that are no quantities are left out."""
    parsed: dict[str, float] = {}
    for name, value in as_map(quantities).items():
        if isinstance(value, str | int | float):
            amount = _amount(value, 1_000 if name == "cpu" else 1)
            if amount is not None:
                parsed[name] = amount
    return parsed


@lru_cache(maxsize=4_096, typed=True)
def _amount(value: str | float, parts: int) -> int | None:
    # Cached, as thousands of nodes have the same few quantities.
    try:
        amount = round(parse_quantity(value) * parts)
    except ValueError:
        return None
    return amount if 0 <= amount <= MAX_AMOUNT else None


def requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """Returns the requests that the scheduler counts for a pod: the pod's own, else those of its
    containers.

    Containers and sidecars run at the same time, other init containers one after the other, each
    with the sidecars before it. See component-helpers' resource.PodRequests.
    """
    running: dict[str, float] = {}
    peak: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for container in dicts(spec.get("initContainers")):
        requested = _requested(container)
        if is_sidecar(container):
            sidecars = _sum(sidecars, requested)
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum(sidecars, requested))
    for container in dicts(spec.get("containers")):
        running = _sum(running, _requested(container))
    total = _most(_sum(running, sidecars), peak)
    total |= _requested(spec)
    total = _sum(total, amounts(spec.get("overhead")))
    return {name: min(n, MAX_AMOUNT) for name, n in total.items() if n}


def _requested(holder: Mapping[str, Any]) -> dict[str, float]:
    return amounts(as_map(holder.get("resources")).get("requests"))


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _most(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def amount_in_words(resource: str, amount: float) -> str:
    """Writes an amount for people: `1.5 CPUs`, `16Gi of memory`, `2 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{amount / 1_000:g} CPUs"
    if resource in ("memory", "ephemeral-storage"):
        return f"{amount / 2**30:.4g}Gi of {resource}"
    return f"{amount:g} {resource}"


def dicts(value: object) -> list[dict[str, Any]]:
    """Returns the objects in a list. Other values in it are left out."""
    return [each for each in as_list(value) if isinstance(each, dict)]
