"""The annotations and the label in which a Node records what the simulated cloud decided.

    Life  --dump_life-->  {"bornAt": "2026-01-02T03:04:05.678Z", "readyAfter": 30000, ...}
    labels, annotations  --mark_of-->  Mark, or None for a Node that has none of them

Spans are milliseconds. They are parsed once, when the Node is decoded. Anybody who may write
nodes can write anything here: a value that is no valid record is ignored as a whole, and the
Node then behaves like one of a perfect cloud.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from kwok_operator import constants
from kwok_operator.cloud.draws import LONGEST
from kwok_operator.cloud.life import ComingResource, End, Life, PassingTaint, Spells
from kwok_operator.formats.times import format_exact_time, parse_time

CLOUD_ANNOTATIONS: Final = (
    constants.LIFE_ANNOTATION,
    constants.SHOWN_ANNOTATION,
    constants.NOTICED_AT_ANNOTATION,
    constants.DELETE_AT_ANNOTATION,
)
PERFECT: Final = Life(born=0)
_KEYS = frozenset(CLOUD_ANNOTATIONS)
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
    """Returns the value of the life annotation: JSON, without fields that have their defaults."""
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
    """Parses what `dump_life` returns. Raises ValueError, with a message for users, for anything
    else."""
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


@dataclass(frozen=True, slots=True)
class Mark:
    """What the simulated cloud has recorded on a Node; times are milliseconds.

    `life` is None if no course is recorded, as on Nodes without delay, fault or end. `shown`
    describes the state that was last written into the Node, "" for none. `noticed_at` is when the
    Node got notice of its end; recorded only if the group limits how many Nodes are under notice.
    `delete_at` is when a Node that is stuck in deletion is to be gone. `hold` says that the Node
    has the label that keeps it not Ready.
    """

    life: Life | None = None
    shown: str = ""
    noticed_at: int | None = None
    delete_at: int | None = None
    hold: bool = False

    def lived(self, *, capped: bool) -> Life:
        """Returns the life, with the time at which notice of the Node's end was given, if recorded.

        With `capped` (the group limits how many Nodes are under notice), the life has no end until
        that time is recorded.
        """
        life = PERFECT if self.life is None else self.life
        if self.noticed_at is not None:
            return life.noticed(self.noticed_at)
        return life.noticed(None) if capped else life


def mark_of(*, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Mark | None:
    """Reads what the simulated cloud has recorded on a Node; None, at little cost, for the many
    Nodes without such a record."""
    hold = constants.HOLD_LABEL in labels
    if not hold and _KEYS.isdisjoint(annotations):
        return None
    return Mark(
        life=read_life(annotations),
        shown=annotations.get(constants.SHOWN_ANNOTATION, ""),
        noticed_at=_time(annotations.get(constants.NOTICED_AT_ANNOTATION)),
        delete_at=_time(annotations.get(constants.DELETE_AT_ANNOTATION)),
        hold=hold,
    )


def mark_on(mark: object) -> Mark | None:
    """Narrows `NodeRecord.mark` to the simulated cloud's type: returns it if it is a Mark, else
    None."""
    return mark if isinstance(mark, Mark) else None


def read_life(annotations: Mapping[str, Any]) -> Life | None:
    """Returns the Life in a Node's annotation; None if there is no such annotation, or it is
    invalid."""
    with suppress(KeyError, ValueError):
        return load_life(annotations[constants.LIFE_ANNOTATION])
    return None


def _time(text: str | None) -> int | None:
    if text is not None:
        with suppress(ValueError, OverflowError):
            return parse_time(text)
    return None
