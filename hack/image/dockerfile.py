"""Reads a Dockerfile as far as this project's goes: stages, and the instructions in each.

Continued lines are joined, comments left out, and ${NAME} replaced where ARG or ENV gave it a
value. There are no heredocs, and nothing is executed here.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAME = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One of them: `RUN`, and what stands behind it."""

    keyword: str
    text: str

    def words(self) -> list[str]:
        """The text as words, in either of the two forms."""
        if self.text.startswith("["):
            return [str(word) for word in json.loads(self.text)]
        return shlex.split(self.text)


@dataclass(slots=True)
class Stage:
    """What stands between one FROM and the next."""

    base: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, keyword: str) -> list[Instruction]:
        return [each for each in self.instructions if each.keyword == keyword]

    def last(self, keyword: str) -> Instruction:
        """The one that counts; raises IndexError where there is none."""
        return self.all(keyword)[-1]


def read_stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile, in its order."""
    values: dict[str, str] = {}
    found: list[Stage] = []
    for keyword, raw in _lines(text):
        argument = _NAME.sub(lambda name: values.get(name[1], name[0]), raw)
        if keyword == "ARG" and "=" in argument:
            name, _, value = argument.partition("=")
            values[name] = value
        if keyword == "FROM":
            found.append(Stage(base=argument.split()[0]))
        elif found:
            found[-1].instructions.append(Instruction(keyword, argument))
    return found


def _lines(text: str) -> Iterator[tuple[str, str]]:
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\s*\\\n\s*", " ", kept).splitlines():
        keyword, _, argument = line.strip().partition(" ")
        if keyword:
            yield keyword.upper(), argument.strip()
