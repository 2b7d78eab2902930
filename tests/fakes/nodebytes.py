"""A Node in protobuf, read as JSON: without apiVersion and kind, and without whatever is empty."""

from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import Message

from kwok_operator.shim.proto import kubernetes_pb2 as k8s


def decode_node(data: bytes) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(k8s.Node.FromString(data))
    return plain


def _plain(message: Any) -> Any:
    """None or an empty object where a message says nothing."""
    if isinstance(message, k8s.Time):
        if not message.seconds:
            return None
        return datetime.fromtimestamp(message.seconds, UTC).isoformat().replace("+00:00", "Z")
    if isinstance(message, k8s.Quantity):
        return message.string
    if not isinstance(message, Message):
        return message
    plain = {field.name: _field(field, value) for field, value in message.ListFields()}
    return {name: value for name, value in plain.items() if value not in (None, {})}


def _field(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if field.is_repeated else _plain(value)
