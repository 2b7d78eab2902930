"""Reads a file, to which another program appends, line by line as it grows."""

import os
from pathlib import Path
from typing import Final

from kwok_operator.rehearsal.keeper import BEGINNING, MOST_BYTES

_KEPT_BYTES: Final = int(MOST_BYTES * BEGINNING)
_MOST_BYTES: Final = 1 << 20
"""The most bytes that are read at once."""


class FollowedFile:
    """A growing file. If the file is written anew, reading starts at its beginning. If the file's
    middle is cut out, as keeper.py does with a large log, reading goes on at its end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[bytes]:
        """Returns whole lines that were appended since the last call, at most _MOST_BYTES. Raises
        OSError.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            size = os.fstat(file.fileno()).st_size
            if size < self._offset:
                self._offset = 0 if size < _KEPT_BYTES else size
            file.seek(self._offset)
            chunk = file.read(_MOST_BYTES)
        text, newline, _ = chunk.rpartition(b"\n")
        if not newline and len(chunk) == _MOST_BYTES:
            text = chunk  # no real line is that long
        self._offset += len(text) + len(newline)
        return text.splitlines()
