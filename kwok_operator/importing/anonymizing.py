"""Keeps the table that maps anonymous names back to the original ones.

The table's file is beside the output, never in it. Names are hashes with the table's key, so the
same table gives the same names again. Entries are never removed, as the output of an earlier import
may still be in use.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import SettingsError
from kwok_operator.importing.anonymous import Anonymizer, in_new_order
from kwok_operator.importing.folder import OutputError, stem
from kwok_operator.importing.incidents.placement import ImportedPlacement
from kwok_operator.importing.ledger import Unread
from kwok_operator.importing.notes import Note
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.userfiles import read_bytes, write_secretly

_SUFFIX: Final = ".names.json"
_KEY_BYTES: Final = 32


def table_path(output: Path, chosen: Path | None) -> Path:
    """Returns the path of the table of names: `chosen`, or if it is None, rehearsal.names.json
    beside the output rehearsal/ or rehearsal.tar.gz.

    Raises SettingsError if that path is inside the output.
    """
    output = output.resolve()
    path = chosen or output.with_name(stem(output) + _SUFFIX)
    if path.resolve().is_relative_to(output):
        raise SettingsError(
            f"--anonymize-table: {path} is inside the output, where everybody sees it; choose"
            " another place"
        )
    return path


def check_table(settings: ImportSettings) -> None:
    """Raises SettingsError if the table of names would be inside the output, or if the file at its
    path isn't such a table. Called before the cluster is read, which takes minutes.
    """
    read_table(table_path(settings.output, settings.anonymize_table))


class Names:
    """The table that maps the anonymous names in one output to the original ones. Methods raise
    SettingsError or OutputError.
    """

    def __init__(self, output: Path, chosen: Path | None) -> None:
        self._path = table_path(output, chosen)
        key, self._former = read_table(self._path) or (secrets.token_bytes(_KEY_BYTES), {})
        self._saved = -1
        self.anonymizer = Anonymizer(key)

    def save(self) -> None:
        """Writes the table if it has new names."""
        table = self.anonymizer.table
        if len(table) <= self._saved:
            return
        names = dict(sorted((self._former | table).items()))
        text = json.dumps({"key": self.anonymizer.key.hex(), "names": names}, indent=1) + "\n"
        try:
            write_secretly(self._path, text.encode())
        except OSError as error:
            why = error.strerror or error
            raise OutputError(f"--anonymize-table: {self._path}: {why}") from error
        self._saved = len(table)


def anonymized(
    manifests: Sequence[dict[str, Any]],
    notes: Sequence[Note],
    unread: Sequence[Unread],
    placement: ImportedPlacement,
    anonymizer: Anonymizer,
) -> tuple[list[dict[str, Any]], list[Note], list[Unread], ImportedPlacement]:
    """Returns the manifests, notes, unread parts and placement with anonymous names. The table of
    these names isn't written yet.
    """
    renamed, renamed_notes = in_new_order(anonymizer.manifests(manifests)), anonymizer.notes(notes)
    # Paths contain namespaces; error messages of the API server contain users and hosts.
    unnamed = [replace(each, path="", reason="the reason was told on screen") for each in unread]
    placed = placement.renamed(anonymizer.ref, lambda taint: anonymizer.manifests([taint])[0])
    return renamed, renamed_notes, unnamed, placed


def read_table(path: Path) -> tuple[bytes, dict[str, str]] | None:
    """Returns a table's key, and its original name for each anonymous one; None if the file doesn't
    exist.

    Raises SettingsError if the file isn't a table of names.
    """
    try:
        table = json.loads(read_bytes(path))
        key, names = bytes.fromhex(table["key"]), dict(table["names"])
        if len(key) < _KEY_BYTES:  # with a short key, names could be guessed
            raise ValueError
        return key, names
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"--anonymize-table: {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SettingsError(
            f"--anonymize-table: {path} is no table that import wrote; move it away, and a new one"
            " is made"
        ) from error
