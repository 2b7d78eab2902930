"""Writes manifests as YAML from which kubectl reads exactly the same values.

Go's YAML libraries read `12e5` as a number and `y` as true, Python's read both as text. So texts
that don't begin like a word are quoted. Aliases are not used.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_WORD: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_NO_TEXT: Final = frozenset("y n yes no on off true false null nan inf".split())


class _Dumper(_Base):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    encodable = text.encode(errors="replace").decode()
    plain = _WORD.fullmatch(text) and text.lower() not in _NO_TEXT
    style = None if plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", encodable, style=style)


_Dumper.add_representer(str, _text)


def dump(
    manifest: Mapping[str, Any], *, first: Sequence[str] = ("apiVersion", "kind", "metadata")
) -> str:
    """Returns one YAML document; apiVersion, kind and metadata come first, as people expect."""
    first = [key for key in first if key in manifest]
    ordered = {key: manifest[key] for key in [*first, *sorted(manifest.keys() - set(first))]}
    text: str = yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000)
    return text
