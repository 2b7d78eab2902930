"""Cuts deep nesting from JSON, for readers that recurse.

An API server stores objects of thousands of levels. Python's own decoder gives up at about 1,000,
code that copies a decoded object at half of that, and pydantic at 200. So everything below level
`MOST` is left out of the text, and the object gets the key `CUT`, which says that it is incomplete.
"""

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

MOST: Final = 400
"""The most levels of nesting of one object."""
CUT: Final = "nestsTooDeep"
"""The key that marks an object from which something was left out."""
ALONE: Final = 1
OF_LINE: Final = 2
OF_LIST: Final = 3
"""The level at which an object begins: alone 1, in {"object": {}} 2, in {"items": [{}]} 3."""

_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"{}[]"))
_STEPS: Final = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
"""Translates brackets to signed bytes: 1 for a level deeper, -1 for a level back."""
_MARK: Final = f',"{CUT}":true'.encode()


def shallow(text: bytes, *, objects: int) -> bytes:
    """Returns a JSON text without the parts that nest too deep. `objects` is the level of nesting
    at which the text's Kubernetes objects begin, such as OF_LIST."""
    # Most texts have fewer brackets than allowed levels, so they needn't be parsed.
    most = MOST + objects - 1
    if text.count(b"{") + text.count(b"[") <= most or not _too_deep(text, most):
        return text
    kept: list[bytes] = []
    level = start = 0
    cut = False
    for token in _TOKENS.finditer(text):
        sign = token[0][:1]
        if sign in b"{[":
            level += 1
            if level == most + 1:
                kept += [text[start : token.start()], b"null"]
                cut = True
        elif sign in b"}]":
            if level == most + 1:
                start = token.end()
            elif level == objects and cut and sign == b"}":
                kept += [text[start : token.start()], _MARK]
                start, cut = token.start(), False
            level -= 1
    return b"".join([*kept, text[start:]])


def _too_deep(text: bytes, most: int) -> bool:
    # Once escaped characters are removed, every second piece between quotes is a string.
    pieces = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    steps = b"".join(pieces[::2]).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > most


def is_cut(body: Mapping[str, Any]) -> bool:
    """Whether something was left out of a decoded object."""
    return body.get(CUT) is True
