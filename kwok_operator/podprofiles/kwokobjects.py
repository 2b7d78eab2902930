"""Lists, applies and deletes the kwok objects that are compiled from profiles.

An object is the operator's if its name has our prefix and a profile owns it. Other objects are
never written; `Present.foreign` has their names. If somebody changes one of the operator's objects,
even while no operator runs, the change is undone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.constants import PROFILE_KIND, PROFILE_LABEL
from kwok_operator.errors import ForbiddenError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, APPLY, JSON_PATCH, KubeClient
from kwok_operator.kube.decode import OBJECTS, decode_dict
from kwok_operator.kube.followed import pages
from kwok_operator.kube.retry import PATIENT
from kwok_operator.podprofiles.compile import (
    NAME_PREFIX,
    STAGE_API_VERSION,
    STAGE_KIND,
    Manifest,
)
from kwok_operator.podprofiles.usage import USAGE_KIND

_HASH: Final = "kwok-operator.io/compiled"
_MANAGER: Final = "kwok-operator-pod-profiles"
_PATHS: Final = {
    STAGE_KIND: f"/apis/{STAGE_API_VERSION}/stages",
    USAGE_KIND: f"/apis/{STAGE_API_VERSION}/clusterresourceusages",
}
_START_NOTHING: Final = "kwok-operator-"
"""The prefix of the Stages of the component hold-stage, which start no pods."""
_PAGE: Final = 20
"""Objects in one page of a list: a Stage may have hundreds of kilobytes."""


@dataclass(frozen=True, slots=True)
class Owned:
    """An object that the operator made; `digest` is that of the manifest from which it was made."""

    uid: str
    generation: int
    digest: str
    metadata: Mapping[str, Any]
    spec: Any


@dataclass(frozen=True, slots=True)
class Present:
    """The existing objects of a kind. `others_for_pods`: there are Stages of others that may start
    pods."""

    ours: Mapping[str, Owned]
    foreign: frozenset[str]
    others_for_pods: bool = False


class KwokObjects:
    """Lists, applies and deletes Stages and ClusterResourceUsages."""

    def __init__(self, *, client: KubeClient) -> None:
        self._client = client
        self._written: dict[tuple[str, str], tuple[str, int]] = {}
        """Kind and name of an object -> its uid and generation after our last write. If they differ
        now, others have edited it."""
        self._refused: dict[str, ForbiddenError] = {}
        """Kind -> the API server's refusal of a write since the kind was last listed. More writes
        would be refused, too."""

    async def list(self, kind: str) -> Present:
        """Lists the objects of a kind. Raises NotFoundError if it isn't served, ForbiddenError
        without rights."""
        ours: dict[str, Owned] = {}
        foreign = set[str]()
        others = False
        self._refused.pop(kind, None)
        async for page in pages(self._client, _PATHS[kind], OBJECTS, size=_PAGE):
            for body in page.items:
                metadata = body["metadata"]
                owners = metadata.get("ownerReferences") or ()
                owned = any(owner.get("kind") == PROFILE_KIND for owner in owners)
                if owned and metadata["name"].startswith(NAME_PREFIX):
                    ours[metadata["name"]] = Owned(
                        metadata["uid"],
                        metadata.get("generation") or 0,
                        (metadata.get("annotations") or {}).get(_HASH, ""),
                        metadata,
                        body.get("spec"),
                    )
                else:
                    foreign.add(metadata["name"])
                    reference = (body.get("spec") or {}).get("resourceRef") or {}
                    starts = not metadata["name"].startswith(_START_NOTHING)
                    others = others or (starts and reference.get("kind") == "Pod")
        return Present(ours, frozenset(foreign), others)

    async def apply(self, manifest: Manifest, *, owners: Mapping[str, str], there: Present) -> bool:
        """Writes an object unless it exists and is as its manifest says. `owners` maps names of
        profiles to uids; `there` has the existing objects.

        Returns whether it was written.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        body = _owned(manifest, owners)
        digest = body["metadata"]["annotations"][_HASH]
        known = there.ours.get(name)
        if known is not None and known.digest == digest:
            as_written = self._written.get((kind, name)) == (known.uid, known.generation)
            if as_written or known.spec == body["spec"]:
                self._written[kind, name] = (known.uid, known.generation)
                return False
        if kind in self._refused:
            raise self._refused[kind]
        try:
            answer = await self._client.request(
                "PATCH",
                f"{_PATHS[kind]}/{name}",
                # Not forced: others may have created an object of that name since it was listed.
                params={"fieldManager": _MANAGER} if known is None else {},
                body=body if known is None else _replacing(known, body),
                content_type=APPLY if known is None else JSON_PATCH,
                accept=ACCEPT_METADATA,
                retries=PATIENT,
            )
        except ForbiddenError as error:
            if not error.by_policy:
                self._refused[kind] = error
            raise
        metadata = decode_dict(answer)["metadata"]
        self._written[kind, name] = (metadata["uid"], metadata.get("generation") or 0)
        return True

    async def delete(self, kind: str, name: str, *, uid: str) -> None:
        """Deletes the object with this uid; it may be gone already."""
        self._written.pop((kind, name), None)
        try:
            await self._client.request(
                "DELETE",
                f"{_PATHS[kind]}/{name}",
                body={"preconditions": {"uid": uid}},
                accept=ACCEPT_METADATA,
                retries=PATIENT,
            )
        except NotFoundError:
            pass


def _replacing(known: Owned, body: Manifest) -> list[Manifest]:
    """Returns a JSON Patch that replaces the whole spec; server-side apply would keep what others
    added."""
    wanted = body["metadata"]
    merged = {
        key: {**(known.metadata.get(key) or {}), **wanted[key]} for key in ("labels", "annotations")
    }
    return [
        {"op": "test", "path": "/metadata/uid", "value": known.uid},
        {"op": "add", "path": "/spec", "value": body["spec"]},
        *({"op": "add", "path": f"/metadata/{key}", "value": merged[key]} for key in merged),
        {"op": "add", "path": "/metadata/ownerReferences", "value": wanted["ownerReferences"]},
    ]


def _owned(manifest: Manifest, owners: Mapping[str, str]) -> Manifest:
    references = [
        {
            "apiVersion": "kwok-operator.io/v1alpha1",
            "kind": PROFILE_KIND,
            "name": name,
            "uid": uid,
        }
        for name, uid in sorted(owners.items())
    ]
    text = json.dumps([manifest, references], sort_keys=True)
    metadata = {
        **manifest["metadata"],
        "labels": {PROFILE_LABEL: "true"},
        "annotations": {_HASH: hashlib.sha256(text.encode()).hexdigest()[:32]},
        "ownerReferences": references,
    }
    return {**manifest, "metadata": metadata}
