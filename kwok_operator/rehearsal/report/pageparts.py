"""Builds the parts of the pages of rehearsals and comparisons: the head, sections, tables, texts.

No script, nothing from elsewhere: the policy in the head forbids both. Texts are escaped here.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.rehearsal.report.pagestyle import STYLE

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_CELL: Final = 200


def beginning(title: str) -> str:
    """Returns the page up to its body."""
    return "".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title)}</title><style>{STYLE}</style></head><body>",
        ]
    )


def section(title: str, content: Iterable[str]) -> Iterator[str]:
    text = "".join(content)
    if text:
        yield f"<section><h2>{escape(title)}</h2>{text}</section>"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, more: int = 0, ends_long: bool = False
) -> Iterator[str]:
    """A table; empty without rows. Cells are HTML already. With `ends_long`, the last ones may be
    sentences.
    """
    if not rows:
        return
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    kind = ' class="ends-long"' if ends_long else ""
    yield f'<div class="wide"><table{kind}><thead><tr>{top}</tr></thead><tbody>'
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"
    if more:
        yield f'<p class="small">and {more:,} more</p>'


def together(text: str) -> str:
    """Keeps a number and its unit on one line."""
    return text.replace(" ", "&nbsp;")


def text(text: str, *, limit: int = _CELL) -> str:
    return escape(one_line(text, limit=limit))
