"""Prices of nodes by instance type, zone and capacity type, from a file that users write.

The file is CSV with the heading instanceType,zone,hourly, or a YAML list of objects with these
keys. An empty zone stands for all zones that have no price of their own; so does an empty
capacityType, which may be left out.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.yamltext import Document, read_documents
from kwok_operator.nodegroups.api.autoscaling import Amount

_COLUMNS: Final = ("instanceType", "zone", "capacityType", "hourly")
_HEADING: Final = "instanceType,zone,hourly"
_NEEDED: Final = ("instanceType", "hourly")
_AMOUNT: Final = TypeAdapter(Amount)
_FORMS: Final = f"write a CSV file that begins with {_HEADING}, or a YAML list of objects"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per hour by instance type, zone and capacity type."""

    hourly: Mapping[tuple[str, str, str], str]

    def of(self, instance_type: str, zone: str, capacity_type: str = "") -> str | None:
        """Returns the price of the most specific line that applies; None if none does. A line with
        the capacity type is more specific than one with only the zone.
        """
        ways = ((zone, capacity_type), ("", capacity_type), (zone, ""), ("", ""))
        prices = (self.hourly.get((instance_type, *way)) for way in ways)
        return next((price for price in prices if price is not None), None)


def read_prices(text: str, *, where: str) -> Prices:
    """Reads prices from CSV or YAML. Raises ManifestError with line, field, value and remedy."""
    text = text.removeprefix("\ufeff")
    hourly: dict[tuple[str, str, str], str] = {}
    lines: dict[tuple[str, str, str], int] = {}
    for line, row in _rows(text, where):
        at = f"{where}:{line}"
        price = {column: _cell(row, column, at) for column in _COLUMNS}
        key = price["instanceType"], price["zone"], price["capacityType"]
        if hourly.setdefault(key, price["hourly"]) != price["hourly"]:
            raise ManifestError(
                f"{at}: hourly: {price['hourly']!r} for {' '.join(filter(None, key))}, which has"
                f" {hourly[key]!r} on line {lines[key]}; remove one of them"
            )
        lines.setdefault(key, line)
    if not hourly:
        raise ManifestError(f"{where}: has no prices; {_FORMS}")
    return Prices(hourly)


def _cell(row: Mapping[str, Any], column: str, at: str) -> str:
    value = row.get(column)
    if column == "hourly" and isinstance(value, int | float) and not isinstance(value, bool):
        # YAML makes a float of 0.192; its shortest form is what was written.
        value = f"{value:.9f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    if value is None and column not in _NEEDED:
        return ""
    shown = one_line(repr(value), limit=100)
    if value is None or value == "":
        if column in _NEEDED:
            raise ManifestError(f"{at}: {column}: is missing; every line has one")
        return ""
    if not isinstance(value, str):
        raise ManifestError(f"{at}: {column}: {shown} must be text; put it in quotes")
    if column == "hourly":
        try:
            _AMOUNT.validate_python(value)
        except ValidationError:
            raise ManifestError(
                f"{at}: {column}: {shown} must be an amount such as 0.192"
            ) from None
    return value


def _rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the rows, each with its line number."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if first.startswith(("-", "[", "{")) or ":" in first:
        yield from _yaml_rows(text, where)
    else:
        yield from _csv_rows(text, where)


def _csv_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(text.splitlines(), skipinitialspace=True, strict=True)
    heading: list[str] | None = None
    try:
        for cells in reader:
            row = [cell.strip() for cell in cells]
            if not any(row) or row[0].startswith("#"):
                continue
            at = f"{where}:{reader.line_num}"
            if heading is None:
                heading = row
                _check_keys(row, at, whole=True)
            elif len(row) != len(heading):
                raise ManifestError(
                    f"{at}: has {len(row)} columns, and the heading has {len(heading)};"
                    f" write {','.join(heading)}"
                )
            else:
                yield reader.line_num, dict(zip(heading, row, strict=True))
    except csv.Error as error:
        raise ManifestError(f"{where}:{reader.line_num}: is no CSV: {error}; {_FORMS}") from error


def _check_keys(keys: list[str], at: str, *, whole: bool = False) -> None:
    for key in keys:
        if key not in _COLUMNS:
            raise ManifestError(
                f"{at}: {one_line(repr(key), limit=100)} is none of {', '.join(_COLUMNS)}; {_FORMS}"
            )
    missing = [column for column in _NEEDED if column not in keys]
    if whole and (missing or len(set(keys)) < len(keys)):
        problem = f"lacks {', '.join(missing)}" if missing else "names a column twice"
        raise ManifestError(f"{at}: the heading {problem}; write {_HEADING}")


def _yaml_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    documents = [d for d in read_documents(text, where=where) if d.value is not None]
    for document in documents:
        rows = document.value
        if not isinstance(rows, list):
            raise ManifestError(f"{where}:{_line(document)}: is no list; {_FORMS}")
        for number, row in enumerate(rows, start=1):
            line = _line(document, number - 1)
            if not isinstance(row, dict):
                shown = one_line(repr(row), limit=100)
                raise ManifestError(
                    f"{where}:{line}: entry {number}, {shown}, is no object; {_FORMS}"
                )
            _check_keys([str(key) for key in row], f"{where}:{line}")
            yield line, row


def _line(document: Document, *path: int) -> int:
    return document.lines.get(path, document.line)
