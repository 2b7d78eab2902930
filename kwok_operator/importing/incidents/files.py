"""Opens the files of a dump, and reads them in pieces.

    path  --files_in-->  files  --pieces_of-->  DocumentPiece ... (or PieceError, DumpError)

The first bytes show whether a file is compressed, and whether it is JSON or YAML.
"""

import codecs
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.jsonlines import unzipped
from kwok_operator.formats.jsonstream import json_pieces
from kwok_operator.formats.pieces import DocumentPiece, Streamed
from kwok_operator.formats.yamlstream import yaml_pieces
from kwok_operator.importing.dumpfacts import DumpForm
from kwok_operator.importing.ledger import WRITER
from kwok_operator.userfiles import chunks

_TEXTS: Final = (".json", ".yaml", ".yml")
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),  # as PowerShell's > writes it
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TAR: Final = slice(257, 262), b"ustar"
_HEAD: Final = 200
_OF_AN_IMPORT: Final = re.compile(
    rb'(?:# Written by |\s*\{\s*"writer":\s*")' + re.escape(WRITER.encode()) + rb"\b"
)
"""How the files begin that an import has written."""
_ZIP: Final = b"PK\x03\x04"


class DumpError(KwokOperatorError):
    """A file can't be read, or has nothing that can be imported."""


def files_in(path: Path) -> tuple[Iterator[Path], bool]:
    """Returns the file itself, or all files of a folder in the order of their names; and whether
    the path is a folder.
    """
    if not path.exists():
        raise DumpError(f"--from: {path}: there is no such file; correct it")
    return (_walked(path), True) if path.is_dir() else (iter([path]), False)


def _walked(path: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise DumpError(f"--from: {error.filename}: {error.strerror}; make it readable, or move it")

    for folder, folders, names in os.walk(path, onerror=refuse):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def may_have_objects(path: Path) -> bool:
    """Whether the name of a file in a dump's folder is that of a file with objects. All other files
    are logs and the like.
    """
    return path.name.removesuffix(".gz").endswith(_TEXTS)


def is_output_of_import(path: Path) -> bool:
    """Whether an import has written the file. Such a file isn't read, as it has copies of objects
    that were imported.
    """
    try:
        data = unzipped(chunks(path), damaged=DumpError, on_cut=lambda: None)
        return _OF_AN_IMPORT.match(next(data, b"")[:_HEAD]) is not None
    except (OSError, DumpError):
        return False  # reading it reports the error


def form_of_folder(path: Path) -> DumpForm | None:
    """Returns the form of the dump to which a file belongs, if the file's path within the dump's
    folder shows the form; else None.
    """
    if "cluster-scoped-resources" in path.parts:
        return DumpForm.MUST_GATHER
    is_list = path.stem in ("replication-controllers", "daemonsets") and len(path.parts) == 2
    return DumpForm.CLUSTER_INFO if is_list else None


def is_log_of_autoscaler(folder: Path, inside: Path) -> bool:
    """Whether a file in a folder is a log of cluster-autoscaler. Pipes and devices are not."""
    name = inside.name.removesuffix(".gz")
    of_it = any("cluster-autoscaler" in part for part in inside.parts)
    is_log = of_it and (name == "logs.txt" or name.endswith(".log"))
    return is_log and (folder / inside).is_file()


def pieces_of(path: Path, streamed: Streamed, *, given: bool) -> Iterator[DocumentPiece]:
    """Yields the pieces of a file; `given` means that the user named the file.

    Raises DumpError if the file isn't text or can't be read, PieceError if its JSON or YAML is
    wrong.
    """
    text = _text(path, given=given)
    first = ""
    while not first.strip():
        part = next(text, None)
        if part is None:
            raise DumpError("it is empty")
        first += part
    whole = itertools.chain((first,), text)
    is_json = first.lstrip().startswith(("{", "["))
    yield from (json_pieces if is_json else yaml_pieces)(whole, streamed)


def _text(path: Path, *, given: bool) -> Iterator[str]:
    try:
        data = unzipped(
            chunks(path, given=given),
            damaged=lambda problem: DumpError(f"it {problem}"),
            on_cut=_cut,
        )
        first = next(data, b"")
        where, magic = _TAR
        if first[where] == magic or first.startswith(_ZIP):
            raise DumpError("it is an archive; unpack it, and name the folder")
        encoding = next((name for mark, name in _BOMS if first.startswith(mark)), "utf-8")
        decoder = codecs.getincrementaldecoder(encoding)()
        for part in itertools.chain((first,), data):
            yield decoder.decode(part)
        yield decoder.decode(b"", final=True)
    except OSError as error:
        raise DumpError(f"can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DumpError(f"it is no text: it has bytes that are not {encoding}") from error


def _cut() -> None:
    raise DumpError("its compressed end is missing: the file is cut off")
