"""Writes the output of an import: a folder, or one archive of it.

The same manifests give the same bytes. The output of an earlier import is replaced as a whole and
at once; anything else is never overwritten.
"""

import contextlib
import glob
import gzip
import io
import json
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import API_GROUP, KIND
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.importing.incidents.scenario import FIELDS, PLACEMENT, SCENARIO
from kwok_operator.importing.ledger import WRITER, Ledger, as_json, as_text
from kwok_operator.importing.nodes.nodepools import KIND as NODE_POOL
from kwok_operator.importing.yamlout import dump

ARCHIVES: Final = (".tar.gz", ".tgz")
_KUSTOMIZATION: Final = "kustomization.yaml"
_GROUPS: Final = "nodegroups.yaml"
_CLUSTER: Final = "cluster.yaml"
KARPENTER: Final = "karpenter.yaml"
"""The file with objects that only a cluster with Karpenter accepts: `kubectl apply -k` skips it."""
_NAMESPACES: Final = "namespaces"
_WITH_WRITER: Final = ("ledger.md", "ledger.json", PLACEMENT)
_HEADER: Final = f"# Written by {WRITER}, which replaces it: changes belong into an overlay.\n"
_SCENARIO_HEADER: Final = f"""{_HEADER}#   kwok-operator rehearse scenario.yaml
# Your own scenarios belong beside this folder, with paths such as NAME/nodegroups.yaml.
"""
_ASIDE: Final = ".old"
_MAX_FILE: Final = 1_000_000
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

Manifest = Mapping[str, Any]


class OutputError(KwokOperatorError):
    """The output of an import can't be written."""


def is_archive(output: Path) -> bool:
    return output.name.endswith(ARCHIVES)


def stem(output: Path) -> str:
    """Returns the output's name without suffix: `rehearsal` for rehearsal/ and rehearsal.tar.gz."""
    name = output.absolute().name
    return next((name.removesuffix(end) for end in ARCHIVES if name.endswith(end)), name)


def check_output(output: Path) -> None:
    """Raises SettingsError if `write` would refuse the output. Called before the cluster is read,
    which takes minutes.
    """
    try:
        _check_output(output)
    except OSError as error:
        problem = f"{error.strerror or error}; choose another place"
        raise SettingsError(f"--output: {output}: {problem}") from error


def _check_output(output: Path) -> None:
    parent = output.absolute().parent
    if not parent.is_dir():
        raise SettingsError(f"--output: {parent} is no folder; make it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise SettingsError(f"--output: {parent} can't be written to; choose another place")
    if not stem(output):
        raise SettingsError(f"--output: {output} has no name; write one, such as rehearsal")
    if not output.exists() and not output.is_symlink() and not _put_back(output):
        return
    foreign = _foreign_archive(output) if is_archive(output) else _foreign_file(output)
    if foreign:
        raise SettingsError(
            f"--output: {output} holds what no import wrote: {foreign}; move it, or choose another"
            " name"
        )


def files_of(manifests: Sequence[Manifest], ledger: Ledger) -> dict[str, bytes]:
    """Returns the content of all files by path, in the order in which kubectl should apply them."""
    places: dict[str, list[Manifest]] = {_CLUSTER: [], _GROUPS: []}
    for manifest in manifests:
        places.setdefault(_place(manifest), []).append(manifest)
    files: dict[str, bytes] = {}
    fixed = [place for place in (_CLUSTER, _GROUPS) if places[place]]
    for place in [*fixed, *sorted(places.keys() - {_CLUSTER, _GROUPS})]:
        for number, text in enumerate(_parts(places[place]), start=1):
            # No namespace has a dot in its name, so none gets a file of this name.
            name = place if number == 1 else place.removesuffix(".yaml") + f".{number}.yaml"
            files[name] = (_HEADER + text).encode()
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [name for name in files if name != KARPENTER],
        "sortOptions": {"order": "fifo"},
    }
    files[_KUSTOMIZATION] = (_HEADER + dump(kustomization)).encode()
    files["ledger.md"] = as_text(ledger).encode(errors="replace")
    files["ledger.json"] = (json.dumps(as_json(ledger), indent=1) + "\n").encode()
    return files


def scenario_files(scenario: Mapping[str, Any], placement: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the files with which a rehearsal starts from the imported cluster's state."""
    return {
        SCENARIO: (_SCENARIO_HEADER + dump(scenario, first=FIELDS)).encode(),
        PLACEMENT: (json.dumps(placement, indent=1) + "\n").encode(),
    }


def write(output: Path, files: Mapping[str, bytes]) -> None:
    """Replaces the output as a whole. After an error, nothing half-written is left."""
    check_output(output)
    target = output.resolve()
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        if is_archive(output):
            fresh.write_bytes(_archived(stem(output), files))
            fresh.replace(target)
        else:
            _write_folder(fresh, files)
            _swap(fresh, target)
    except OSError as error:
        raise OutputError(f"--output: writing {output}: {error.strerror or error}") from error
    finally:
        _remove(fresh)


def _place(manifest: Manifest) -> str:
    """Returns the path of the file for a manifest. Namespaces are in the first file, so that
    `kubectl apply -f` creates them before other objects.
    """
    if manifest.get("kind") == KIND and str(manifest.get("apiVersion")).startswith(f"{API_GROUP}/"):
        return _GROUPS
    if manifest.get("kind") == NODE_POOL:
        return KARPENTER
    namespace = (manifest.get("metadata") or {}).get("namespace")
    # Other texts aren't names of namespaces, and may be paths that lead out of the folder.
    is_name = isinstance(namespace, str) and _LABEL.fullmatch(namespace)
    return f"{_NAMESPACES}/{namespace}.yaml" if is_name else _CLUSTER


def _parts(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yields texts of several YAML documents each, short enough for editors and reviews."""
    part: list[str] = []
    size = 0
    for manifest in manifests:
        text = dump(manifest)
        if part and size + len(text) > _MAX_FILE:
            yield "---\n".join(part)
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield "---\n".join(part)


def _archived(top: str, files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=content, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{top}/{name}")  # its defaults: no time, no owner, mode 644
            entry.size = len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    return content.getvalue()


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def _put_back(output: Path) -> bool:
    """Restores the output that an interrupted import had moved aside in `_swap`. Returns whether an
    output exists.
    """
    target = output.resolve()
    aside = f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}{_ASIDE}"
    for old in sorted(target.parent.glob(aside))[:1]:
        with contextlib.suppress(OSError):
            old.rename(target)
    return target.exists()


def _swap(fresh: Path, target: Path) -> None:
    """Moves `fresh` to `target` by two renames, as one can't replace a folder that has files."""
    old = target.with_name(f"{fresh.name}{_ASIDE}")
    try:
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise
    _remove(old)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _foreign_file(folder: Path) -> str:
    """Returns the path of the first file in a folder that no import wrote; the folder's own path if
    it is no folder; empty if an import wrote all files.
    """
    if not folder.is_dir():
        return str(folder)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name == _NAMESPACES and path.is_dir() and not path.is_symlink():
            continue
        if path.is_symlink() or not path.is_file() or not _is_ours(name, path):
            return name
    return ""


def _is_ours(name: str, path: Path) -> bool:
    if name in _WITH_WRITER:
        return WRITER in _beginning(path, 200)
    return name.endswith(".yaml") and _beginning(path, len(_HEADER)) == _HEADER


def _beginning(path: Path, length: int) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(length)


def _foreign_archive(file: Path) -> str:
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            name = f"/{_KUSTOMIZATION}"
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(name) else None
                if content is not None and content.read(len(_HEADER)) == _HEADER.encode():
                    return ""
    except (OSError, EOFError, tarfile.TarError, ValueError):
        pass
    return str(file)
