"""Copies the fields of an object that a table names, so that no other field can leak.

If a value has a wrong type anywhere inside, its field is left out as a whole: half of a selector
would select more than the whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class _Map:
    """Matches a map with any keys, and values of one of these types."""

    values: tuple[type, ...]


TEXTS: Final = _Map((str,))
QUANTITIES: Final = _Map((str, int, float))
INT_OR_TEXT: Final = (int, str)

Schema = type | tuple[type, ...] | _Map | list[Any] | dict[str, Any]
"""One type or several, a map, [the schema of each item], or {field: schema}."""


@dataclass(slots=True)
class Kept:
    """The fields that were copied. `unfit` has the paths of values with a wrong type, which no API
    server accepts; `unknown` has the paths of objects with fields that aren't in the table.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class _Unfit(Exception):
    pass


def copy_allowed(value: object, schema: Mapping[str, Schema]) -> Kept:
    """Copies the fields of `value` that `schema` names. The copy shares nothing with the original.
    Never raises.
    """
    kept = Kept()
    if not isinstance(value, Mapping):
        if value is not None:
            kept.unfit.append("")
        return kept
    for name, part in schema.items():
        if value.get(name) is None:
            continue
        unknown: list[str] = []
        try:
            kept.fields[name] = _copy(value[name], part, path=name, unknown=unknown)
        except _Unfit as error:
            kept.unfit.append(str(error))
        kept.unknown += unknown
    return kept


def _copy(value: object, schema: Schema, *, path: str, unknown: list[str]) -> Any:
    if isinstance(schema, dict):
        if not isinstance(value, Mapping):
            raise _Unfit(path)
        if any(key not in schema for key in value):
            unknown.append(path)
        return {
            name: _copy(value[name], part, path=f"{path}.{name}", unknown=unknown)
            for name, part in schema.items()
            if value.get(name) is not None
        }
    if isinstance(schema, list):
        if not isinstance(value, list):
            raise _Unfit(path)
        return [_copy(item, schema[0], path=f"{path}[]", unknown=unknown) for item in value]
    if isinstance(schema, _Map):
        if not isinstance(value, Mapping) or not all(
            isinstance(key, str) and _is(item, schema.values) for key, item in value.items()
        ):
            raise _Unfit(path)
        return dict(value)
    if not _is(value, schema if isinstance(schema, tuple) else (schema,)):
        raise _Unfit(path)
    return value


def _is(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))
