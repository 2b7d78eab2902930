"""Recognises the form of a dump's file, and yields the objects in it.

    pieces of documents  --dumped_items-->  DumpedObject, CloudGroup, Moment ...

In three forms, objects look as the API server returns them, alone or in lists. The fourth, CA's
debugging snapshot, has nodes with their pods, and the templates of CA's groups
(`DebuggingSnapshotImpl` in CA's source). Of the pods without a node it has only those that fit on
existing nodes, in CA's simulation. Nodes that were requested, but don't exist yet, are in it as
copies of a template.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.formats.pieces import DocumentPiece, Streamed
from kwok_operator.formats.untyped import as_list, as_map, text_at
from kwok_operator.importing.dumpfacts import CloudGroup, DumpForm
from kwok_operator.importing.incidents.spool import Spool

NODES: Final = "NodeList"
SCHEDULABLE: Final = "UnscheduledPodsCanBeScheduled"
TEMPLATES: Final = "TemplateNodes"
PIECES: Final = Streamed(frozenset({"items", NODES, SCHEDULABLE}), frozenset({TEMPLATES}))
_TIMES: Final = ("StartTimestamp", "EndTimestamp")
_TEMPLATE_LABEL: Final = "cluster-autoscaler.kubernetes.io/template-node"
_COMING = re.compile(r"template-node-for-(.+)-[0-9]+-upcoming-[0-9]+")
"""The name that CA gives a node that is requested and doesn't exist yet, with its group's id."""


@dataclass(frozen=True, slots=True)
class DumpedObject:
    """An object of the API. `schedulable`: a pod without a node that fits on an existing node in
    CA's simulation. `in_snapshot`: a node in CA's snapshot. `coming`: for a node that CA has
    requested and that doesn't exist yet, the id of its group in CA; else empty.
    """

    kind: str
    api_version: str
    body: Mapping[str, Any]
    schedulable: bool = False
    in_snapshot: bool = False
    coming: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time at which a snapshot was made, in RFC 3339."""

    text: str


@dataclass(frozen=True, slots=True)
class Oddity:
    """A part of a file that isn't an object; `problem` describes it for people."""

    problem: str


DumpedItem = DumpedObject | CloudGroup | Moment | Oddity | DumpForm


def dumped_items(pieces: Iterable[DocumentPiece]) -> Iterator[DumpedItem]:
    """Yields the items of a file's documents. Before the items, it yields their form (DumpForm),
    perhaps more than once.
    """
    number, streamed = 1, False
    with Spool(whole=True) as held:
        for piece in pieces:
            if piece.key is None:
                yield from _ended(piece.rest, held, number, streamed)
                number, streamed = number + 1, False
                continue
            streamed = True
            if piece.key == "items":
                yield from _item(piece.value, piece.rest, held, number)
            elif piece.key == "":
                yield from _alone(piece.value, number)
            else:
                yield DumpForm.SNAPSHOT
                yield from _of_snapshot(piece.key, piece.name, piece.value)


def _of_snapshot(key: str, name: str, value: Any) -> Iterator[DumpedItem]:
    if key == SCHEDULABLE:
        yield DumpedObject("Pod", "v1", as_map(value), schedulable=True)
        return
    node = as_map(as_map(value).get("Node"))
    pods = [as_map(pod) for pod in as_list(as_map(value).get("Pods"))]
    if key == TEMPLATES:
        yield CloudGroup(name, _without_mark(node), pods)
        return
    coming = _COMING.fullmatch(text_at(node, "metadata", "name"))
    if coming:
        yield DumpedObject("Node", "v1", node, coming=coming[1])
    else:
        yield DumpedObject("Node", "v1", _without_mark(node), in_snapshot=True)
    # Pods on a node that doesn't exist yet are CA's copies of DaemonSets' pods.
    for pod in () if coming else pods:
        yield DumpedObject("Pod", "v1", pod)


def _without_mark(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a Node without the label by which CA marks its own copies of templates."""
    metadata = as_map(node.get("metadata"))
    labels = as_map(metadata.get("labels"))
    if _TEMPLATE_LABEL not in labels:
        return node
    rest = {k: v for k, v in labels.items() if k != _TEMPLATE_LABEL}
    return {**node, "metadata": {**metadata, "labels": rest}}


def _item(
    item: Any, of_list: Mapping[str, Any], held: Spool | None, number: int
) -> Iterator[DumpedItem]:
    """Yields an item of a list as an object. An item without a kind has that of the list,
    `of_list`; while the list's kind hasn't been read, such items are added to `held` instead.
    """
    if not isinstance(item, Mapping):
        yield Oddity(f"document {number}: an item of its list is no object")
    elif isinstance(item.get("kind"), str):
        yield DumpedObject(item["kind"], text_at(item, "apiVersion"), item)
    elif kind := _kind_of_items(of_list):
        yield DumpedObject(kind, text_at(of_list, "apiVersion"), item)
    elif held is not None:
        held.add("", item)
    else:
        yield Oddity(f"document {number}: an item of its list has no kind")


def _kind_of_items(of_list: Mapping[str, Any]) -> str:
    kind = text_at(of_list, "kind")
    return kind.removesuffix("List") if kind.endswith("List") else ""


def _ended(
    rest: Mapping[str, Any], held: Spool, number: int, streamed: bool
) -> Iterator[DumpedItem]:
    for name, group in as_map(rest.get(TEMPLATES)).items():
        yield from _of_snapshot(TEMPLATES, str(name), group)
    if _TIMES[0] in rest or NODES in rest:
        yield DumpForm.SNAPSHOT
        if error := text_at(rest, "Error"):
            yield Oddity(f"cluster-autoscaler wrote no snapshot, but: {one_line(error, limit=300)}")
        yield from (Moment(text) for name in _TIMES if (text := text_at(rest, name)))
        return
    kind = _kind_of_items(rest)
    if kind == "ReplicationController":  # kubectl get prints lists without a kind
        yield DumpForm.CLUSTER_INFO
    for item in held.taken(""):
        if kind:
            yield DumpedObject(kind, text_at(rest, "apiVersion"), item)
        else:
            yield Oddity(f"document {number}: an item of its list has no kind")
    if not (kind or streamed) and rest:
        yield from _alone(rest, number)


def _alone(value: Any, number: int) -> Iterator[DumpedItem]:
    """Yields an object that is in no list, or the items of a small list."""
    kind = text_at(value, "kind")
    if kind.endswith("List") and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _item(item, value, None, number)
    elif kind == "Status":
        said = one_line(text_at(value, "message"), limit=200)
        yield Oddity(
            f"document {number} is an answer of the API server, not what was asked: {said}"
        )
    elif kind:
        yield DumpedObject(kind, text_at(value, "apiVersion"), value)
    else:
        yield Oddity(f"document {number} is no object of Kubernetes: it has no kind")
