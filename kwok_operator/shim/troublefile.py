"""The file of --api-trouble: what may go wrong with calls of cluster-autoscaler, and how often.

    path  --read_plan-->  TroublePlan, or ValueError with a sentence: field, value, remedy

This module defines the format; trouble.py decides when something happens.
"""

import errno
import re
from contextlib import suppress
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from kwok_operator.api.base import number_as_text
from kwok_operator.cloud.api.delay import Delay
from kwok_operator.cloud.draws import SECOND, span
from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.words import names_in_words
from kwok_operator.formats.yamltext import in_words, load_documents
from kwok_operator.shim.grpcwire import StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.userfiles import read_bytes

ANY: Final = "*"
CALLS: Final = pb.DESCRIPTOR.services_by_name["CloudProvider"].methods_by_name
RPCS: Final = tuple(CALLS)
OF_NO_GROUP: Final = frozenset(
    name
    for name, call in CALLS.items()
    if {"id", "node"}.isdisjoint(call.input_type.fields_by_name)
)
"""Names of the calls that are about all groups."""
MAX_BYTES: Final = 2**20
LONGEST: Final = 60 * SECOND
"""The longest wait in milliseconds. cluster-autoscaler gives up long before."""

_TIME = re.compile(r"(?:([0-9]{1,2})m)?(?:([0-9]{1,4})s)?(?:([0-9]{1,5})ms)?")
_SCALE: Final = 1_000
_CODES: Final = tuple(code.name for code in StatusCode if code is not StatusCode.OK)

_ABOUT_FIELDS: Final = {
    "missing": "is missing; add it",
    "extra_forbidden": "there is no such field; remove it, or correct its name",
}
_PROBLEMS: Final = {
    "model_type": "is no object; write its fields below it",
    "tuple_type": "is no list; begin each item with a dash",
    "frozen_set_type": "is no list; begin each item with a dash",
    "string_type": "is no text; put it in quotes",
    "bool_type": "is neither true nor false",
    "too_short": "is empty; add an item",
    "string_too_short": "is empty; give it a text, or leave it out",
}
"""pydantic's type of an error -> the sentence that says what is wrong with the value."""


def _time(text: Any) -> Any:
    if not isinstance(text, str) or not text or not _TIME.fullmatch(text):
        raise ValueError("is not a time such as 200ms, 3s or 1m")
    return text


def _rpc(name: Any) -> Any:
    if name not in (ANY, *RPCS):
        raise ValueError(f'is no call; there are {", ".join(RPCS)}, and "{ANY}" for all of them')
    return name


def _code(name: Any) -> Any:
    if name not in _CODES:
        raise ValueError(f"is no code; there are {', '.join(_CODES)}")
    return name


def _share(value: Any) -> Any:
    with suppress(ValueError, TypeError):
        if not isinstance(value, bool) and 0 <= (share := float(value)) <= 1:
            return share
    raise ValueError("is not a number from 0 to 1, such as 0.1")


_Time = Annotated[str, BeforeValidator(_time)]
_Share = Annotated[float, BeforeValidator(_share)]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class _Uniform(_Part):
    min: _Time
    max: _Time


class _Normal(_Part):
    mean: _Time
    stddev: _Time


class _Lognormal(_Part):
    p50: _Time
    p99: _Time


class _Exponential(_Part):
    mean: _Time


class Latency(_Part):
    """How long a call waits: a fixed time or a distribution, written as in spec.cloud, except that
    times may have milliseconds."""

    fixed: _Time | None = None
    uniform: _Uniform | None = None
    normal: _Normal | None = None
    lognormal: _Lognormal | None = None
    exponential: _Exponential | None = None
    samples: tuple[_Time, ...] | None = Field(default=None, min_length=1, max_length=100)

    @model_validator(mode="after")
    def _one(self) -> "Latency":
        kinds = list(type(self).model_fields)
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"must have exactly one of {names_in_words(kinds)}")
        return self

    def milliseconds(self, draw: float) -> float:
        """Returns the wait in milliseconds that belongs to `draw`, a random number from 0 to 1."""
        # A Delay has whole seconds, so each time is made a thousand times as long.
        scaled = Delay.model_validate(_scaled(self.model_dump(exclude_none=True)))
        return min(span(scaled, draw) / _SCALE, LONGEST)


class Error(_Part):
    """The call is answered with a code, and not carried out."""

    probability: _Share
    code: Annotated[str, BeforeValidator(_code)]
    message: str = Field(
        default="the cloud's API is in trouble, as --api-trouble has it",
        min_length=1,
        max_length=400,
    )


class Timeout(_Part):
    """The call isn't answered. If `after` is true, the call is carried out nevertheless."""

    probability: _Share
    after: bool = Field(default=False, strict=True)


class Rule(_Part):
    """What may go wrong with one kind of call, or with any (`*`), about one of `groups`; without
    `groups`, about any group with spec.cloud.apiTrouble."""

    name: Annotated[str, BeforeValidator(_rpc)]
    groups: frozenset[str] | None = None
    latency: Latency | None = None
    errors: tuple[Error, ...] = Field(default=(), max_length=20)
    timeout: Timeout | None = None

    @model_validator(mode="after")
    def _possible(self) -> "Rule":
        total = sum(error.probability for error in self.errors)
        total += self.timeout.probability if self.timeout else 0
        if total > 1 + 1e-9:
            raise ValueError(f"has probabilities of {total:g} together; lower them to 1 at most")
        if self.groups is not None and self.name in OF_NO_GROUP:
            raise ValueError(f"has groups, and {self.name} is about all of them; leave groups out")
        return self

    def fits(self, rpc: str, group: str) -> bool:
        """Whether the rule is about this call; `group` is empty for a call about all groups."""
        return self.name in (ANY, rpc) and (self.groups is None or group in self.groups)


class TroublePlan(_Part):
    """The rules of the file. For each call the first rule that fits counts."""

    seed: Annotated[str, BeforeValidator(number_as_text)] = Field(default="", max_length=64)
    rpcs: tuple[Rule, ...] = Field(min_length=1, max_length=100)

    def rule(self, rpc: str, group: str) -> Rule | None:
        return next((rule for rule in self.rpcs if rule.fits(rpc, group)), None)


def read_plan(path: str) -> TroublePlan:
    """Reads a plan from a file. Raises ValueError; its message continues a sentence that begins
    with the flag and the path: `can't be read: ...`."""
    try:
        text = read_bytes(path, limit=MAX_BYTES, given=True).decode()
    except OSError as error:
        if error.errno == errno.EFBIG:
            problem = f"has more than {MAX_BYTES} bytes; give a YAML file with fewer rules"
            raise ValueError(problem) from error
        raise ValueError(f"can't be read: {error.strerror or error}; give another file") from error
    except UnicodeDecodeError as error:
        raise ValueError("is no text in UTF-8; give a YAML file") from error
    try:
        documents = [d for d in load_documents(text, where="the file") if d is not None]
    except ManifestError as error:
        raise ValueError(f"can't be used: {error}") from error
    if len(documents) != 1:
        raise ValueError(f"has {len(documents)} documents, and must be one; it begins with rpcs:")
    return parse_plan(documents[0])


def parse_plan(value: object) -> TroublePlan:
    """Checks a value decoded from YAML, and returns the plan in it. Raises ValueError with a
    sentence."""
    try:
        return TroublePlan.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"can't be used: {_sentence(error)}") from None


def _sentence(error: ValidationError) -> str:
    """Describes the first mistake: where and what it is, and what it should be."""
    first = error.errors(include_url=False)[0]
    kind, where = first["type"], in_words(tuple(first["loc"])) or "the file"
    if kind in _ABOUT_FIELDS:
        return f"{where}: {_ABOUT_FIELDS[kind]}"
    given = first["ctx"]["error"] if kind == "value_error" else first["msg"]
    shown = "" if isinstance(first["input"], dict | BaseModel) else f"{first['input']!r} "
    return one_line(f"{where}: {shown}{_PROBLEMS.get(kind, given)}", limit=600)


def _scaled(value: Any) -> Any:
    """Converts each time in milliseconds to seconds."""
    if isinstance(value, dict):
        return {key: _scaled(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_scaled(part) for part in value]
    match = _TIME.fullmatch(value)
    assert match is not None
    minutes, seconds, milliseconds = (int(part or 0) for part in match.groups())
    return f"{(minutes * 60 + seconds) * _SCALE + milliseconds}s"
