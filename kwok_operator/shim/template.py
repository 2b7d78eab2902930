"""Builds the Node that cluster-autoscaler takes as a group's template: core/v1 in protobuf.

    resolved template --nodegroups.template.render--> JSON of a Node --encode_node--> bytes
    annotation of the group --read_overlay--> TemplateOverlay, which is laid over the Node

nodegroups.template says what a node of a group looks like. Here JSON becomes protobuf, for any kind
of object in kubernetes.proto: fields have the same names in both, so the message's descriptor says
which value goes where. Unknown fields are left out, as by a program built for an older Kubernetes.

The bytes are those of the Node alone, without the envelope in which an API server sends one.
"""

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from google.protobuf.message import Message
from pydantic import BaseModel, ConfigDict, ValidationError

from kwok_operator import constants
from kwok_operator.api.base import Quantity
from kwok_operator.errors import TemplateError
from kwok_operator.formats.quantity import format_quantity, parse_quantity
from kwok_operator.nodegroups.alike import likeness
from kwok_operator.nodegroups.cleaning import section, taint_list
from kwok_operator.nodegroups.template import KubeletEndpoint, render
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from kwok_operator.topology.layout import Layout

_Field = Any
"""A FieldDescriptor. protobuf has two classes of them, one of which is private."""

FIELD: Final = "status.resolvedTemplate"

_NO_TIME: Final = "1970-01-01T00:00:00Z"
"""The creation time of a template, which means "none": readers take a Time of zero seconds as
missing."""
_NO_ENDPOINT: Final = KubeletEndpoint(addresses=(), port=0)
"""An endpoint without addresses. A node with any endpoint is rendered Ready, and a template has no
kubelet."""
_UNKNOWN_TO_CLUSTERAPI: Final = frozenset({constants.BETA_ARCH_LABEL, constants.BETA_OS_LABEL})
_SEEN_ON_A_NODE: Final = frozenset(
    {
        constants.ARCH_LABEL,
        constants.OS_LABEL,
        constants.INSTANCE_TYPE_LABEL,
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
    }
)
_KUBE_PROXY: Final = {"cpu": Fraction(1, 10), "pods": Fraction(1)}
_MOST: Final = Fraction(2**63 - 1)
_DECIMAL_UNITS: Final = {-3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXPONENT: Final = re.compile(r"[eE][+-]?[0-9]+$")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TemplateTaint(_Strict):
    """A taint of a template. It may have a key, value or effect that a Node could not have."""

    key: str
    value: str = ""
    effect: str = ""


class TemplateOverlay(_Strict):
    """How the template differs from the group's nodes: in labels (None removes one), in taints
    (these replace all), and in amounts of resources, which are all allocatable."""

    labels: dict[str, str | None] = {}
    taints: tuple[TemplateTaint, ...] | None = None
    capacity: dict[str, Quantity] = {}

    def with_a_node(self) -> "TemplateOverlay":
        """Returns the overlay for a group that has a node. It lacks some labels, as CA's provider
        clusterapi then reads these from the node and not from the annotation."""
        labels = {k: v for k, v in self.labels.items() if k not in _SEEN_ON_A_NODE}
        return self.model_copy(update={"labels": labels})


NO_OVERLAY: Final = TemplateOverlay()


def read_overlay(text: str) -> TemplateOverlay:
    """Parses the JSON of the annotation on a group (FROM_ZERO_ANNOTATION). Raises ValueError with
    what is wrong."""
    try:
        return TemplateOverlay.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error


def template_node(
    resolved: Mapping[str, Any],
    *,
    group: str,
    uid: str,
    provider_id_prefix: str,
    overlay: TemplateOverlay = NO_OVERLAY,
    clusterapi: bool = False,
    place: int = 0,
) -> bytes:
    """Returns the bytes of a Ready node of the group, called `template-<group>`; never empty.

    `uid` is the group's. If the group has a topology, `place` is the number of the position in it
    that the group's next node will have; the template gets the labels of this position. With
    `clusterapi` the node is as CA's provider clusterapi would make it. The same template gives the
    same bytes. Raises TemplateError if the template can't be a Node.
    """
    node = copy.deepcopy(dict(resolved))
    metadata = section(node, "metadata", field=FIELD)
    for part in ("labels", "annotations"):
        section(metadata, part, field=f"{FIELD}.metadata")
    section(node, "status", field=FIELD)
    spec = section(node, "spec", field=FIELD)
    spec["taints"] = taint_list(spec, field=FIELD)
    layout = Layout.read(metadata["annotations"])
    if layout is not None:
        metadata["labels"].update(layout.labels(place))
    rendered = render(
        node, group=group, uid=uid, provider_id_prefix=provider_id_prefix, endpoint=_NO_ENDPOINT
    )
    body = rendered.body(f"template-{group}", requested_at=_NO_TIME, now=_NO_TIME, ready=True)
    manifest = json.loads(body)
    del manifest["metadata"]["annotations"][constants.REQUESTED_AT_ANNOTATION]
    if clusterapi:
        for key in _UNKNOWN_TO_CLUSTERAPI - metadata["labels"].keys():
            manifest["metadata"]["labels"].pop(key, None)
    _lay_over(manifest, overlay)
    if clusterapi:
        _make_room_for_kube_proxy(manifest)
        if constants.ALIKE_LABEL not in metadata["labels"].keys() | overlay.labels.keys():
            _set_apart_from_nodes(manifest)
    return encode_node(manifest)


def encode_node(manifest: Mapping[str, Any]) -> bytes:
    """Encodes a Node's JSON in protobuf. Raises TemplateError naming the field that doesn't fit."""
    node = k8s.Node()
    _fill(node, manifest, FIELD)
    return node.SerializeToString(deterministic=True)


def canonical_quantity(value: object) -> str:
    """Returns a node's resource as an API server writes it: "1500m" for "1.5", "2Gi" for "2048Mi".

    Fractions of a thousandth are rounded up. Raises ValueError for what is no quantity.
    """
    text, amount = str(value), parse_quantity(value)
    sign = -1 if amount < 0 else 1
    binary = text.endswith("i")
    if binary:
        amount = sign * min(abs(amount), _MOST)
    milli = math.ceil(abs(amount) * 1000)
    if binary and milli >= 1024 * 1000 and milli % 1000 == 0:
        number, unit = milli // 1000, 0
        while number % 1024 == 0:
            number, unit = number // 1024, unit + 1
        return f"{sign * number}{_BINARY_UNITS[unit]}"
    with_exponent = _EXPONENT.search(text) is not None
    number, exponent = milli, -3
    while number and number % 1000 == 0 and (with_exponent or exponent < max(_DECIMAL_UNITS)):
        number, exponent = number // 1000, exponent + 3
    if not number:
        return "0"
    if with_exponent:
        return f"{sign * number}e{exponent}" if exponent else str(sign * number)
    return f"{sign * number}{_DECIMAL_UNITS[exponent]}"


def _lay_over(node: dict[str, Any], overlay: TemplateOverlay) -> None:
    labels = node["metadata"]["labels"]
    for key, value in overlay.labels.items():
        if value is None:
            labels.pop(key, None)
        else:
            labels[key] = value
    if overlay.taints is not None:
        node["spec"]["taints"] = [taint.model_dump() for taint in overlay.taints]
    if overlay.capacity:
        for part in ("capacity", "allocatable"):
            node["status"][part] = {**_amounts(node, part), **overlay.capacity}


def _make_room_for_kube_proxy(node: dict[str, Any]) -> None:
    """Subtracts the requests of kube-proxy from what is allocatable, as CA's provider clusterapi
    adds a kube-proxy pod to each template, and CA's provider externalgrpc doesn't."""
    allocatable = dict(_amounts(node, "allocatable"))
    for name, taken in _KUBE_PROXY.items():
        with suppress(KeyError, ValueError):  # encode_node reports an invalid amount
            left = max(Fraction(0), parse_quantity(allocatable[name]) - taken)
            allocatable[name] = format_quantity(left, like=allocatable[name])
    node["status"]["allocatable"] = allocatable


def _set_apart_from_nodes(node: dict[str, Any]) -> None:
    """Gives the template a label that no node has, so that CA never takes a group without nodes for
    similar to one with nodes. They differ with the real Cluster API, too: its nodes have labels
    that its templates for scaling from zero lack."""
    labels = node["metadata"]["labels"]
    ours = (constants.NODE_GROUP_LABEL, constants.ALIKE_LABEL)
    compared = {key: text for key, text in labels.items() if key not in ours}
    alike = likeness({"metadata": {"labels": compared}, "status": node["status"]})
    labels[constants.ALIKE_LABEL] = f"{alike}-from-zero"


def _amounts(node: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    given = node["status"].get(part) or {}
    amounts: Mapping[str, Any] = _typed(given, Mapping, f"{FIELD}.status.{part}")
    return amounts


def _fill(message: Message, value: Any, path: str) -> None:
    """Writes JSON into an empty message."""
    if isinstance(message, k8s.Time):
        with _named(path, value):
            message.seconds = _seconds(value)
    elif isinstance(message, k8s.Quantity):
        with _named(path, value):
            message.string = canonical_quantity(value)
    else:
        for field in message.DESCRIPTOR.fields:
            given = _typed(value, Mapping, path).get(field.name)
            if given is not None:
                _fill_field(message, field, given, f"{path}.{field.name}")


def _fill_field(message: Message, field: _Field, given: Any, path: str) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        for key, value in _typed(given, Mapping, path).items():
            with _named(f"{path}.{key}", value):
                if _has_messages(field.message_type.fields_by_name["value"]):
                    _fill(target[key], value, f"{path}.{key}")
                else:
                    target[key] = value
    elif field.is_repeated:
        for i, value in enumerate(_typed(given, list, path)):
            with _named(f"{path}[{i}]", value):
                if _has_messages(field):
                    _fill(target.add(), value, f"{path}[{i}]")
                else:
                    target.append(value)
    elif _has_messages(field):
        target.SetInParent()
        _fill(target, given, path)
    else:
        with _named(path, given):
            setattr(message, field.name, given)


@contextmanager
def _named(path: str, value: Any) -> Iterator[None]:
    """Turns errors about a value, such as protobuf's, into TemplateErrors that name the field."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise TemplateError(
            field=path, value=value, problem=f"can't be written into a Node: {error}"
        ) from error


def _typed(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, kind):
        name = "a list" if kind is list else "an object of keys and values"
        raise TemplateError(field=path, value=value, problem=f"must be {name}")
    return value


def _has_messages(field: _Field) -> bool:
    return field.message_type is not None


def _is_map(field: _Field) -> bool:
    return _has_messages(field) and field.message_type.GetOptions().map_entry


def _seconds(value: Any) -> int:
    if not isinstance(value, str):
        raise TypeError("it is no time such as 2026-01-02T03:04:05Z")
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError("it names no time zone; Z stands for UTC")
    return math.floor(time.timestamp())
