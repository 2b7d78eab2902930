"""Decodes the API server's bytes into small values.

Only the fields in use are decoded, straight from bytes, in compiled code: 15 µs for a Node of 4 KB,
where plain dicts take twice and generated models 70 times as long. A Node takes 20 KB as a dict. A
`NodeView` is meant to be read and dropped; its consumer keeps the fields that it needs.

A `Decoder` decodes one kind in the three forms in which it arrives: alone, in pages of a list, in
the events of a watch. Decoding never fails on odd objects (no status, null labels, unknown fields).
It raises `DecodeError` for what isn't such an object at all. An object that nests too deep is
marked as cut (shallow.py), and doesn't harm the objects in the same answer.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict  # required by pydantic below Python 3.12

from kwok_operator.errors import ApiError, DecodeError
from kwok_operator.kube.answers import error_of
from kwok_operator.kube.shallow import ALONE, OF_LINE, OF_LIST, shallow
from kwok_operator.kube.taints import is_not_ready_taint, is_unreachable_taint

R = TypeVar("R")
T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

_MAX_VERSION_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class NodeView:
    """The fields of a Node that the operator reads."""

    name: str
    uid: str
    resource_version: int
    created: float
    """When the node was created, in epoch seconds; 0.0 for a node that was never stored (a dry
    run)."""
    labels: dict[str, str]
    annotations: dict[str, str]
    owner_uids: tuple[str, ...]
    finalizers: tuple[str, ...]
    deleting: bool
    ready: bool
    addresses: tuple[tuple[str, str], ...]
    """Pairs of type and address, in the node's order."""
    kubelet_port: int
    """The port of the kubelet API; 0 if the node states none."""
    provider_id: str
    not_ready_taint: bool = False
    """Whether the node has the taint that Kubernetes puts on every new node; see kube/taints.py."""

    unreachable_taint: bool = False
    pod_cidr: str = ""

    @property
    def usable(self) -> bool:
        return self.ready and not self.not_ready_taint and not self.unreachable_taint


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A Lease: its holder, when it was renewed, and how long it is valid."""

    name: str
    resource_version: int
    holder: str
    duration_seconds: int
    renew_time: datetime | None


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """A list, or one page of it. `continue_token` requests the next page."""

    items: list[T]
    resource_version: int
    continue_token: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event of a watch. A bookmark has no item; an ERROR has only `error`."""

    type: EventType
    item: T | None
    resource_version: int
    error: ApiError | None = None


class _Owner(TypedDict, total=False):
    uid: str


class _Meta(TypedDict, total=False):
    name: str
    uid: str
    resourceVersion: str | None
    creationTimestamp: datetime | None
    deletionTimestamp: str | None
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    ownerReferences: list[_Owner] | None
    finalizers: list[str] | None


class _Condition(TypedDict, total=False):
    type: str
    status: str


class _Address(TypedDict, total=False):
    type: str
    address: str


class _Endpoint(TypedDict, total=False):
    Port: int | None


class _DaemonEndpoints(TypedDict, total=False):
    kubeletEndpoint: _Endpoint | None


class _NodeStatus(TypedDict, total=False):
    conditions: list[_Condition] | None
    addresses: list[_Address] | None
    daemonEndpoints: _DaemonEndpoints | None


class _Taint(TypedDict, total=False):
    key: str
    effect: str
    value: str


class _NodeSpec(TypedDict, total=False):
    providerID: str | None
    podCIDR: str | None
    taints: list[_Taint] | None


class _Node(TypedDict, total=False):
    metadata: _Meta | None
    spec: _NodeSpec | None
    status: _NodeStatus | None


class _LeaseSpec(TypedDict, total=False):
    holderIdentity: str | None
    leaseDurationSeconds: int | None
    renewTime: datetime | None


class _Lease(TypedDict, total=False):
    metadata: _Meta | None
    spec: _LeaseSpec | None


_ListMeta = TypedDict(
    "_ListMeta", {"resourceVersion": str | None, "continue": str | None}, total=False
)


class _List(TypedDict, Generic[R], total=False):
    metadata: _ListMeta | None
    items: list[R] | None


class _Event(TypedDict, Generic[R]):
    type: EventType
    object: R


def _version(text: object) -> int:
    # Versions are decimal in every API server, which Kubernetes guarantees since 1.35.
    if not isinstance(text, str) or len(text) > _MAX_VERSION_DIGITS or not text.isdecimal():
        return 0
    return int(text)


def _node(raw: _Node) -> NodeView:
    meta: _Meta = raw.get("metadata") or {}
    spec: _NodeSpec = raw.get("spec") or {}
    status: _NodeStatus = raw.get("status") or {}
    created = meta.get("creationTimestamp")
    endpoints: _DaemonEndpoints = status.get("daemonEndpoints") or {}
    return NodeView(
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        resource_version=_version(meta.get("resourceVersion")),
        created=created.timestamp() if created else 0.0,
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        owner_uids=tuple([owner.get("uid", "") for owner in meta.get("ownerReferences") or ()]),
        finalizers=tuple(meta.get("finalizers") or ()),
        deleting=meta.get("deletionTimestamp") is not None,
        # If there are several Ready conditions, Kubernetes' controllers use the first.
        ready=[c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"][
            :1
        ]
        == ["True"],
        addresses=tuple(
            [(a.get("type", ""), a.get("address", "")) for a in status.get("addresses") or ()]
        ),
        kubelet_port=(endpoints.get("kubeletEndpoint") or {}).get("Port") or 0,
        provider_id=spec.get("providerID") or "",
        not_ready_taint=any([is_not_ready_taint(t) for t in spec.get("taints") or ()]),
        unreachable_taint=any([is_unreachable_taint(t) for t in spec.get("taints") or ()]),
        pod_cidr=spec.get("podCIDR") or "",
    )


def _lease(raw: _Lease) -> LeaseView:
    meta: _Meta = raw.get("metadata") or {}
    spec: _LeaseSpec = raw.get("spec") or {}
    renewed = spec.get("renewTime")
    return LeaseView(
        name=meta.get("name", ""),
        resource_version=_version(meta.get("resourceVersion")),
        holder=spec.get("holderIdentity") or "",
        duration_seconds=spec.get("leaseDurationSeconds") or 0,
        renew_time=renewed if renewed is None or renewed.tzinfo else renewed.replace(tzinfo=UTC),
    )


def _whole(raw: object) -> dict[str, Any]:
    # Declared as object, not dict: the fast parser would copy each dict to check it.
    if not isinstance(raw, dict):
        raise DecodeError(_explain(ValueError("it is no object"), repr(raw).encode()))
    return raw


@cache
def _adapters(
    raw: Any,
) -> tuple[TypeAdapter[Any], TypeAdapter[_List[Any]], TypeAdapter[_Event[Any]]]:
    """Returns pydantic's adapters of an object, a list and an event. Making them takes 26 ms."""
    return TypeAdapter(raw), TypeAdapter(_List[raw]), TypeAdapter(_Event[raw])


def only(names: str, **parts: Any) -> Any:
    """Returns a type for `Decoder` with the fields `names`, whose values may have any type, and the
    fields `parts`, whose types are given, such as a type that `only` made. Other fields of an
    object are skipped."""
    make: Any = TypedDict  # type checkers read fields only from a literal
    return make("Fields", {**dict.fromkeys(names.split(), Any), **parts}, total=False)


class Decoder(Generic[T]):
    """Decodes objects of one kind, alone, in lists and in watches."""

    def __init__(self, raw: Any, view: Callable[[Any], T]) -> None:
        self._raw = raw
        self._view = view
        self._object, self._list, self._event = _adapters(raw)

    def then(self, choose: Callable[[T], R]) -> "Decoder[R]":
        """Returns a decoder that keeps only the result of `choose` for each object.

        So the NodeViews of a list of 50,000 Nodes, which take 50 MB, never exist all at once.
        """
        view = self._view
        return Decoder(self._raw, lambda raw: choose(view(raw)))

    def one(self, body: bytes) -> T:
        """Decodes an object that is the whole answer."""
        return self._view(_validate(self._object, body, objects=ALONE))

    def page(self, body: bytes) -> ListPage[T]:
        """Decodes a list, or one page of it."""
        raw = _validate(self._list, body, objects=OF_LIST)
        meta: _ListMeta = raw.get("metadata") or {}
        return ListPage(
            items=[self._view(item) for item in raw.get("items") or ()],
            resource_version=_version(meta.get("resourceVersion")),
            continue_token=meta.get("continue") or "",
        )

    def event(self, line: bytes) -> WatchEvent[T]:
        """Decodes one line of a watch."""
        try:
            raw = self._event.validate_json(line)
        except ValidationError as error:
            # An ERROR carries a Status, whose fields have other types. It is rare, so a slow parser
            # does.
            with suppress(DecodeError):
                return _error_event(line, error)
            raw = _validate_slowly(self._event, line, error, objects=OF_LINE)
        kind = raw["type"]
        if kind == "ERROR":
            return _error_event(line, ValueError("an ERROR event"))
        item = raw["object"]
        meta = item.get("metadata") if isinstance(item, dict) else None
        version = _version(meta.get("resourceVersion")) if isinstance(meta, dict) else 0
        return WatchEvent(kind, None if kind == "BOOKMARK" else self._view(item), version)


def decode_dict(body: bytes) -> dict[str, Any]:
    """Decodes any object or list, whole, to dicts and lists.

    It doesn't use the fast parser, which gives up at 200 levels, as users' objects can nest deeper.
    The parser that it uses reads about 1,000.
    """
    try:
        answer = json.loads(body)
    except RecursionError as error:
        raise DecodeError("decoding an answer: it nests too deep") from error
    except ValueError as error:
        raise DecodeError(_explain(error, body)) from error
    if not isinstance(answer, dict):
        raise DecodeError(_explain(ValueError("it is no object"), body))
    return answer


def _validate(adapter: TypeAdapter[R], body: bytes, *, objects: int) -> R:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        return _validate_slowly(adapter, body, error, objects=objects)


def _validate_slowly(
    adapter: TypeAdapter[R], body: bytes, problem: ValidationError, *, objects: int
) -> R:
    """Decodes what nests too deep for the fast parser. Parts that nest deeper than any reader here
    allows are left out."""
    try:
        return adapter.validate_python(decode_dict(shallow(body, objects=objects)))
    except (DecodeError, ValidationError):
        raise DecodeError(_explain(problem, body)) from problem


def _error_event(line: bytes, problem: ValueError) -> WatchEvent[Any]:
    try:
        raw = from_json(line)
        if raw["type"] != "ERROR":
            raise problem
        status = raw["object"]
        code = int(status.get("code") or 500)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise DecodeError(_explain(problem, line)) from error
    return WatchEvent("ERROR", None, 0, error_of(status, status=code, method="WATCH", path=""))


def _explain(error: ValueError, body: bytes) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        problem = f"{where}: {first['msg']}" if where else first["msg"]
    else:
        problem = str(error)
    return f"decoding an answer: {problem}; it starts with {body[:80]!r}"


NODES: Final = Decoder(_Node, _node)
LEASES: Final = Decoder(_Lease, _lease)
OBJECTS: Final[Decoder[dict[str, Any]]] = Decoder(Any, _whole)
"""Decodes objects of any kind as whole dicts: at twice the cost of a few fields."""
