"""The lines of a trace, each a JSON object: a header, the state at the start, then the changes.

    {"line": "header", "version": 1, "start": "2026-01-02T03:04:05.000Z", "part": 1}
    {"line": "shape", "id": "5f1c0a9be2d4", "body": {...}}
    {"line": "present", "at": 0, "kind": "Deployment", "namespace": "shop", "name": "cart", ...}
    {"line": "create" | "scale" | "update" | "end" | "delete", "at": 12.5, ...}
    {"line": "gap", "at": 90.1, "since": 61.0, "kind": "Pod", "lost": true}
    {"line": "stop", "at": 3600.0}

A shape is a cleaned object without name, namespace and size; it comes before the first line that
refers to it. Lines are in the order of their times, which are seconds since the start of the
recording, in each of its parts. Unknown keys are ignored.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kwok_operator.errors import TraceError
from kwok_operator.formats.times import format_exact_time, parse_time
from kwok_operator.importing.kinds import TRACED
from kwok_operator.nodegroups.naming import is_object_name

VERSION: Final = 1
MAX_REPLICAS: Final = 2**31 - 1
MAX_SECONDS: Final = 100 * 366 * 86_400.0
"""A hundred years, in seconds. A larger time is one since the epoch, or an error."""


class Happening(StrEnum):
    """What happened to an object: the kinds of Events in a trace."""

    PRESENT = "present"
    """The object existed when the recording, or a part of it, began."""
    CREATE = "create"
    SCALE = "scale"
    UPDATE = "update"
    END = "end"
    """A pod of the object, or the object if it is a pod, has succeeded or failed."""
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies an object among those that exist at one time."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class Header:
    start: int
    """Start of the recording, in milliseconds since the epoch; the same in all of its parts."""
    part: int = 1
    at: float = 0.0
    """When this part begins, in seconds since the recording's start."""
    cluster: str = ""
    """A hash that identifies the cluster, so that a trace isn't replayed where it was recorded."""


@dataclass(frozen=True, slots=True)
class TracedShape:
    id: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    happening: Happening
    key: Key
    shape: str = ""
    replicas: int | None = None
    prefix: str = ""
    """The beginning of the object's name, if the API server generated the rest."""
    phase: str = ""
    duration: float | None = None
    late: bool = False
    """Whether the change happened some time before `at`, and was only noticed in a new list of the
    objects.
    """


@dataclass(frozen=True, slots=True)
class Gap:
    """Objects of `kind` were not watched from `since` to `at`.

    Without `lost`, lines for all changes of that time follow, with `at` as their time. With `lost`,
    objects that were created and deleted in that time are missing, and other changes are marked
    late.
    """

    at: float
    since: float
    kind: str
    lost: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """The last line of a trace that was not cut off."""

    at: float


Line = Header | TracedShape | Event | Gap | Stop


def shape_of(body: dict[str, Any]) -> TracedShape:
    """Returns the shape with this body. Equal bodies have equal ids."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return TracedShape(hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12], body)


def encode(line: Line) -> str:
    """Encodes a line, without the line break."""
    match line:
        case Header():
            fields: dict[str, Any] = {"line": "header", "version": VERSION}
            fields |= {"start": format_exact_time(line.start)}
            fields |= {"part": line.part, "at": _rounded(line.at)}
            fields |= {"cluster": line.cluster} if line.cluster else {}
        case TracedShape():
            fields = {"line": "shape", "id": line.id, "body": line.body}
        case Event():
            fields = _event_fields(line)
        case Gap():
            fields = {"line": "gap", "at": _rounded(line.at), "since": _rounded(line.since)}
            fields |= {"kind": line.kind, "lost": line.lost}
        case Stop():
            fields = {"line": "stop", "at": _rounded(line.at)}
    return json.dumps(fields, separators=(",", ":"))


def _event_fields(event: Event) -> dict[str, Any]:
    key = event.key
    fields: dict[str, Any] = {"line": event.happening.value, "at": _rounded(event.at)}
    fields |= {"kind": key.kind, "namespace": key.namespace, "name": key.name}
    duration = None if event.duration is None else _rounded(event.duration)
    rest = {
        "shape": event.shape,
        "replicas": event.replicas,
        "prefix": event.prefix,
        "phase": event.phase,
        "duration": duration,
    }
    fields |= {name: value for name, value in rest.items() if value not in ("", None)}
    return fields | ({"late": True} if event.late else {})


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def decode(text: str, *, where: str) -> Line | None:
    """Decodes a line of a trace; None if this version doesn't know that kind of line.

    Raises TraceError, whose message begins with `where`.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = f"is no JSON ({error})"
        raise trace_error(where, "the line", problem, _WHOLE_LINE, value=text) from error
    fields = Fields(value, where=where)
    match fields.text("line"):
        case "header":
            return _header(fields)
        case "shape":
            return TracedShape(fields.text("id"), fields.mapping("body"))
        case "gap":
            kind = fields.text("kind")
            return Gap(fields.seconds("at"), fields.seconds("since"), kind, fields.flag("lost"))
        case "stop":
            return Stop(fields.seconds("at"))
        case other if other in set(Happening):
            return _event(fields, Happening(other))
    return None


def trace_error(
    where: str, field: str, problem: str, remedy: str, *, value: object = None
) -> TraceError:
    return TraceError(where=where, field=field, value=value, problem=problem, remedy=remedy)


_WHOLE_LINE: Final = "each line of a trace is one JSON object; take the line out, or record anew"


class Fields:
    """The fields of a line. Each is checked when it is read."""

    def __init__(self, fields: object, *, where: str) -> None:
        self._where = where
        if not isinstance(fields, Mapping):
            raise trace_error(where, "the line", "is no JSON object", _WHOLE_LINE, value=fields)
        self._fields = fields

    def wrong(self, field: str, problem: str, remedy: str) -> TraceError:
        return trace_error(self._where, field, problem, remedy, value=self._fields.get(field))

    def has(self, field: str) -> bool:
        return self._fields.get(field) is not None

    def text(self, field: str, default: str | None = None) -> str:
        value = self._fields.get(field, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.wrong(field, "is no text", "give it as a string that isn't empty")
        return value

    def flag(self, field: str) -> bool:
        value = self._fields.get(field, False)
        if not isinstance(value, bool):
            raise self.wrong(field, "is neither true nor false", "write one of them, or nothing")
        return value

    def mapping(self, field: str) -> dict[str, Any]:
        value = self._fields.get(field)
        if not isinstance(value, dict):
            raise self.wrong(field, "is no object", "give the part of the manifest that is meant")
        return value

    def seconds(self, field: str) -> float:
        value = self._fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(field, "is no number", "give seconds since the start")
        if not 0 <= value <= MAX_SECONDS:
            raise self.wrong(field, "is no time of a trace", "give seconds since the start, from 0")
        return float(value)

    def count(self, field: str, most: int) -> int | None:
        value = self._fields.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self.wrong(field, "is no count", f"give a whole number from 0 to {most}")
        return value

    def name(self, field: str) -> str:
        value = self._fields.get(field)
        if not isinstance(value, str) or not is_object_name(value):
            remedy = "use lower-case letters, digits, '-' and '.', as in object names"
            raise self.wrong(field, "is no name of a Kubernetes object", remedy)
        return value


def _header(fields: Fields) -> Header:
    version = fields.count("version", most=10**6)
    if version != VERSION:
        raise fields.wrong(
            "version", "is not read here", f"record anew, or convert it to version {VERSION}"
        )
    try:
        start = parse_time(fields.text("start"))
    except (ValueError, OverflowError) as error:
        raise fields.wrong("start", "is no time", "write it as 2026-01-02T03:04:05Z") from error
    part = fields.count("part", most=10**9) or 1
    at = fields.seconds("at") if fields.has("at") else 0.0
    return Header(start, part, at, fields.text("cluster", ""))


def _event(fields: Fields, happening: Happening) -> Event:
    kind = TRACED.get(fields.text("kind"))
    if kind is None:
        raise fields.wrong("kind", "can't be replayed", f"use one of {', '.join(TRACED)}")
    namespace = fields.name("namespace") if kind.namespaced else ""
    prefix = fields.text("prefix", "")
    if prefix and not is_object_name(f"{prefix}x"):
        raise fields.wrong("prefix", "can't begin a name", "use what metadata.generateName has")
    phase = fields.text("phase", "")
    if happening is Happening.END and phase not in ("Succeeded", "Failed"):
        raise fields.wrong("phase", "is no end of a pod", "use Succeeded or Failed")
    if happening is Happening.END and kind.name not in ("Job", "Pod"):
        raise fields.wrong("kind", "has no end", "use Pod, or Job for one of its pods")
    has_shape = happening in (Happening.PRESENT, Happening.CREATE, Happening.UPDATE)
    replicas = fields.count("replicas", most=MAX_REPLICAS)
    if happening is Happening.SCALE and replicas is None:
        raise fields.wrong("replicas", "is missing", "say to how many it was scaled")
    return Event(
        at=fields.seconds("at"),
        happening=happening,
        key=Key(kind.name, namespace, fields.name("name")),
        shape=fields.text("shape") if has_shape else "",
        replicas=replicas,
        prefix=prefix,
        phase=phase,
        duration=fields.seconds("duration") if fields.has("duration") else None,
        late=fields.flag("late"),
    )
