"""Finds what the API server would refuse in an object of our kinds, without an API server.

    manifest  --the schema that crds/ is made of-->  FieldProblem, one for each mistake

It uses the schema of the models, from which the CRDs are made, so limits and messages are the API
server's own. It checks the CRDs' rules, too: an `ApiRule` has each in CEL and in Python.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.api.base import RULES, ApiRule, is_label_key, is_label_value
from kwok_operator.errors import one_line
from kwok_operator.formats.untyped import value_at
from kwok_operator.formats.words import nearest, shown
from kwok_operator.formats.yamltext import Path, in_words
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.schema.definitions import schema_of

API_VERSION: Final = f"{constants.API_GROUP}/{constants.API_VERSION}"
_METADATA: Final = (
    "name generateName namespace labels annotations uid resourceVersion generation finalizers"
    " ownerReferences managedFields creationTimestamp deletionTimestamp selfLink"
    " deletionGracePeriodSeconds"
).split()
_TYPES: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "string": (str, "text; put it in quotes"),
    "integer": (int, "a whole number, without quotes"),
    "number": ((int, float), "a number, without quotes"),
    "boolean": (bool, "true or false, without quotes"),
    "object": (dict, "an object of keys and values"),
    "array": (list, "a list"),
}


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A mistake: `message` is a sentence that begins with the field; `path` leads to the field, and
    its line."""

    path: Path
    message: str


def check_group(manifest: Mapping[str, Any]) -> list[FieldProblem]:
    """Returns all mistakes of a KwokNodeGroup's manifest; none means that it can be applied."""
    return [*_check_whole(manifest, constants.KIND), *_check_units_of_generated(manifest)]


def check_pool(manifest: Mapping[str, Any]) -> list[FieldProblem]:
    """Returns all mistakes of a KwokCapacityPool's manifest; none means that it can be applied."""
    return _check_whole(manifest, constants.POOL_KIND)


def check_profile(manifest: Mapping[str, Any]) -> list[FieldProblem]:
    """Returns all mistakes of a KwokPodProfile's manifest; none means that it can be applied."""
    return _check_whole(manifest, constants.PROFILE_KIND)


def check_by_schema(manifest: Mapping[str, Any], schema: Mapping[str, Any]) -> list[FieldProblem]:
    """Returns the mistakes of an object of another kind, by the schema of its CRD. Patterns and CEL
    rules of that schema are not checked."""
    return [*_check(_without_nulls(manifest), _without_rules(schema), (), "")]


def _without_rules(schema: Any) -> Any:
    """Returns a schema without its rules. They exist in CEL only, which can't be evaluated here."""
    if isinstance(schema, Mapping):
        return {key: _without_rules(part) for key, part in schema.items() if key != RULES}
    return [_without_rules(each) for each in schema] if isinstance(schema, list) else schema


def _check_whole(manifest: Mapping[str, Any], kind: str) -> list[FieldProblem]:
    problems = [*_check_header(manifest), *_check_metadata(manifest.get("metadata"), kind)]
    return problems + list(_check(_without_nulls(manifest), schema_of(kind), (), kind))


def _check_units_of_generated(manifest: Mapping[str, Any]) -> Iterator[FieldProblem]:
    """Yields a problem if a group with `generateName` has `cloud.outageUnits`, but no
    `topology.domain`: names of units begin with the domain, by default the group's name, which
    nobody knows in advance."""
    metadata = value_at(manifest, "metadata")
    if not value_at(metadata, "generateName") or value_at(metadata, "name") is not None:
        return
    domain = value_at(manifest, "spec", "template", "topology", "domain")
    if value_at(manifest, "spec", "cloud", "outageUnits") and not domain:
        yield _problem(
            ("spec", "cloud", "outageUnits"),
            "units are named by the group's name, which metadata.generateName leaves open; write"
            " metadata.name, or template.topology.domain",
        )


def _without_nulls(value: Any) -> Any:
    """Returns the value as the API server stores it: without nulls in objects."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


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
        elif part == "labels" and not is_label_value(value or ""):
            yield _problem((*path, key), f"{shown(value)} is not the value of a label")
        if not is_label_key(key if part == "labels" else key.lower()):
            yield _problem((*path, key), "is not a key such as pool or example.com/pool")


def _check(value: Any, schema: Mapping[str, Any], path: Path, kind: str) -> Iterator[FieldProblem]:
    """Checks a value and all its parts. `kind` is the kind of the whole object, by which the right
    place of a misplaced field is suggested; if it is "", nothing is suggested."""
    problem = _mismatch(value, schema)
    problems = [_problem(path, problem)] if problem else []
    if not problems and isinstance(value, dict):
        problems += _check_object(value, schema, path, kind)
    elif not problems and isinstance(value, list):
        problems += _check_list(value, schema, path, kind)
    if not problems:
        # Like the API server, this evaluates rules only for a value without other mistakes.
        problems += _broken_rules(value, schema, path)
    yield from problems


def _mismatch(value: Any, schema: Mapping[str, Any]) -> str:
    """Describes what is wrong with a single value; empty if nothing is."""
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
    for rule in schema.get(RULES, ()):
        if rule.holds(value):
            continue
        if not isinstance(value, dict | list):
            yield _problem(path, f"{shown(value)} {rule.message}")
            continue
        culprit = _culprit(value, rule)
        shows = "" if culprit is None else f"; it is {shown(culprit)}"
        below = rule.field.split(".") if rule.field else ()
        yield _problem((*path, *below), f"{rule.message}{shows}")


def _culprit(value: Any, rule: ApiRule) -> Any:
    """Returns what a message about a broken rule quotes: the value of the rule's field; of an
    object, the first key that breaks the rule; of a list, None."""
    part = value_at(value, *rule.field.split("."))
    if isinstance(part, dict):
        breaks = (k for k, v in part.items() if not rule.holds({**value, rule.field: {k: v}}))
        return next(breaks, None)
    return None if isinstance(part, list) else part


def _unknown(path: Path, known: Collection[str], kind: str) -> FieldProblem:
    name = str(path[-1])
    near = nearest(name, known)
    elsewhere = _places(kind).get(name, ()) if kind else ()
    if near:
        hint = f"; did you mean {near}?"
    elif elsewhere:
        hint = f"; write {' or '.join(elsewhere[:2])}"
    else:
        hint = f"; known here: {', '.join(sorted(known))}" if known else ""
    return _problem(path, f"there is no such field{hint}")


@cache
def _places(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Returns for each field's name its paths in spec, to suggest where a misplaced field
    belongs."""
    places: dict[str, tuple[str, ...]] = {}

    def visit(schema: Mapping[str, Any], path: Path) -> None:
        for name, part in schema.get("properties", {}).items():
            places[name] = (*places.get(name, ()), in_words((*path, name)))
            visit(part, (*path, name))

    visit(schema_of(kind)["properties"]["spec"], ("spec",))
    return places
