"""Keeps the tries (runs of smaller scenarios) in a file: none is repeated, even after a kill.

    tries.jsonl: a line on what is shrunk, then one for each try, as soon as it is over

A document may be tried several times: each later line about it adds to the earlier ones.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import SettingsError
from kwok_operator.rehearsal.outputs import GITIGNORE, put, writing
from kwok_operator.rehearsal.shrinking.symptom import Symptom

FORMAT: Final = 1
TRIES: Final = "tries.jsonl"


def key_of(value: object) -> str:
    """Returns a text that only equal values have."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Tries:
    """The tries of a folder. `about` describes what is shrunk and is equal for all tries of the
    folder.

    Raises SettingsError if the folder has tries about something else, or can't be written.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._path = folder / TRIES
        self._symptoms = defaultdict[str, list[Symptom]](list)
        self._given = defaultdict[str, int](int)
        head = {"format": FORMAT, **about}
        with writing(folder):
            lines = _lines(self._path)
            if lines is not None and lines[:1] != [json.loads(json.dumps(head))]:
                raise SettingsError(
                    f"{self._path}: has no tries of this scenario, these expectations and programs;"
                    " give --output a folder of its own"
                )
            known = []
            for line in (lines or [])[1:]:
                try:
                    symptom = Symptom(
                        line["broken"],
                        tuple(line["outcomes"]),
                        tuple(frozenset(map(frozenset, some)) for some in line["reasons"]),
                        line["pause"],
                    )
                    self._symptoms[line["key"]].append(symptom)
                except (KeyError, TypeError):
                    break
                known.append(line)
            # Written anew, as a kill may have left half a line at its end.
            put(self._path, "".join(f"{json.dumps(line)}\n" for line in [head, *known]))

    def known(self, key: str) -> Symptom | None:
        """Returns the symptoms of earlier tries of this document one by one, the next with each
        call; None if there are no more.
        """
        number = self._given[key]
        if number >= len(self._symptoms[key]):
            return None
        self._given[key] += 1
        return self._symptoms[key][number]

    def add(self, key: str, symptom: Symptom, *, seconds: float) -> None:
        """Appends a try to the file. Raises SettingsError if the file can't be written."""
        self._symptoms[key].append(symptom)
        self._given[key] += 1
        line = {
            "key": key,
            "broken": symptom.broken_off,
            "outcomes": symptom.outcomes,
            "reasons": [sorted(map(sorted, some)) for some in symptom.reasons],
            "pause": symptom.pause,
            "seconds": round(seconds, 2),
        }
        with writing(self._path.parent), self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")


def _lines(path: Path) -> list[Any] | None:
    """Returns the complete lines of a file of tries; None if there is no file. Raises OSError."""
    if not path.exists():
        return None
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def make_ready(folder: Path) -> None:
    """Deletes what a killed shrinking has left half written. Raises SettingsError if the folder has
    files that aren't a shrinking's.
    """
    with writing(folder):
        names = sorted(each.name for each in folder.iterdir())
        half = [name for name in names if name.startswith(".") and name.endswith(".new")]
        others = [name for name in names if name not in (GITIGNORE, *half)]
        if others and TRIES not in names:
            raise SettingsError(
                f"{folder}: has other files, such as {others[0]}; give --output a folder of its own"
            )
        for name in half if TRIES in names else ():
            (folder / name).unlink()
