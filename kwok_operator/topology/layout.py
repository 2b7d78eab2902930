"""What a place in the topology means: the labels of a node there, and which places are in one unit,
such as a rack.

    spec.template.topology, the group's name  --Layout.of-->  Layout  --labels-->  labels
    Layout  --text-->  an annotation of the template's node  --read-->  Layout

The template's node has the layout in an annotation, but no values of the levels' labels. So an edit
of the levels makes another template, but nodes in all places have the same one. From template and
place, the operator, the shim and an update in place each compute a node's labels.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from operator import lt
from typing import Any, Final

from kwok_operator.constants import (
    INSTANCE_TYPE_LABEL,
    PLACE_ANNOTATION,
    TOPOLOGY_ANNOTATION,
    ZONE_LABEL,
)
from kwok_operator.errors import TemplateError
from kwok_operator.formats.untyped import as_map, value_at
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.places import MOST_PLACES_OF_A_DOMAIN, NodePlace, PlaceRanges
from kwok_operator.topology.api import long_form, numbers_of

FIELD: Final = "spec.template.topology"
_LONGEST_VALUE: Final = 63


@dataclass(frozen=True, slots=True)
class Layer:
    """A level of the topology: its labels (the first names the level), and how many units of the
    next level one of its units holds (in the last level: nodes)."""

    labels: tuple[str, ...]
    of: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The levels of a domain, from wide to narrow."""

    domain: str
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, template: Template, *, group: str) -> "Layout | None":
        """Returns a group's layout; None if the template has no topology. Raises TemplateError."""
        topology = template.topology
        if topology is None:
            return None
        layers = tuple(
            Layer((long_form(level.label), *sorted(map(long_form, level.also))), level.of)
            for level in topology.levels
        )
        layout, seen = cls(topology.domain or group, layers), set[str]()
        given = dict.fromkeys(template.shape.labels, "shape.labels")
        if template.shape.zone is not None:
            given[ZONE_LABEL] = "shape.zone"
        if template.shape.instance_type is not None:
            given[INSTANCE_TYPE_LABEL] = "shape.instanceType"
        for label in (label for layer in layers for label in layer.labels):
            if label in seen or label in given:
                raise TemplateError(
                    field=f"{FIELD}.levels",
                    value=label,
                    problem=f"is set twice, here and in {given.get(label, 'another level')}",
                    remedy="write it in one of the two",
                )
            seen.add(label)
        longest = max(len(value) for value in layout._longest())
        if longest > _LONGEST_VALUE:
            raise TemplateError(
                field=f"{FIELD}.domain",
                value=layout.domain,
                problem=f"makes values of labels of up to {longest} characters, which may have"
                f" {_LONGEST_VALUE}",
                remedy="write a shorter domain",
            )
        return layout

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes one unit of each level holds."""
        return tuple(prod(layer.of for layer in self.layers[n:]) for n in range(len(self.layers)))

    def size(self, label: str) -> int | None:
        """Returns how many nodes one unit of a level holds; None if no level has this label."""
        known = long_form(label)
        found = zip(self.layers, self.sizes, strict=True)
        return next((size for layer, size in found if known in layer.labels), None)

    def unit(self, value: str) -> range | None:
        """Returns the numbers of the places in the unit (such as a rack) whose label has this
        value; None if there is no such unit."""
        numbers = self._numbers(value)
        if numbers is None:
            return None
        sizes = self.sizes
        first = sum(number * size for number, size in zip(numbers, sizes, strict=False))
        return range(first, first + sizes[len(numbers) - 1])

    def units(self, values: tuple[str, ...]) -> PlaceRanges:
        """Returns the places in all units whose labels have these values."""
        return _places_in(self, values)

    @property
    def text(self) -> str:
        levels = (f"{','.join(layer.labels)}={layer.of}" for layer in self.layers)
        return " ".join((self.domain, *levels))

    @classmethod
    def read(cls, annotations: Mapping[str, Any]) -> "Layout | None":
        """Returns the layout in a node's annotations; None if the operator can't have written
        it."""
        return _parsed(str(annotations.get(TOPOLOGY_ANNOTATION) or ""))

    @classmethod
    def in_use(
        cls, template: Template, resolved: Mapping[str, Any] | None, *, group: str
    ) -> "Layout | None":
        """Returns the layout that gives a group's nodes their labels. It is that of the resolved
        template, as the latest edit of the spec may have been refused; without a resolved template,
        that of the spec.
        """
        layout = cls.read(as_map(value_at(resolved, "metadata", "annotations")))
        if layout is None:
            with suppress(TemplateError):
                layout = cls.of(template, group=group)
        return layout

    def labels(self, place: int) -> dict[str, str]:
        """Returns the labels of a node in this place."""
        value, labels, rest = self.domain, dict[str, str](), place
        for layer, size in zip(self.layers, self.sizes, strict=True):
            number, rest = divmod(rest, size)
            value = f"{value}-{number}"
            labels.update(dict.fromkeys(layer.labels, value))
        return labels

    def marks(self, place: int) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the labels and the annotations of a node in this place."""
        return self.labels(place), {PLACE_ANNOTATION: str(NodePlace(self.domain, place))}

    def described_in(self, node: Node) -> Node:
        """Returns the node with this layout in an annotation, and without labels of the layout's
        levels, which the copied real node may have had."""
        metadata = {**node["metadata"]}
        own = {label for layer in self.layers for label in layer.labels}
        metadata["labels"] = {k: v for k, v in metadata["labels"].items() if k not in own}
        metadata["annotations"] = {**metadata["annotations"], TOPOLOGY_ANNOTATION: self.text}
        return {**node, "metadata": metadata}

    def place_of(self, annotations: Mapping[str, Any]) -> int | None:
        """Returns the place in a node's annotations; None if there is none in this domain."""
        place = NodePlace.parse(str(annotations.get(PLACE_ANNOTATION) or ""))
        return place.number if place is not None and place.domain == self.domain else None

    def clashes(self, other: "Layout") -> str | None:
        """Returns a label that would have the same value in a unit of this layout and in a
        different unit (such as another rack) of the other layout; None if there is none."""
        for mine, layer in enumerate(self.layers, start=1):
            for theirs, another in enumerate(other.layers, start=1):
                shared = set(layer.labels).intersection(another.labels)
                if shared and self._is_mistakable(mine, other, theirs):
                    return min(shared)
        return None

    def _is_mistakable(self, mine: int, other: "Layout", theirs: int) -> bool:
        """Whether a unit of this layout's level `mine` has the same label value as a different unit
        of the other layout's level `theirs`. Levels are counted from 1."""
        if self.domain == other.domain and self.sizes[:mine] == other.sizes[:theirs]:
            return False
        if len(self.domain) > len(other.domain):
            return other._is_mistakable(theirs, self, mine)
        above = [] if self.domain == other.domain else self._numbers(other.domain)
        return (
            above is not None and len(above) == mine - theirs and all(map(lt, above, self._units))
        )

    def _numbers(self, value: str) -> list[int] | None:
        """Parses the value of a unit's label: "dc-0-3" in domain "dc" gives [0, 3], the number of
        the widest level first. None if no unit has this value."""
        of = [layer.of for layer in self.layers]
        return numbers_of(value, domain=self.domain, of=of)

    @property
    def _units(self) -> tuple[int, ...]:
        """For each level, how many units there can be in one unit of the level above, or in the
        domain if there is no level above."""
        return (-(-MOST_PLACES_OF_A_DOMAIN // self.sizes[0]), *(r.of for r in self.layers[:-1]))

    def _longest(self) -> Iterator[str]:
        """Yields the longest label value of each level."""
        value = self.domain
        for units in self._units:
            value = f"{value}-{units - 1}"
            yield value


@lru_cache(maxsize=1_000)
def _places_in(layout: Layout, values: tuple[str, ...]) -> PlaceRanges:
    units = map(layout.unit, values)
    return PlaceRanges.union(unit for unit in units if unit is not None)


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> Layout | None:
    domain, *levels = text.split(" ")
    layers = list[Layer]()
    for level in levels:
        labels, _, of = level.rpartition("=")
        if not labels or not (of.isascii() and of.isdigit()) or len(of) > 7 or int(of) < 1:
            return None
        layers.append(Layer(tuple(labels.split(",")), int(of)))
    return Layout(domain, tuple(layers)) if layers else None
