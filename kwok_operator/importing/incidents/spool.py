"""Sorts objects of files into the order in which they are imported: owners before what they own.

Files may have 1 GB of objects, in any order. So they are kept compressed, and without values that
could be secret, as some of them may get into a temporary file.
"""

import marshal
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Final

from kwok_operator.formats.untyped import as_map, text_at
from kwok_operator.importing.pods.fields import ANNOTATIONS, CONTAINER

_IN_MEMORY: Final = 16 * 1024 * 1024
"""Compressed bytes of one kind that stay in memory; more go to a nameless temporary file."""
_CHUNK: Final = 2**16
_OF_CONTAINER: Final = frozenset(("name", "image", *CONTAINER))
_STATUS: Final = frozenset(
    """phase conditions succeeded startTime nominatedNodeName currentReplicas desiredReplicas
    currentMetrics""".split()
)
_DEEPEST: Final = 6
"""The most nested specs: a CronJob's pods have the third."""
_OF_SPEC: Final = {
    "PersistentVolume": ("nodeAffinity", "claimRef"),
    "PersistentVolumeClaim": ("volumeName",),
}
_METADATA: Final = frozenset(
    "name namespace uid labels ownerReferences creationTimestamp deletionTimestamp".split()
)


class Spool:
    """Collects objects by kind. `taken` yields the objects of a kind in the order in which they
    were added.

    With `whole`, objects keep all fields, and are held only in memory.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, tuple[IO[bytes], Any]] = {}

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        for file, _compress in self._kinds.values():
            file.close()

    def add(self, kind: str, body: Mapping[str, Any]) -> None:
        if kind not in self._kinds:
            # A size of 0 means that it never becomes a file.
            fresh = tempfile.SpooledTemporaryFile(max_size=0 if self._whole else _IN_MEMORY)
            self._kinds[kind] = fresh, zlib.compressobj(level=1)
        file, compress = self._kinds[kind]
        kept: Any = body if self._whole else without_secrets(body, of_spec=_OF_SPEC.get(kind, ()))
        data = marshal.dumps(kept)
        file.write(compress.compress(len(data).to_bytes(4) + data))
        self.counts[kind] += 1

    def taken(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yields the objects of a kind, and removes them."""
        if kind not in self._kinds:
            return
        file, compress = self._kinds.pop(kind)
        with file:
            file.write(compress.flush())
            file.seek(0)
            read = _reader(file)
            while size := read(4):
                yield marshal.loads(read(int.from_bytes(size)))


def _reader(file: IO[bytes]) -> Callable[[int], bytes]:
    """Returns a function that reads and decompresses up to a number of bytes; b"" at the file's
    end.
    """
    unzip, rest = zlib.decompressobj(), bytearray()

    def read(count: int) -> bytes:
        while len(rest) < count:
            data = unzip.unconsumed_tail or file.read(_CHUNK)
            if not data:
                break
            rest.extend(unzip.decompress(data, _CHUNK))
        content = bytes(rest[:count])
        del rest[:count]
        return content

    return read


def without_secrets(
    body: Mapping[str, Any], *, of_spec: Sequence[str] = (), deepest: int = _DEEPEST
) -> dict[str, Any]:
    """Returns an object without values that are never imported: environment, commands, most
    annotations, volumes. `of_spec` names the fields of its spec to keep, if not all.

    The fields of pods whose values are removed stay with an empty value, so that the ledger can
    name them. What is nested in more than `deepest` specs and templates is left out.
    """
    metadata = as_map(body.get("metadata"))
    kept = {k: v for k, v in metadata.items() if k in _METADATA}
    annotations = as_map(metadata.get("annotations"))
    if public := {k: v for k, v in annotations.items() if ANNOTATIONS.fullmatch(str(k))}:
        kept["annotations"] = public
    rest = {k: _part(k, v, deepest) for k, v in body.items() if k != "metadata"}
    if of_spec:
        rest["spec"] = {k: v for k, v in as_map(body.get("spec")).items() if k in of_spec}
    return {**rest, "metadata": kept}


def _part(name: str, value: Any, deepest: int) -> Any:
    match name, value:
        case "spec" | "template" | "jobTemplate", Mapping() if not deepest:
            return True
        case "spec", Mapping():
            return {k: _part(k, v, deepest - 1) for k, v in value.items()}
        case "template" | "jobTemplate", Mapping():
            return without_secrets(value, deepest=deepest - 1)
        case "status", Mapping():
            return {k: _part(k, v, deepest) for k, v in value.items() if k in _STATUS}
        case "conditions" | "containers" | "initContainers" | "volumes", list():
            return [_item(name, each) for each in value]
        case "containers" | "initContainers" | "volumes" | "data", _:
            return value and True
        case "volumeClaimTemplates", list():
            return [{"metadata": {"name": text_at(each, "metadata", "name")}} for each in value]
        case _:
            return value


def _item(name: str, item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item and True
    if name == "volumes":
        claim = text_at(item, "persistentVolumeClaim", "claimName")
        return {"persistentVolumeClaim": {"claimName": claim}} if claim else {"other": True}
    if name == "conditions":
        return {k: v for k, v in item.items() if k != "message"}
    return {k: v if k in _OF_CONTAINER else v and True for k, v in item.items()}
