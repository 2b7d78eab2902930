"""Markdown, of texts that others have written: no markup, no table of theirs."""

from collections.abc import Iterator, Sequence
from typing import Final

from kwok_operator.errors import one_line

_MARKUP: Final = "\\`*_|<>[]"


def plain(text: object, *, limit: int) -> str:
    """One line that is shown as it is."""
    line = one_line(text, limit=limit)
    for character in _MARKUP:
        line = line.replace(character, f"\\{character}")
    return line


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Its lines; cells are Markdown already. A head that ends with a colon stands on the right."""
    yield f"| {' | '.join(head.removesuffix(':') for head in heads)} |"
    yield f"|{'|'.join('---:' if head.endswith(':') else '---' for head in heads)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
