"""`kwok-operator validate FILE...` and `convert FILE...`: show, without a cluster, what the objects
in files would do in one.

This module only reads files and prints: groups on standard output, problems and notes on standard
error. The checks themselves are in other modules, which are pure.
"""

import contextlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Final

from kwok_operator.clusterapi.discovery import ConvertTerms
from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.words import counted
from kwok_operator.importing.yamlout import dump
from kwok_operator.offline.clusterapi import convert
from kwok_operator.offline.files import Files, Finding
from kwok_operator.offline.podprofiles import LifeRow
from kwok_operator.offline.validation import Row, ValidationReport, validate
from kwok_operator.userfiles import MAX_BYTES, read_bytes

STDIN: Final = "-"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_MAX_CELL: Final = 63


class UnreadableError(KwokOperatorError):
    """A file can't be read."""


def run(names: Sequence[str], terms: ConvertTerms) -> int:
    """Checks files, prints their groups, problems and notes, and returns the exit code."""
    texts = read_texts(names)
    if texts is None:
        return 2
    report = validate(texts, terms)
    for line in table(report.rows):
        print(line)
    complain_of(report.findings, report.notes)
    if not report.recognised:
        complain("kwok-operator: nothing in these files is for the operator")
        return 2
    complain(_summary(report))
    return 1 if report.findings else 0


def run_convert(names: Sequence[str], terms: ConvertTerms) -> int:
    """Prints the groups that Cluster API's objects convert to, and returns the exit code."""
    texts = read_texts(names)
    if texts is None:
        return 2
    files = Files.read(texts)
    converted = convert(files.others, terms)
    if converted.manifests:
        sys.stdout.write("---\n".join(map(dump, converted.manifests)))
    findings = [*files.findings, *converted.findings]
    complain_of(findings, converted.notes)
    if not converted.looked_at and not findings:
        complain("kwok-operator: nothing in these files is Cluster API's: MachineDeployment, ...")
        return 2
    return 1 if findings else 0


def read_texts(names: Sequence[str]) -> list[tuple[str, str]] | None:
    """Returns the name and text of each file. If one can't be read, prints why, and
    returns None.
    """
    try:
        return [(name, text) for given in names for name, text in _read(given)]
    except UnreadableError as error:
        complain(f"kwok-operator: {error}")
        return None


def complain_of(findings: Iterable[Finding], notes: Iterable[str]) -> None:
    for finding in findings:
        complain(str(finding))
    for note in notes:
        complain(f"note: {note}")


def table(rows: Sequence[Row] | Sequence[LifeRow]) -> list[str]:
    """Formats rows as aligned columns with a heading; empty without rows."""
    if not rows:
        return []
    heading = tuple(column.name.upper() for column in fields(rows[0]))
    cells = [heading, *([_cell(text) for text in astuple(row)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _read(given: str) -> list[tuple[str, str]]:
    """Returns the name and text of each file that an argument of the command stands for: a file,
    all files of a directory, or standard input.
    """
    try:
        if given == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise UnreadableError(f"standard input: has more than {MAX_BYTES:,} bytes")
            return [("standard input", _text("standard input", data))]
        path, files = Path(given), [given]
        if path.is_dir():
            files = sorted(str(p) for p in path.iterdir() if p.suffix in _SUFFIXES and p.is_file())
        if not files:
            raise UnreadableError(f"{given}: has no file that ends in {', '.join(_SUFFIXES)}")
        return [(file, _text(file, read_bytes(file, given=True))) for file in files]
    except OSError as error:
        raise UnreadableError(
            f"{error.filename or given}: {error.strerror or error}; check the name"
        ) from error


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except ValueError as error:
        raise UnreadableError(f"{name}: is not UTF-8 text") from error


def _summary(report: ValidationReport) -> str:
    problems = len(report.findings)
    parts = [counted(len(report.rows), "group")]
    if report.pools:
        parts.append(counted(report.pools, "pool"))
    if report.profiles:
        parts.append(counted(report.profiles, "profile"))
    parts.append(counted(problems, "problem") if problems else "no problems")
    return ", ".join(parts)


def _cell(text: str) -> str:
    shown = _printable(text)
    return shown if len(shown) <= _MAX_CELL else shown[: _MAX_CELL - 1] + "…"


def _printable(text: str) -> str:
    """Escapes characters that could control a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def complain(line: str) -> None:
    # If the output is closed, as behind `| head`, the work must still be done.
    with contextlib.suppress(OSError):
        print(_printable(line), file=sys.stderr, flush=True)
