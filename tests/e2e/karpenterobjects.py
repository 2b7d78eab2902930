"""What Karpenter's kwok provider writes, and how it decides that a pod fits: pure functions.

instance types  --offerings-->  each of their offerings, the cheapest first
NodePool        --claim-->      a NodeClaim  --node-->  its Node, not registered yet
pod, labels     --fits-->       whether it could run there
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

from kwok_operator.formats.quantity import parse_quantity

FINALIZER: Final = "karpenter.sh/termination"
POOL: Final = "karpenter.sh/nodepool"
HASH: Final = "karpenter.sh/nodepool-hash"
FAKE: Final = {"kwok.x-k8s.io/node": "fake"}
UNREGISTERED: Final = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
DISRUPTED: Final = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
_OVERHEAD: Final = {"cpu": Fraction(1, 10), "memory": Fraction(10 * 2**20)}
_STAGES: Final = ("Launched", "Registered", "Initialized")
_API: Final = "karpenter.sh/v1"

Labels = Mapping[str, str]
Amounts = dict[str, Fraction]


@dataclass(frozen=True)
class Offering:
    """An instance type as one of its offerings has it."""

    type: str
    price: float
    labels: Labels
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]


def offerings(types: Any) -> Iterator[Offering]:
    """Raises LookupError, TypeError, ValueError if this is no list of instance types."""
    for each in types:
        capacity = {"pods": "110", **each["resources"]}
        less = {k: parse_quantity(v) - _OVERHEAD.get(k, 0) for k, v in capacity.items()}
        own = {
            "node.kubernetes.io/instance-type": each["name"],
            "kubernetes.io/arch": each["architecture"],
            "kubernetes.io/os": each["operatingSystems"][0],
        }
        for offered in each["offerings"]:
            yield Offering(
                type=each["name"],
                price=float(offered["Price"]),
                labels=own | _single(offered["Requirements"]),
                capacity=capacity,
                allocatable={k: _quantity(v) for k, v in less.items()},
            )


def claim(pool: Any, each: Offering) -> dict[str, Any]:
    """A NodeClaim of the pool that can only become this offering."""
    template = pool["spec"]["template"]
    reference = template["spec"]["nodeClassRef"]
    labels = {
        **(template.get("metadata", {}).get("labels") or {}),
        POOL: pool["metadata"]["name"],
        f"{reference['group']}/{reference['kind'].lower()}": reference["name"],
    }
    parts = ("nodeClassRef", "taints", "startupTaints", "expireAfter", "terminationGracePeriod")
    return {
        "apiVersion": _API,
        "kind": "NodeClaim",
        "metadata": {
            "generateName": f"{pool['metadata']['name']}-",
            "labels": labels,
            "annotations": {HASH: template_hash(pool), "karpenter.sh/nodepool-hash-version": "v3"},
            "finalizers": [FINALIZER],
            "ownerReferences": [_owner("NodePool", pool)],
        },
        "spec": {
            **{part: template["spec"][part] for part in parts if part in template["spec"]},
            "requirements": [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in {**labels, **each.labels}.items()
            ],
        },
    }


def chosen(of: Any, offered: Iterable[Offering]) -> Offering:
    """What a NodeClaim of `claim` is to become."""
    wanted = _single(of["spec"]["requirements"]).items()
    return next(each for each in offered if each.labels.items() <= wanted)


def launched(of: Any, each: Offering) -> dict[str, Any]:
    """The status of a NodeClaim for which there is an instance."""
    return {
        "providerID": f"kwok://kwok-{of['metadata']['name']}-{of['metadata']['uid'][:8]}",
        "capacity": each.capacity,
        "allocatable": each.allocatable,
        "conditions": conditions(of, Launched="True"),
    }


def node(of: Any) -> dict[str, Any]:
    """The Node of a launched NodeClaim, before it is registered."""
    metadata, status = of["metadata"], of["status"]
    return {
        "metadata": {
            "name": status["providerID"].removeprefix("kwok://"),
            "labels": {**metadata["labels"], "kubernetes.io/hostname": metadata["name"]},
            "annotations": {**metadata["annotations"], **FAKE},
        },
        "spec": {"providerID": status["providerID"], "taints": [UNREGISTERED]},
        "status": {part: status[part] for part in ("capacity", "allocatable")}
        | {"phase": "Pending"},
    }


def registration(of: Any, there: Any) -> dict[str, Any]:
    """What changes of a Node when it is registered with its NodeClaim."""
    metadata = of["metadata"]
    taints = [t for t in there["spec"].get("taints") or () if t["key"] != UNREGISTERED["key"]]
    for part in ("taints", "startupTaints"):
        taints += [taint for taint in of["spec"].get(part) or () if taint not in taints]
    return {
        "metadata": {
            # As it replaces the taints that others have set meanwhile.
            "resourceVersion": there["metadata"]["resourceVersion"],
            "finalizers": [FINALIZER],
            "labels": {**metadata["labels"], "karpenter.sh/registered": "true"},
            "annotations": metadata["annotations"],
            "ownerReferences": [_owner("NodeClaim", of)],
        },
        "spec": {"taints": taints},
    }


def conditions(of: Any, **changes: str) -> list[dict[str, Any]]:
    """All conditions of a NodeClaim after some became True, each for a reason: "True" is its own
    name. `Ready` is True once nothing is missing.
    """
    there = {each["type"]: each for each in of.get("status", {}).get("conditions") or ()}
    for stage in (*_STAGES, "Ready"):
        there.setdefault(stage, _condition(stage, "Unknown", "AwaitingReconciliation"))
    for name, reason in changes.items():
        there[name] = _condition(name, "True", name if reason == "True" else reason)
    if all(there[stage]["status"] == "True" for stage in _STAGES):
        if there["Ready"]["status"] != "True":
            there["Ready"] = _condition("Ready", "True", "Ready")
    return list(there.values())


def pool_conditions() -> list[dict[str, Any]]:
    """The conditions of a NodePool that can be used."""
    return [
        _condition(name, "True", name)
        for name in ("ValidationSucceeded", "NodeClassReady", "Ready")
    ]


def has(of: Any, condition: str) -> bool:
    """Whether the condition of a NodeClaim is True."""
    there = {c["type"]: c["status"] for c in of["status"].get("conditions") or ()}
    return there.get(condition) == "True"


def event(kind: str, about: Any, reason: str) -> dict[str, Any]:
    """That an object is disrupted for this reason."""
    name = about["metadata"]["name"]
    return {
        "metadata": {"generateName": f"{name}.", "namespace": "default"},
        "involvedObject": {"kind": kind, "name": name, "uid": about["metadata"]["uid"]},
        "reason": "DisruptionTerminating",
        "message": f"Disrupting {kind}: {reason}",
        "type": "Normal",
        "source": {"component": "karpenter"},
        "firstTimestamp": now(),
        "lastTimestamp": now(),
        "count": 1,
    }


def allows(pool: Any, each: Offering, used: Iterable[Any]) -> bool:
    """Whether the requirements of a pool have the offering, and its limits have room for it beside
    its NodeClaims.
    """
    template = pool["spec"]["template"]
    labels = {**(template.get("metadata", {}).get("labels") or {}), **each.labels}
    limits = _amounts(pool["spec"].get("limits") or {})
    total: Amounts = dict.fromkeys(limits, Fraction(0))
    for capacity in (*(one["status"].get("capacity") or {} for one in used), each.capacity):
        for name, amount in {**_amounts(capacity), "nodes": Fraction(1)}.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return all(_holds(labels, one) for one in template["spec"].get("requirements") or ()) and all(
        total[name] <= limit for name, limit in limits.items()
    )


def fits(pod: Any, labels: Labels, taints: Iterable[Any], left: Amounts) -> bool:
    spec = pod["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [t.get("matchExpressions") or [] for t in required.get("nodeSelectorTerms") or ()]
    return (
        (spec.get("nodeSelector") or {}).items() <= labels.items()
        and (not terms or any(all(_holds(labels, e) for e in term) for term in terms))
        and all(_tolerates(spec, taint) for taint in taints)
        and all(left.get(name, Fraction(0)) >= much for name, much in _wanted(pod).items())
    )


def room(of: Any, pods: Iterable[Any]) -> Amounts:
    """What is left of a NodeClaim, or of an offering's resources, beside these pods."""
    left = _amounts(of)
    for pod in pods:
        take(left, pod)
    return left


def take(left: Amounts, pod: Any) -> None:
    for name, amount in _wanted(pod).items():
        left[name] = left.get(name, Fraction(0)) - amount


def is_unschedulable(pod: Any) -> bool:
    reasons = {c["type"]: c.get("reason") for c in pod["status"].get("conditions") or ()}
    return not pod["spec"].get("nodeName") and reasons.get("PodScheduled") == "Unschedulable"


def stays(pod: Any) -> bool:
    """Whether it goes with its node."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each["kind"] in ("DaemonSet", "Node") for each in owners)


def is_usable(there: Any) -> bool:
    ready = {c["type"]: c["status"] for c in there["status"].get("conditions") or ()}
    keys = {taint["key"] for taint in there["spec"].get("taints") or ()}
    return ready.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in keys


def template_hash(pool: Any) -> str:
    """Another one is drift."""
    text = json.dumps(pool["spec"]["template"], sort_keys=True)
    return str(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16))


def seconds(span: str) -> float:
    """Of a duration such as 1m30s."""
    total, digits = 0.0, ""
    for letter in span:
        if letter in "smh":
            total, digits = total + float(digits) * {"s": 1, "m": 60, "h": 3600}[letter], ""
        else:
            digits += letter
    return total


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def crds() -> list[dict[str, Any]]:
    """CRDs with the names and the subresources of Karpenter's, which take any field."""
    ready = {**_condition("Ready", "True", "Ready"), "lastTransitionTime": "2024-01-01T01:01:01Z"}
    delay = {"properties": {"nodeRegistrationDelay": {"type": "string"}}}
    return [
        _crd("karpenter.sh", "v1", "NodePool", "nodepools"),
        _crd("karpenter.sh", "v1", "NodeClaim", "nodeclaims"),
        _crd(
            "karpenter.kwok.sh",
            "v1alpha1",
            "KWOKNodeClass",
            "kwoknodeclasses",
            spec=delay,
            status={"default": {"conditions": [ready]}},
        ),
    ]


def _crd(group: str, version: str, kind: str, plural: str, **parts: Any) -> dict[str, Any]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    fields: dict[str, Any] = {name: {"type": "string"} for name in ("apiVersion", "kind")}
    fields |= {part: {**free, **parts.get(part, {})} for part in ("spec", "status")}
    fields["metadata"] = {"type": "object"}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Cluster", "versions": [served]},
    }


def _condition(name: str, status: str, reason: str) -> dict[str, Any]:
    times = {"lastTransitionTime": now()}
    return {"type": name, "status": status, "reason": reason, "message": "", **times}


def _owner(kind: str, of: Any) -> dict[str, Any]:
    own = {"name": of["metadata"]["name"], "uid": of["metadata"]["uid"]}
    return {"apiVersion": _API, "kind": kind, **own, "blockOwnerDeletion": True}


def _holds(labels: Labels, one: Any) -> bool:
    value, operator = labels.get(one["key"]), one["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return bool((value is not None) == (operator == "Exists"))
    return bool((value in one["values"]) == (operator == "In"))


def _tolerates(spec: Any, taint: Any) -> bool:
    return any(
        each.get("key", taint["key"]) == taint["key"]
        and each.get("effect", taint["effect"]) == taint["effect"]
        and (each.get("operator") == "Exists" or each.get("value") == taint.get("value"))
        for each in spec.get("tolerations") or ()
    )


def _single(requirements: Iterable[Any]) -> dict[str, str]:
    return {
        each["key"]: each["values"][0]
        for each in requirements
        if each["operator"] == "In" and len(each["values"]) == 1
    }


def _wanted(pod: Any) -> Amounts:
    total: Amounts = {"pods": Fraction(1)}
    for container in pod["spec"]["containers"]:
        requests = (container.get("resources") or {}).get("requests") or {}
        for name, amount in _amounts(requests).items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _quantity(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{int(amount * 1000)}m"


def _amounts(quantities: Mapping[str, object]) -> Amounts:
    return {name: parse_quantity(value) for name, value in quantities.items()}
