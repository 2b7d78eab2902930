"""What a request's header fields must be (RFC 9113, section 8)."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kwok_operator.shim.http2.headers import Field

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?")
_REQUIRED: Final = (b":method", b":scheme", b":path")
_PSEUDO: Final = frozenset({*_REQUIRED, b":authority"})
# They are about one connection of HTTP/1, and a way to smuggle requests through proxies.
_FORBIDDEN: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")


class MalformedRequest(Exception):
    """Says what is wrong with the fields."""


def read_head(fields: Iterable[Field]) -> dict[bytes, bytes]:
    """The fields by name, well-formed and complete. Raises MalformedRequest."""
    head: dict[bytes, bytes] = {}
    regular = False
    for name, value in fields:
        if problem := _problem(name, value):
            raise MalformedRequest(problem)
        if name[0] != 0x3A:
            regular = True
        elif regular or name in head:
            raise MalformedRequest("a pseudo-header is repeated or comes after a field")
        head[name] = head[name] + b", " + value if name in head else value
    for name in _REQUIRED:
        if not head.get(name):
            raise MalformedRequest(f"{name.decode()} is missing")
    return head


def check_trailers(fields: Iterable[Field]) -> None:
    """Raises MalformedRequest."""
    for name, value in fields:
        if name.startswith(b":"):
            raise MalformedRequest("a pseudo-header among the trailers")
        if problem := _problem(name, value):
            raise MalformedRequest(problem)


def content_length(head: Mapping[bytes, bytes]) -> int | None:
    """The length that the client promises. Raises MalformedRequest."""
    value = head.get(b"content-length")
    if value is None:
        return None
    if not _LENGTH.fullmatch(value):
        raise MalformedRequest("content-length is no number")
    return int(value)


def _problem(name: bytes, value: bytes) -> str | None:
    if name[:1] == b":":
        if name not in _PSEUDO:
            return "an unknown pseudo-header"
    elif not _NAME.fullmatch(name):
        return "a header name with characters that it can't have"
    elif name in _FORBIDDEN or (name == b"te" and value != b"trailers"):
        return "a header that is of HTTP/1 only"
    if not _VALUE.fullmatch(value):
        return "a header value with characters that it can't have"
    return None
