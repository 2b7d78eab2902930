"""Reads fields of others' JSON or YAML, where any field may have any type. A value of the wrong
type counts as empty."""

from collections.abc import Mapping
from typing import Any


def as_map(value: object) -> Mapping[str, Any]:
    # Tests for dict first: isinstance(value, Mapping) takes five times as long.
    return value if isinstance(value, (dict, Mapping)) else {}


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_texts(value: object) -> dict[str, str]:
    """Returns the entries of a map whose keys and values are text; empty if it is no map."""
    return {k: v for k, v in as_map(value).items() if isinstance(k, str) and isinstance(v, str)}


def whole(value: object) -> int | None:
    """Returns a whole number; None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def value_at(value: object, *path: str) -> Any:
    """Returns the value at a path in an object; None if there is none."""
    for step in path:
        value = value.get(step) if isinstance(value, (dict, Mapping)) else None
    return value


def text_at(value: object, *path: str) -> str:
    """Returns the text at a path in an object; empty if there is none, or another type."""
    value = value_at(value, *path)
    return value if isinstance(value, str) else ""


def condition_of(body: object, kind: str) -> Mapping[str, Any]:
    """Returns the condition of this type in an object's status; empty if there is none."""
    for each in as_list(value_at(body, "status", "conditions")):
        if isinstance(each, dict) and each.get("type") == kind:
            return each
    return {}
