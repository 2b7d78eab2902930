"""Decodes, encodes and checks header fields: HPACK (RFC 7541), and the rules for a request's header
(RFC 9113, section 8).

The server offers clients a dynamic table of size 0. If a client accepts, as gRPC's do, its blocks
don't depend on each other, so the meaning of a whole block can be cached. Its long texts (path,
authority, user agent) are the same bytes in each call. Decoding their Huffman code is slow, so the
decoded texts are cached, too. For these caches blocks are decoded here, with the tables of the
hpack library; its own Decoder takes four times as long.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from hpack import Encoder, HPACKError, NeverIndexedHeaderTuple
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable, table_entry_size

from kwok_operator.shim.http2.frames import ErrorCode, Http2ConnectionError

Field = tuple[bytes, bytes]

_MAX_INTEGER_BYTES: Final = 5

# The cache is bounded in number and size: a hostile client can fill at most 256 KiB.
_REMEMBERED: Final = 1024
_REMEMBERED_LENGTH: Final = 256
_remembered_huffman = lru_cache(maxsize=_REMEMBERED)(decode_huffman)


class HeaderDecoder:
    """Decodes header blocks of one direction of a connection. After an error it can't be used
    again.
    """

    def __init__(self, *, max_list_size: int) -> None:
        self._max_list_size = max_list_size
        self._table = HeaderTable()
        self._allowed = self._table.maxsize

    def limit_table(self, size: int) -> None:
        """Limits the client's dynamic table to `size`, which the client has acknowledged. If its
        table is larger, the client must shrink it in its next block."""
        self._allowed = size

    @property
    def stateless(self) -> bool:
        """Whether the client uses no dynamic table and never will: then a block always means the
        same."""
        return self._table.maxsize == self._allowed == 0

    def decode(self, block: bytes) -> list[Field]:
        """Decodes a header block. Raises Http2ConnectionError."""
        try:
            return self._decode(block)
        except (IndexError, HPACKError) as error:
            raise _broken("it ends too early or is no Huffman code") from error

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at, end, total = 0, len(block), 0
        while at < end:
            byte = block[at]
            if byte & 0x80:
                index, at = _integer(block, at, 0x7F)
                field = self._table.get_by_index(index)
            elif byte & 0xE0 == 0x20:
                at = self._resize(block, at, allowed=not fields)
                continue
            else:
                indexing = byte & 0x40
                index, at = _integer(block, at, 0x3F if indexing else 0x0F)
                if index:
                    name = self._table.get_by_index(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                field = (name, value)
                if indexing:
                    self._table.add(name, value)
            if self._table.maxsize > self._allowed:
                raise _broken("it does not shrink the table to the size agreed on")
            total += table_entry_size(*field)
            if total > self._max_list_size:
                raise Http2ConnectionError(
                    ErrorCode.ENHANCE_YOUR_CALM,
                    f"headers of more than {self._max_list_size} bytes",
                )
            fields.append(field)
        return fields

    def _resize(self, block: bytes, at: int, *, allowed: bool) -> int:
        size, at = _integer(block, at, 0x1F)
        if not allowed:
            raise _broken("the table's size changes after a field")
        if size > self._allowed:
            raise _broken(f"a table of {size} bytes, at most {self._allowed} are allowed")
        self._table.maxsize = size
        return at


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for count in range(_MAX_INTEGER_BYTES):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << (7 * count)
        if not byte & 0x80:
            return value, at
    raise _broken("a number is too long")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    huffman = block[at] & 0x80
    length, at = _integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise _broken("a string is longer than the block")
    text = block[at:end]
    if not huffman:
        return text, end
    if length > _REMEMBERED_LENGTH:
        return decode_huffman(text), end
    return _remembered_huffman(text), end


def _broken(why: str) -> Http2ConnectionError:
    return Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, f"a header block is broken: {why}")


def encode(fields: Iterable[Field]) -> bytes:
    """Encodes a block that any peer can decode at any time, as it uses no dynamic table."""
    literals = (NeverIndexedHeaderTuple(name, value) for name, value in fields)
    return Encoder().encode(literals, huffman=False)


_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?")
_REQUIRED: Final = (b":method", b":scheme", b":path")
_PSEUDO: Final = frozenset({*_REQUIRED, b":authority"})
# These fields are about one HTTP/1 connection, and are used to smuggle requests past proxies.
_FORBIDDEN: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")


class MalformedRequest(Exception):
    """The header fields of a request break a rule; the message says which."""


def read_head(fields: Iterable[Field]) -> dict[bytes, bytes]:
    """Checks a request's fields and returns them by name. Raises MalformedRequest."""
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
    """Checks the fields of a request's trailers. Raises MalformedRequest."""
    for name, value in fields:
        if name.startswith(b":"):
            raise MalformedRequest("a pseudo-header among the trailers")
        if problem := _problem(name, value):
            raise MalformedRequest(problem)


def content_length(head: Mapping[bytes, bytes]) -> int | None:
    """Returns the length of the body that the header announces, or None. Raises
    MalformedRequest."""
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
