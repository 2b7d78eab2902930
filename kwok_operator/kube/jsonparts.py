"""Taking JSON apart without reading it: what nests without end has parts, too.

For where a parser gives up on the whole because of one part. Nothing recurses, nothing is checked
but what is needed to find where a part ends.
"""

import json
import re
from typing import Final

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{},]', re.DOTALL)
_KEY: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:')


def elements(raw: bytes) -> list[bytes]:
    """The elements of an array; of an object, each key with its value. Raises ValueError."""
    found: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(raw):
        mark = token[0]
        if mark in b"[{":
            depth += 1
            begin = token.end() if depth == 1 else begin
        elif depth == 1 and mark in b",]}":
            found.append(raw[begin : token.start()].strip())
            begin = token.end()
            if mark != b",":
                return [each for each in found if each]
        elif mark in b"]}":
            depth -= 1
    raise ValueError("it is no object, or ends too soon")


def members(raw: bytes) -> dict[str, bytes]:
    """The values of an object, by their keys. Raises ValueError."""
    found = {}
    for member in elements(raw):
        key = _KEY.match(member)
        if key is None:
            raise ValueError("it is no object")
        found[json.loads(key[1])] = member[key.end() :].strip()
    return found
