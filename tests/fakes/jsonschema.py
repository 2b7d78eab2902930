"""Whether a JSON Schema takes a value, for those words of it that our own schemas use."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_TEXTS = frozenset({"$schema", "$defs", "title", "description", "default"})


def refusals(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> list[str]:
    """Why it doesn't; AssertionError for a word that isn't known here."""
    found: list[str] = []
    for word, told in schema.items():
        if word not in _TEXTS:
            assert word in _WORDS, f"{word} isn't known here"
            found += _WORDS[word](value, told, schema, whole)
    return found


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _ref(value: Any, told: str, _: Any, whole: Any) -> list[str]:
    return refusals(value, whole["$defs"][told.removeprefix("#/$defs/")], whole)


def _any_of(value: Any, told: Any, _: Any, whole: Any) -> list[str]:
    each = [refusals(value, one, whole) for one in told]
    return [] if [] in each else [f"none of them: {each}"]


def _type(value: Any, told: Any, *_: Any) -> list[str]:
    kinds = told if isinstance(told, list) else [told]
    return [] if any(_is(value, kind) for kind in kinds) else [f"{value!r} is no {told}"]


def _properties(value: Any, told: Any, _: Any, whole: Any) -> Iterator[str]:
    for name, part in value.items() if isinstance(value, dict) else ():
        if name in told:
            yield from (f"{name}: {each}" for each in refusals(part, told[name], whole))


def _additional(value: Any, told: Any, schema: Any, whole: Any) -> Iterator[str]:
    for name, part in value.items() if isinstance(value, dict) else ():
        if name not in schema.get("properties", {}) and told is not True:
            yield from ([f"no {name}"] if told is False else refusals(part, told, whole))


def _items(value: Any, told: Any, _: Any, whole: Any) -> Iterator[str]:
    for part in value if isinstance(value, list) else ():
        yield from refusals(part, told, whole)


def _limit(breaks: Callable[[Any, Any], bool], *kinds: type) -> Callable[..., list[str]]:
    def check(value: Any, told: Any, *_: Any) -> list[str]:
        fits = not isinstance(value, kinds) or isinstance(value, bool) or not breaks(value, told)
        return [] if fits else [f"{value!r} breaks {told!r}"]

    return check


_WORDS: Mapping[str, Callable[..., Any]] = {
    "$ref": _ref,
    "anyOf": _any_of,
    "type": _type,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "required": _limit(lambda value, told: not set(told) <= value.keys(), dict),
    "enum": _limit(lambda value, told: value not in told, object),
    "const": _limit(lambda value, told: value != told, object),
    "pattern": _limit(lambda value, told: not re.search(told, value), str),
    "minimum": _limit(lambda value, told: value < told, int, float),
    "maximum": _limit(lambda value, told: value > told, int, float),
    "exclusiveMinimum": _limit(lambda value, told: value <= told, int, float),
    "minLength": _limit(lambda value, told: len(value) < told, str),
    "maxLength": _limit(lambda value, told: len(value) > told, str),
    "minItems": _limit(lambda value, told: len(value) < told, list),
    "maxItems": _limit(lambda value, told: len(value) > told, list),
    "minProperties": _limit(lambda value, told: len(value) < told, dict),
    "maxProperties": _limit(lambda value, told: len(value) > told, dict),
    "propertyNames": lambda value, told, _, whole: [
        each for name in value for each in refusals(name, told, whole)
    ],
    "patternProperties": lambda value, told, _, whole: [
        each
        for part in value.values()
        for one in told.values()
        for each in refusals(part, one, whole)
    ],
}
