"""Writes Markdown from others' texts, in which markup and tables are escaped."""

from collections.abc import Iterator, Sequence
from typing import Final

from kwok_operator.errors import one_line

_MARKUP: Final = "\\`*_|<>[]"


def plain(text: object, *, limit: int) -> str:
    """Returns the text as one line, with markup escaped."""
    line = one_line(text, limit=limit)
    for character in _MARKUP:
        line = line.replace(character, f"\\{character}")
    return line


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table; cells are Markdown already. A column whose head ends with a
    colon is aligned right."""
    yield f"| {' | '.join(head.removesuffix(':') for head in heads)} |"
    yield f"|{'|'.join('---:' if head.endswith(':') else '---' for head in heads)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
