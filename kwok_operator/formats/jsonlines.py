"""Reads JSON lines, compressed or not, from files that may be cut off anywhere.

    chunks of bytes --unzipped--> chunks of text --numbered_lines--> (number, line, has a line end?)

It opens no files and parses no lines: the caller decides what to do about damaged and cut files.
"""

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

MAX_LINE: Final = 2**24
_GZIP: Final = 31
"""The `wbits` of zlib for gzip with a header."""

Damaged = Callable[[str], Exception]


def unzipped(
    chunks: Iterator[bytes], *, damaged: Damaged, on_cut: Callable[[], None]
) -> Iterator[bytes]:
    """Yields the content of a gzip or plain file; several gzip streams in a row count as one.

    Raises the error that `damaged` makes from a sentence; calls `on_cut` if the last stream has no
    end.
    """
    first = next(chunks, b"")
    chunks = itertools.chain((first,), chunks)
    if first[:2] != b"\x1f\x8b":
        yield from chunks
        return
    unzip: Any = zlib.decompressobj(wbits=_GZIP)
    for chunk in chunks:
        while chunk:
            try:
                yield unzip.decompress(chunk, MAX_LINE)
            except zlib.error as error:
                raise damaged(f"is damaged: {error}") from error
            chunk = unzip.unconsumed_tail
            if unzip.eof:
                chunk = unzip.unused_data
                unzip = zlib.decompressobj(wbits=_GZIP)
                begun = bool(chunk)
            else:
                begun = True
    if begun:
        on_cut()


def numbered_lines(data: Iterable[bytes], *, damaged: Damaged) -> Iterator[tuple[int, bytes, bool]]:
    """Yields number and text of each line, and whether it has its line end; only the last line may
    lack it."""
    rest, number = b"", 0
    for chunk in data:
        *lines, rest = (rest + chunk).split(b"\n")
        for text in lines:
            number += 1
            if text.strip():
                yield number, text, True
        if len(rest) > MAX_LINE:
            raise damaged(f"has a line of more than {MAX_LINE} bytes")
    if rest.strip():
        yield number + 1, rest, False
