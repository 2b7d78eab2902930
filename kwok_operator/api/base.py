"""What the models of the API share: the base class and the types of single values.

Owns how a Kubernetes object becomes a Python value and back: camelCase outside, snake_case inside,
frozen, unknown fields ignored, null and a missing field the same. Owns the value types (quantities,
label values, taint keys) together with the limits that the API server enforces, and the class of
the models' rules, each of which is written both in CEL and in Python.

It knows the fields of no kind, and refuses nothing beyond the schema: an object that the API server
has stored must always be readable here.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from kwok_operator.formats.quantity import parse_quantity

DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SHORT_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = rf"^({_SHORT_NAME})?$"
LABEL_NAME = rf"^{_SHORT_NAME}$"
QUALIFIED_NAME = rf"^({DNS_NAME}/)?{_SHORT_NAME}$"
EXTENDED_RESOURCE_NAME = rf"^{DNS_NAME}/{_SHORT_NAME}$"
_MAX_LABEL_LENGTH = 63
_MAX_QUALIFIED_NAME_LENGTH = 253 + 1 + 63

# The API server's own pattern for quantities, without a minus sign, as nothing here can be
# negative.
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY = rf"^\+?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
_MAX_QUANTITY_LENGTH = 32

STORED_DEFAULT = "x-stored-default"
"""A key in a field's json_schema_extra: the API server stores this field's default, which the CRD
otherwise leaves out."""


class ApiModel(BaseModel):
    """A part of a Kubernetes object."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """Treats null like a missing field. Accepts any mapping, because kopf passes views that are
        no dicts."""
        if data is None:
            return {}
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data

    def dump(self) -> dict[str, Any]:
        """Returns the JSON object for the API server, with the API's names and without fields that
        are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def is_api_group(text: str) -> bool:
    """Whether a CRD can have this API group: a DNS name with a dot in it."""
    return len(text) <= 200 and "." in text and re.fullmatch(DNS_NAME, text) is not None


def number_as_text(value: Any) -> Any:
    """Returns a whole number as text, and any other value as it is: users may write either."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


RULES: Final = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class ApiRule:
    """A rule in two forms: the API server checks `cel`, `kwok-operator validate` calls `holds`.

    `holds` gets the value as JSON, after its types were checked. `field` is the part that breaks
    the rule. With `with_old`, CEL has the value before the write as `oldSelf`.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""
    with_old: bool = False

    def as_schema(self) -> dict[str, Any]:
        """Returns the rule in the form that a CustomResourceDefinition has."""
        place = {"fieldPath": f".{self.field}"} if self.field else {}
        old = {"optionalOldSelf": True} if self.with_old else {}
        return {"rule": self.cel, "message": self.message, **place, **old}


def rules(*given: ApiRule) -> ConfigDict:
    """Returns a model's configuration with these rules."""
    extra: Any = {RULES: [*given]}
    return ConfigDict(json_schema_extra=extra)


def matches(pattern: str, *, of: str = "self") -> str:
    """Returns a CEL expression that is true if the string matches a pattern. `of` is the CEL
    expression for the string."""
    return f"{of}.matches(r'{pattern}')"


def all_match(pattern: str, texts: Iterable[str]) -> bool:
    """Whether all of these texts match the pattern, by the same rules as the CEL of `matches`."""
    return all(re.fullmatch(pattern, text) for text in texts)


def at_least_one_of(*fields: str, message: str) -> ApiRule:
    return ApiRule(
        " || ".join(f"has(self.{field})" for field in fields),
        message,
        lambda part: any(part.get(field) is not None for field in fields),
    )


def exactly_one_of(*fields: str, of: str = "", message: str = "") -> ApiRule:
    """Returns the rule that exactly one of these fields is set. The default message begins
    with `of`, which says what has the fields, as in `of="template.from.nodes "`."""
    given = ", ".join(f"has(self.{field})" for field in fields)
    return ApiRule(
        f"[{given}].filter(given, given).size() == 1",
        message or f"{of}must have exactly one of {', '.join(fields[:-1])} and {fields[-1]}",
        lambda part: sum(part.get(field) is not None for field in fields) == 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Makes `Annotated[str, Text(...)]` a string that a pattern describes.

    In the CRD a rule takes the place of the pattern, so that the API server answers a mistake with
    a sentence and not a regular expression. Limits of length stay, as the API server estimates the
    cost of rules from them.
    """

    pattern: str
    min_length: int | None = None
    max_length: int
    message: str

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.str_schema(
            pattern=self.pattern, min_length=self.min_length, max_length=self.max_length
        )

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        least = {} if self.min_length is None else {"minLength": self.min_length}
        rule = ApiRule(
            matches(self.pattern), self.message, lambda value: all_match(self.pattern, [value])
        )
        return {"type": "string", **least, "maxLength": self.max_length, RULES: [rule]}


def _is_quantity(value: Any) -> bool:
    try:
        return parse_quantity(value) >= 0 and not str(value).startswith("-")
    except ValueError:
        return False


Quantity = Annotated[
    str,
    BeforeValidator(number_as_text),
    StringConstraints(pattern=QUANTITY, max_length=_MAX_QUANTITY_LENGTH),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": _MAX_QUANTITY_LENGTH,
            RULES: [
                ApiRule(
                    "isQuantity(string(self)) && !string(self).startsWith('-')",
                    "must be a quantity and not negative, such as 8, 500m or 32Gi",
                    _is_quantity,
                )
            ],
        }
    ),
]
"""An amount such as 32, "500m" or "256Gi". Always text in Python, even if written as a number."""


def is_label_key(text: str) -> bool:
    """Whether a label can have this key."""
    return len(text) <= _MAX_QUALIFIED_NAME_LENGTH and all_match(QUALIFIED_NAME, [text])


def is_label_value(text: str) -> bool:
    """Whether a label can have this value, which may be empty."""
    return all_match(LABEL_VALUE, [text])


_LABEL_CHARACTERS = (
    "must begin and end with a letter or a digit, with letters, digits, '-', '_' and '.' between"
)

LabelValue = Annotated[
    str,
    Text(
        pattern=LABEL_VALUE,
        max_length=_MAX_LABEL_LENGTH,
        message=f"{_LABEL_CHARACTERS}, or be empty",
    ),
]
"""The value of a label or a taint; may be empty."""

LabelName = Annotated[
    str, Text(pattern=LABEL_NAME, max_length=_MAX_LABEL_LENGTH, message=_LABEL_CHARACTERS)
]
"""The value of a label that must not be empty, such as a zone."""

QualifiedName = Annotated[
    str,
    Text(
        pattern=QUALIFIED_NAME,
        max_length=_MAX_QUALIFIED_NAME_LENGTH,
        message="must be a name, with a domain or without, such as gpu or example.com/gpu",
    ),
]
"""The key of a taint, such as gpu or example.com/gpu."""

ExtendedResourceName = Annotated[
    str,
    Text(
        pattern=EXTENDED_RESOURCE_NAME,
        max_length=_MAX_QUALIFIED_NAME_LENGTH,
        message="must be the name of a resource with its domain, such as nvidia.com/gpu",
    ),
]
"""The name of a resource with its domain, such as nvidia.com/gpu."""

MAX_OBJECT_NAME = 253
ObjectName = Annotated[
    str,
    Text(
        pattern=rf"^{DNS_NAME}$",
        max_length=MAX_OBJECT_NAME,
        message="must be the name of an object: lower-case letters, digits, '-' and '.'",
    ),
]
"""The name of a ConfigMap, a Secret or a node."""

NodeName = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_LABEL_LENGTH)]
