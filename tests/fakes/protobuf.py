"""Protobuf by hand: a writer and a reader that know no message, only numbers of fields."""

import struct
from typing import Any


def varint(number: int) -> bytes:
    parts = []
    number %= 2**64
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def put(field: int, value: int | float | bytes | str) -> bytes:
    """One field on the wire."""
    if isinstance(value, int):
        return varint(field << 3) + varint(value)
    if isinstance(value, float):
        return varint(field << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def fields(data: bytes) -> dict[int, list[Any]]:
    """What stands in a message, by field number: a reader that knows no message."""
    found: dict[int, list[Any]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 0x80:
                return value

    while at < len(data):
        tag = number()
        size = {0: 0, 1: 8, 2: 0}[tag & 7]
        if tag & 7 == 0:
            value: Any = number()
        else:
            size = size or number()
            value = data[at : at + size]
            at += size
            value = struct.unpack("<d", value)[0] if tag & 7 == 1 else value
        found.setdefault(tag >> 3, []).append(value)
    return found
