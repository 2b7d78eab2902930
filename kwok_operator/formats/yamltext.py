"""YAML that users wrote, as plain JSON values.

Built from the parser's events with a stack of its own: there is no recursion, whatever nests in the
text, and every complaint knows its line. What can't be JSON (sets, dates by tag, infinity) is
refused, a time without quotes stays text. What the values mean is not known here.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from kwok_operator.errors import ManifestError, one_line

MAX_DEPTH: Final = 100
MAX_ALIASED: Final = 1_000_000
"""Characters, about, that aliases may stand for: a few lines can otherwise mean terabytes."""
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
"""Of YAML 1.1, as sigs.k8s.io/yaml reads it, which kubectl and kwok read with."""
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
    """A text isn't YAML, or not YAML that JSON could say. `line` and `column` count from 1."""

    def __init__(self, problem: str, *, where: str, line: int, column: int) -> None:
        self.problem = problem
        self.line = line
        self.column = column
        super().__init__(f"{where}, line {line}, column {column}: {problem}")


@dataclass(frozen=True, slots=True)
class Document:
    """A value, and the lines (from 1) on which its parts stand.

    `blocks` has the line on which the text of a `|` begins, so that lines within can be found.
    """

    value: Any
    line: int
    lines: Mapping[Path, int]
    blocks: Mapping[Path, int]


def is_text_without_quotes(value: str) -> bool:
    """Whether YAML, 1.1 as well as 1.2, reads `value` as this very text where it has no quotes.

    By patterns, each in one go: a parser would follow whatever aliases and brackets are in it.
    """
    if value != value.strip() or not value.isprintable() or value in _NO_TEXTS:
        return False
    if value[0] in _INDICATORS or value.endswith(":") or ": " in value or " #" in value:
        return False
    number = value.replace("_", "").lower()
    patterns = (_INTEGER, _FLOAT, _NO_NUMBER, _SIXTIES, _DATE)
    return not any(each.fullmatch(number) for each in patterns)


def load_documents(text: str, *, where: str) -> list[Any]:
    """The values of all documents, None for an empty one; JSON is YAML.

    Keys that are no text become text. Raises ManifestError, which begins with `where` and names
    line, column and remedy.
    """
    return [document.value for document in _Builder(text, where=where, lines=False).documents()]


def read_documents(
    text: str, *, where: str, repeated: list[DocumentError] | None = None
) -> list[Document]:
    """As `load_documents`, and the lines too.

    With `repeated`, what is wrong with keys that stand twice goes there: the last of them counts.
    """
    return list(_Builder(text, where=where, lines=True, repeated=repeated).documents())


@dataclass(slots=True)
class _Frame:
    """A mapping or list whose end has not come yet."""

    value: Any
    anchor: str | None
    weight: int = 1
    height: int = 1
    key: str | None = None
    is_merge: bool = False
    merged: list[dict[str, Any]] = field(default_factory=list)

    def step(self) -> str | int | None:
        """Where in it the next value belongs; None between two of them."""
        return len(self.value) if isinstance(self.value, list) else self.key


@dataclass(frozen=True, slots=True)
class _Built:
    value: Any
    weight: int
    height: int


class _Builder:
    def __init__(
        self, text: str, *, where: str, lines: bool, repeated: list[DocumentError] | None = None
    ) -> None:
        self._text = _json_as_yaml(text)
        self._where = where
        self._keeps_lines = lines
        self._repeated = repeated
        self._aliased = 0
        self._reset()

    def _reset(self) -> None:
        self._frames: list[_Frame] = []
        self._anchors: dict[str, _Built] = {}
        self._root: Any = None
        self._lines: dict[Path, int] = {}
        self._blocks: dict[Path, int] = {}

    def documents(self) -> Iterator[Document]:
        self._check_characters()
        line = 1
        try:
            for event in yaml.parse(self._text, Loader=_LOADER):
                if isinstance(event, yaml.DocumentStartEvent):
                    self._reset()
                    line = _line(event)
                elif isinstance(event, yaml.DocumentEndEvent):
                    yield Document(self._root, line, self._lines, self._blocks)
                elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                    self._take(event)
        except yaml.YAMLError as error:
            raise self._not_yaml(error) from error

    def _take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.CollectionStartEvent():
                self._open(event)
            case _:
                self._close(event)

    def _check_characters(self) -> None:
        found = _UNPRINTABLE.search(self._text)
        if found:
            before = self._text[: found.start()]
            raise DocumentError(
                f"the character {found.group()!a} can't stand in YAML; take it out",
                where=self._where,
                line=before.count("\n") + 1,
                column=found.start() - before.rfind("\n"),
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

    def _error(self, problem: str, event: Any) -> DocumentError:
        mark, path = event.start_mark, in_words(self._path())
        return DocumentError(
            f"{path}: {problem}" if path else problem,
            where=self._where,
            line=mark.line + 1,
            column=mark.column + 1,
        )

    def _scalar(self, event: Any) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame and isinstance(frame.value, dict) and frame.key is None and not frame.is_merge:
            if event.value == "<<" and event.implicit[0]:
                frame.is_merge = True
            else:
                self._set_key(frame, event.value, event)
            if event.anchor:
                self._anchors[event.anchor] = _Built(event.value, len(event.value) + 1, 0)
            return
        if frame and self._keeps_lines and isinstance(frame.value, list):
            self._lines[self._path()] = _line(event)
        if self._keeps_lines and event.style == "|":
            self._blocks[self._path()] = event.start_mark.line + 2
        built = _Built(self._plain(event), len(event.value) + 1, 0)
        self._finish(built, event.anchor, event)

    def _plain(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if tag in (None, "!"):
            return self._resolve(text, event) if event.implicit[0] and tag is None else text
        kind = tag.removeprefix(_TAG)
        if kind == "str":
            return text
        value = self._resolve(text, event) if kind in _TYPE_OF_TAG else text
        fits = kind in _TYPE_OF_TAG and isinstance(value, _TYPE_OF_TAG[kind])
        if not fits or (kind in ("int", "float") and isinstance(value, bool)):
            raise self._error(f"{one_line(text, limit=40)!r} has the tag {tag}; take it out", event)
        return value

    def _resolve(self, text: str, event: Any) -> Any:
        if text in _NULLS:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if text[0] not in "+-.0123456789":
            return text
        if _NO_NUMBER.fullmatch(text):
            raise self._error(f"{text} is not a number that JSON has; write another", event)
        is_integer = _INTEGER.fullmatch(text)
        if not is_integer and not _FLOAT.fullmatch(text):
            return text
        if len(text) > _MAX_NUMBER:
            raise self._error(f"a number has too many digits; {_SMALLER}", event)
        number = _integer(text) if is_integer else float(text)
        if math.isinf(number):
            raise self._error(f"{text} is too large a number; {_SMALLER}", event)
        # kubectl and the API server write 1e3 as 1000, too.
        return int(number) if number == int(number) and abs(number) < _MAX_EXACT else number

    def _set_key(self, frame: _Frame, key: Any, event: Any) -> None:
        if not isinstance(key, str):
            raise self._error("a key must be text", event)
        if key in frame.value:
            twice = f"the key {one_line(key, limit=100)!r} stands here twice; remove one"
            if self._repeated is None:
                raise self._error(twice, event)
            self._repeated.append(self._error(twice, event))
        frame.key = key
        frame.weight += len(key)
        if self._keeps_lines:
            self._lines[self._path()] = _line(event)

    def _path(self) -> Path:
        steps = (frame.step() for frame in self._frames)
        return tuple(step for step in steps if step is not None)

    def _alias(self, event: Any) -> None:
        built = self._anchors.get(event.anchor)
        if built is None:
            problem = f"the alias *{event.anchor} refers to itself, or to no anchor before it"
            raise self._error(problem, event)
        self._aliased += built.weight
        if self._aliased > MAX_ALIASED:
            raise self._error("aliases repeat too much; write it out", event)
        if len(self._frames) + built.height > MAX_DEPTH:
            raise self._error(f"is more than {MAX_DEPTH} levels deep", event)
        self._finish(_Built(_copy(built.value), built.weight, built.height), None, event)

    def _open(self, event: Any) -> None:
        if len(self._frames) >= MAX_DEPTH:
            raise self._error(f"is more than {MAX_DEPTH} levels deep", event)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            raise self._error(f"has the tag {event.tag}; take it out", event)
        top = self._frames[-1] if self._frames else None
        if top and isinstance(top.value, dict) and top.key is None and not top.is_merge:
            raise self._error("a key must be text; braces need quotes around them", event)
        if top and self._keeps_lines and isinstance(top.value, list):
            self._lines[self._path()] = _line(event)
        self._frames.append(_Frame({} if is_mapping else [], event.anchor))

    def _close(self, event: Any) -> None:
        frame = self._frames.pop()
        for mapping in frame.merged:
            for key, value in mapping.items():
                frame.value.setdefault(key, value)
        self._finish(_Built(frame.value, frame.weight, frame.height), frame.anchor, event)

    def _finish(self, built: _Built, anchor: str | None, event: Any) -> None:
        """Puts a whole value where it belongs."""
        if anchor:
            self._anchors[anchor] = built
        if not self._frames:
            self._root = built.value
            return
        frame = self._frames[-1]
        frame.weight += built.weight
        frame.height = max(frame.height, built.height + 1)
        if isinstance(frame.value, list):
            frame.value.append(built.value)
        elif frame.is_merge:
            parts = built.value if isinstance(built.value, list) else [built.value]
            if not all(isinstance(part, dict) for part in parts):
                raise self._error("<< merges objects, and this is none", event)
            frame.merged += parts
            frame.is_merge = False
        elif frame.key is None:
            self._set_key(frame, built.value, event)
        else:
            frame.value[frame.key] = built.value
            frame.key = None


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    body = digits.lstrip("+-")
    is_old_octal = len(body) > 1 and body[0] == "0" and body[1].isdigit()
    return int(digits, 8 if is_old_octal else 0)


def _copy(value: Any) -> Any:
    """A value of its own for each alias; never deeper than MAX_DEPTH."""
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


def in_words(path: Path) -> str:
    """`spec.taints[0].key`; what nests deep is cut."""
    shown = path[:_MAX_STEPS]
    steps = [f"[{s}]" if isinstance(s, int) else f".{one_line(s, limit=100)}" for s in shown]
    return "".join(steps).removeprefix(".") + ("…" if len(path) > _MAX_STEPS else "")


def _json_as_yaml(text: str) -> str:
    """YAML's parser knows neither tabs between the tokens of JSON nor its pairs of surrogates."""
    if not text.lstrip().startswith(("{", "[")):
        return text

    def plain(escape: re.Match[str]) -> str:
        if escape[1] is None:
            return escape[0]
        return bytes.fromhex(escape[1] + escape[2]).decode("utf-16-be")

    return _ESCAPES.sub(plain, text.replace("\t", " "))
