"""What of an object goes into a trace: what import would keep, with nothing that ties it to a node.

Host names become the group of the node, where it is known; volumes tie to nothing here. Under other
names, all is called as import calls it with the same key.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.notes import Ref
from kwok_operator.importing.pods.binding import Places, bind_to_groups
from kwok_operator.importing.pods.objects import clean_object
from kwok_operator.importing.pods.shape import namespace_there
from kwok_operator.importing.traces.trace import Event, Key, Line

Clean = Callable[[str, Any], dict[str, Any] | None]
"""Kind and body -> what is kept of the object, or nothing of it. Never raises."""


def cleaner(
    *, places: Places, keep_images: bool = False, anonymizer: Anonymizer | None = None
) -> Clean:
    """`places`: the groups of nodes, for what asks for a node. With `anonymizer` the object has no
    name: lines have it.
    """

    def clean(kind: str, body: Any) -> dict[str, Any] | None:
        manifest, _ = clean_object(kind, body, keep_images=keep_images)
        if manifest is None:
            return None
        spec = manifest.get("spec")
        if isinstance(spec, dict):
            shape = spec if kind == "Pod" else spec.get("template", {}).get("spec")
            if isinstance(shape, dict):
                bind_to_groups(shape, places=places, ref=Ref(kind, "", ""))
        if anonymizer is not None:
            named = ("name", "namespace")
            metadata = {k: v for k, v in manifest["metadata"].items() if k not in named}
            (manifest,) = anonymizer.manifests([{**manifest, "metadata": metadata}])
        return manifest

    return clean


def anonymous(line: Line, anonymizer: Anonymizer) -> Line:
    """With other names. Those of bare pods, which come and go, are not in the table."""
    if not isinstance(line, Event):
        return line
    kind, name = line.key.kind, line.key.name
    other = anonymizer.unlisted_hash(name) if kind == "Pod" else anonymizer.name(name)
    key = Key(kind, anonymizer.name(namespace_there(line.key.namespace)), other)
    return replace(line, key=key, prefix=f"{anonymizer.hash(line.prefix)}-" if line.prefix else "")
