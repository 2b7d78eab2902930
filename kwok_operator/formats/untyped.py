"""What stands in JSON or YAML of others, where any field may have any type: else it is empty."""

from collections.abc import Mapping
from typing import Any


def as_map(value: object) -> Mapping[str, Any]:
    # A dict first: what Mapping itself finds out takes five times as long.
    return value if isinstance(value, (dict, Mapping)) else {}


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_texts(value: object) -> dict[str, str]:
    """Those that are texts."""
    return {k: v for k, v in as_map(value).items() if isinstance(k, str) and isinstance(v, str)}


def value_at(value: object, *path: str) -> Any:
    """The value deep in an object; None where there is none."""
    for step in path:
        value = value.get(step) if isinstance(value, (dict, Mapping)) else None
    return value


def text_at(value: object, *path: str) -> str:
    """The text deep in an object; empty where there is none, or something else."""
    found = value_at(value, *path)
    return found if isinstance(found, str) else ""
