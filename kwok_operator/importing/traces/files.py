"""Writes traces (TraceWriter), and reads traces of ours and of other programs (read_trace).

A file that was cut off is read up to that point. The first bytes show a file's format.
"""

import contextlib
import csv
import glob
import io
import itertools
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from kwok_operator.errors import SettingsError, TraceError
from kwok_operator.formats.jsonlines import numbered_lines, unzipped
from kwok_operator.importing.traces.cleaning import Clean
from kwok_operator.importing.traces.foreign import OPENB_COLUMNS, openb_lines, simkube_lines
from kwok_operator.importing.traces.trace import Line, decode, encode, trace_error
from kwok_operator.userfiles import chunks

_GZIP: Final = 31
"""zlib's number for gzip with a header."""
_MAX_WHOLE: Final = 2**30
"""The largest file, in bytes, of a format that must be read as a whole."""
_MAP_OF_MSGPACK: Final = (*range(0x80, 0x90), 0xDE, 0xDF)


class TraceWriter:
    """Writes lines to `path`, compressed if its name ends with .gz; with `parts`, to numbered
    files.

    After an error it writes nothing more: a file with a gap before its end would look complete.
    """

    def __init__(self, path: Path, *, parts: bool = False) -> None:
        self.part = 0
        self.path = path
        self.size = 0
        """Bytes of this part that were passed to the operating system."""
        self._template = path
        self._parts = parts
        self._file: IO[bytes] | None = None
        self._zip: Any = None

    def open_part(self) -> None:
        """Opens the next file. Raises SettingsError if the file exists already, or if it is the
        first file and can't be created; OSError if a later one can't be created.
        """
        if self._parts and not self.part:
            self._check_parts()
        self.close()
        self.part += 1
        self.size = 0
        self.path = part_path(self._template, self.part) if self._parts else self._template
        try:
            self._file = self.path.open("xb")
        except FileExistsError as error:
            raise SettingsError(
                f"{self.path} is there already: remove it, or give --output another name"
            ) from error
        except OSError as error:
            if self.part > 1:
                raise
            problem = f"{error.strerror or error}; choose another place"
            raise SettingsError(f"--output: {self.path}: {problem}") from error
        if self.path.suffix == ".gz":
            self._zip = zlib.compressobj(wbits=_GZIP)

    def _check_parts(self) -> None:
        """Raises SettingsError if the file of any part exists already, as this would end the
        recording only hours later.
        """
        stem, dot, rest = self._template.name.partition(".")
        parts = f"{glob.escape(stem)}-[0-9][0-9][0-9][0-9]{dot}{glob.escape(rest)}"
        for path in sorted(self._template.parent.glob(parts)):
            raise SettingsError(
                f"{path} is there already: remove it, or give --output another name"
            )

    def write(self, lines: Iterable[Line]) -> None:
        text = "".join(f"{encode(line)}\n" for line in lines).encode()
        if text and self._file is not None:
            self._put(self._zip.compress(text) if self._zip else text)

    def flush(self) -> None:
        """Writes all lines to the file, so that they survive if this process is killed."""
        if self._file is not None:
            if self._zip:
                self._put(self._zip.flush(zlib.Z_SYNC_FLUSH))
            with self._ending():
                self._file.flush()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with file:
                if self._zip:
                    file.write(self._zip.flush())
            self._zip = None

    def discard(self) -> None:
        """Closes and deletes the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        if self._file is not None:
            with self._ending():
                self._file.write(data)
            self.size += len(data)

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """A context in which an OSError closes the file, so that nothing more is written to it."""
        try:
            yield
        except OSError:
            file, self._file, self._zip = self._file, None, None
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
            raise


def part_path(path: Path, part: int) -> Path:
    """Returns the path of a part, such as `trace-0001.jsonl.gz`."""
    stem, dot, rest = path.name.partition(".")
    return path.with_name(f"{stem}-{part:04}{dot}{rest}")


@dataclass(slots=True)
class Findings:
    """Problems found while reading: `cut` are files that end in the middle, `ignored` counts
    objects of kinds that aren't traced.
    """

    cut: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


def read_trace(path: Path, *, clean: Clean, findings: Findings) -> Iterator[tuple[str, Line]]:
    """Yields the lines of a trace's file, each with its position in words. `clean` is called for
    the objects in traces of other programs.

    Raises SettingsError if the file can't be read, TraceError for wrong content.
    """
    note_cut = partial(_note_cut, path, findings)
    try:
        data = unzipped(chunks(path, given=True), damaged=partial(_no_trace, path), on_cut=note_cut)
        first = next((chunk for chunk in data if chunk), b"")
        data = itertools.chain((first,), data)
        if not first:  # its recorder was killed at once
            note_cut()
        elif first[0] in _MAP_OF_MSGPACK:
            trace = _unpacked(_whole(data, path), path)
            yield from simkube_lines(trace, where=path.name, clean=clean, ignored=findings.ignored)
        elif first.lstrip()[:1] == b"{":
            yield from _decoded(data, path, findings)
        else:
            yield from openb_lines(_rows(_whole(data, path), path), where=path.name)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}; check the name") from error


def _decoded(data: Iterator[bytes], path: Path, findings: Findings) -> Iterator[tuple[str, Line]]:
    for number, text, ended in numbered_lines(data, damaged=partial(_no_trace, path)):
        where = f"{path.name}:{number}"
        try:
            line = decode(text.decode(errors="replace"), where=where)
        except TraceError:
            # The last line has no end: its recorder was killed.
            if ended:
                raise
            _note_cut(path, findings)
        else:
            if line is not None:
                yield where, line


def _note_cut(path: Path, findings: Findings) -> None:
    if path.name not in findings.cut:
        findings.cut.append(path.name)


def _whole(data: Iterator[bytes], path: Path) -> bytes:
    content = io.BytesIO()
    for chunk in data:
        content.write(chunk)
        if content.tell() > _MAX_WHOLE:
            raise _no_trace(path, f"has more than {_MAX_WHOLE} bytes")
    return content.getvalue()


def _rows(content: bytes, path: Path) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(content.decode(errors="replace")))
    try:
        columns = reader.fieldnames or ()
        missing = [column for column in OPENB_COLUMNS if column not in columns]
        if missing:
            raise _no_trace(path, "is neither a trace, nor SimKube's, nor openb's list of pods")
        yield from reader
    except csv.Error as error:
        raise _no_trace(path, f"is no CSV: {error}") from error


def _unpacked(content: bytes, path: Path) -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise SettingsError(
            f"{path} is a trace of SimKube, and the package msgpack, which reads it, isn't here:"
            " pip install msgpack"
        ) from error
    try:
        return msgpack.unpackb(content, strict_map_key=False, object_pairs_hook=_mapping)
    except Exception as error:  # whatever it raises, the file is no msgpack
        raise _no_trace(path, f"can't be unpacked: {error}") from error


def _mapping(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return {tuple(key) if isinstance(key, list) else key: value for key, value in pairs}


def _no_trace(path: Path, problem: str) -> TraceError:
    remedy = "name a file of `kwok-operator record`, `skctl export` or openb"
    return trace_error(str(path), "the file", problem, remedy)
