"""What the API server would refuse in an object of one of our kinds, found without one.

    manifest  --the schema that crds/ is made of-->  FieldProblem, one for each mistake

Walks the generated schema, so limits and sentences are the API server's own. The rules of the
schema that are more than a pattern are CEL; `_MIRRORS` says each of them again in Python, and a
test fails where one is missing.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.api.base import EXTENDED_RESOURCE_NAME, QUALIFIED_NAME
from kwok_operator.cloud.checks import CLOUD_RULES
from kwok_operator.errors import one_line
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.words import nearest, shown
from kwok_operator.formats.yamltext import Path, in_words
from kwok_operator.nodegroups.api.template import DEFAULT_GPU_TYPE, MAX_DRA_GPUS
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.nodegroups.network import DEFAULT_BLOCK_SIZES, FEWEST_ADDRESSES, Block
from kwok_operator.podprofiles.checks import PROFILE_RULES
from kwok_operator.schema.definitions import definitions

API_VERSION: Final = f"{constants.API_GROUP}/{constants.API_VERSION}"
_RULES: Final = "x-kubernetes-validations"
_PATTERN_RULE = re.compile(r"(?:self|string\(self\))\.matches\(r'(.*)'\)", re.DOTALL)
_QUALIFIED_NAME = re.compile(QUALIFIED_NAME)
_RESOURCE_NAME = re.compile(EXTENDED_RESOURCE_NAME)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_METADATA: Final = (
    "name generateName namespace labels annotations uid resourceVersion generation finalizers"
    " ownerReferences managedFields creationTimestamp deletionTimestamp selfLink"
    " deletionGracePeriodSeconds"
).split()
_TYPES: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "string": (str, "text; put it in quotes"),
    "integer": (int, "a whole number, without quotes"),
    "boolean": (bool, "true or false, without quotes"),
    "object": (dict, "an object of keys and values"),
    "array": (list, "a list"),
}


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """`message` is a whole sentence that begins with the field; `path` finds its line."""

    path: Path
    message: str


def check_group(manifest: Mapping[str, Any]) -> list[FieldProblem]:
    """All mistakes of a manifest with kind KwokNodeGroup; none means that it can be applied."""
    return _check_whole(manifest, constants.KIND)


def check_pool(manifest: Mapping[str, Any]) -> list[FieldProblem]:
    """All mistakes of a manifest with kind KwokCapacityPool; none means that it can be applied."""
    return _check_whole(manifest, constants.POOL_KIND)


def check_profile(manifest: Mapping[str, Any]) -> list[FieldProblem]:
    """All mistakes of a manifest with kind KwokPodProfile; none means that it can be applied."""
    return _check_whole(manifest, constants.PROFILE_KIND)


def _check_whole(manifest: Mapping[str, Any], kind: str) -> list[FieldProblem]:
    problems = [*_check_header(manifest), *_check_metadata(manifest.get("metadata"), kind)]
    return problems + list(_check(_without_nulls(manifest), schema_of(kind), (), kind))


def _without_nulls(value: Any) -> Any:
    """As the API server stores it: what is null in an object is not there."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


@cache
def schema_of(kind: str) -> Mapping[str, Any]:
    """The schema of a whole object of one of our kinds."""
    definition = next(each for each in definitions() if each["spec"]["names"]["kind"] == kind)
    (version,) = definition["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def mirrors(rule: Mapping[str, Any]) -> Callable[[Any], bool] | None:
    """What says in Python whether a value keeps a rule of the schema; None where nothing does."""
    pattern = _PATTERN_RULE.fullmatch(rule["rule"])
    if pattern:
        compiled = re.compile(pattern[1])
        return lambda value: compiled.fullmatch(str(value)) is not None
    found = [keeps for words, keeps in _MIRRORS.items() if rule["message"].startswith(words)]
    return found[0] if found else None


def _problem(path: Path, problem: str) -> FieldProblem:
    return FieldProblem(path, one_line(f"{in_words(path)}: {problem}", limit=800))


def _check_header(manifest: Mapping[str, Any]) -> Iterator[FieldProblem]:
    if manifest.get("apiVersion") != API_VERSION:
        given = shown(manifest["apiVersion"]) if "apiVersion" in manifest else "nothing"
        yield _problem(("apiVersion",), f"is {given}; write {API_VERSION}")


def _check_metadata(metadata: Any, kind: str) -> Iterator[FieldProblem]:
    if not isinstance(metadata, dict):
        yield _problem(("metadata",), "is missing; give it a name")
        return
    for key in metadata:
        if key not in _METADATA:
            yield _unknown(("metadata", key), _METADATA, kind)
    name = metadata.get("name")
    if name is None and not metadata.get("generateName"):
        yield _problem(("metadata", "name"), "is missing; every object has a name")
    elif name is not None and not (isinstance(name, str) and is_object_name(name)):
        yield _problem(
            ("metadata", "name"),
            f"{shown(name)} must be the name of an object: lower-case letters, digits, '-' and"
            " '.', with a letter or digit at both ends",
        )
    for part in ("labels", "annotations"):
        yield from _check_texts(metadata.get(part), part)


def _check_texts(texts: Any, part: str) -> Iterator[FieldProblem]:
    path: Path = ("metadata", part)
    if texts is not None and not isinstance(texts, dict):
        yield _problem(path, f"{shown(texts)} must be an object of keys and values")
        return
    for key, value in (texts or {}).items():
        if not isinstance(value, str) and value is not None:
            yield _problem((*path, key), f"{shown(value)} must be text; put it in quotes")
        elif part == "labels" and not _LABEL_VALUE.fullmatch(value or ""):
            yield _problem((*path, key), f"{shown(value)} is not the value of a label")
        if not _QUALIFIED_NAME.fullmatch(key if part == "labels" else key.lower()):
            yield _problem((*path, key), "is not a key such as pool or example.com/pool")


def _check(value: Any, schema: Mapping[str, Any], path: Path, kind: str) -> Iterator[FieldProblem]:
    """`kind` is that of the whole object, whose other fields are hints."""
    problem = _mismatch(value, schema)
    found = [_problem(path, problem)] if problem else []
    if not found and isinstance(value, dict):
        found += _check_object(value, schema, path, kind)
    elif not found and isinstance(value, list):
        found += _check_list(value, schema, path, kind)
    if not found:
        # As in the API server, rules are asked only about what has the right form.
        found += _broken_rules(value, schema, path)
    yield from found


def _mismatch(value: Any, schema: Mapping[str, Any]) -> str:
    """What is wrong with a single value, in words; empty where nothing is."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            return f"{shown(value)} must be a number or text"
    elif "type" in schema:
        expected, words = _TYPES[schema["type"]]
        is_bool = isinstance(value, bool) and schema["type"] == "integer"
        if not isinstance(value, expected) or is_bool:
            return f"{shown(value)} must be {words}"
    if "enum" in schema and value not in schema["enum"]:
        near = nearest(value, schema["enum"]) if isinstance(value, str) else None
        hint = f"; did you mean {near}?" if near else ""
        return f"{shown(value)} must be one of {', '.join(schema['enum'])}{hint}"
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            return f"{shown(value)} must be from {low} to {high}"
    return _mismatch_of_length(value, schema)


def _mismatch_of_length(value: Any, schema: Mapping[str, Any]) -> str:
    limits = {str: "Length", list: "Items", dict: "Properties"}
    units = {str: "characters", list: "entries", dict: "entries"}
    for kind, word in limits.items():
        if isinstance(value, kind):
            size = len(value)
            if size > schema.get(f"max{word}", size):
                return f"has {size} {units[kind]}; at most {schema[f'max{word}']} are allowed"
            if size < schema.get(f"min{word}", size):
                if not value and kind is str:
                    return "is empty; give it a value"
                return f"has {size} {units[kind]}; at least {schema[f'min{word}']} are needed"
    return ""


def _check_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], path: Path, kind: str
) -> Iterator[FieldProblem]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield _problem((*path, name), "is missing, and must be given")
    for name, part in value.items():
        if path == ("metadata",) or (not path and name == "status"):
            continue
        if name in known:
            yield from _check(part, known[name], (*path, name), kind)
        elif isinstance(others, Mapping):
            yield from _check(part, others, (*path, name), kind)
        else:
            yield _unknown((*path, name), known, kind)


def _check_list(
    value: list[Any], schema: Mapping[str, Any], path: Path, kind: str
) -> Iterator[FieldProblem]:
    for place, item in enumerate(value):
        yield from _check(item, schema.get("items", {}), (*path, place), kind)
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: set[str] = set()
    for place, item in enumerate(value if keys else ()):
        identity = ", ".join(f"{k}: {item.get(k)}" for k in keys) if isinstance(item, dict) else ""
        if identity in seen:
            yield _problem((*path, place), f"two entries have {identity}; remove one")
        seen.add(identity)


def _broken_rules(value: Any, schema: Mapping[str, Any], path: Path) -> Iterator[FieldProblem]:
    for rule in schema.get(_RULES, ()):
        keeps = mirrors(rule)
        if keeps is not None and not keeps(value):
            below = tuple(rule.get("fieldPath", "").split(".")[1:])
            if not isinstance(value, dict | list):
                yield _problem(path, f"{shown(value)} {rule['message']}")
                continue
            given = _given(value, below, keeps)
            said = "" if given is None else f"; it is {shown(given)}"
            yield _problem((*path, *below), f"{rule['message']}{said}")


def _given(value: Any, below: Path, keeps: Callable[[Any], bool]) -> Any:
    """What breaks a rule about a field: its value, or a key of it; None where that isn't one."""
    part = value
    for step in below:
        part = part.get(step) if isinstance(part, dict) else None
    if isinstance(part, dict) and len(below) == 1:
        return next((k for k, v in part.items() if not keeps({**value, below[0]: {k: v}})), None)
    return None if isinstance(part, dict | list) else part


def _unknown(path: Path, known: Collection[str], kind: str) -> FieldProblem:
    name = str(path[-1])
    near = nearest(name, known)
    elsewhere = _places(kind).get(name, ())
    if near:
        hint = f"; did you mean {near}?"
    elif elsewhere:
        hint = f"; write {' or '.join(elsewhere[:2])}"
    else:
        hint = f"; known here: {', '.join(sorted(known))}" if known else ""
    return _problem(path, f"there is no such field{hint}")


@cache
def _places(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Where in spec a field of a name is."""
    found: dict[str, tuple[str, ...]] = {}

    def visit(schema: Mapping[str, Any], path: Path) -> None:
        for name, part in schema.get("properties", {}).items():
            found[name] = (*found.get(name, ()), in_words((*path, name)))
            visit(part, (*path, name))

    visit(schema_of(kind)["properties"]["spec"], ("spec",))
    return found


def _is_quantity(value: Any) -> bool:
    try:
        return parse_quantity(value) >= 0 and not str(value).startswith("-")
    except ValueError:
        return False


def _reserved_within(field: str, shape: Mapping[str, Any]) -> bool:
    reserved, whole = (shape.get("reserved") or {}).get(field), shape.get(field)
    if not (_is_quantity(reserved) and _is_quantity(whole)):
        return True
    return parse_quantity(reserved) <= parse_quantity(whole)


def _no_own_labels(shape: Mapping[str, Any]) -> bool:
    reserved = {constants.HOSTNAME_LABEL, constants.NODE_GROUP_LABEL}
    return not reserved & (shape.get("labels") or {}).keys()


def _extended_resources(shape: Mapping[str, Any]) -> bool:
    return all(
        _RESOURCE_NAME.fullmatch(name) or name.startswith("hugepages-")
        for name in shape.get("resources") or {}
    )


def _label_keys(shape: Mapping[str, Any]) -> bool:
    return all(_QUALIFIED_NAME.fullmatch(key) for key in shape.get("labels") or {})


def _gpu_once(shape: Mapping[str, Any]) -> bool:
    gpu = shape.get("gpu")
    return gpu is None or gpu.get("type", DEFAULT_GPU_TYPE) not in (shape.get("resources") or {})


def _nvidia_if_dra(gpu: Mapping[str, Any]) -> bool:
    return not gpu.get("dra") or gpu.get("type", DEFAULT_GPU_TYPE) == DEFAULT_GPU_TYPE


def _dra_if_profile(gpu: Mapping[str, Any]) -> bool:
    return gpu.get("profile") is None or bool(gpu.get("dra"))


def _few_if_dra(gpu: Mapping[str, Any]) -> bool:
    return not gpu.get("dra") or gpu.get("count", 0) <= MAX_DRA_GPUS


def _one_of_three(source: Mapping[str, Any]) -> bool:
    return sum(source.get(key) is not None for key in ("name", "selector", "annotation")) == 1


def _any_source(source: Mapping[str, Any]) -> bool:
    return any(source.get(key) is not None for key in ("configMap", "nodes"))


def _values_as_needed(requirement: Mapping[str, Any]) -> bool:
    return (requirement.get("operator") in ("In", "NotIn")) == bool(requirement.get("values"))


def _bounds_in_order(autoscaling: Mapping[str, Any]) -> bool:
    low, high = autoscaling.get("minSize"), autoscaling.get("maxSize")
    return low is None or high is None or low <= high


def _target_within(spec: Mapping[str, Any]) -> bool:
    target, most = spec.get("targetSize"), (spec.get("autoscaling") or {}).get("maxSize")
    return target is None or most is None or target <= most


def _short_name(group: Mapping[str, Any]) -> bool:
    name = (group.get("metadata") or {}).get("name")
    return not isinstance(name, str) or len(name) <= constants.MAX_GROUP_NAME_LENGTH


def _one_value(attribute: Mapping[str, Any]) -> bool:
    return (
        sum(attribute.get(kind) is not None for kind in ("string", "int", "bool", "version")) == 1
    )


def _is_range(field: str, network: Any) -> bool:
    try:
        return field not in network or Block.parse(network[field]) is not None
    except ValueError:
        return False


def _block_within(network: Any) -> bool:
    if "podCIDR" not in network or not _is_range("podCIDR", network):
        return True
    pods = Block.parse(network["podCIDR"])
    size: int = network.get("blockSize", DEFAULT_BLOCK_SIZES[pods.bits])
    return pods.prefix <= size <= pods.bits


def _nodes_have_addresses(network: Any) -> bool:
    given = "nodeCIDR" in network and _is_range("nodeCIDR", network)
    return not given or Block.parse(network["nodeCIDR"]).size >= FEWEST_ADDRESSES


_MIRRORS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **CLOUD_RULES,
    **PROFILE_RULES,
    "must be a quantity and not negative": _is_quantity,
    "must have one value: string": _one_value,
    "shape.reserved.cpu must not": partial(_reserved_within, "cpu"),
    "shape.reserved.memory must not": partial(_reserved_within, "memory"),
    "shape.reserved.ephemeralStorage must not": partial(_reserved_within, "ephemeralStorage"),
    "shape.labels must set neither": _no_own_labels,
    "shape.resources is for": _extended_resources,
    "shape.labels: a key must be": _label_keys,
    "shape.gpu and shape.resources": _gpu_once,
    "shape.gpu.dra is for": _nvidia_if_dra,
    "shape.gpu.profile says": _dra_if_profile,
    "shape.gpu.count must": _few_if_dra,
    "network.podCIDR must be": partial(_is_range, "podCIDR"),
    "network.nodeCIDR must be": partial(_is_range, "nodeCIDR"),
    "network.nodeCIDR must have": _nodes_have_addresses,
    "network.blockSize must": _block_within,
    "template.from.nodes must have exactly one": _one_of_three,
    "template.from must have configMap": _any_source,
    "matchExpressions: In and NotIn": _values_as_needed,
    "autoscaling.minSize must not": _bounds_in_order,
    "targetSize must not": _target_within,
    "metadata.name must have at most": _short_name,
}
