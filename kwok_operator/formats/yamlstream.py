"""Reads YAML of any size piece by piece, with memory only for its largest piece.

    chunks of text  --lines, by indentation-->  text of an element  --yamltext-->  DocumentPiece

An element of a list begins at a dash that is indented like the first one (block style, which
programs print). Lists in another style, and all other parts of a document, are read as a whole. An
anchor can be used only in the element in which it stands.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from kwok_operator.formats.pieces import ENDS_EARLY, MAX_VALUE, DocumentPiece, PieceError, Streamed
from kwok_operator.formats.untyped import as_list
from kwok_operator.formats.yamltext import DocumentError, load_documents

_KEY: Final = re.compile(r"([A-Za-z]+):[ \t]*(?:#.*)?\r?\n?")
_DASH: Final = re.compile(r" *-(?=[ \t\r\n]|$)")
_SPACES: Final = ("", " ", "\t", "\r", "\n")
_NOTHING: Final = ("#", "\n", "\r")
_SEPARATOR: Final = re.compile(r"(---|\.\.\.)(?=[ \t\r\n]|$)")
_LOG: Final = "==== START logs"
_END_OF_LOG: Final = "==== END logs"


_TOO_LONG: Final = f"a value has more than {MAX_VALUE:,} characters"


def yaml_pieces(chunks: Iterator[str], streamed: Streamed) -> Iterator[DocumentPiece]:
    """Yields the pieces of all documents; raises PieceError. Skips logs between documents, which
    `kubectl cluster-info dump` prints. Maps of `streamed` are read whole.

    If a list has no kind, it was cut off, as programs print the kind after the items. Its last item
    may be incomplete, and isn't yielded.
    """
    lines = _Lines(chunks)
    while lines.next:
        yield from _document(lines, streamed)


def _document(lines: "_Lines", streamed: Streamed) -> Iterator[DocumentPiece]:
    rest = _Text()
    if separator := _SEPARATOR.match(lines.next):
        # Text after the dashes in the same line belongs to the document.
        rest.add(lines.number, lines.take().replace(separator[1], "   ", 1))
    while lines.next and not _SEPARATOR.match(lines.next):
        number, line = lines.number, lines.take()
        key = _KEY.fullmatch(line)
        if line.startswith(_LOG):
            while lines.next and not lines.take().startswith(_END_OF_LOG):
                pass
        elif key and key[1] in streamed.lists and (dash := lines.dash()):
            above = rest.value()
            for element in _elements(lines, dash, is_cut_at_end="kind" not in above):
                yield DocumentPiece(key[1], element.value(), above)
        else:
            rest.add(number, line)
    value = rest.value()
    for element in as_list(value):
        yield DocumentPiece("", element, {})
    yield DocumentPiece(None, None, value if isinstance(value, dict) else {})


def _elements(lines: "_Lines", dash: str, *, is_cut_at_end: bool) -> Iterator["_Text"]:
    """Yields the lines of each element of a list whose dashes are indented like the first one,
    `dash`."""
    element: _Text | None = None
    while line := lines.next:
        begins = line.startswith(dash) and line[len(dash) : len(dash) + 1] in _SPACES
        if not begins and line[: len(dash)].strip(" ") and line[:1] not in _NOTHING:
            break
        if begins:
            if element is not None:
                yield element
            element = _Text()
            line = line.replace("-", " ", 1)
        assert element is not None
        element.add(lines.number, line)
        lines.take()
    if not lines.next and is_cut_at_end:
        raise PieceError(ENDS_EARLY, line=lines.number, column=1, cut=True)
    if element is not None:
        yield element


class _Lines:
    """The lines of a text, which `take` returns one by one. `next` is the line that the next call
    will return; "" at the end."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._lines = _lines(chunks)
        self.number = 1
        self.next = next(self._lines, "")

    def take(self) -> str:
        line, self.next = self.next, next(self._lines, "")
        self.number += 1
        return line

    def dash(self) -> str:
        """Returns the dash of a list that begins in the next line, with the spaces before it; "" if
        none begins. Skips empty lines and comments."""
        while self.next and (not (text := self.next.strip()) or text.startswith("#")):
            self.take()
        dash = _DASH.match(self.next)
        return dash[0] if dash else ""


def _lines(chunks: Iterator[str]) -> Iterator[str]:
    rest: list[str] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split("\n")
        rest.append(first)
        size += len(first)
        if size > MAX_VALUE:
            raise PieceError(_TOO_LONG, line=1, column=MAX_VALUE)
        if others:
            yield "".join(rest) + "\n"
            for line in others[:-1]:
                yield line + "\n"
            rest, size = [others[-1]], len(others[-1])
    if last := "".join(rest):
        yield last


class _Text:
    """Lines of one document, with their numbers in the file, as other lines may stand between
    them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._breaks: list[tuple[int, int]] = []
        """Pairs: the index of a line, and its number in the file. There is one for each line that
        doesn't follow the line before it in the file."""
        self._size = 0

    def add(self, number: int, line: str) -> None:
        index = len(self._lines)
        if not self._breaks or number - index != self._breaks[-1][1] - self._breaks[-1][0]:
            self._breaks.append((index, number))
        self._lines.append(line)
        self._size += len(line)
        if self._size > MAX_VALUE:
            raise PieceError(_TOO_LONG, line=number, column=1)

    def value(self) -> Any:
        """Returns the value of the lines; an empty map if there are none. Raises PieceError."""
        try:
            documents = load_documents("".join(self._lines), where="")
        except DocumentError as error:
            line = self._number(error.line)
            # The message may quote a value, which may be a secret.
            problem = re.sub(r"^.*(?= has the tag )", "a value", error.problem)
            raise PieceError(problem, line=line, column=error.column) from error
        value = documents[0] if documents and documents[0] is not None else {}
        if not isinstance(value, dict | list):
            raise PieceError("is no object, but a single value", line=self._number(1), column=1)
        return value

    def _number(self, line: int) -> int:
        index, number = next(b for b in reversed(self._breaks) if b[0] < line)
        return number + line - 1 - index
