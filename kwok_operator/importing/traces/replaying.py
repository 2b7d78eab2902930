"""Turns the lines of a trace into the requests that replay it, each with the time when it is due.

    lines --Replay.requests--> requests of the set-up, then requests in the order of their times

The set-up creates the objects that existed when the replay begins; then the clock starts. The same
trace with the same seed gives the same requests, with the same generated names.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kwok_operator.constants import REPLAYED_LABEL
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.pods.shape import namespace_there, rename_namespaces
from kwok_operator.importing.settings import ReplaySettings
from kwok_operator.importing.traces.cleaning import Clean
from kwok_operator.importing.traces.trace import (
    Event,
    Gap,
    Happening,
    Header,
    Key,
    Line,
    Stop,
    TracedShape,
    trace_error,
)
from kwok_operator.kube.client import JSON, MERGE_PATCH

NAMESPACES: Final = "/api/v1/namespaces"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MADE_UP: Final = 5
_MAX_NAME: Final = 63
"""The most characters of a name, as for names that the API server generates."""


class Verb(StrEnum):
    CREATE = "create"
    SCALE = "scale"
    UPDATE = "update"
    END = "end"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is due `at` seconds after the replay's start. It is sent after earlier
    requests about the objects `key` and `after`.

    With `setup`, it is sent before the start. With the verb END and a Job as `key`, it ends one of
    the Job's pods; `path` then has the label selector of these pods.
    """

    at: float
    verb: Verb
    key: Key
    method: str
    path: str
    body: dict[str, Any] | None = None
    content_type: str = JSON
    after: Key | None = None
    setup: bool = False


@dataclass(slots=True)
class _Live:
    key: Key
    shape: str
    replicas: int | None
    ended: bool = False


@dataclass(slots=True)
class Seen:
    """Numbers about the trace, such as its length in seconds, for the report."""

    lines: Counter[str] = field(default_factory=Counter)
    gaps: int = 0
    lost: float = 0.0
    """How many seconds of the trace may lack changes."""
    late: int = 0
    unknown: int = 0
    """The number of lines about objects that the trace doesn't create."""
    seconds: float = 0.0
    stopped: bool = False
    parts: list[int] = field(default_factory=list)

    @property
    def missing_parts(self) -> list[int]:
        """Returns the numbers of missing parts between the first and the last part read."""
        first, last = min(self.parts, default=0), max(self.parts, default=0)
        return sorted(set(range(first, last)) - set(self.parts))


class Replay:
    """Plans the requests of one trace, once."""

    def __init__(self, settings: ReplaySettings, *, clean: Clean) -> None:
        self.seen = Seen()
        self.header: Header | None = None
        self._settings = settings
        self._clean = clean
        self._shapes: dict[str, str] = {}
        self._cleaned: dict[str, str] = {}
        self._live: dict[Key, _Live] = {}
        self._names: set[Key] = set()
        self._namespaces: set[str] = set()
        self._begun = False
        self._present: set[Key] | None = None
        self._now = 0.0

    def requests(self, lines: Iterable[tuple[str, Line]]) -> Iterator[Request]:
        """Yields the requests; each of `lines` has its place in a file. Raises TraceError."""
        last = 0.0
        for where, line in lines:
            last = last if isinstance(line, TracedShape) else line.at
            self.seen.lines[type(line).__name__] += 1
            if self.header is None and not isinstance(line, Header):
                raise trace_error(where, "line", "comes before the header", "begin with the header")
            match line:
                case Header():
                    yield from self._header(where, line)
                case TracedShape():
                    self._shapes[line.id] = json.dumps(line.body)
                    self._cleaned.pop(line.id, None)
                case Gap():
                    self.seen.gaps += 1
                    self.seen.lost += (line.at - line.since) if line.lost else 0
                case Stop():
                    yield from self._passed(where, line.at)
                    self.seen.stopped = True
                case Event():
                    yield from self._event(where, line)
        if self.header is None:
            raise trace_error("the trace", "the header", "is missing", "name a file that has lines")
        yield from self._settled()
        if not self._begun and self._settings.since > (end := last - self.header.at):
            wrong, remedy = "is before the time to begin at", "give --from an earlier one"
            raise trace_error("the trace", "its end", wrong, remedy, value=f"{end:g} s")
        yield from self._begin()

    def _header(self, where: str, header: Header) -> Iterator[Request]:
        yield from self._settled()
        if self.header is None:
            self.header, self._now = header, header.at
        elif (header.start, header.cluster) != (self.header.start, self.header.cluster):
            remedy = "replay the parts of one recording at a time"
            raise trace_error(where, "start", "is of another recording", remedy)
        self.seen.parts.append(header.part)
        self._present = set()

    def _event(self, where: str, event: Event) -> Iterator[Request]:
        self.seen.late += event.late
        if event.happening is Happening.PRESENT and self._present is not None:
            self._present.add(event.key)
        else:
            yield from self._settled()
        if event.happening is not Happening.PRESENT or self._begun:
            yield from self._passed(where, event.at)
        if event.shape and event.shape not in self._shapes:
            remedy = "write the line of the shape before it"
            raise trace_error(where, "shape", "is of no shape before it", remedy, value=event.shape)
        at = self._due(event.at)
        for request in self._step(event, where=where, at=at):
            if self._begun:
                yield request

    def _passed(self, where: str, at: float) -> Iterator[Request]:
        """Sets the time of the trace to `at`, the time of a line. Once that reaches the time from
        which the user wants the replay, yields the requests of the set-up. Raises TraceError if a
        line goes back in time.
        """
        assert self.header is not None
        if at < self._now:
            remedy = "sort the lines, and name the parts in their order"
            raise trace_error(where, "at", "is before the line above", remedy, value=at)
        self._now = at
        self.seen.seconds = at - self.header.at
        if at - self.header.at >= self._settings.since:
            yield from self._begin()

    def _begin(self) -> Iterator[Request]:
        """Yields the set-up: creates the objects that exist at this time, owners first."""
        if self._begun:
            return
        self._begun = True
        order = {kind: place for place, kind in enumerate(TRACED)}
        for live in sorted(self._live.values(), key=lambda live: order[live.key.kind]):
            if not live.ended:
                yield from self._create(live, at=0.0, setup=True)

    def _settled(self) -> Iterator[Request]:
        """Yields deletions of the known objects that are missing from the state with which a part
        of the trace begins. Called once the lines of that state are over.
        """
        present, self._present = self._present, None
        for key in [key for key in self._live if present is not None and key not in present]:
            if not self._live[key].ended:
                gone = Event(self._now, Happening.DELETE, key, late=True)
                requests = list(self._step(gone, where="", at=self._due(self._now)))
                yield from requests if self._begun else ()

    def _due(self, at: float) -> float:
        assert self.header is not None
        return max(at - self.header.at - self._settings.since, 0.0) / self._settings.speed

    def _step(self, event: Event, *, where: str, at: float) -> Iterator[Request]:
        """Applies an event to the plan's state, and yields its requests."""
        live = self._live.get(event.key)
        match event.happening:
            case Happening.PRESENT | Happening.CREATE if live is None:
                live = self._arrive(event, where=where)
                yield from self._create(live, at=at)
            case Happening.CREATE if live is not None:
                # Another object has this name: the deletion of the first was missed.
                yield self._delete(event.key, live, at=at)
                yield from self._create(self._arrive(event, where=where), at=at)
            case _ if live is None:
                self.seen.unknown += 1
            case Happening.PRESENT | Happening.UPDATE | Happening.SCALE:
                yield from self._change(live, event, where=where, at=at)
            case Happening.END:
                live.ended = event.key.kind == "Pod"
                yield _end(live.key, event.phase, at=at)
            case Happening.DELETE:
                yield self._delete(event.key, live, at=at)

    def _arrive(self, event: Event, *, where: str) -> _Live:
        live = _Live(self._key(event), event.shape, event.replicas)
        self._check_shape(live, where=where)
        self._live[event.key] = live
        self._names.add(live.key)
        return live

    def _check_shape(self, live: _Live, *, where: str) -> None:
        """Cleans the shape of an object as an import would, as anybody may have written the trace.
        Raises TraceError if the object's kind can't have this shape.
        """
        kind, shape = live.key.kind, live.shape
        if self._cleaned.get(shape) == kind:
            return
        body = json.loads(self._shapes[shape])
        metadata = body.get("metadata")
        named = {**(metadata if isinstance(metadata, dict) else {}), "name": "a", "namespace": "a"}
        try:
            kept = self._clean(kind, {**body, "metadata": named})
        except RecursionError:
            kept = None
        if kept is None or self._cleaned.setdefault(shape, kind) != kind:
            problem, remedy = f"can't become a {kind}", "give its shape the spec of that kind"
            raise trace_error(where, "shape", problem, remedy, value=shape)
        unnamed = {k: v for k, v in kept["metadata"].items() if k not in ("name", "namespace")}
        self._shapes[shape] = json.dumps({**kept, "metadata": unnamed})

    def _manifest(self, live: _Live) -> dict[str, Any]:
        kind, key = TRACED[live.key.kind], live.key
        body: dict[str, Any] = json.loads(self._shapes[live.shape])
        named = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
        metadata = {**body.get("metadata", {}), **named}
        metadata["labels"] = {**metadata.get("labels", {}), REPLAYED_LABEL: "true"}
        body |= {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        spec = body.get("spec", {})
        pod = spec if kind.name == "Pod" else spec.get("template", {}).get("spec", {})
        rename_namespaces(pod, self._there)
        if kind.size and live.replicas is not None:
            body["spec"] = {**body.get("spec", {}), kind.size: live.replicas}
        return body

    def _create(self, live: _Live, *, at: float, setup: bool = False) -> Iterator[Request]:
        key, after = live.key, None
        if not (self._begun or setup):
            return
        if key.namespace:
            yield from self._namespace(key.namespace, at=at, setup=setup)
            after = _account(key.namespace)
        path, body = TRACED[key.kind].collection(key.namespace), self._manifest(live)
        yield Request(at, Verb.CREATE, key, "POST", path, body, after=after, setup=setup)

    def _namespace(self, name: str, *, at: float, setup: bool) -> Iterator[Request]:
        if name in self._namespaces:
            return
        self._namespaces.add(name)
        key, account = Key("Namespace", "", name), _account(name)
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace"}
        body["metadata"] = {"name": name, "labels": {REPLAYED_LABEL: "true"}}
        yield Request(at, Verb.CREATE, key, "POST", NAMESPACES, body, setup=setup)
        # Without it, pods are refused until a controller has created it.
        body = {"apiVersion": "v1", "kind": account.kind, "metadata": {"name": account.name}}
        path = f"{NAMESPACES}/{name}/serviceaccounts"
        yield Request(at, Verb.CREATE, account, "POST", path, body, after=key, setup=setup)

    def _change(self, live: _Live, event: Event, *, where: str, at: float) -> Iterator[Request]:
        before = self._manifest(live)
        verb = Verb.SCALE
        if event.shape and event.shape != live.shape:
            live.shape, verb = event.shape, Verb.UPDATE
            self._check_shape(live, where=where)
        if event.replicas is not None:
            live.replicas = event.replicas
        patch = _difference(before, self._manifest(live))
        if patch:
            path = _path(live.key)
            yield Request(at, verb, live.key, "PATCH", path, patch, MERGE_PATCH)

    def _delete(self, key: Key, live: _Live, *, at: float) -> Request:
        del self._live[key]
        self._names.discard(live.key)
        body = {"propagationPolicy": "Background"}
        return Request(at, Verb.DELETE, live.key, "DELETE", _path(live.key), body)

    def _there(self, namespace: str) -> str:
        return f"{self._settings.namespace_prefix}{namespace}"

    def _key(self, event: Event) -> Key:
        key, prefix = event.key, event.prefix[: _MAX_NAME - _MADE_UP]
        namespace = self._there(namespace_there(key.namespace)) if key.namespace else ""
        if not prefix:
            return Key(key.kind, namespace, key.name)
        texts = ("\n".join((self._settings.seed, str(key), str(n))) for n in itertools.count())
        keys = (Key(key.kind, namespace, prefix + _letters(text)) for text in texts)
        return next(each for each in keys if each not in self._names)


def _letters(text: str) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8])
    letters = ""
    for _ in range(_MADE_UP):
        number, letter = divmod(number, len(_LETTERS))
        letters += _LETTERS[letter]
    return letters


def _account(namespace: str) -> Key:
    return Key("ServiceAccount", namespace, "default")


def _path(key: Key) -> str:
    return f"{TRACED[key.kind].collection(key.namespace)}/{key.name}"


def _end(key: Key, phase: str, *, at: float) -> Request:
    """Returns the request that sets a pod's phase, as a kubelet would."""
    path = _path(key) + "/status"
    if key.kind != "Pod":
        selector = f"labelSelector=batch.kubernetes.io/job-name={key.name}"
        path = f"{TRACED['Pod'].collection(key.namespace)}?{selector}"
    body = {"status": {"phase": phase}}
    return Request(at, Verb.END, key, "PATCH", path, body, MERGE_PATCH)


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON merge patch that turns `before` into `after`."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            below = _difference(old, value)
            if below:
                patch[key] = below
        elif key not in before or old != value:
            patch[key] = value
    return patch
