"""Header fields: HPACK (RFC 7541), and what a request's must be (RFC 9113, section 8).

Clients are offered a dynamic table of size 0. Where one takes the offer, as those of gRPC do, each
block stands for itself, so that what it means can be remembered; and what is long in it (path,
authority, user agent) is the same bytes in each call, so that Huffman decoding, the slow part, is
remembered as well. The full table is here for what a client sends before it has read the offer.

What we send is plain literals: it needs no state, so blocks can be made once and sent for ever. The
Huffman code and the static table are those of the hpack library.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from kwok_operator.shim.http2.frames import ErrorCode, Http2ConnectionError

Field = tuple[bytes, bytes]

DEFAULT_TABLE_SIZE: Final = 4096
ENTRY_OVERHEAD: Final = 32
_STATIC: Final[tuple[Field, ...]] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_INDEX_OF_FIELD: Final = {field: index for index, field in enumerate(_STATIC) if index}
_INDEX_OF_NAME: Final = {name: index for index, (name, _) in enumerate(_STATIC) if index}
_MAX_INTEGER_BYTES: Final = 5

# Bounded in number and size: what a hostile client puts here is at most a quarter of a megabyte.
_REMEMBERED: Final = 1024
_REMEMBERED_LENGTH: Final = 256
_remembered_huffman = lru_cache(maxsize=_REMEMBERED)(decode_huffman)


class HeaderDecoder:
    """One direction of one connection. Each error is for good: the table is not to be trusted."""

    def __init__(self, *, max_list_size: int) -> None:
        self._max_list_size = max_list_size
        self._dynamic: deque[Field] = deque()
        self._size = 0
        self._capacity = DEFAULT_TABLE_SIZE
        self._allowed = DEFAULT_TABLE_SIZE
        self._must_shrink = False

    def limit_table(self, size: int) -> None:
        """The client has acknowledged this size: a larger table must shrink in the next block."""
        self._allowed = size
        self._must_shrink = self._capacity > size

    @property
    def stateless(self) -> bool:
        """There is no table, and will be none: a block means the same whenever it comes."""
        return self._capacity == self._allowed == 0

    def decode(self, block: bytes) -> list[Field]:
        """Raises Http2ConnectionError."""
        try:
            return self._decode(block)
        except (IndexError, HPACKDecodingError) as error:
            raise _broken("it ends too early or is no Huffman code") from error

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at, end, total = 0, len(block), 0
        while at < end:
            byte = block[at]
            if byte & 0x80:
                index, at = _integer(block, at, 0x7F)
                field = self._field(index)
            elif byte & 0xE0 == 0x20:
                at = self._resize(block, at, allowed=not fields)
                continue
            else:
                indexing = byte & 0x40
                index, at = _integer(block, at, 0x3F if indexing else 0x0F)
                if index:
                    name = self._field(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                field = (name, value)
                if indexing:
                    self._add(field)
            if self._must_shrink:
                raise _broken("it does not shrink the table to the size agreed on")
            total += len(field[0]) + len(field[1]) + ENTRY_OVERHEAD
            if total > self._max_list_size:
                raise Http2ConnectionError(
                    ErrorCode.ENHANCE_YOUR_CALM,
                    f"headers of more than {self._max_list_size} bytes",
                )
            fields.append(field)
        return fields

    def _field(self, index: int) -> Field:
        if 0 < index < len(_STATIC):
            return _STATIC[index]
        if not index:
            raise _broken("index 0 is no field")
        return self._dynamic[index - len(_STATIC)]

    def _resize(self, block: bytes, at: int, *, allowed: bool) -> int:
        size, at = _integer(block, at, 0x1F)
        if not allowed:
            raise _broken("the table's size changes after a field")
        if size > self._allowed:
            raise _broken(f"a table of {size} bytes, at most {self._allowed} are allowed")
        self._capacity, self._must_shrink = size, False
        self._evict()
        return at

    def _add(self, field: Field) -> None:
        self._dynamic.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + ENTRY_OVERHEAD
        self._evict()

    def _evict(self) -> None:
        while self._size > self._capacity:
            name, value = self._dynamic.pop()
            self._size -= len(name) + len(value) + ENTRY_OVERHEAD


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
    """A block that changes no table, for any peer. Names are lower case."""
    return b"".join(_encoded(name, value) for name, value in fields)


def _encoded(name: bytes, value: bytes) -> bytes:
    if index := _INDEX_OF_FIELD.get((name, value)):
        return _number(index, mask=0x7F, prefix=0x80)
    if index := _INDEX_OF_NAME.get(name):
        return _number(index, mask=0x0F, prefix=0x00) + _literal(value)
    return b"\0" + _literal(name) + _literal(value)


def _literal(text: bytes) -> bytes:
    return _number(len(text), mask=0x7F, prefix=0x00) + text


def _number(value: int, *, mask: int, prefix: int) -> bytes:
    if value < mask:
        return bytes([prefix | value])
    out = bytearray([prefix | mask])
    value -= mask
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


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
