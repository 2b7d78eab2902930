"""Reads users' YAML as plain JSON values.

Every error has its line. Values that can't be JSON (sets, dates by tag, infinity) are refused; a
time without quotes stays text. Values are built from the parser's events, so nesting and expanded
aliases are counted before they do harm: `yaml.compose` recurses in C, and 100,000 brackets would
crash the process.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from kwok_operator.errors import ManifestError, one_line

MAX_DEPTH: Final = 100
MAX_ALIASED: Final = 1_000_000
"""About the most characters to which aliases may expand: a few lines can otherwise mean
terabytes."""
_MAX_NUMBER: Final = 64
_MAX_STEPS: Final = 12
_MAX_EXACT: Final = 2**53
_SMALLER: Final = "write a smaller one, or put it in quotes if it is text"

Path = tuple[str | int, ...]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    word: meaning
    for meaning, words in ((True, ("true", "yes", "on", "y")), (False, ("false", "no", "off", "n")))
    for plain in words
    for word in (plain, plain.capitalize(), plain.upper())
}
"""The booleans of YAML 1.1, as kubectl and kwok read them (with sigs.k8s.io/yaml)."""
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*|0[0-7_]+|0o[0-7]+|0x[0-9a-fA-F]+|0b[01]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SIXTIES = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_NO_TEXTS = frozenset({"=", "<<", *_NULLS, *_BOOLEANS})
_INDICATORS = frozenset("-?:,[]{}#&*!|>'\"%@`")
_TAG = "tag:yaml.org,2002:"
_TYPE_OF_TAG: Mapping[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "null": type(None),
}


class DocumentError(ManifestError):
    """A text isn't YAML, or has values that JSON can't express. `line` and `column` count from
    1."""

    def __init__(self, problem: str, *, where: str, line: int, column: int) -> None:
        self.problem = problem
        self.line = line
        self.column = column
        super().__init__(f"{where}, line {line}, column {column}: {problem}")


@dataclass(frozen=True, slots=True)
class Document:
    """A document's value, and the lines (from 1) of its parts.

    `blocks` has the line on which the text of a block (`|`) begins, so that lines within it can be
    computed.
    """

    value: Any
    line: int
    lines: Mapping[Path, int]
    blocks: Mapping[Path, int]


def is_text_without_quotes(value: str) -> bool:
    """Whether YAML 1.1 and 1.2 both read `value` without quotes as exactly this text.

    It uses patterns, which take one pass over the text; a parser would follow any aliases and
    brackets in it.
    """
    if value != value.strip() or not value.isprintable() or value in _NO_TEXTS:
        return False
    if value[0] in _INDICATORS or value.endswith(":") or ": " in value or " #" in value:
        return False
    number = value.replace("_", "").lower()
    patterns = (_INTEGER, _FLOAT, _NO_NUMBER, _SIXTIES, _DATE)
    return not any(each.fullmatch(number) for each in patterns)


def load_documents(text: str, *, where: str) -> list[Any]:
    """Returns the values of all documents, None for an empty one. JSON is accepted, too.

    Keys that are not text become text. Raises ManifestError, which begins with `where` and names
    line, column and remedy.
    """
    return [document.value for document in _Reader(text, where=where).documents()]


def read_documents(text: str, *, where: str) -> list[Document]:
    """Returns the documents like `load_documents`, with the lines of their parts."""
    return list(_Reader(text, where=where).documents())


def read_with_errors(text: str, *, where: str) -> tuple[list[Document], list[DocumentError]]:
    """Returns the documents and all errors; no documents if the text can't be read.

    Duplicate keys are errors, too; then the last value is used.
    """
    errors: list[DocumentError] = []
    try:
        return list(_Reader(text, where=where, repeated=errors).documents()), errors
    except DocumentError as error:
        return [], [*errors, error]


@dataclass(frozen=True, slots=True)
class _Built:
    """A value that is built. An alias of the value makes the document about `weight` characters
    longer, and `height` levels deeper."""

    value: Any
    weight: int
    height: int = 0


class _Reader:
    def __init__(
        self, text: str, *, where: str, repeated: list[DocumentError] | None = None
    ) -> None:
        self._text = _json_as_yaml(text)
        self._where = where
        self._repeated = repeated
        self._aliased = 0

    def documents(self) -> Iterator[Document]:
        self._check_characters()
        try:
            self._events = yaml.parse(self._text, Loader=_LOADER)
            for event in self._events:
                if isinstance(event, yaml.DocumentStartEvent):
                    self._anchors: dict[str, _Built] = {}
                    self._lines: dict[Path, int] = {}
                    self._blocks: dict[Path, int] = {}
                    root = self._value(next(self._events), (), depth=0)
                    yield Document(root.value, _line(event), self._lines, self._blocks)
        except yaml.YAMLError as error:
            raise self._not_yaml(error) from error

    def _check_characters(self) -> None:
        match = _UNPRINTABLE.search(self._text)
        if match:
            before = self._text[: match.start()]
            raise DocumentError(
                f"the character {match.group()!a} can't stand in YAML; take it out",
                where=self._where,
                line=before.count("\n") + 1,
                column=match.start() - before.rfind("\n"),
            )

    def _not_yaml(self, error: yaml.YAMLError) -> DocumentError:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line, column = (mark.line, mark.column) if mark else (0, 0)
        problem = getattr(error, "problem", None) or str(error)
        context = getattr(error, "context", None)
        rows = self._text.split("\n")
        if line < len(rows) and rows[line][column : column + 1] == "\t":
            problem, context = "a tab stands where YAML wants spaces; replace it", None
        sentence = f"is not YAML: {problem}" + (f" ({context})" if context else "")
        return DocumentError(sentence, where=self._where, line=line + 1, column=column + 1)

    def _error(self, problem: str, event: Any, path: Path) -> DocumentError:
        mark = event.start_mark
        return DocumentError(
            f"{in_words(path)}: {problem}" if path else problem,
            where=self._where,
            line=mark.line + 1,
            column=mark.column + 1,
        )

    def _value(self, event: Any, path: Path, *, depth: int) -> _Built:
        """Builds the value that begins with an event, from this event and those that follow."""
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path, depth)
        if isinstance(event, yaml.ScalarEvent):
            if event.style == "|":
                self._blocks[path] = _line(event) + 1
            built = _Built(self._scalar(event, path), len(event.value) + 1)
        else:
            if depth >= MAX_DEPTH:
                raise self._error(f"is more than {MAX_DEPTH} levels deep", event, path)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
                raise self._error(f"has the tag {event.tag}; take it out", event, path)
            read = self._mapping if is_mapping else self._list
            built = read(path, depth + 1)
        if event.anchor:
            self._anchors[event.anchor] = built
        return built

    def _alias(self, event: Any, path: Path, depth: int) -> _Built:
        built = self._anchors.get(event.anchor)
        if built is None:
            problem = f"the alias *{event.anchor} refers to itself, or to no anchor before it"
            raise self._error(problem, event, path)
        self._aliased += built.weight
        if self._aliased > MAX_ALIASED:
            raise self._error("aliases repeat too much; write it out", event, path)
        if depth + built.height > MAX_DEPTH:
            raise self._error(f"is more than {MAX_DEPTH} levels deep", event, path)
        return replace(built, value=_copy(built.value))

    def _list(self, path: Path, depth: int) -> _Built:
        values: list[Any] = []
        weight, height = 1, 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            place = (*path, len(values))
            self._lines[place] = _line(event)
            item = self._value(event, place, depth=depth)
            values.append(item.value)
            weight, height = weight + item.weight, max(height, item.height + 1)
        return _Built(values, weight, height)

    def _mapping(self, path: Path, depth: int) -> _Built:
        values: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        weight, height = 1, 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                part = self._value(next(self._events), path, depth=depth)
                merged += self._merged(part.value, event, path)
            else:
                key = self._key(event, path, depth)
                if key in values:
                    self._note_repeated(key, event, path)
                self._lines[*path, key] = _line(event)
                part = self._value(next(self._events), (*path, key), depth=depth)
                values[key] = part.value
                weight += len(key)
            weight, height = weight + part.weight, max(height, part.height + 1)
        for mapping in merged:
            for key, value in mapping.items():
                values.setdefault(key, value)
        return _Built(values, weight, height)

    def _merged(self, value: Any, event: Any, path: Path) -> list[dict[str, Any]]:
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise self._error("<< merges objects, and this is none", event, path)
        return parts

    def _key(self, event: Any, path: Path, depth: int) -> str:
        if isinstance(event, yaml.CollectionStartEvent):
            problem = "a key must be text; braces need quotes around them"
            raise self._error(problem, event, path)
        if isinstance(event, yaml.AliasEvent):
            key = self._alias(event, path, depth).value
            if not isinstance(key, str):
                raise self._error("a key must be text", event, path)
            return key
        if event.anchor:
            self._anchors[event.anchor] = _Built(event.value, len(event.value) + 1)
        return str(event.value)

    def _note_repeated(self, key: str, event: Any, path: Path) -> None:
        twice = f"the key {one_line(key, limit=100)!r} stands here twice; remove one"
        error = self._error(twice, event, path)
        if self._repeated is None:
            raise error
        self._repeated.append(error)

    def _scalar(self, event: Any, path: Path) -> Any:
        text, tag = event.value, event.tag
        if tag in (None, "!"):
            return self._resolve(event, path) if event.implicit[0] and tag is None else text
        kind = tag.removeprefix(_TAG)
        if kind == "str":
            return text
        value = self._resolve(event, path) if kind in _TYPE_OF_TAG else text
        fits = kind in _TYPE_OF_TAG and isinstance(value, _TYPE_OF_TAG[kind])
        if not fits or (kind in ("int", "float") and isinstance(value, bool)):
            problem = f"{one_line(text, limit=40)!r} has the tag {tag}; take it out"
            raise self._error(problem, event, path)
        return value

    def _resolve(self, event: Any, path: Path) -> Any:
        text = event.value
        if text in _NULLS:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if text[0] not in "+-.0123456789":
            return text
        if _NO_NUMBER.fullmatch(text):
            problem = f"{text} is not a number that JSON has; write another"
            raise self._error(problem, event, path)
        is_integer = _INTEGER.fullmatch(text)
        if not is_integer and not _FLOAT.fullmatch(text):
            return text
        if len(text) > _MAX_NUMBER:
            raise self._error(f"a number has too many digits; {_SMALLER}", event, path)
        number = _integer(text) if is_integer else float(text)
        if math.isinf(number):
            raise self._error(f"{text} is too large a number; {_SMALLER}", event, path)
        # kubectl and the API server also write 1e3 as 1000.
        return int(number) if number == int(number) and abs(number) < _MAX_EXACT else number


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    body = digits.lstrip("+-")
    is_old_octal = len(body) > 1 and body[0] == "0" and body[1].isdigit()
    return int(digits, 8 if is_old_octal else 0)


def _copy(value: Any) -> Any:
    """Copies a value, so that each alias gets its own; never deeper than MAX_DEPTH."""
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


def in_words(path: Path) -> str:
    """Writes a path as `spec.taints[0].key`; a long one is cut."""
    shown = path[:_MAX_STEPS]
    steps = [f"[{s}]" if isinstance(s, int) else f".{one_line(s, limit=100)}" for s in shown]
    return "".join(steps).removeprefix(".") + ("…" if len(path) > _MAX_STEPS else "")


def _json_as_yaml(text: str) -> str:
    """Rewrites JSON for the YAML parser, which accepts neither tabs between tokens nor JSON's
    escapes for characters beyond U+FFFF."""
    if not text.lstrip().startswith(("{", "[")):
        return text

    def plain(escape: re.Match[str]) -> str:
        if escape[1] is None:
            return escape[0]
        return bytes.fromhex(escape[1] + escape[2]).decode("utf-16-be")

    return _ESCAPES.sub(plain, text.replace("\t", " "))
