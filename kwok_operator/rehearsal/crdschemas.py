"""Reads the schemas of CRDs, and their fields.

A rehearsal compares the fields to notice CRDs of another version than the program that uses them
(Karpenter, Kueue).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.formats.words import shown


def schemas_of(crd: Mapping[str, Any]) -> Iterable[tuple[tuple[str, str], Mapping[str, Any]]]:
    """Yields ((API version, kind), schema) for each version that a CRD serves."""
    spec = as_map(crd.get("spec"))
    kind = text_at(spec, "names", "kind")
    for each in as_list(spec.get("versions")):
        if as_map(each).get("served") is True:
            schema = as_map(value_at(each, "schema", "openAPIV3Schema"))
            yield (f"{text_at(spec, 'group')}/{text_at(each, 'name')}", kind), schema


def fields_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields the path of each field of a schema. For a field with an `enum`, also yields its path
    followed by each allowed value.
    """
    rest = [("", schema)]
    while rest:
        at, within = rest.pop()
        yield at
        yield from (f"{at} {shown(value)}" for value in as_list(within.get("enum")))
        for name, part in as_map(within.get("properties")).items():
            rest.append((f"{at}.{name}".lstrip("."), as_map(part)))
        nested = (as_map(within.get(name)) for name in ("items", "additionalProperties"))
        rest += [(at, each) for each in nested if each]
