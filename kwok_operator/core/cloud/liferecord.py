"""A Life as the annotation of a Node, and back.

    {"bornAt": "2026-01-02T03:04:05.678Z", "readyAfter": 30000, "end": {...}, ...}

Spans are milliseconds. Whoever may write nodes can write anything here: what isn't a record is
refused as a whole, and the Node is then as one of a perfect cloud.
"""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from kwok_operator.core.cloud.distributions import LONGEST
from kwok_operator.core.cloud.life import ComingResource, End, Life, PassingTaint, Spells
from kwok_operator.core.cloud.times import format_exact_time, parse_time

_MAX_LENGTH = 64 * 1024
_Span = Annotated[int, Field(ge=0, le=10 * LONGEST, strict=True)]
_Text = Annotated[str, Field(max_length=317, strict=True)]


class _Record(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", validate_by_name=True)


class _Taint(_Record):
    key: _Text
    value: _Text = ""
    effect: _Text
    after: _Span


class _Resource(_Record):
    name: _Text
    amount: _Text = ""
    after: _Span


class _End(_Record):
    after: _Span
    notice: _Span = 0
    reason: _Text


class _Spells(_Record):
    period: Annotated[_Span, Field(gt=0)]
    length: Annotated[_Span, Field(gt=0)]
    first: _Span = 0


class _Life(_Record):
    born_at: _Text
    ready_after: _Span | None = 0
    taints: tuple[_Taint, ...] = Field(default=(), max_length=64)
    resources: tuple[_Resource, ...] = Field(default=(), max_length=64)
    end: _End | None = None
    spells: _Spells | None = None


def dump_life(life: Life) -> str:
    """The annotation's value."""
    record = _Life(
        born_at=format_exact_time(life.born),
        ready_after=life.ready_after,
        taints=tuple(_Taint(**_fields(taint)) for taint in life.taints),
        resources=tuple(_Resource(**_fields(resource)) for resource in life.resources),
        end=_End(**_fields(life.end)) if life.end else None,
        spells=_Spells(**_fields(life.spells)) if life.spells else None,
    )
    fields = record.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return json.dumps(fields, separators=(",", ":"))


def load_life(text: str) -> Life:
    """The inverse of `dump_life`. Raises ValueError, in a sentence, for anything else."""
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"not the record of a life: {len(text)} characters")
    try:
        record = _Life.model_validate_json(text)
        born = parse_time(record.born_at)
    except (ValidationError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"not the record of a life: {first}") from None
    return Life(
        born=born,
        ready_after=record.ready_after,
        taints=tuple(PassingTaint(**taint.model_dump()) for taint in record.taints),
        resources=tuple(ComingResource(**part.model_dump()) for part in record.resources),
        end=End(**record.end.model_dump()) if record.end else None,
        spells=Spells(**record.spells.model_dump()) if record.spells else None,
    )


def _fields(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}
