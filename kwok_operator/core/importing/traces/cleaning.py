"""What of an object goes into a trace: what import would keep, with nothing that ties it to a node.

Host names become the group of the node, where it is known; volumes tie to nothing here.
"""

from collections.abc import Callable
from typing import Any

from kwok_operator.core.importing.notes import Ref
from kwok_operator.core.importing.pods.binding import Places, bind_to_groups
from kwok_operator.core.importing.pods.objects import clean_object

Clean = Callable[[str, Any], dict[str, Any] | None]
"""Kind and body -> what is kept of the object, or nothing of it. Never raises."""


def cleaner(*, places: Places, keep_images: bool = False) -> Clean:
    """`places`: the groups of nodes, for what asks for a node."""

    def clean(kind: str, body: Any) -> dict[str, Any] | None:
        manifest, _ = clean_object(kind, body, keep_images=keep_images)
        if manifest is None:
            return None
        spec = manifest.get("spec")
        if isinstance(spec, dict):
            shape = spec if kind == "Pod" else spec.get("template", {}).get("spec")
            if isinstance(shape, dict):
                bind_to_groups(shape, places=places, ref=Ref(kind, "", ""))
        return manifest

    return clean
