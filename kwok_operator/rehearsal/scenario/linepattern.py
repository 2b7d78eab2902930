"""Matches lines of programs with regular expressions of users.

Python's `re` may take practically for ever for one line, and blocks the whole process meanwhile. So
pydantic's engine, written in Rust, is used: its time is linear in the line, and it has no
look-around and no back-references.
"""

from pydantic_core import SchemaError, SchemaValidator, core_schema


class LinePattern:
    """A compiled regular expression. Raises ValueError, with the text and the remedy, if it is
    invalid.
    """

    def __init__(self, text: str) -> None:
        schema = core_schema.str_schema(pattern=text, regex_engine="rust-regex")
        try:
            self._validator = SchemaValidator(schema)
        except SchemaError as error:
            # The error shows the place in the text first; the reason is its last line.
            reason = str(error).splitlines()[-1].removeprefix("error: ").strip().rstrip(".")
            raise ValueError(
                f"{text[:100]!r} is no regular expression for lines ({reason});"
                " correct it: it can't have look-around, back-references or \\Z, and a brace that"
                " stands for itself is \\{"
            ) from error

    def is_in(self, line: str) -> bool:
        """Whether the pattern matches anywhere in the line. `$` matches only at its end."""
        return self._validator.isinstance_python(line)
