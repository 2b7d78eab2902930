"""The instance types of Karpenter's kwok provider: made from groups, or read from a user's file.

    groups  --types_of-->  InstanceType  <--read_types--  JSON
            InstanceType  --as_json-->  the file of INSTANCE_TYPES_FILE_PATH

There is one type for each shape of node, with one offering for each group. Each requirement of an
offering with a single value becomes a label of the node. So a node has the labels of its group, and
its price. Karpenter only logs what is wrong with the file, and then has no types.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from kwok_operator.api.base import is_label_key, is_label_value
from kwok_operator.constants import (
    ARCH_LABEL,
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODE_GROUP_LABEL,
    OS_LABEL,
    ZONE_LABEL,
)
from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.formats.quantity import format_quantity, parse_quantity
from kwok_operator.formats.words import names_in_words, nearest, shown
from kwok_operator.rehearsal.karpenter.groups import CAPACITY_TYPES, GroupOffering

NO_ZONE: Final = "no-zone"
"""The zone of offerings whose group has none."""
MAX_TYPES: Final = 5_000
_MAX_OFFERINGS: Final = 1_000
_OVERHEAD: Final = {"cpu": "100m", "memory": "10Mi"}
"""The provider takes this off each node; it can't be set."""
_UNLIKE: Final = Fraction(1, 100)
_FIELDS: Final = ("name", "architecture", "operatingSystems", "resources", "offerings")
_OF_AN_OFFERING: Final = ("Price", "Available", "Requirements", "ReservationCapacity")
_OF_A_REQUIREMENT: Final = ("key", "operator", "values")
_MAX_PRICE: Final = 1e9


class InstanceTypesError(KwokOperatorError):
    """A file of instance types that Karpenter could not use. The text begins with the field."""


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
    """The instance type of its groups, if a type of another shape has that name."""

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The values that a node of any of its offerings can have, by label."""
        return {
            INSTANCE_TYPE_LABEL: (self.name,),
            ARCH_LABEL: (self.architecture,),
            OS_LABEL: self.systems,
        }

    @property
    def capacity_types(self) -> frozenset[str]:
        values = (each.labels.get(CAPACITY_TYPE_LABEL, ()) for each in self.offerings)
        return frozenset(value for some in values for value in some)


def types_of(groups: Sequence[GroupOffering]) -> list[InstanceType]:
    """Returns a type for each shape among the groups, called after its instance type if it has one
    of its own. Of shapes that are alike, it has the smallest amounts.
    """
    found, taken, theirs = [], set[str](), {each.instance_type for each in groups}
    for alike in _alike(groups):
        first = alike[0]
        name = first.instance_type
        if not name or name in taken:
            name = _free(name or _name_of(first), taken | theirs)
        taken.add(name)
        found.append(
            InstanceType(
                name=name,
                architecture=first.architecture,
                systems=(first.system,),
                resources=_with_overhead(_least(alike)),
                offerings=tuple(_offering(each) for each in alike),
                renamed_from=first.instance_type if name != first.instance_type else "",
            )
        )
    return found


def _alike(groups: Iterable[GroupOffering]) -> Iterator[list[GroupOffering]]:
    """Yields groups of one shape. Those of one instance type are alike if no amount differs by more
    than _UNLIKE from that of the first: machines of a type differ a little in their memory.
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
    """Returns a name such as 4-cpu-16-gi."""
    cpu = parse_quantity(group.allocatable.get("cpu", 0))
    memory = parse_quantity(group.allocatable.get("memory", 0)) / 2**30
    return f"{_rounded(cpu)}-cpu-{_rounded(memory)}-gi"


def _rounded(amount: Fraction) -> str:
    return f"{float(amount):.4g}".replace("+", "")


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[:55]}-{number}"
    return free


def _with_overhead(allocatable: Mapping[str, str]) -> dict[str, str]:
    resources = dict(allocatable)
    for name, more in _OVERHEAD.items():
        whole = parse_quantity(allocatable.get(name, 0)) + parse_quantity(more)
        resources[name] = format_quantity(whole, like=more)
    return resources


def as_json(types: Sequence[InstanceType]) -> str:
    """Returns the file's text."""
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


def read_types(text: str) -> list[InstanceType]:
    """Reads a file of instance types. Raises InstanceTypesError for the first mistake."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InstanceTypesError(f"is no JSON: {one_line(str(error), limit=200)}") from error
    if not isinstance(value, list) or not value:
        raise InstanceTypesError("is no list of instance types, with at least one")
    if len(value) > MAX_TYPES:
        raise InstanceTypesError(f"has {len(value):,} types; at most {MAX_TYPES:,} can be")
    types = [_read_type(each, f"[{number}]") for number, each in enumerate(value)]
    seen: dict[str, int] = {}
    for number, each in enumerate(types):
        if each.name in seen:
            raise InstanceTypesError(
                f"[{number}].name: {shown(each.name)} is the name of [{seen[each.name]}], too;"
                " rename one"
            )
        seen[each.name] = number
    return types


def _read_type(value: Any, at: str) -> InstanceType:
    fields = _fields(value, at, _FIELDS)
    for field in _FIELDS:
        if field not in fields:
            raise InstanceTypesError(f"{at}.{field}: is missing, and must be given")
    name, architecture = (_text(fields[key], f"{at}.{key}") for key in ("name", "architecture"))
    systems = _texts(fields["operatingSystems"], f"{at}.operatingSystems")
    resources = fields["resources"]
    if not isinstance(resources, dict):
        raise InstanceTypesError(f"{at}.resources: must be an object, such as {{cpu: 4100m}}")
    for key, amount in resources.items():
        _check_amount(amount, f"{at}.resources.{key}", least=_OVERHEAD.get(key, "0"))
    for key in _OVERHEAD:
        if key not in resources:
            raise InstanceTypesError(f"{at}.resources.{key}: is missing, and must be given")
    offerings = fields["offerings"]
    if not isinstance(offerings, list) or not 0 < len(offerings) <= _MAX_OFFERINGS:
        raise InstanceTypesError(
            f"{at}.offerings: must be a list of 1 to {_MAX_OFFERINGS:,} offerings"
        )
    read = tuple(_read_offering(each, f"{at}.offerings[{n}]") for n, each in enumerate(offerings))
    amounts = {key: str(amount) for key, amount in resources.items()}
    return InstanceType(name, architecture, systems, amounts, read)


def _read_offering(value: Any, at: str) -> Offering:
    fields = _fields(value, at, _OF_AN_OFFERING)
    price = fields.get("Price")
    if not _is_price(price):
        said = "is missing" if price is None else f"{shown(price)} is no price"
        raise InstanceTypesError(f"{at}.Price: {said}; write a number such as 0.192")
    requirements = fields.get("Requirements")
    if not isinstance(requirements, list):
        raise InstanceTypesError(f"{at}.Requirements: must be a list of key, operator and values")
    labels = dict(_read_requirements(requirements, f"{at}.Requirements"))
    capacity = labels.get(CAPACITY_TYPE_LABEL, ())
    if not capacity or not set(capacity) <= CAPACITY_TYPES:
        raise InstanceTypesError(
            f"{at}.Requirements: must have {CAPACITY_TYPE_LABEL} In one of"
            f" {names_in_words(sorted(CAPACITY_TYPES))}"
        )
    return Offering(float(fields["Price"]), labels)


def _is_price(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= _MAX_PRICE  # NaN is neither


def _read_requirements(requirements: list[Any], at: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    seen = set[str]()
    for number, each in enumerate(requirements):
        here = f"{at}[{number}]"
        fields = _fields(each, here, _OF_A_REQUIREMENT)
        key = fields.get("key")
        if not isinstance(key, str) or not is_label_key(key):
            raise InstanceTypesError(f"{here}.key: {shown(key)} is not the key of a label")
        if key in seen:
            raise InstanceTypesError(f"{here}.key: {shown(key)} stands there twice; keep one")
        seen.add(key)
        if fields.get("operator") != "In":
            said = shown(fields.get("operator"))
            raise InstanceTypesError(f"{here}.operator: {said} must be In, with values")
        yield key, _texts(fields.get("values"), f"{here}.values")


def _fields(value: Any, at: str, known: Sequence[str]) -> dict[str, Any]:
    """Returns the fields of an object by their names. Go takes them in capitals or not."""
    if not isinstance(value, dict):
        raise InstanceTypesError(f"{at}: must be an object with {names_in_words([*known])}")
    names = {name.lower(): name for name in known}
    fields = {}
    for key, part in value.items():
        if key.lower() not in names:
            near = nearest(key, known)
            hint = f"did you mean {near}?" if near else f"known here: {', '.join(known)}"
            raise InstanceTypesError(f"{at}.{one_line(key, limit=100)}: is no field; {hint}")
        fields[names[key.lower()]] = part
    return fields


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str) or not value or not is_label_value(value):
        raise InstanceTypesError(f"{at}: {shown(value)} is not the value of a label")
    return value


def _texts(value: Any, at: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise InstanceTypesError(f"{at}: must be a list with at least one value")
    for number, each in enumerate(value):
        if not isinstance(each, str) or not is_label_value(each):
            raise InstanceTypesError(f"{at}[{number}]: {shown(each)} is not the value of a label")
    return tuple(value)


def _check_amount(value: Any, at: str, *, least: str) -> None:
    try:
        amount = parse_quantity(value)
    except ValueError as error:
        raise InstanceTypesError(f"{at}: {shown(value)} {error}") from error
    if amount < parse_quantity(least):
        raise InstanceTypesError(f"{at}: {shown(value)} is less than {least}; raise it")
