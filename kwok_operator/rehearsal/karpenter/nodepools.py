"""Karpenter's NodePools and the class of their nodes: made from groups, or completed if given.

groups       --pools_of-->   a NodePool for each set of taints, as prices are compared within one
a NodePool   --completed-->  with our class, and only capacity types that are offered
a NodePool, types  --misfit-->  why Karpenter could make no node for it
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kwok_operator.constants import (
    CAPACITY_TYPE_LABEL,
    GUARD_TAINT_KEY,
    INSTANCE_TYPE_LABEL,
    NODE_GROUP_LABEL,
)
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.podparts import meets
from kwok_operator.formats.quantity import format_quantity, parse_quantity
from kwok_operator.formats.times import parse_duration
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.formats.words import names_in_words, shown
from kwok_operator.formats.yamltext import Path
from kwok_operator.rehearsal.karpenter.groups import GroupOffering
from kwok_operator.rehearsal.karpenter.instancetypes import InstanceType, free_name

API_VERSION: Final = "karpenter.sh/v1"
NODE_POOL: Final = "NodePool"
CLASS_GROUP: Final = "karpenter.kwok.sh"
CLASS_API_VERSION: Final = f"{CLASS_GROUP}/v1alpha1"
NODE_CLASS: Final = "KWOKNodeClass"
DEFAULT_CLASS: Final = "default"
UNTAINTED: Final = "default"
"""The name of the NodePool of groups without taints, except the guard taint."""
_MAX_NAME: Final = 30
"""The most characters: Karpenter appends to the name, and hostname labels have at most 63."""
_CLASS_NAME: Final = ("spec", "template", "spec", "nodeClassRef", "name")
_REQUIREMENTS: Final = ("spec", "template", "spec", "requirements")
_OF_THE_PROVIDER: Final = "karpenter.kwok.sh/"
"""Labels that the provider computes from a type's name and resources; not checked here."""
_NO_CUSTOM_LABEL: Final = re.compile(r"(.*\.)?(kubernetes\.io|k8s\.io)|karpenter\..*")


def pools_of(
    groups: Sequence[GroupOffering], *, disruption: Mapping[str, Any] | None = None
) -> list[Manifest]:
    """Returns a NodePool for each set of taints among the groups."""
    alike: dict[tuple[tuple[str, str, str], ...], list[GroupOffering]] = {}
    for group in sorted(groups, key=lambda each: each.name):
        alike.setdefault(group.taints, []).append(group)
    taken, pools = set[str](), []
    for taints, some in sorted(alike.items()):
        name = _name(taints, taken)
        taken.add(name)
        pools.append(_pool(name, taints, some, disruption))
    return pools


def _name(taints: Sequence[tuple[str, str, str]], taken: set[str]) -> str:
    words = [
        word
        for key, value, _ in taints
        if key != GUARD_TAINT_KEY
        for word in (key.rpartition("/")[2], value)
    ]
    letters = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())
    name = letters.strip("-")[:_MAX_NAME].strip("-") or UNTAINTED
    return free_name(name, taken)


def _pool(
    name: str,
    taints: Sequence[tuple[str, str, str]],
    groups: Sequence[GroupOffering],
    disruption: Mapping[str, Any] | None,
) -> Manifest:
    template: dict[str, Any] = {
        "nodeClassRef": _class_ref(DEFAULT_CLASS),
        "requirements": [
            _one_of(NODE_GROUP_LABEL, [each.name for each in groups]),
            _one_of(CAPACITY_TYPE_LABEL, sorted({each.capacity_type for each in groups})),
        ],
    }
    if taints:
        template["taints"] = [
            {"key": key, "effect": effect} | ({"value": value} if value else {})
            for key, value, effect in taints
        ]
    spec: dict[str, Any] = {"template": {"spec": template}}
    if disruption:
        # Versions before 1.14 need it beside the other fields; this is the default of all.
        spec["disruption"] = {"consolidateAfter": "0s", **disruption}
    if limits := _limits(groups):
        spec["limits"] = limits
    metadata = {"name": name}
    return {"apiVersion": API_VERSION, "kind": NODE_POOL, "metadata": metadata, "spec": spec}


def _one_of(key: str, values: Sequence[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [*values]}


def _class_ref(name: str) -> dict[str, str]:
    return {"group": CLASS_GROUP, "kind": NODE_CLASS, "name": name}


def _limits(groups: Sequence[GroupOffering]) -> dict[str, str]:
    """Returns a NodePool's limits: the most nodes that its groups may have, and the CPU of these
    nodes. Returns none if a group has no maximum.

    Karpenter can limit nodes from 1.12 on. For older versions, the limit of CPU comes closest.
    """
    bounds = [each.most for each in groups]
    if None in bounds:
        return {}
    cpu = sum(
        (each.most or 0) * (parse_quantity(each.allocatable["cpu"]) + parse_quantity("100m"))
        for each in groups
    )
    nodes = sum(each or 0 for each in bounds)
    return {"nodes": str(nodes), "cpu": format_quantity(cpu + parse_quantity(0), like="1")}


def node_class(name: str, *, delay: float) -> Manifest:
    """Returns a KWOKNodeClass; `delay` is in seconds."""
    spec = {"nodeRegistrationDelay": f"{delay:.0f}s"} if delay else {}
    return {
        "apiVersion": CLASS_API_VERSION,
        "kind": NODE_CLASS,
        "metadata": {"name": name},
        "spec": spec,
    }


def delay_of(node_class: Manifest) -> float | None:
    """Returns the delay of a KWOKNodeClass in seconds; None if it can't be read."""
    text = text_at(node_class, "spec", "nodeRegistrationDelay")
    try:
        return float(parse_duration(text)) if text else 0.0
    except ValueError:
        return None


def completed(pool: Manifest, types: Sequence[InstanceType]) -> Manifest:
    """Returns a user's NodePool as the kwok provider needs it.

    If its nodeClassRef names no KWOKNodeClass, it gets our default one. Its capacity types are
    reduced to those that some instance type offers: otherwise Karpenter would try, say, spot nodes,
    and the provider would crash without an offering. If it names an instance type of which groups
    have several shapes, it gets the types of all these shapes.
    """
    there = frozenset[str]().union(*(each.values_of(CAPACITY_TYPE_LABEL) for each in types))
    spec, template = as_map(pool.get("spec")), as_map(as_map(pool.get("spec")).get("template"))
    inner = as_map(template.get("spec"))
    ref = as_map(inner.get("nodeClassRef"))
    given = [_with_renamed(each, types) for each in as_list(inner.get("requirements"))]
    requirements = [_possible(each, there) for each in given]
    if not any(as_map(each).get("key") == CAPACITY_TYPE_LABEL for each in requirements):
        requirements.append(_one_of(CAPACITY_TYPE_LABEL, sorted(there)))
    known = ref.get("group") == CLASS_GROUP and ref.get("kind") == NODE_CLASS
    inner = {
        **inner,
        "nodeClassRef": ref if known else _class_ref(DEFAULT_CLASS),
        "requirements": requirements,
    }
    return {**pool, "spec": {**spec, "template": {**template, "spec": inner}}}


def _with_renamed(requirement: Any, types: Sequence[InstanceType]) -> Any:
    each = as_map(requirement)
    values = as_list(each.get("values"))
    if each.get("key") != INSTANCE_TYPE_LABEL or each.get("operator") not in ("In", "NotIn"):
        return requirement
    more = [t.name for t in types if t.renamed_from in values and t.name not in values]
    return {**each, "values": [*values, *more]} if more else requirement


def _possible(requirement: Any, capacity_types: frozenset[str]) -> Any:
    each = as_map(requirement)
    if each.get("key") != CAPACITY_TYPE_LABEL:
        return requirement
    left = [value for value in sorted(capacity_types) if meets(value, each)]
    return _one_of(CAPACITY_TYPE_LABEL, left) if left else requirement


def no_class(pool: Manifest, classes: Collection[str]) -> tuple[Path, str] | None:
    """If a NodePool names a class that doesn't exist, returns that field and a sentence on it; else
    None.
    """
    name = text_at(pool, "spec", "template", "spec", "nodeClassRef", "name")
    if name in classes:
        return None
    there = names_in_words(sorted(classes))
    return _CLASS_NAME, f"{shown(name)} is no {NODE_CLASS} that is applied; there is {there}"


def misfit(pool: Manifest, types: Sequence[InstanceType]) -> tuple[Path, str] | None:
    """If no instance type fits a NodePool, returns the field that none fits, and a sentence on it;
    else None.
    """
    template = as_map(as_map(pool.get("spec")).get("template"))
    requirements = [
        as_map(each) for each in as_list(as_map(template.get("spec")).get("requirements"))
    ]
    left = [(each, {**each.labels, **o.labels}) for each in types for o in each.offerings]
    known = frozenset[str]().union(*(labels for _, labels in left))
    for number, each in enumerate(requirements):
        key = str(each.get("key"))
        path: Path = (*_REQUIREMENTS, number)
        if key not in known and key.startswith(_OF_THE_PROVIDER):
            continue
        if key not in known and not _is_custom(key) and str(each.get("operator")) in _NEEDS_LABEL:
            return path, (
                f"no instance type has the label {shown(key)}, and Karpenter's kwok provider would"
                " ignore this; take it out, or give the types this label"
            )
        if key not in known:
            continue
        before = left
        left = [(one, labels) for one, labels in left if _can_meet(labels.get(key, ()), each)]
        if not left:
            values = sorted({value for _, labels in before for value in labels.get(key, ())})
            others = "" if number == 0 else " among those that the requirements before leave"
            there = names_in_words(values, most=5) or "none"
            return path, (
                f"no instance type fits{others}: {key} is {there} there; change it, or the types"
            )
    for number, each in enumerate(requirements):
        key, wanted = str(each.get("key")), each.get("minValues")
        if not isinstance(wanted, int) or key.startswith(_OF_THE_PROVIDER):
            continue
        counted = frozenset[str]().union(*(one.values_of(key) for one, _ in left))
        if len(counted) < wanted:
            return (*_REQUIREMENTS, number, "minValues"), (
                f"{wanted} values of {shown(key)} are needed, and Karpenter's kwok provider has"
                f" {len(counted)} of the instance types that fit, so no node would come; lower it"
            )
    return None


def kept_taints(pools: Iterable[Manifest]) -> Iterator[str]:
    """Yields a sentence for each NodePool with startupTaints, which another program must remove."""
    for pool in pools:
        taints = as_list(value_at(pool, "spec", "template", "spec", "startupTaints"))
        if keys := [text_at(each, "key") for each in taints]:
            yield (
                f"never takes the startupTaints {names_in_words(keys, most=3)} of NodePool"
                f" {text_at(pool, 'metadata', 'name')} off its nodes, and pods wait for that;"
                " remove them, or run what takes them off"
            )


_NEEDS_LABEL: Final = frozenset({"In", "Exists", "Gt", "Lt", "Gte", "Lte"})


def _is_custom(key: str) -> bool:
    """Whether Karpenter takes the key of a label for a custom one, which nodes have only if their
    NodePool names it.
    """
    domain = key.partition("/")[0] if "/" in key else ""
    return not _NO_CUSTOM_LABEL.fullmatch(domain)


def _can_meet(there: Collection[str], requirement: Mapping[str, Any]) -> bool:
    """Whether any of the values `there` of a node's label meets a requirement; if there are none,
    whether a node without the label meets it.
    """
    return any(meets(value, requirement) for value in there or (None,))
