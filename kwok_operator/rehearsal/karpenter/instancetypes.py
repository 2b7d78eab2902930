"""The instance types of Karpenter's kwok provider: made from groups, or from a user's file.

    groups  --types_of-->  InstanceType  <--karpentertypes.py--  JSON
            InstanceType  --as_json-->  the file of INSTANCE_TYPES_FILE_PATH

There is one type for each shape of node, with one offering for each group. Each requirement of an
offering with a single value becomes a label of the node. So a node has the labels of its group, and
its price.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from kwok_operator.constants import (
    ARCH_LABEL,
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODE_GROUP_LABEL,
    OS_LABEL,
    ZONE_LABEL,
)
from kwok_operator.formats.quantity import format_quantity, parse_quantity
from kwok_operator.rehearsal.karpenter.groups import GroupOffering

NO_ZONE: Final = "no-zone"
"""The zone of offerings whose group names none."""
OVERHEAD: Final = {"cpu": "100m", "memory": "10Mi"}
"""The provider subtracts this from each node's resources; it can't be configured."""
_UNLIKE: Final = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class Offering:
    price: float
    labels: Mapping[str, tuple[str, ...]]
    """The values that a node of this offering can have, by label."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    name: str
    architecture: str
    systems: tuple[str, ...]
    resources: Mapping[str, str]
    offerings: tuple[Offering, ...]
    renamed_from: str = ""
    """The instance type of its groups, if a type of another shape has that name; else empty."""

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The labels that nodes have by their type, with the values that each label can have."""
        return {
            INSTANCE_TYPE_LABEL: (self.name,),
            ARCH_LABEL: (self.architecture,),
            OS_LABEL: self.systems,
        }

    def values_of(self, key: str) -> frozenset[str]:
        """Returns the values that nodes of this type can have for a label.

        Of the labels that differ between offerings, only zone and capacity type are looked up: for
        any other one, no value is returned.
        """
        values = [self.labels.get(key, ())]
        if key in (CAPACITY_TYPE_LABEL, ZONE_LABEL):
            values = [each.labels.get(key, ()) for each in self.offerings]
        return frozenset(value for some in values for value in some)


def types_of(groups: Sequence[GroupOffering]) -> list[InstanceType]:
    """Returns an instance type for each shape of node among the groups. It is named after its
    groups' instance type, or gets a new name if another shape has taken that one. If its groups'
    amounts differ a little, it has the smallest ones.
    """
    types, taken, theirs = [], set[str](), {each.instance_type for each in groups}
    for alike in _alike(groups):
        first = alike[0]
        name = first.instance_type
        if not name or name in taken:
            name = free_name(name or _name_of(first), taken | theirs)
        taken.add(name)
        types.append(
            InstanceType(
                name=name,
                architecture=first.architecture,
                systems=(first.system,),
                resources=_with_overhead(_least(alike)),
                offerings=tuple(_offering(each) for each in alike),
                renamed_from=first.instance_type if name != first.instance_type else "",
            )
        )
    return types


def _alike(groups: Iterable[GroupOffering]) -> Iterator[list[GroupOffering]]:
    """Yields lists of groups whose nodes have one shape. In groups of one instance type, amounts
    may differ by up to _UNLIKE of the first group's: machines of a type differ a little in memory.
    """
    kinds: dict[tuple[object, ...], list[tuple[list[Fraction], list[GroupOffering]]]] = {}
    for group in groups:
        amounts = [parse_quantity(group.allocatable[name]) for name in sorted(group.allocatable)]
        own = group.instance_type or tuple(amounts)
        key = (own, group.architecture, group.system, *sorted(group.allocatable))
        shapes = kinds.setdefault(key, [])
        for first, some in shapes:
            pairs = zip(first, amounts, strict=True)
            if all(abs(one - other) <= _UNLIKE * one for one, other in pairs):
                some.append(group)
                break
        else:
            shapes.append((amounts, [group]))
    return (some for shapes in kinds.values() for _, some in shapes)


def _least(alike: Sequence[GroupOffering]) -> dict[str, str]:
    return {
        name: min((each.allocatable[name] for each in alike), key=parse_quantity)
        for name in alike[0].allocatable
    }


def _offering(group: GroupOffering) -> Offering:
    # Karpenter never consolidates a node without a zone.
    labels = {ZONE_LABEL: (NO_ZONE,), **{key: (value,) for key, value in group.labels.items()}}
    labels[CAPACITY_TYPE_LABEL] = (group.capacity_type,)
    labels[NODE_GROUP_LABEL] = (group.name,)
    return Offering(group.price, labels)


def _name_of(group: GroupOffering) -> str:
    """Returns a name such as 4-cpu-16-gi, from the resources."""
    cpu = parse_quantity(group.allocatable.get("cpu", 0))
    memory = parse_quantity(group.allocatable.get("memory", 0)) / 2**30
    return f"{_rounded(cpu)}-cpu-{_rounded(memory)}-gi"


def _rounded(amount: Fraction) -> str:
    return f"{float(amount):.4g}".replace("+", "")


def free_name(name: str, taken: Collection[str]) -> str:
    """Returns the name; if it is taken, the name with a number appended."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[:55]}-{number}"
    return free


def _with_overhead(allocatable: Mapping[str, str]) -> dict[str, str]:
    resources = dict(allocatable)
    for name, more in OVERHEAD.items():
        whole = parse_quantity(allocatable.get(name, 0)) + parse_quantity(more)
        resources[name] = format_quantity(whole, like=more)
    return resources


def as_json(types: Sequence[InstanceType]) -> str:
    """Returns the text of the file of instance types that Karpenter reads."""
    return json.dumps([_written(each) for each in types], indent=1)


def _written(each: InstanceType) -> dict[str, Any]:
    return {
        "name": each.name,
        "architecture": each.architecture,
        "operatingSystems": [*each.systems],
        "resources": dict(each.resources),
        "offerings": [
            {
                "Price": offering.price,
                "Available": True,
                "Requirements": [
                    {"key": key, "operator": "In", "values": [*values]}
                    for key, values in offering.labels.items()
                ],
            }
            for offering in each.offerings
        ],
    }
