"""What the models of the API share: the base class and the types of single values.

Owns how a Kubernetes object becomes a Python value and back: camelCase outside, snake_case
inside, frozen, unknown fields ignored, null and absent the same. Owns the value types
(quantities, label values, taint keys) together with the limits that the API server enforces.

Deliberately knows no field of any resource, and refuses nothing on top of the schema: an object
that the API server has stored must always be readable here.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SHORT_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = rf"^({_SHORT_NAME})?$"
LABEL_NAME = rf"^{_SHORT_NAME}$"
QUALIFIED_NAME = rf"^({DNS_NAME}/)?{_SHORT_NAME}$"
EXTENDED_RESOURCE_NAME = rf"^{DNS_NAME}/{_SHORT_NAME}$"
_MAX_LABEL_LENGTH = 63
_MAX_QUALIFIED_NAME_LENGTH = 253 + 1 + 63

# The API server's own pattern for quantities, without the minus sign: nothing here can be negative.
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY = rf"^\+?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
_MAX_QUANTITY_LENGTH = 32

STORED_DEFAULT = "x-stored-default"
"""In a field's json_schema_extra: the API server writes this default, instead of leaving it out."""


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
        """Also takes any mapping, because kopf hands out views that are no dicts."""
        if data is None:
            return {}
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data

    def dump(self) -> dict[str, Any]:
        """The JSON object as the API server wants it: by alias, without what is None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def is_api_group(text: str) -> bool:
    """Whether a CRD can have this API group: a DNS name with a dot in it."""
    return len(text) <= 200 and "." in text and re.fullmatch(DNS_NAME, text) is not None


def number_as_text(value: Any) -> Any:
    """What may be written as a number or as text, as text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# In the schema a rule takes the place of `pattern`: the answer to a mistake is then a sentence and
# not a regular expression. Lengths stay, as the cost of rules is estimated from them.
def text(
    pattern: str, *, min_length: int | None = None, max_length: int, message: str
) -> WithJsonSchema:
    """A string that a pattern describes, as the API server is to check it."""
    return WithJsonSchema(
        {
            "type": "string",
            **({} if min_length is None else {"minLength": min_length}),
            "maxLength": max_length,
            "x-kubernetes-validations": [{"rule": matches(pattern), "message": message}],
        }
    )


def matches(pattern: str, *, of: str = "self") -> str:
    """The CEL expression that says whether a string matches a pattern."""
    return f"{of}.matches(r'{pattern}')"


Quantity = Annotated[
    str,
    BeforeValidator(number_as_text),
    StringConstraints(pattern=QUANTITY, max_length=_MAX_QUANTITY_LENGTH),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": _MAX_QUANTITY_LENGTH,
            "x-kubernetes-validations": [
                {
                    "rule": "isQuantity(string(self)) && !string(self).startsWith('-')",
                    "message": "must be a quantity and not negative, such as 8, 500m or 32Gi",
                }
            ],
        }
    ),
]
"""An amount such as 32, "500m" or "256Gi". Always text in Python, whichever way it was written."""


Rule = tuple[str, str] | tuple[str, str, str]
"""A rule in CEL, its message, and the field that it is about, where that is one."""


def rules(*rules: Rule) -> ConfigDict:
    """The model configuration with these rules."""
    given: list[Any] = []
    for rule, message, *about in rules:
        place = {"fieldPath": f".{about[0]}"} if about else {}
        given.append({"rule": rule, "message": message, **place})
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": given})


def one_is_given(*fields: str) -> str:
    """In CEL: not none of them, and not two."""
    return (
        f"[{', '.join(f'has(self.{field})' for field in fields)}].filter(given, given).size() == 1"
    )


def exactly_one_of(*fields: str, of: str = "") -> tuple[str, str]:
    """The rule and its message, which begins with `of`."""
    return (
        one_is_given(*fields),
        f"{of}must have exactly one of {', '.join(fields[:-1])} and {fields[-1]}",
    )


_LABEL_CHARACTERS = (
    "must begin and end with a letter or a digit, with letters, digits, '-', '_' and '.' between"
)

LabelValue = Annotated[
    str,
    StringConstraints(pattern=LABEL_VALUE, max_length=_MAX_LABEL_LENGTH),
    text(
        LABEL_VALUE,
        max_length=_MAX_LABEL_LENGTH,
        message=f"{_LABEL_CHARACTERS}, or be empty",
    ),
]
"""The value of a label or a taint; may be empty."""

LabelName = Annotated[
    str,
    StringConstraints(pattern=LABEL_NAME, max_length=_MAX_LABEL_LENGTH),
    text(LABEL_NAME, max_length=_MAX_LABEL_LENGTH, message=_LABEL_CHARACTERS),
]
"""The value of a label that says something, such as a zone; not empty."""

QualifiedName = Annotated[
    str,
    StringConstraints(pattern=QUALIFIED_NAME, max_length=_MAX_QUALIFIED_NAME_LENGTH),
    text(
        QUALIFIED_NAME,
        max_length=_MAX_QUALIFIED_NAME_LENGTH,
        message="must be a name, with a domain or without, such as gpu or example.com/gpu",
    ),
]
"""The key of a taint, such as gpu or example.com/gpu."""

ExtendedResourceName = Annotated[
    str,
    StringConstraints(pattern=EXTENDED_RESOURCE_NAME, max_length=_MAX_QUALIFIED_NAME_LENGTH),
    text(
        EXTENDED_RESOURCE_NAME,
        max_length=_MAX_QUALIFIED_NAME_LENGTH,
        message="must be the name of a resource with its domain, such as nvidia.com/gpu",
    ),
]
"""The name of a resource with its domain, such as nvidia.com/gpu."""

NodeName = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_LABEL_LENGTH)]
