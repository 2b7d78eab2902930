"""Makes the names in a document anonymous, as an import with --anonymize does.

    document, Anonymizer --hidden--> the same document with hashes for names

importing/anonymous.py renames objects. This module renames them wherever the scenario refers to
them: in the scopes of figures, in steps and placements, in flags and texts. Texts for people are
left out. Commands can't be made anonymous. Of flags, paths and texts of Events, only names of
objects are replaced, so `still_readable` lists these for the user to check.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kwok_operator.errors import SettingsError
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.rehearsal.shrinking.parts import Doc

_FLAG: Final = "--anonymize"
_TEXTS: Final = frozenset({"teaches", "say", "currency"})
_NAMES: Final = frozenset({"namespace", "group", "pool", "nodePool", "start", "stop"})
_AS_IT_IS: Final = frozenset({"figure", "zone", "kubernetes", "kind", "reason", "type", "from"})
_FREE: Final = frozenset(
    (
        *("binary", "crds", "manifests", "configuration", "instanceTypesFrom", "path"),
        *("message", "source", "wait", "values"),
    )
)
"""Fields whose texts may have names that no object of the scenario has."""
_OWN: Final = frozenset({"operator", "shim"})
_WORD: Final = re.compile(r"[^\s:,=/{}()\[\]'\"]+")
_SELECTED: Final = re.compile(
    r"([-._/a-zA-Z0-9]+)(?: *(!?==?) *([-._a-zA-Z0-9]*)| +((?:not)?in) *\(([^)]*)\))?"
)
"""A requirement of a selector: a=b, a in (b, c), or a label that must be there, or must not."""


def hidden(doc: Doc, anonymizer: Anonymizer) -> Doc:
    """Returns the document with anonymous names. Raises SettingsError if it has commands."""
    _refuse_commands(doc)
    hider = _Hider(anonymizer)
    objects = [*_objects(doc)]
    renamed = iter(anonymizer.manifests(objects))
    hider.known = {original: new for new, original in anonymizer.table.items()}
    return {
        key: hider.part(key, _with_objects(value, renamed))
        for key, value in doc.items()
        if key not in _TEXTS
    }


def still_readable(value: Any, at: str = "") -> Iterator[str]:
    """Yields each text of a hidden document in which only names of objects were replaced, as
    PATH: TEXT.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            free = key in _FREE or at.endswith("flags") or ".flags." in at
            path = f"{at}.{key}" if at else key
            if free and isinstance(part, str | list):
                yield from (f"{path}: {text}" for text in as_list(part) or [part] if text)
            elif key != "object":
                yield from still_readable(part, path)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from still_readable(part, f"{at}[{number}]")


def _refuse_commands(doc: Doc) -> None:
    for number, step in enumerate(as_list(doc.get("timeline"))):
        if "run" in step:
            raise SettingsError(f"{_FLAG}: timeline[{number}] runs a command, which may have names")
    for number, each in enumerate(as_list(doc.get("processes"))):
        if "command" in each or "env" in each:
            raise SettingsError(
                f"{_FLAG}: processes[{number}] has a command or variables, which may have names"
            )
    for number, each in enumerate(as_list(doc.get("workloads"))):
        if "trace" in as_map(each.get("arrivals")):
            raise SettingsError(f"{_FLAG}: workloads[{number}] has a trace, which may have names")


class _Made(dict[str, Any]):
    """An object that was renamed already, so that _Hider leaves it alone."""


def _objects(value: Any) -> Any:
    """Yields all objects that a document applies, in the order in which _with_objects replaces
    them.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key == "object" and isinstance(part, Mapping) and "kind" in part:
                yield part
            else:
                yield from _objects(part)
    elif isinstance(value, list):
        for part in value:
            yield from _objects(part)


def _with_objects(value: Any, renamed: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _Made(next(renamed))
            if key == "object" and isinstance(part, Mapping) and "kind" in part
            else _with_objects(part, renamed)
            for key, part in value.items()
        }
    return [_with_objects(each, renamed) for each in value] if isinstance(value, list) else value


class _Hider:
    """Renames the parts of a document that aren't objects."""

    def __init__(self, anonymizer: Anonymizer) -> None:
        self._anonymizer = anonymizer
        self.known: Mapping[str, str] = {}
        """The new name of each name in the objects."""

    def part(self, key: str, value: Any) -> Any:
        """Returns the value of a key of the document, with anonymous names."""
        match key, value:
            case _, _Made():
                return dict(value)
            case "pods" | "patch", dict() if "what" not in value:
                (renamed,) = self._anonymizer.manifests([value])
                return renamed
            case "labels", dict():
                (renamed,) = self._anonymizer.manifests([{"labels": value}])
                return renamed["labels"]
            case "placement", dict():
                return self._placement(value)
            case "selector", str():
                return _SELECTED.sub(self._selected, value)
            case "name" | "seed", str():
                return self._name(value)
            case "what" | "workload" | "about", str():
                kind, slash, name = value.rpartition("/")
                first, more, namespace = kind.partition("/")
                if key == "about" and not slash:
                    return value
                place = f"{first}{more}{self._name(namespace) if more else ''}"
                return f"{place}{slash}{self._made_of(name) or self._name(name)}"
            case "level" | "levels", str():
                return self._anonymizer.level(value)
            case "pod", dict():
                return {self._anonymizer.resource(name): amount for name, amount in value.items()}
            case "program", str():
                return value if value in _OWN else self._name(value)
            case _, str() if key in _NAMES:
                return self._name(value)
            case _, dict():
                names = {k: self.part(k, v) for k, v in value.items() if k not in _TEXTS}
                expected = "figure" in value or "event" in value or "wait" in value
                return {k: v for k, v in names.items() if not (expected and k == "name")}
            case _, list():
                return [self.part(key, each) for each in value]
            case _, str() if key not in _AS_IT_IS:
                return _WORD.sub(lambda word: self._made_of(word[0]) or word[0], value)
        return value

    def _made_of(self, text: str) -> str:
        """Returns the new name of an object, or of a text that begins with an object's name, such
        as `web-*` or `web-0`. It is empty if there is no such object.
        """
        names = [name for name in self.known if text == name or text.startswith(f"{name}-")]
        longest = max(names, key=len, default="")
        return f"{self.known[longest]}{text[len(longest) :]}" if longest else ""

    def _name(self, text: str) -> str:
        return self._anonymizer.name(text)

    def _selected(self, match: re.Match[str]) -> str:
        key, sign, value, word, values = match.groups()
        renamed = self._anonymizer.label_key(key)
        if word:
            every = (self._anonymizer.label_value(key, each.strip()) for each in values.split(","))
            return f"{renamed} {word} ({','.join(every)})"
        return f"{renamed}{sign}{self._anonymizer.label_value(key, value)}" if sign else renamed

    def _placement(self, placement: Mapping[str, Any]) -> Doc:
        def node(place: str) -> str:
            group, slash, number = place.rpartition("/")
            return f"{self._name(group)}{slash}{number}"

        pods = [
            {
                **each,
                "what": self.part("what", each["what"]),
                "namespace": self._name(each.get("namespace", "default")),
                **{
                    key: {node(place): count for place, count in as_map(each["on"]).items()}
                    for key in ("on",)
                    if key in each
                },
                **{
                    key: {n: node(place) for n, place in as_map(each["ordinals"]).items()}
                    for key in ("ordinals",)
                    if key in each
                },
            }
            for each in as_list(placement.get("pods"))
        ]
        (marks,) = self._anonymizer.manifests([as_map(placement.get("nodes"))])
        nodes = {node(place): mark for place, mark in marks.items()}
        return {
            **placement,
            **({"pods": pods} if pods else {}),
            **({"nodes": nodes} if nodes else {}),
        }
