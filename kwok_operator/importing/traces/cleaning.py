"""Cleans objects for a trace as an import does, but binds no pod to the nodes of its volumes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kwok_operator.formats.untyped import value_at
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.notes import Ref
from kwok_operator.importing.pods.binding import Places, bind_to_groups
from kwok_operator.importing.pods.objects import clean_object
from kwok_operator.importing.pods.shape import namespace_there
from kwok_operator.importing.traces.trace import Event, Key, Line

Clean = Callable[[str, Any], dict[str, Any] | None]
"""Cleans an object, given its kind and body. Returns its manifest, or None if it is left out. Never
raises.
"""


def cleaner(
    *, places: Places, keep_images: bool = False, anonymizer: Anonymizer | None = None
) -> Clean:
    """Returns a function that cleans objects. `places` maps nodes to groups. With `anonymizer`, the
    function removes name and namespace of the object, and all other names in it are anonymous.
    """

    def clean(kind: str, body: Any) -> dict[str, Any] | None:
        manifest, _ = clean_object(kind, body, keep_images=keep_images)
        if manifest is None:
            return None
        shape = value_at(manifest, "spec", *(() if kind == "Pod" else ("template", "spec")))
        if isinstance(shape, dict):
            bind_to_groups(shape, places=places, ref=Ref(kind, "", ""))
        if anonymizer is not None:
            named = ("name", "namespace")
            metadata = {k: v for k, v in manifest["metadata"].items() if k not in named}
            (manifest,) = anonymizer.manifests([{**manifest, "metadata": metadata}])
        return manifest

    return clean


def anonymous(line: Line, anonymizer: Anonymizer) -> Line:
    """Returns the line with anonymous names. Names of bare pods don't get into the table, as they
    are too many.
    """
    if not isinstance(line, Event):
        return line
    kind, name = line.key.kind, line.key.name
    other = anonymizer.unlisted_hash(name) if kind == "Pod" else anonymizer.name(name)
    key = Key(kind, anonymizer.name(namespace_there(line.key.namespace)), other)
    return replace(line, key=key, prefix=f"{anonymizer.hash(line.prefix)}-" if line.prefix else "")
