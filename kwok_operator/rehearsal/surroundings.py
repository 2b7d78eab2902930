"""The local files and programs that a scenario names: objects to apply, programs, traces.

Nothing is written. `rehearsal/scenario/checks.py` checks the content of the files.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import KwokOperatorError, ManifestError, SettingsError
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.formats.words import shown
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.importing.settings import ReplaySettings
from kwok_operator.importing.traces.replay import planned
from kwok_operator.rehearsal.scenario.surroundings import Material, UnusableReferenceError
from kwok_operator.userfiles import chunks, read_bytes

KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
MAX_BYTES: Final = 2 * 1024 * 1024
"""The most bytes that are read of all files together, as YAML with line numbers takes seconds per
MiB. The rest is not checked; an import has its groups first.
"""
MAX_TEXT: Final = 16 * 1024 * 1024
"""The most bytes of a file that isn't YAML."""
MAX_PROGRAM: Final = 256 * 1024 * 1024
"""The most bytes of a program whose content is read."""
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_BROUGHT: Final = frozenset({"kubectl"})
"""Programs that a rehearsal provides itself."""
_PLAIN: Final = frozenset({"apiVersion", "kind", "metadata", "resources", "sortOptions"})
_MOST_FILES: Final = 10_000
_MAGIC: Final = 4
"""How many bytes at its start identify an executable."""
_UNIVERSAL: Final = b"\xca\xfe\xba\xbe"
"""The first bytes of a macOS executable for several processors."""
_LONGEST_NAME: Final = 250

CheckTrouble = Callable[[object], object]
"""A check of an API trouble plan. Raises ValueError with a sentence."""


class LocalSurroundings:
    """Resolves names relative to the scenario's file; `binaries` has the paths of programs by name.

    With `programs_later`, for a check that plays nothing, a missing program is no problem unless
    --binary names its path.
    """

    def __init__(
        self,
        scenario: Path,
        *,
        own_cluster: bool = True,
        kubernetes: Sequence[str] = (),
        binaries: Mapping[str, Path] | None = None,
        search_path: str | None = None,
        check_trouble: CheckTrouble = lambda plan: plan,
        programs_later: bool = False,
    ) -> None:
        self.own_cluster = own_cluster
        self.kubernetes = tuple(kubernetes)
        self._scenario = scenario
        self._binaries = dict(binaries or {})
        self._search_path = search_path
        self._check_trouble = check_trouble
        self._programs_later = programs_later
        self._left = MAX_BYTES
        self._seen: set[Path] = set()

    def material(self, path: str) -> Material:
        if "://" in path:
            raise UnusableReferenceError("is an address; download it, and name the file")
        try:
            return self._material(self._folder / path, ())
        except ManifestError as error:
            raise UnusableReferenceError(f"can't be used: {error}") from error
        except OSError as error:
            raise UnusableReferenceError(_unreadable(error)) from error

    def text(self, path: str) -> str:
        try:
            return read_bytes(self._folder / path, limit=MAX_TEXT).decode()
        except UnicodeDecodeError as error:
            raise UnusableReferenceError("has no UTF-8 text; save it as such") from error
        except OSError as error:
            raise UnusableReferenceError(_unreadable(error)) from error
        except ValueError as error:
            raise UnusableReferenceError("is no name of a file; correct it") from error

    def files(self, path: str) -> list[Path]:
        """Returns the files that a scenario reads if it names this path: the file, or those of the
        folder.
        """
        self._seen.clear()
        named = self._folder / path
        with suppress(UnusableReferenceError, OSError, ValueError):
            if named.is_dir():
                self.material(path)
            elif named.is_file():
                self._seen.add(named)
        return sorted(self._seen)

    def check_program(self, name: str) -> None:
        path = self._place(name)
        if self.lacks(name):
            return
        if path is not None:
            if why := _why_not_executed(path):
                said = f"--binary {name}={path}: it" if name in self._binaries else str(path)
                raise UnusableReferenceError(f"can't be started: {said} {why}")
        elif name not in _BROUGHT:
            raise UnusableReferenceError(
                f"is no program on PATH; install it, or say --binary {name}=PATH"
            )

    def lacks(self, name: str) -> bool:
        if not self._programs_later or name in self._binaries or name in _BROUGHT:
            return False
        path = self._place(name)
        return path is None or not path.exists()

    def program(self, name: str) -> Path | None:
        """Returns the path of a program that can be started: from --binary, beside the scenario, or
        on PATH. None if there is none, as may be for kubectl, which a rehearsal provides itself.
        """
        path = self._place(name)
        return path if path is not None and not _why_not_executed(path) else None

    def beside(self, program: str, name: str) -> str | None:
        path = self.program(program)
        return None if path is None else str(path.parent / name)

    def executable(self, program: str) -> bytes:
        path = self.program(program)
        try:
            return b"" if path is None else read_bytes(path, limit=MAX_PROGRAM)
        except OSError:  # a program need not be readable
            return b""

    def _place(self, name: str) -> Path | None:
        """Returns a program's path: the one from --binary, or of a name with a slash, even if no
        file is there; for any other name, the path of a program on PATH, or None.
        """
        if name in self._binaries:
            return self._binaries[name]
        if "/" in name:
            return (self._folder / name).absolute()
        try:
            # The folder of this package's own programs counts even if it isn't on PATH.
            path = shutil.which(name, path=self._search_path) or shutil.which(
                name, path=str(Path(sys.executable).parent)
            )
        except ValueError:
            return None
        return Path(path).absolute() if path else None

    def check_trace(self, path: str) -> None:
        settings = ReplaySettings(paths=(self._folder / path,))
        try:
            # This fails for a pipe, on which `replay` would wait.
            next(chunks(self._folder / path), None)
            _, _, requests = planned(settings)
            next(requests, None)
        except OSError as error:
            reason = f"{error.filename}: {error.strerror or error}; check the name"
            raise UnusableReferenceError(f"can't be played: {reason}") from error
        except (KwokOperatorError, ValueError) as error:
            reason = str(error) if isinstance(error, KwokOperatorError) else "is no name of a file"
            raise UnusableReferenceError(f"can't be played: {reason}") from error

    def check_trouble(self, plan: Mapping[str, Any]) -> None:
        try:
            self._check_trouble(plan)
        except ValueError as error:
            raise UnusableReferenceError(str(error)) from error

    @property
    def _folder(self) -> Path:
        return self._scenario.parent

    def _material(self, path: Path, within: tuple[Path, ...]) -> Material:
        """Reads a file, folder or kustomization. `within` are the kustomizations that it is part
        of.
        """
        if not path.is_dir():
            return self._file(path, within)
        kustomizations = [path / name for name in KUSTOMIZATIONS if (path / name).is_file()]
        if kustomizations:
            return self._kustomization(kustomizations[0], within)
        if within:
            raise UnusableReferenceError(f"names {path}, which has no kustomization.yaml")
        files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and p.is_file())
        if not files:
            endings = ", ".join(_SUFFIXES)
            raise UnusableReferenceError(f"has no file that ends in {endings}; name another")
        if len(files) > _MOST_FILES:
            raise UnusableReferenceError(f"has {len(files):,} files; apply at most {_MOST_FILES:,}")
        for file in files:
            self._refuse_itself(file)
        return _together([self._file(file, within) for file in files])

    def _refuse_itself(self, path: Path) -> None:
        if path.samefile(self._scenario):
            raise UnusableReferenceError(
                "holds the scenario itself, which is no Kubernetes object; put what is applied into"
                " a folder of its own"
            )

    def _file(self, path: Path, within: tuple[Path, ...]) -> Material:
        if not path.exists():
            raise UnusableReferenceError(f"isn't there; it would be {path}")
        if not path.is_file():
            raise UnusableReferenceError("is neither a file nor a folder; name another")
        self._refuse_itself(path)
        if path.name in KUSTOMIZATIONS and not within:
            raise UnusableReferenceError("is a kustomization; name its folder")
        self._seen.add(path)
        self._left -= path.stat().st_size
        if self._left < 0:
            return Material((), complete=False)
        try:
            return Material(((str(path), read_bytes(path, limit=MAX_BYTES).decode()),))
        except UnicodeDecodeError as error:
            raise UnusableReferenceError(f"has no UTF-8 text in {path}; save it as such") from error

    def _kustomization(self, path: Path, within: tuple[Path, ...]) -> Material:
        here = path.resolve()
        if here in within:
            raise UnusableReferenceError(f"leads back to itself by way of {path}; cut the circle")
        ((_, text),) = self._file(path, (*within, here)).texts or ((str(path), ""),)
        documents = load_documents(text, where=str(path))
        value = as_map(documents[0] if len(documents) == 1 else None)
        self._seen |= set(_named(value, path.parent))
        materials = [Material((), complete=value.keys() <= _PLAIN)]
        for resource in as_list(value.get("resources")):
            if not isinstance(resource, str):
                raise UnusableReferenceError(f"has {shown(resource)} in resources of {path}")
            if "://" in resource or resource.startswith("github.com"):
                materials.append(Material((), complete=False))
            else:
                materials.append(self._material(path.parent / resource, (*within, here)))
        return _together(materials)


def _named(value: object, folder: Path) -> Iterator[Path]:
    """Yields the files that a kustomization names anywhere, such as patches and sources of
    generators.
    """
    if isinstance(value, str):
        # A generator may have KEY=FILE; a patch may be inline text.
        path = folder / value.rpartition("=")[2]
        if len(value) < _LONGEST_NAME and path.is_file():
            yield path
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _named(part, folder)


def is_kustomization(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in KUSTOMIZATIONS)


def _together(materials: Sequence[Material]) -> Material:
    return Material(
        texts=tuple(text for each in materials for text in each.texts),
        complete=all(each.complete for each in materials),
    )


def _why_not_executed(path: Path) -> str:
    """Returns why a program can't be executed; empty if it probably can. It isn't run."""
    if not path.exists():
        return "isn't there; correct the path"
    if not path.is_file():
        return "is no file; correct the path"
    if not os.access(path, os.X_OK):
        return "has no right to be executed; chmod +x gives it"
    try:
        with path.open("rb") as file, Path(sys.executable).open("rb") as own:
            begins, machine = file.read(_MAGIC), own.read(_MAGIC)
    except OSError:  # a program need not be readable
        return ""
    if begins.startswith(b"#!") or begins in (machine, _UNIVERSAL):
        return ""
    return "is neither a program for this machine nor a script that begins with #!; name another"


def _unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"isn't there; it would be {error.filename}"
    return f"can't be read: {error.strerror or error}; correct the name, or its rights"


def read_text(path: Path) -> str:
    """Returns the text of a scenario's file. Raises SettingsError if it can't be read."""
    try:
        if path.is_dir():
            raise SettingsError(f"{path}: is a folder; name a scenario in it")
        return read_bytes(path, limit=MAX_BYTES, given=True).decode()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}; check the name") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is no text in UTF-8; a scenario is YAML") from error
    except ValueError as error:
        raise SettingsError(f"{str(path)!r} is no name of a file; correct it") from error
