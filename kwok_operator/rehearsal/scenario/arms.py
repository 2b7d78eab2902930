"""Makes one scenario of a scenario with arms: the fields of one arm are merged over the other
fields of the scenario.

    {..., arms: {a: {...}, b: {...}}}  --arm_of-->  one scenario, as if it stood alone in the file

Objects are merged; null removes a key. Lists whose items have a `name` are merged by name, objects
in `apply` by kind and name; any other list is replaced. Every part keeps its line number, so
mistakes in an arm are reported at their place in the file.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from kwok_operator.formats.words import names_in_words
from kwok_operator.formats.yamltext import Document, Path
from kwok_operator.offline.files import line_of
from kwok_operator.rehearsal.scenario.parts import MAX_NAME, NAME
from kwok_operator.rehearsal.scenario.problems import problem, unknown
from kwok_operator.schema.check import FieldProblem

ARMS: Final = "arms"
FEWEST_ARMS: Final = 2
MOST_ARMS: Final = 8
_COMMON: Final = ("name", "teaches", "seed", ARMS)
"""The keys that an arm can't change."""

ItemKey = tuple[str, ...]


def names_of_arms(document: Document | None) -> list[str]:
    """Returns the names of a scenario's arms, even if these are invalid; empty if it has none."""
    value = document.value if document is not None else None
    arms = value.get(ARMS) if isinstance(value, dict) else None
    return [*arms] if isinstance(arms, dict) else []


def wrong_with_arms(document: Document, chosen: str | None) -> list[FieldProblem]:
    """Returns why the arm `chosen` can't be played; `chosen` is None if the user named none."""
    arms = document.value.get(ARMS)
    if arms is None:
        if chosen is None:
            return []
        return [FieldProblem((), f"has no arms; play it without --arm {chosen}")]
    problems = list(_form(arms))
    if problems:
        return problems
    if chosen is None:
        sentence = f"are {names_in_words([*arms])}; play one with --arm, or all with compare"
        return [problem((ARMS,), sentence)]
    return [] if chosen in arms else [unknown((ARMS,), "arm", arms, value=chosen)]


def _form(arms: Any) -> Iterator[FieldProblem]:
    if not isinstance(arms, dict):
        yield problem((ARMS,), "is no object; write two or more names, and what differs below each")
        return
    if not FEWEST_ARMS <= len(arms) <= MOST_ARMS:
        limits = f"{FEWEST_ARMS} to {MOST_ARMS}"
        yield problem((ARMS,), f"must have {limits} names, and has {len(arms)}")
    for name, arm in arms.items():
        path: Path = (ARMS, name)
        if not re.fullmatch(NAME, name) or len(name) > MAX_NAME:
            sentence = f"must have lower-case letters, digits and '-', at most {MAX_NAME}"
            yield problem(path, sentence)
        if not isinstance(arm, dict | None):
            yield problem(path, "is no object; write what differs in it")
            continue
        for key in arm or {}:
            if key in _COMMON:
                yield problem((*path, key), "is the same in all arms; take it out")


def arm_of(document: Document, name: str) -> Document:
    """Returns the document with one arm merged into it. The arm must exist."""
    merging = _Merging(document)
    base = {key: part for key, part in document.value.items() if key != ARMS}
    arm = document.value[ARMS][name] or {}
    value = merging.merged(base, (), arm, (ARMS, name), ())
    return Document(value, document.line, merging.lines, merging.blocks)


class _Merging:
    """Merges an arm into its document, and keeps the line numbers. Paths named `at` are those of
    parts in the file; `to` is the path of the merged part in the result.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self.lines: dict[Path, int] = {}
        self.blocks: dict[Path, int] = {}

    def merged(self, base: Any, base_at: Path, arm: Any, arm_at: Path, to: Path) -> Any:
        if isinstance(base, dict) and isinstance(arm, dict):
            self._note(base_at, to)
            return {
                key: self._part(base, base_at, arm, arm_at, key, to)
                for key in dict.fromkeys((*base, *arm))
                if not (key in arm and arm[key] is None)
            }
        if isinstance(base, list) and isinstance(arm, list):
            keys, others = _keys(base, to), _keys(arm, to)
            if keys and others:
                return self._lists(base, base_at, keys, arm, arm_at, others, to)
        return self._copy(arm, arm_at, to)

    def _part(
        self, base: Any, base_at: Path, arm: Any, arm_at: Path, key: str | int, to: Path
    ) -> Any:
        if key not in arm:
            return self._copy(base[key], (*base_at, key), (*to, key))
        if key not in base:
            return self._copy(arm[key], (*arm_at, key), (*to, key))
        return self.merged(base[key], (*base_at, key), arm[key], (*arm_at, key), (*to, key))

    def _lists(
        self,
        base: list[Any],
        base_at: Path,
        keys: list[ItemKey],
        arm: list[Any],
        arm_at: Path,
        others: list[ItemKey],
        to: Path,
    ) -> list[Any]:
        self._note(base_at, to)
        items = []
        for place, (key, item) in enumerate(zip(keys, base, strict=True)):
            here = (*to, place)
            if key in others:
                other = others.index(key)
                at = (*arm_at, other)
                items.append(self.merged(item, (*base_at, place), arm[other], at, here))
            else:
                items.append(self._copy(item, (*base_at, place), here))
        for place, (key, item) in enumerate(zip(others, arm, strict=True)):
            if key not in keys:
                items.append(self._copy(item, (*arm_at, place), (*to, len(items))))
        return items

    def _copy(self, value: Any, at: Path, to: Path) -> Any:
        self._note(at, to)
        if isinstance(value, dict):
            return {k: self._copy(part, (*at, k), (*to, k)) for k, part in value.items()}
        if isinstance(value, list):
            return [self._copy(part, (*at, n), (*to, n)) for n, part in enumerate(value)]
        return value

    def _note(self, at: Path, to: Path) -> None:
        self.lines[to] = line_of(self._document, at)
        if at in self._document.blocks:
            self.blocks[to] = self._document.blocks[at]


def _keys(items: list[Any], to: Path) -> list[ItemKey]:
    """Returns a key for each item of a list, by which the list is merged; an empty list if an item
    has no key, or two items have the same.
    """
    keys = [key for item in items if (key := _key(item, applied=to[-1:] == ("apply",)))]
    return keys if len(keys) == len(items) == len(set(keys)) else []


def _key(item: Any, *, applied: bool) -> ItemKey | None:
    if applied and isinstance(item, str):
        return (item,)
    if not isinstance(item, dict):
        return None
    if isinstance(name := item.get("name"), str):
        return ("", name)
    if isinstance(path := item.get("path"), str):
        return (path,) if applied else None
    made = item.get("object")
    if not applied or not isinstance(made, dict):
        return None
    metadata = made.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    key = (made.get("kind"), names.get("namespace") or "", names.get("name"))
    return tuple(map(str, key)) if key[0] and key[2] else None
