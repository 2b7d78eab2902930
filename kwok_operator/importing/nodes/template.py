"""Makes the template of a group from a Node: what matters for pods, and nothing else.

    Node  --kept_of-->  labels, taints, resources ...  --template_of-->  spec.template

The template is a `shape`; what a shape can't express is in `node` beside it. If the two together
don't give the right nodes, everything is in `node`.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from kwok_operator import constants
from kwok_operator.api.base import (
    ExtendedResourceName,
    LabelName,
    LabelValue,
    QualifiedName,
    Quantity,
)
from kwok_operator.errors import TemplateError
from kwok_operator.formats.quantity import format_quantity, parse_quantity
from kwok_operator.nodegroups.api.template import GuardTaint, Taint, Template
from kwok_operator.nodegroups.cleaning import Node, clean_node
from kwok_operator.nodegroups.template import DEFAULT_ARCH, DEFAULT_OS, resolve
from kwok_operator.nodegroups.usable import labels_of_every_node

Kept = dict[str, Any]
"""What is kept of a node: labels, annotations, taints, capacity, allocatable, as JSON values. It
always has all of these keys.
"""

_ANNOTATIONS = re.compile(r"cluster-autoscaler\.kubernetes\.io/.*|karpenter\.sh/do-not-[a-z-]+")
_MAX_LABELS: Final = 128
_MAX_TAINTS: Final = 64
_MAX_RESOURCES: Final = 64
_MAX_PODS: Final = 100_000
_FIELDS: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}
_GUARD: Final = (constants.GUARD_TAINT_KEY, constants.GUARD_TAINT_EFFECT)
_KEY: Final = TypeAdapter(QualifiedName)
_VALUE: Final = TypeAdapter(LabelValue)
_NAME: Final = TypeAdapter(LabelName)
_TAINT: Final = TypeAdapter(Taint)
_QUANTITY: Final = TypeAdapter(Quantity)
_RESOURCE: Final = TypeAdapter(ExtendedResourceName)


def kept_of(node: Mapping[str, Any]) -> Kept:
    """Returns the fields of a Node that an import keeps. Raises TemplateError if the Node is
    invalid.
    """
    cleaned = clean_node(node, field="Node")
    metadata, status = cleaned["metadata"], cleaned["status"]
    info = status.get("nodeInfo") or {}
    labels = {k: v for k, v in metadata["labels"].items() if _fits(_KEY, k) and _fits(_VALUE, v)}
    for key, word in (
        (constants.ARCH_LABEL, "architecture"),
        (constants.OS_LABEL, "operatingSystem"),
    ):
        if key not in labels and _fits(_NAME, info.get(word)):
            labels[key] = info[word]
    for key, value in labels_of_every_node(labels).items():
        if labels.get(key) == value:
            del labels[key]
    labels.pop(constants.EXCLUDE_FROM_LOAD_BALANCERS_LABEL, None)
    taints = [t for each in cleaned["spec"]["taints"] if _fits(_TAINT, t := _taint(each))]
    capacity, allocatable = (_amounts(status.get(part)) for part in ("capacity", "allocatable"))
    for name in [name for name, text in capacity.items() if not parse_quantity(text)]:
        # For pods, 0 of a resource means the same as a missing resource; kubelets list both.
        del capacity[name]
        allocatable.pop(name, None)
    return {
        "labels": labels,
        "annotations": {
            k: v
            for k, v in metadata["annotations"].items()
            if isinstance(v, str) and _ANNOTATIONS.fullmatch(k)
        },
        "taints": sorted(
            (t for t in taints if (t["key"], t["effect"]) != _GUARD),
            key=lambda t: (t["key"], t["effect"]),
        ),
        "capacity": capacity,
        "allocatable": allocatable,
    }


def has_capacity(kept: Kept) -> bool:
    capacity: Mapping[str, str] = kept["capacity"]
    return {"cpu", "memory"} <= capacity.keys()


def template_of(kept: Kept) -> dict[str, Any] | None:
    """Returns a template whose nodes get the kept fields of a Node; None if no valid template does
    that.
    """
    whole = {
        "metadata": {"labels": kept["labels"], "annotations": kept["annotations"]},
        "spec": {"taints": kept["taints"]},
        "status": {"capacity": kept["capacity"], "allocatable": kept["allocatable"]},
    }
    wanted = _outcome({"node": whole})
    if wanted is None:
        return None
    short = _short(kept)
    return short if _outcome(short) == wanted else {"node": _without_empty(whole)}


def _taint(taint: Mapping[str, Any]) -> dict[str, Any]:
    return {name: taint[name] for name in ("key", "value", "effect") if name in taint}


def _fits(kind: TypeAdapter[Any], value: object) -> bool:
    try:
        kind.validate_python(value)
    except (ValidationError, ValueError):
        return False
    return True


def _amounts(value: object) -> dict[str, str]:
    """Returns the resources of a map, with amounts as text. Amounts that no node can have are left
    out.
    """
    amounts = value if isinstance(value, Mapping) else {}
    return {k: str(v) for k, v in amounts.items() if isinstance(k, str) and _amount(v) is not None}


def _amount(value: object) -> Fraction | None:
    try:
        amount = parse_quantity(value)
    except ValueError:
        return None
    return amount if amount >= 0 and _fits(_QUANTITY, str(value)) else None


def _outcome(template: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Returns labels, annotations, taints and resources of the nodes that a template makes, to
    compare templates by them; None if the template is invalid.
    """
    try:
        node: Node = resolve(Template.model_validate(template), guard=GuardTaint())
    except (TemplateError, ValidationError):
        return None
    metadata, status = node["metadata"], node["status"]
    labels = metadata["labels"]
    taints = [{k: v for k, v in t.items() if v != ""} for t in node["spec"]["taints"]]
    resources = (status["capacity"], status["allocatable"])
    return (
        labels | labels_of_every_node(labels),
        metadata.get("annotations") or {},
        sorted(sorted(taint.items()) for taint in taints),
        *({name: parse_quantity(text) for name, text in each.items()} for each in resources),
    )


def _short(kept: Kept) -> dict[str, Any]:
    shape, capacity, allocatable = _resources(kept["capacity"], kept["allocatable"])
    labels = dict(kept["labels"])
    for field, key, default in (
        ("arch", constants.ARCH_LABEL, DEFAULT_ARCH),
        ("os", constants.OS_LABEL, DEFAULT_OS),
        ("instanceType", constants.INSTANCE_TYPE_LABEL, None),
        ("zone", constants.ZONE_LABEL, None),
    ):
        value = labels.get(key)
        if value:
            del labels[key]
            shape |= {field: value} if value != default else {}
    shape["labels"] = dict(list(labels.items())[:_MAX_LABELS])
    shape["taints"] = kept["taints"][:_MAX_TAINTS]
    node = {
        "metadata": {
            "labels": dict(list(labels.items())[_MAX_LABELS:]),
            "annotations": kept["annotations"],
        },
        "spec": {"taints": kept["taints"][_MAX_TAINTS:]},
        "status": {"capacity": capacity, "allocatable": allocatable},
    }
    template: dict[str, Any] = _without_empty({"shape": shape, "node": node})
    return template


def _resources(
    capacity: Mapping[str, str], allocatable: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Returns resources as a shape, and the parts of both maps that a shape can't express."""
    shape: dict[str, Any] = {}
    reserved: dict[str, str] = {}
    others: dict[str, str] = {}
    expressed: set[str] = set()
    for name, text in sorted(capacity.items()):
        whole, rest = parse_quantity(text), parse_quantity(allocatable.get(name, text))
        if name in _FIELDS and rest <= whole:
            shape[_FIELDS[name]] = text
            if rest < whole:
                reserved[_FIELDS[name]] = format_quantity(whole - rest, like=text)
        elif name == "pods" and rest == whole <= _MAX_PODS and whole.denominator == 1:
            shape["maxPods"] = int(whole)
        elif rest == whole and len(others) < _MAX_RESOURCES and _is_further(name):
            others[name] = text
        else:
            continue
        expressed.add(name)
    if reserved:
        shape["reserved"] = reserved
    if others:
        shape["resources"] = others
    left = [
        {k: v for k, v in each.items() if k not in expressed} for each in (capacity, allocatable)
    ]
    return shape, left[0], left[1]


def _is_further(name: str) -> bool:
    return name.startswith("hugepages-") or _fits(_RESOURCE, name)


def _without_empty(value: Any) -> Any:
    """Removes empty maps and lists from inside a value."""
    if not isinstance(value, dict):
        return value
    parts = {key: _without_empty(part) for key, part in value.items()}
    return {key: part for key, part in parts.items() if part not in ({}, [])}
