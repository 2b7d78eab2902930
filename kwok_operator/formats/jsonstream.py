"""Reads JSON of any size piece by piece, with memory only for its largest piece.

    chunks of text  --json_pieces-->  DocumentPiece, DocumentPiece ...

One text may have several documents, as `jq` and `kubectl cluster-info dump` write them. The values
of pieces are read by Python's own parser, in C: 1 GB takes a quarter of a minute.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.formats.pieces import ENDS_EARLY, MAX_VALUE, DocumentPiece, PieceError, Streamed

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"[-+.0-9eE]*")
_LAST_WORD: Final = 16
_UNFINISHED: Final = re.compile(r"[-+.0-9eE]*|\\?u[0-9a-fA-F]{0,4}|\\")
"""Matches the last characters of a chunk that may be the beginning of a number or an escape."""
_LOG: Final = "==== START logs"
_END_OF_LOG: Final = re.compile(r"^==== END logs.*$", re.MULTILINE)


def json_pieces(chunks: Iterator[str], streamed: Streamed) -> Iterator[DocumentPiece]:
    """Yields the pieces of all documents; raises PieceError. Skips logs between documents, which
    `kubectl cluster-info dump` prints."""
    text = _Text(chunks)
    while first := text.peek():
        if first == "{":
            yield from _object(text, streamed)
        elif first == "[":
            yield from _elements(text, "", {})
            yield DocumentPiece(None, None, {})
        elif first == "=":
            text.pass_log()
        else:
            text.value()  # raises an error if it is not JSON
            raise text.error("is no object, but a single value")


def _object(text: "_Text", streamed: Streamed) -> Iterator[DocumentPiece]:
    rest: dict[str, Any] = {}
    for key in text.keys():
        first = text.peek()
        if first == "[" and key in streamed.lists:
            yield from _elements(text, key, rest)
        elif first == "{" and key in streamed.maps:
            for name in text.keys():
                yield DocumentPiece(key, text.value(), rest, name)
        else:
            rest[key] = text.value()
    yield DocumentPiece(None, None, rest)


def _elements(text: "_Text", key: str, rest: dict[str, Any]) -> Iterator[DocumentPiece]:
    text.expect("[")
    if text.peek() == "]":
        text.expect("]")
        return
    while True:
        yield DocumentPiece(key, text.value(), rest)
        if text.expect(",]") == "]":
            return


class _Text:
    """A JSON text that is read chunk by chunk. The buffer from `_at` on isn't parsed yet."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self._buffer = ""
        self._at = 0
        self._ended = False
        self._line, self._column = 1, 1
        self._decoder = json.JSONDecoder(parse_constant=_refuse)

    def peek(self) -> str:
        """Returns the next character that is no white space; empty at the end."""
        while True:
            spaces = _SPACE.match(self._buffer, self._at)
            assert spaces is not None
            self._at = spaces.end()
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more(1):
                return ""

    def expect(self, any_of: str) -> str:
        character = self.peek()
        if not character:
            raise self.error(ENDS_EARLY, cut=True)
        if character not in any_of:
            wanted = " or ".join(any_of)
            raise self.error(f"is not JSON: {wanted} should stand here, not {character!r}")
        self._at += 1
        return character

    def keys(self) -> Iterator[str]:
        """Yields the keys of an object; the caller reads each value."""
        self.expect("{")
        if self.peek() == "}":
            self.expect("}")
            return
        while True:
            if self.peek() not in ('"', ""):
                raise self.error("is not JSON: a key in quotes should stand here")
            key = self.value()
            self.expect(":")
            self.peek()
            yield key
            if self.expect(",}") == "}":
                return

    def value(self) -> Any:
        """Reads the whole value at the present position."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                if not self._goes_on(error):
                    raise self.error(f"is not JSON: {error.msg}", at=error.pos) from error
                if not self._more(len(self._buffer) - self._at):
                    raise self.error(ENDS_EARLY, cut=True) from error
            except RecursionError as error:
                raise self.error("nests too deep") from error
            except ValueError as error:  # such as NaN, or a number with too many digits
                raise self.error(f"is not JSON: {one_line(error, limit=100)}") from error
            else:
                # A number that ends where the buffer ends may continue in the next chunk.
                digits = _NUMBER.match(self._buffer, end)
                assert digits is not None
                if digits.end() < len(self._buffer):
                    self._at = end
                    return value
                if not self._more(1):
                    if digits[0]:
                        raise self.error(ENDS_EARLY, cut=True)
                    self._at = len(self._buffer)
                    return value

    def pass_log(self) -> None:
        """Skips a log at the present position."""
        while len(self._buffer) - self._at < len(_LOG) and self._more(1):
            pass
        if not self._buffer.startswith(_LOG, self._at):
            raise self.error("is not JSON")
        while (end := _END_OF_LOG.search(self._buffer, self._at)) is None or end.end() == len(
            self._buffer
        ):
            # The buffer's last line may be an incomplete end marker.
            self._at = max(self._at, self._buffer.rfind("\n"))
            if not self._more(1):
                self._at = len(self._buffer)
                return
        self._at = end.end()

    def error(self, problem: str, *, at: int | None = None, cut: bool = False) -> PieceError:
        line, column = self._place(self._at if at is None else at)
        return PieceError(problem, line=line, column=column, cut=cut)

    def _goes_on(self, error: json.JSONDecodeError) -> bool:
        """Whether a value that isn't complete JSON yet may become so with the next chunk."""
        if error.msg.startswith("Unterminated string"):
            return True
        last = self._buffer[error.pos : error.pos + _LAST_WORD].strip()
        begun = any(word.startswith(last) for word in ("true", "false", "null"))
        # The parser reports errors in escapes and numbers at their beginning, or in the middle.
        return begun or (
            len(self._buffer) - error.pos < _LAST_WORD and _UNFINISHED.fullmatch(last) is not None
        )

    def _more(self, least: int) -> bool:
        """Reads at least `least` more characters, or all that are left. Returns whether any were
        left.

        Callers request as many characters as a value already has, so a long value is parsed only a
        few times.
        """
        if self._ended:
            return False
        self._line, self._column = self._place(self._at)
        self._buffer, self._at = self._buffer[self._at :], 0
        if len(self._buffer) > MAX_VALUE:
            raise self.error(f"a value has more than {MAX_VALUE:,} characters")
        parts, count = [self._buffer], 0
        while count < least:
            part = next(self._chunks, None)
            if part is None:
                self._ended = True
                break
            parts.append(part)
            count += len(part)
        self._buffer = "".join(parts)
        return count > 0

    def _place(self, at: int) -> tuple[int, int]:
        """Returns line and column of a place in the buffer."""
        lines = self._buffer.count("\n", 0, at)
        last = self._buffer.rfind("\n", 0, at)
        return self._line + lines, at - last if lines else self._column + at


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
