"""Builds the parts of the pages of rehearsals and comparisons: the head, sections, tables, texts.

A Content-Security-Policy in the head forbids a page to load anything, and to run scripts other than
those whose hashes it names. Texts are escaped here. On a narrow screen each row of a table is a
card, whose cells begin with their column's name.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import zip_longest
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.rehearsal.report.pagestyle import STYLE

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_CELL: Final = 200


def beginning(title: str, *, policy: str = POLICY, style: str = "") -> str:
    """Returns the page up to its body."""
    return "".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title)}</title><style>{style}{STYLE}</style></head><body>",
        ]
    )


def section(title: str, content: Iterable[str]) -> Iterator[str]:
    text = "".join(content)
    if text:
        yield f"<section><h2>{escape(title)}</h2>{text}</section>"


def table(
    heads: Sequence[str | tuple[str, str]],
    rows: Sequence[Sequence[str]],
    *,
    more: int = 0,
    ends_long: bool = False,
    marks: Sequence[str] = (),
) -> Iterator[str]:
    """Yields a table; nothing without rows. Cells are HTML already; a head may have a tooltip. With
    `ends_long`, the last cells may be sentences. `marks` are attributes of rows, by `marking`.
    """
    if not rows:
        return
    names = [head if isinstance(head, str) else head[0] for head in heads]
    hints = ["" if isinstance(head, str) else f' title="{escape(head[1])}"' for head in heads]
    top = "".join(
        f'<th scope="col"{hint}>{escape(name)}</th>'
        for name, hint in zip(names, hints, strict=True)
    )
    starts = [f'<td data-h="{escape(name)}">' if name else "<td>" for name in names]
    caption = escape(", ".join(filter(None, names)))
    kind = ' class="ends-long"' if ends_long else ""
    yield f'<div class="wide" role="region" tabindex="0" aria-label="Table: {caption}">'
    yield f'<table{kind}><caption class="unseen">{caption}</caption>'
    yield f"<thead><tr>{top}</tr></thead><tbody>"
    for row, mark in zip_longest(rows, marks, fillvalue=""):
        cells = (f"{start}{cell}</td>" for start, cell in zip(starts, row, strict=True))
        yield f"<tr{mark}>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    if more:
        yield f'<p class="small">and {more:,} more</p>'


def subject(kind: str, name: object) -> str:
    """Returns a key for a thing such as a pod, by which `marking` marks rows about it."""
    return f"{kind}:{subject_name(name)}"


def subject_name(name: object) -> str:
    return one_line(name, limit=_CELL)


def marking(
    *subjects: str, of: Iterable[str] = (), start: float | None = None, end: float | None = None
) -> str:
    """Returns the HTML attributes of a row: `subjects` are what it is about, `of` what else it
    concerns, such as the group of calls; `start` and `end` are in seconds. A script marks all rows
    about the subject that the reader has clicked.
    """
    parts = {"is": [*subjects], "of": [*of]}
    attributes = "".join(
        f' data-{key}="{escape(json.dumps(names))}"' for key, names in parts.items() if names
    )
    times = {"from": start, "to": end}
    return attributes + "".join(
        f' data-{key}="{t:.12g}"' for key, t in times.items() if t is not None
    )


def together(text: str) -> str:
    """Keeps a number and its unit on one line."""
    return text.replace(" ", "&nbsp;")


def text(text: str, *, limit: int = _CELL) -> str:
    return escape(one_line(text, limit=limit))
