"""What the parts of a scenario share: the base class, times, bounds, names.

A scenario is read only here, and only by one version, so an unknown field is a mistake, unlike in
an API resource. Times are converted to seconds here, so scenarios and recordings contain numbers.
Checks across parts are in `rehearsal/scenario/checks.py`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from kwok_operator.api.base import (
    DNS_NAME,
    LABEL_VALUE,
    QUALIFIED_NAME,
    LabelValue,
    QualifiedName,
    Quantity,
    number_as_text,
)

MAX_SECONDS = 7 * 86_400.0
"""The most seconds that a rehearsal may take, as it runs in real time."""
MAX_PODS = 150_000
"""The most pods of a scenario: Kubernetes' own limit for a cluster."""

_TIME = r"(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8})s)?(?:([0-9]{1,9})ms)?"
TIME_SCHEMA = "^(?=.)([0-9]{1,4}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?$"
_SPLIT = re.compile(_TIME)
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)/([smh])")
_UNITS = {"s": 1, "m": 60, "h": 3600}
_TOO_LARGE = 2.0**1023
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NODE_PLACE = rf"^{DNS_NAME}/(0|[1-9][0-9]{{0,6}})$"
MAX_NAME = 50
"""The most characters of a name. A number is appended, and both must fit in a label."""


class ScenarioPart(BaseModel):
    """A part of a scenario."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data

    def dump(self) -> dict[str, Any]:
        """Returns the part as a scenario has it, without fields that weren't set. Times are in
        seconds.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


def program_field(default: str) -> Any:
    """Declares the field that names the program of a preset, such as cluster-autoscaler."""
    return Field(
        default=default,
        description="A program on PATH, or a path relative to the scenario; --binary NAME=PATH says"
        f" otherwise. Default: {default}.",
    )


def require_one(part: BaseModel, *names: str) -> str:
    """Returns which of these fields is set. Raises ValueError if not exactly one is."""
    given = [name for name in names if getattr(part, name) is not None]
    words = ", ".join(to_camel(name) for name in names[:-1]) + f" and {to_camel(names[-1])}"
    if len(given) == 1:
        return given[0]
    has = " and ".join(to_camel(name) for name in given)
    raise ValueError(f"has {has}; keep one of them" if has else f"needs one of {words}")


def seconds_of(value: Any) -> Any:
    """Returns the seconds of a time such as 30s. Raises ValueError."""
    if isinstance(value, str) and value and (match := _SPLIT.fullmatch(value)):
        hours, minutes, seconds, thousandths = (int(part or 0) for part in match.groups())
        value = hours * 3600 + minutes * 60 + seconds + thousandths / 1000
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError("is not a time such as 500ms, 30s, 10m or 1h30m")
    if value > MAX_SECONDS:
        raise ValueError(f"is longer than {MAX_SECONDS / 86_400:g} days, and time is real here")
    return float(value)


def _positive(value: float) -> float:
    if not value > 0:
        raise ValueError("is no time at all; write one such as 10s")
    return value


class _Time(float):
    """Seconds that were written as a time such as 30s."""


class NoBoundError(ValueError):
    """A value that can't be a bound of any figure. Its message is replaced by one that fits the
    figure, once that is known (problems.py).
    """


def _bound(value: Any) -> Any:
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, str) and value and _SPLIT.fullmatch(value):
        return _Time(seconds_of(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise NoBoundError("is neither a number from 0 on nor a time such as 30s")
    if not value < _TOO_LARGE:
        raise ValueError("is too large a number; write a smaller one")
    return value if is_time(value) else float(value)


def is_time(bound: float) -> bool:
    """Whether a bound was written as a time, such as 30s."""
    return isinstance(bound, _Time)


def _rate(value: Any) -> Any:
    if isinstance(value, str) and (match := _RATE.fullmatch(value)):
        value = float(match[1]) / _UNITS[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10_000:
        raise ValueError("is not a rate such as 5/s, 30/m or 100/h")
    return float(value)


_SPAN = {"type": ["string", "number"], "pattern": TIME_SCHEMA, "minimum": 0}

Span = Annotated[float, BeforeValidator(seconds_of), WithJsonSchema(_SPAN)]
"""A duration such as 30s, 1h30m or 500ms; in Python, in seconds."""

PositiveSpan = Annotated[Span, Field(), BeforeValidator(lambda v: _positive(seconds_of(v)))]
"""A duration that is longer than 0."""

Bound = Annotated[float, PlainValidator(_bound), WithJsonSchema(_SPAN)]
"""A bound of a figure: a number, or a duration, which counts in seconds."""

Rate = Annotated[
    float,
    BeforeValidator(_rate),
    WithJsonSchema({"type": ["string", "number"], "pattern": f"^{_RATE.pattern}$"}),
]
"""A rate per second, minute or hour, such as 5/s or 30/m; in Python, per second."""

ScenarioName = Annotated[str, StringConstraints(pattern=NAME, min_length=1, max_length=MAX_NAME)]
"""The name of something in a scenario."""

NamespaceName = Annotated[str, StringConstraints(pattern=NAME, min_length=1, max_length=63)]

Line = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
"""A text that is shown to people, or passed to a program."""

TextOrNumber = Annotated[
    str,
    BeforeValidator(lambda value: "true" if value is True else value),
    BeforeValidator(lambda value: "false" if value is False else value),
    BeforeValidator(lambda value: str(value) if isinstance(value, float) else value),
    BeforeValidator(number_as_text),
    StringConstraints(max_length=4_000),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
"""The value of a flag or variable; in Python, always text."""

Amount = Annotated[
    Quantity,
    BeforeValidator(lambda value: str(value) if isinstance(value, float) else value),
    WithJsonSchema({"type": ["string", "number"]}),
]
"""A quantity such as 500m, 1.5 or 16Gi."""

LabelKey = Annotated[QualifiedName, WithJsonSchema({"type": "string", "pattern": QUALIFIED_NAME})]
LabelText = Annotated[LabelValue, WithJsonSchema({"type": "string", "pattern": LABEL_VALUE})]

Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
"""A number that isn't written as text or a boolean."""
