"""Turns the objects of lists and the events of watches into the lines of a trace.

    begin, listed..., end   a list; the first one of a kind is the state at the start
    observed                an event of a watch
    part                    a new file begins: header, shapes and state again

Only name, shape and size of each existing object are kept. Pods of built-in controllers are left
out, as the controllers create them again in a replay. For pods of Jobs, only their end is written.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.formats.times import parse_time
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.traces.cleaning import Clean
from kwok_operator.importing.traces.trace import (
    MAX_REPLICAS,
    Event,
    Happening,
    Header,
    Key,
    Line,
    TracedShape,
    shape_of,
)
from kwok_operator.nodegroups.naming import is_object_name

_ENDED: Final = ("Succeeded", "Failed")
_MADE_BY: Final = {
    "ReplicaSet": {("apps", "Deployment")},
    "Pod": {
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("", "ReplicationController"),
        ("", "Node"),
    },
}
"""The kinds of owners that create objects of a kind, and will do so again in a replay. Pods owned
by a Node are static.
"""
_OF_EVERY_CLUSTER: Final = "system-"
_IDLE_SHAPES: Final = 1_000


@dataclass(slots=True)
class _Live:
    """An object that exists. A shape is a manifest without name and size. For a pod of a Job, `key`
    is the key of the Job, and `shape` is empty.
    """

    key: Key
    shape: str = ""
    replicas: int | None = None
    prefix: str = ""
    mark: int = 0
    first_seen: float = 0.0
    of_job: bool = False
    ended: bool = False


class TraceRecorder:
    """Makes the lines of one trace. Times are in seconds since the trace began."""

    def __init__(self, clean: Clean) -> None:
        self.written: Counter[Happening] = Counter()
        self.dropped: Counter[str] = Counter()
        """How many objects are left out of the trace, by kind."""
        self._clean = clean
        self._live: dict[str, dict[str, _Live]] = {kind: {} for kind in TRACED}
        self._by_key: dict[Key, str] = {}
        self._shapes = _Shapes()
        self._listing: dict[str, set[str]] = {}
        self._listed: set[str] = set()

    def part(self, header: Header, *, at: float) -> Iterator[Line]:
        """Yields the lines with which a file begins: the header, and all objects that exist, so
        that it can be read without earlier files. Pods that have ended are left out.
        """
        yield header
        self._shapes.forget_written()
        for kind in TRACED:
            for live in self._live[kind].values():
                if live.shape and not live.ended:
                    yield from self._shapes.written(live.shape)
                    yield _event(Happening.PRESENT, live, at)

    def begin(self, kind: str) -> None:
        """Begins a list of a kind's objects; forgets an earlier list that didn't end."""
        self._listing[kind] = set()

    def listed(self, kind: str, body: Any, *, at: float) -> Iterator[Line]:
        first = kind not in self._listed
        if uid := text_at(body, "metadata", "uid"):
            self._listing[kind].add(uid)
            yield from self._seen(kind, uid, body, at=at, first=first, late=not first)

    def end(self, kind: str, *, at: float) -> Iterator[Line]:
        """Ends a complete list: objects that are not in it were deleted."""
        listed = self._listing.pop(kind)
        for uid in [uid for uid in self._live[kind] if uid not in listed]:
            yield from self._gone(kind, uid, at=at, late=True)
        self._listed.add(kind)

    def observed(self, kind: str, event: Mapping[str, Any], *, at: float) -> Iterator[Line]:
        body = event.get("object")
        uid = text_at(body, "metadata", "uid")
        if not isinstance(body, dict) or not uid:
            return
        match event.get("type"):
            case "DELETED":
                yield from self._gone(kind, uid, at=at)
            case "ADDED" | "MODIFIED":
                yield from self._seen(kind, uid, body, at=at)

    def _seen(
        self,
        kind: str,
        uid: str,
        body: dict[str, Any],
        *,
        at: float,
        first: bool = False,
        late: bool = False,
    ) -> Iterator[Line]:
        metadata = body["metadata"]
        if metadata.get("deletionTimestamp"):
            # The controllers do the rest.
            yield from self._gone(kind, uid, at=at, late=late)
            return
        live = self._live[kind].get(uid)
        if live is None:
            yield from self._arrived(kind, uid, body, at=at, first=first, late=late)
            live = self._live[kind].get(uid)
        else:
            yield from self._changed(live, body, at=at, late=late)
        if kind == "Pod" and live is not None and not live.ended and _phase(body) in _ENDED:
            live.ended = True
            if live.shape or (live.of_job and not first):
                duration = _duration(body, first_seen=live.first_seen, at=at)
                yield self._counted(
                    Event(at, Happening.END, live.key, "", None, "", _phase(body), duration, late)
                )

    def _arrived(
        self, kind: str, uid: str, body: dict[str, Any], *, at: float, first: bool, late: bool
    ) -> Iterator[Line]:
        metadata = body["metadata"]
        owner = _owner(metadata)
        if owner[:2] in _MADE_BY.get(kind, ()):
            return
        name, namespace = metadata.get("name"), metadata.get("namespace") or ""
        if not (_is_name(name) and (_is_name(namespace) or not TRACED[kind].namespaced)):
            self.dropped[kind] += 1
            return
        if kind == "Pod" and owner[:2] == ("batch", "Job"):
            if _is_name(owner[2]):
                job = Key("Job", namespace, owner[2])
                self._live[kind][uid] = _Live(job, first_seen=at, of_job=True)
            return
        key = Key(kind, namespace, name)
        before = self._by_key.get(key)
        if before is not None:  # the deletion of the earlier object was missed
            yield from self._gone(kind, before, at=at, late=True)
        ended = kind == "Pod" and _phase(body) in _ENDED
        if ended and first:
            return
        kept = self._clean(kind, {**body, "status": {}} if ended else body)
        if kept is None:
            if not (kind == "PriorityClass" and name.startswith(_OF_EVERY_CLUSTER)):
                self.dropped[kind] += 1
            return
        shape, replicas = _shape(kind, kept)
        live = _Live(key, shape.id, replicas, _prefix(metadata), _mark(metadata), at)
        self._live[kind][uid] = live
        self._by_key[key] = uid
        self._shapes.take(shape)
        yield from self._shapes.written(shape.id)
        yield self._counted(
            _event(Happening.PRESENT if first else Happening.CREATE, live, at, late=late)
        )

    def _changed(self, live: _Live, body: Any, *, at: float, late: bool) -> Iterator[Line]:
        mark = _mark(body["metadata"])
        if not live.shape or live.ended or (mark and mark == live.mark):
            return
        live.mark = mark
        kept = self._clean(live.key.kind, body)
        if kept is None:
            return
        if live.key.kind == "Job":
            # This number shrinks with every pod that ends, without a change by a user.
            _keep_completions(kept, self._shapes.body(live.shape))
        shape, replicas = _shape(live.key.kind, kept)
        if shape.id != live.shape:
            self._shapes.take(shape)
            self._shapes.release(live.shape)
            live.shape, live.replicas = shape.id, replicas
            yield from self._shapes.written(shape.id)
            yield self._counted(_event(Happening.UPDATE, live, at, late=late))
        elif replicas != live.replicas and replicas is not None:
            live.replicas = replicas
            yield self._counted(_event(Happening.SCALE, live, at, late=late))

    def _gone(self, kind: str, uid: str, *, at: float, late: bool = False) -> Iterator[Line]:
        live = self._live[kind].pop(uid, None)
        if live is None or not live.shape:
            return
        self._shapes.release(live.shape)
        del self._by_key[live.key]
        yield self._counted(Event(at, Happening.DELETE, live.key, late=late))

    def _counted(self, event: Event) -> Event:
        self.written[event.happening] += 1
        return event


class _Shapes:
    """The shapes of existing objects, and the last few shapes that are no longer used."""

    def __init__(self) -> None:
        self._bodies: dict[str, dict[str, Any]] = {}
        self._users: Counter[str] = Counter()
        self._idle: dict[str, None] = {}
        self._written: set[str] = set()

    def body(self, shape: str) -> dict[str, Any]:
        return self._bodies[shape]

    def take(self, shape: TracedShape) -> None:
        self._bodies.setdefault(shape.id, shape.body)
        self._users[shape.id] += 1
        self._idle.pop(shape.id, None)

    def release(self, shape: str) -> None:
        self._users[shape] -= 1
        if self._users[shape]:
            return
        del self._users[shape]
        self._idle[shape] = None
        if len(self._idle) > _IDLE_SHAPES:
            oldest = next(iter(self._idle))
            del self._idle[oldest], self._bodies[oldest]
            self._written.discard(oldest)

    def written(self, shape: str) -> Iterator[TracedShape]:
        """Yields the line that defines `shape`, unless the current file already has that line."""
        if shape not in self._written:
            self._written.add(shape)
            yield TracedShape(shape, self._bodies[shape])

    def forget_written(self) -> None:
        self._written.clear()


def _event(happening: Happening, live: _Live, at: float, *, late: bool = False) -> Event:
    shape = "" if happening is Happening.SCALE else live.shape
    prefix = live.prefix if happening in (Happening.PRESENT, Happening.CREATE) else ""
    return Event(at, happening, live.key, shape, live.replicas, prefix, late=late)


def _shape(kind: str, kept: Mapping[str, Any]) -> tuple[TracedShape, int | None]:
    """Returns the shape of a cleaned object (its manifest without name and size), and its size."""
    size = TRACED[kind].size
    metadata = {k: v for k, v in kept["metadata"].items() if k not in ("name", "namespace")}
    body = {k: v for k, v in kept.items() if k not in ("metadata", "apiVersion", "kind")}
    replicas = None
    if size:
        spec = dict(body.get("spec") or {})
        value = spec.pop(size, 1)
        whole = isinstance(value, int) and not isinstance(value, bool)
        replicas = value if whole and 0 <= value <= MAX_REPLICAS else 1
        body["spec"] = spec
    return shape_of({"kind": kind, "metadata": metadata, **body}), replicas


def _keep_completions(kept: dict[str, Any], before: Mapping[str, Any]) -> None:
    spec = kept["spec"] = dict(kept.get("spec") or {})
    spec.pop("completions", None)
    if "completions" in before.get("spec", {}):
        spec["completions"] = before["spec"]["completions"]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and is_object_name(value)


def _owner(metadata: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns API group, kind and name of the object's controller; empty texts if it has none."""
    for reference in map(as_map, as_list(metadata.get("ownerReferences"))):
        if reference.get("controller") is True:
            group, slash, _ = str(reference.get("apiVersion")).partition("/")
            return group if slash else "", str(reference.get("kind")), str(reference.get("name"))
    return "", "", ""


def _prefix(metadata: Mapping[str, Any]) -> str:
    prefix, name = metadata.get("generateName"), metadata["name"]
    made_up = isinstance(prefix, str) and name.startswith(prefix) and is_object_name(f"{prefix}x")
    return str(prefix) if made_up else ""


def _mark(metadata: Mapping[str, Any]) -> int:
    """Returns a hash of an object's generation, labels and annotations: while it stays the same, so
    does the object's shape. 0 for objects without a generation.
    """
    if not metadata.get("generation"):
        return 0
    parts = [metadata.get(part) for part in ("generation", "labels", "annotations")]
    return hash(json.dumps(parts))


def _phase(body: Mapping[str, Any]) -> str:
    return text_at(body, "status", "phase")


def _duration(body: Mapping[str, Any], *, first_seen: float, at: float) -> float:
    """Returns for how many seconds a pod ran: by its status, or else from `first_seen` to `at`."""
    try:
        ends = [
            parse_time(str(value_at(container, "state", "terminated", "finishedAt")))
            for container in value_at(body, "status", "containerStatuses") or ()
        ]
        begin, end = parse_time(str(value_at(body, "status", "startTime"))), max(ends)
    except (KeyError, ValueError, TypeError, OverflowError):
        return max(at - first_seen, 0.0)
    return max((end - begin) / 1_000, 0.0)
