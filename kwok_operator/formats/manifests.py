"""Reads, adapts and sorts the manifests that `kwok-operator install` applies.

    text --read_manifests--> objects --with_image--> objects --in_order--> objects

It knows where manifests name the image, and which objects others need. It knows neither where the
texts come from, nor how objects get into a cluster.
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kwok_operator.constants import INSTALL_IMAGE
from kwok_operator.errors import ManifestError
from kwok_operator.formats.untyped import condition_of, text_at, value_at
from kwok_operator.formats.yamltext import load_documents

Manifest = dict[str, Any]
"""An object to apply."""

CRD: Final = "CustomResourceDefinition"

_FIRST: Final = (
    "Namespace",
    CRD,
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "Secret",
    "ConfigMap",
    "Service",
)
_LAST: Final = ("Deployment",)
_CONTAINERS: Final = ("initContainers", "containers")


def read_manifests(text: str, *, where: str) -> list[Manifest]:
    """Reads the objects of a text; raises ManifestError if one of them is no object."""
    objects = [value for value in load_documents(text, where=where) if value is not None]
    for number, value in enumerate(objects, start=1):
        has_metadata = isinstance(value_at(value, "metadata"), dict)
        if not (has_metadata and value.get("kind") and value.get("apiVersion")):
            raise ManifestError(f"{where}: document {number} is no object: it has no apiVersion,"
                                " kind or metadata")  # fmt: skip
    return objects


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Sorts objects so that each comes after those that it needs: the namespace, the CRDs, accounts
    and rights first, workloads last."""
    return sorted(manifests, key=_rank)


def _rank(manifest: Manifest) -> int:
    kind = manifest["kind"]
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + (1 + _LAST.index(kind) if kind in _LAST else 0)


def group_of(manifest: Manifest) -> str:
    """Returns the API group; empty for core/v1."""
    group, slash, _ = str(manifest["apiVersion"]).partition("/")
    return group if slash else ""


def reference(manifest: Manifest) -> str:
    """Names an object as kubectl does: deployment.apps/kwok-operator."""
    group = group_of(manifest)
    kind = str(manifest["kind"]).lower()
    return f"{kind}.{group}/{name_of(manifest)}" if group else f"{kind}/{name_of(manifest)}"


def name_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def identity(manifest: Manifest) -> tuple[str, str, str, str]:
    """Returns what identifies an object: group, kind, namespace, name."""
    namespace = str(manifest["metadata"].get("namespace") or "")
    return group_of(manifest), str(manifest["kind"]), namespace, name_of(manifest)


def with_image(manifests: Iterable[Manifest], image: str) -> list[Manifest]:
    """Replaces this project's image by `image` in all containers. Other images stay."""
    changed = copy.deepcopy(list(manifests))
    for manifest in changed:
        pod = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
        for container in (c for key in _CONTAINERS for c in pod.get(key) or ()):
            if image_name(container.get("image", "")) == INSTALL_IMAGE:
                container["image"] = image
    return changed


def image_name(image: str) -> str:
    """Returns an image's name without its tag and its digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def applied_by(item: Mapping[str, Any], manager: str) -> bool:
    """Whether a field manager owns fields of an object in the cluster."""
    fields: Sequence[Mapping[str, Any]] = (item.get("metadata") or {}).get("managedFields") or ()
    return any(entry.get("manager") == manager for entry in fields)


def condition_is_true(item: Mapping[str, Any], kind: str) -> bool:
    return text_at(condition_of(item, kind), "status") == "True"


def is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Whether all replicas of the Deployment's present version exist, and are available."""
    status, metadata = deployment.get("status") or {}, deployment.get("metadata") or {}
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= metadata.get("generation", 0)
    return bool(seen and counts == [wanted] * 3)


def as_stream(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Returns the objects as JSON values that follow one another, for kubectl to apply.

    They are not put into a List: single objects are validated by the API server, but a List by
    kubectl (1.36) itself. For that the API server builds its whole OpenAPI document, which takes a
    second of CPU after each change of a CRD.
    """
    return "\n".join(json.dumps(each, default=str) for each in manifests)
