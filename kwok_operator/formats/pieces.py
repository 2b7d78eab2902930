"""What the readers of large files yield (jsonstream.py and yamlstream.py).

A document is never held in memory as a whole: the elements of its large lists come one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.errors import ManifestError

MAX_VALUE: Final = 64 * 1024 * 1024
"""The most characters of one element, or of all other parts of a document together."""
ENDS_EARLY: Final = "it ends in the middle: the file is cut off"


@dataclass(frozen=True, slots=True)
class Streamed:
    """Which parts of a document come in pieces: the elements of these lists, and the entries of
    these maps."""

    lists: frozenset[str]
    maps: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DocumentPiece:
    """An element of a streamed list or map, or the end of a document.

    `key` is the field of the document that has the list or map; "" if the document is the list
    itself; None at the end. `name` is the key of a map's entry. `rest` has the other fields of the
    document that have been read so far; at the end, all of them.
    """

    key: str | None
    value: Any
    rest: Mapping[str, Any]
    name: str = ""


class PieceError(ManifestError):
    """A text can't be read further. `cut`: the text is right so far, but ends too early."""

    def __init__(self, problem: str, *, line: int, column: int, cut: bool = False) -> None:
        self.problem = problem
        self.line = line
        self.column = column
        self.cut = cut
        super().__init__(f"line {line}, column {column}: {problem}")
