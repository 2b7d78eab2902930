"""Reads a file of instance types for Karpenter's kwok provider, as users write it.

JSON  --read_types-->  InstanceType

It is checked here, as Karpenter only logs mistakes in the file, and then has no types.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError

from kwok_operator.api.base import LABEL_VALUE, QUALIFIED_NAME, Quantity
from kwok_operator.constants import CAPACITY_TYPE_LABEL
from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.words import names_in_words
from kwok_operator.rehearsal.karpenter.groups import CAPACITY_TYPES
from kwok_operator.rehearsal.karpenter.instancetypes import OVERHEAD, InstanceType, Offering
from kwok_operator.rehearsal.scenario.parts import ScenarioPart
from kwok_operator.rehearsal.scenario.problems import field_problems

_MAX_TYPES: Final = 5_000


class InstanceTypesError(KwokOperatorError):
    """A file of instance types that Karpenter could not use. The text begins with the field."""


def _check_distinct(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"has {name} twice; keep one")


def _with_capacity_type(requirements: tuple["_Requirement", ...]) -> tuple["_Requirement", ...]:
    _check_distinct(each.key for each in requirements)
    values = [each.values for each in requirements if each.key == CAPACITY_TYPE_LABEL]
    if not values or not CAPACITY_TYPES.issuperset(values[0]):
        known = names_in_words(sorted(CAPACITY_TYPES))
        raise ValueError(f"must have {CAPACITY_TYPE_LABEL} In one of {known}")
    return requirements


def _with_other_names(types: tuple["_Type", ...]) -> tuple["_Type", ...]:
    _check_distinct(each.name for each in types)
    return types


def _more_than_overhead(name: str) -> AfterValidator:
    def check(amount: str) -> str:
        if parse_quantity(amount) < parse_quantity(OVERHEAD[name]):
            raise ValueError(f"is less than {OVERHEAD[name]}, which nodes lack; raise it")
        return amount

    return AfterValidator(check)


_Label = Annotated[str, StringConstraints(pattern=LABEL_VALUE, min_length=1)]
_Labels = Annotated[tuple[_Label, ...], Field(min_length=1)]


class _Requirement(ScenarioPart):
    key: Annotated[str, StringConstraints(pattern=QUALIFIED_NAME)]
    operator: Literal["In"]
    values: _Labels


class _Offering(ScenarioPart):
    price: float = Field(alias="Price", strict=True, ge=0, le=1e9)
    requirements: Annotated[
        tuple[_Requirement, ...], AfterValidator(_with_capacity_type), Field(alias="Requirements")
    ]
    available: Any = Field(default=None, alias="Available")
    reservation_capacity: Any = Field(default=None, alias="ReservationCapacity")


class _Resources(ScenarioPart):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Quantity]

    cpu: Annotated[Quantity, _more_than_overhead("cpu")]
    memory: Annotated[Quantity, _more_than_overhead("memory")]


class _Type(ScenarioPart):
    name: _Label
    architecture: _Label
    operating_systems: _Labels
    resources: _Resources
    offerings: Annotated[tuple[_Offering, ...], Field(min_length=1, max_length=1_000)]


class _File(ScenarioPart):
    types: Annotated[
        tuple[_Type, ...],
        Field(min_length=1, max_length=_MAX_TYPES),
        AfterValidator(_with_other_names),
    ]


def read_types(text: str) -> list[InstanceType]:
    """Reads a file of instance types. Raises InstanceTypesError for the first mistake."""
    try:
        value = {"types": json.loads(text)}
        types = _File.model_validate(value).types
    except ValidationError as error:
        message = field_problems(error, _File, value)[0].message
        raise InstanceTypesError(message.removeprefix("types").removeprefix(": ")) from error
    except (ValueError, RecursionError) as error:
        raise InstanceTypesError(f"is no JSON: {one_line(str(error), limit=200)}") from error
    return [
        InstanceType(
            name=each.name,
            architecture=each.architecture,
            systems=each.operating_systems,
            resources=each.resources.dump(),
            offerings=tuple(
                Offering(offering.price, {part.key: part.values for part in offering.requirements})
                for offering in each.offerings
            ),
        )
        for each in types
    ]
