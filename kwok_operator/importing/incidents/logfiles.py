"""Reads the logs of cluster-autoscaler that the user names: line by line, of any size.

A log may be rotated into several files, compressed (.gz), cut off, or the output of a tool that
adds something before each line. Only what calog.py keeps stays in memory.
"""

import codecs
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from kwok_operator.errors import SettingsError
from kwok_operator.formats.jsonlines import unzipped
from kwok_operator.importing.incidents.calog import LogReader
from kwok_operator.importing.incidents.loglines import MAX_LINE, read_line, whole_lines
from kwok_operator.userfiles import chunks

_AT_ONCE: Final = 1_000
_REVERSED: Final = 3
"""From so many lines on, the order of a file's lines is no accident."""
_FIRST_LINES: Final = 1_000
"""A file is sorted by the first time in this many lines."""


class _DamagedError(Exception):
    """A compressed file is damaged."""


def read_logs(
    paths: Iterable[Path], *, at: float | None, near: float
) -> tuple[LogReader, list[str]]:
    """Reads all files in the order of their times. Returns the reader, and sentences on what could
    not be read. Raises SettingsError if a file can't be opened, has its newest lines first, or no
    file has a line of such a log.
    """
    reader, problems = LogReader(at=at, near=near), list[str]()
    for _ in reading_logs(paths, reader, problems, given=True):
        pass
    return reader, problems


def reading_logs(
    paths: Iterable[Path], reader: LogReader, problems: list[str], *, given: bool
) -> Iterator[None]:
    """Reads like read_logs, and yields now and then, so that the caller can check for signals.
    `given` means that the user named the files, which may be pipes.
    """
    near = reader.near
    for path in sorted(paths, key=lambda each: _begin(each, near)):

        def damaged(problem: str, path: Path = path) -> None:
            problems.append(f"--log: {path}: {problem}; what is before that was read")

        before, reader.backwards, reader.previous = reader.relevant, 0, None
        try:
            for number, line in enumerate(whole_lines(_lines(path, damaged, given=given))):
                reader.add(line)
                if number % _AT_ONCE == 0 or not line:
                    yield
        except OSError as error:
            raise SettingsError(f"--log: {path}: {error.strerror or error}") from error
        if reader.backwards >= _REVERSED:
            raise SettingsError(
                f"--log: {path}: its newest lines come first; turn it round, such as with `tac`"
            )
        if reader.relevant == before:
            problems.append(f"--log: {path}: has no line of cluster-autoscaler")
    if reader.first is None:
        raise SettingsError(f"{problems[-1]}; give the log of its leader")


def _lines(path: Path, damaged: Callable[[str], None], *, given: bool = True) -> Iterator[bytes]:
    """Yields the lines of a file, each cut after MAX_LINE bytes. After each chunk of the file,
    yields an empty line, so that the caller can check for signals. Raises OSError.
    """
    data = unzipped(
        chunks(path, given=given),
        damaged=_DamagedError,
        on_cut=lambda: damaged("its compressed end is missing: it is cut off"),
    )
    rest = b""
    try:
        for chunk in _as_utf8(data):
            *whole, rest = (rest[:MAX_LINE] + chunk).split(b"\n")
            yield from whole
            yield b""
    except _DamagedError as error:
        damaged(str(error))
    if rest:
        yield rest


def _as_utf8(data: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the data as UTF-8. PowerShell's > writes UTF-16."""
    first = next(data, b"")
    utf16 = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for chunk in itertools.chain((first,), data):
        yield decoder.decode(chunk).encode() if utf16 else chunk


def _begin(path: Path, near: float) -> float:
    if not path.is_file():  # a pipe can be read only once
        return near
    try:
        for line in itertools.islice(_lines(path, lambda _: None), _FIRST_LINES):
            if said := read_line(line.decode("utf-8", "replace"), near=near):
                return said.at
    except OSError:
        pass  # the reading below reports the error
    return near
