"""Manifests as people write them, as small as a test needs them.

Nothing is filled in: what a test doesn't name, the group doesn't have.
"""

from collections.abc import Mapping
from typing import Any

from kwok_operator.constants import API_GROUP, API_VERSION, KIND


def group(name: str, spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """A KwokNodeGroup; with None, one that has no spec at all."""
    manifest = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": KIND,
        "metadata": {"name": name},
    }
    return manifest if spec is None else {**manifest, "spec": spec}


def shape(**fields: Any) -> dict[str, Any]:
    """A spec that says nothing but template.shape."""
    return {"template": {"shape": fields}}
