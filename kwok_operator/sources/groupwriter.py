"""Writes derived groups by server-side apply, never forced.

Fields that somebody else owns are left out of the write. The first target size is written once,
under a field manager of its own, so that others who scale the group later have no conflict with
the operator.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.constants import GROUPS_PATH
from kwok_operator.errors import ConflictError, InvalidError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, APPLY, JSON_PATCH, MERGE_PATCH, KubeClient
from kwok_operator.kube.decode import decode_dict
from kwok_operator.kube.retry import PATIENT

DERIVED_MANAGER: Final = "kwok-operator-provider-config"
DESIRED_COUNT_MANAGER: Final = "kwok-operator-desired-count"
_MARKS_MANAGER: Final = "kwok-operator-marks"
_CONFLICT: Final = "FieldManagerConflict"
_TRIES: Final = 4
"""The most tries of one apply. Owners of fields can change meanwhile; each try leaves out the
fields that were refused so far."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The group after an apply, and a sentence for each field that somebody else owns."""

    body: Mapping[str, Any]
    conflicts: tuple[str, ...]


class DerivedGroupWriter:
    """Writes groups as the field manager `manager`; never their status."""

    def __init__(self, *, client: KubeClient, manager: str = DERIVED_MANAGER) -> None:
        self._client = client
        self._manager = manager

    async def read(self, name: str) -> dict[str, Any] | None:
        """Returns the group as the API server has it now; None if there is none."""
        try:
            return decode_dict(await self._request("GET", name))
        except NotFoundError:
            return None

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> Applied:
        """Applies the fields that nobody else owns; with `uid`, only to the object with that uid.

        Raises ConflictError if another object has the name now, InvalidError or ForbiddenError if
        the API server refuses the write.
        """
        name = manifest["metadata"]["name"]
        wanted: dict[str, Any] = copy.deepcopy(dict(manifest))
        if uid is not None:
            wanted["metadata"]["uid"] = uid
        conflicts: dict[str, str] = {}
        for attempt in range(_TRIES):
            try:
                answer = await self._request(
                    "PATCH",
                    name,
                    params={"fieldManager": self._manager, "fieldValidation": "Strict"},
                    body=wanted,
                    content_type=APPLY,
                )
            except ConflictError as error:
                owned = {c.field: c.message for c in error.details if c.reason == _CONFLICT}
                if not owned or attempt == _TRIES - 1:
                    raise
                conflicts |= owned
                wanted = without_fields(wanted, owned)
            else:
                words = tuple(f"{field.lstrip('.')}: {why}" for field, why in conflicts.items())
                return Applied(decode_dict(answer), words)
        raise AssertionError("unreachable: the last try returns or raises")

    async def set_first_target(self, name: str, *, uid: str, size: int) -> None:
        """Sets spec.targetSize of a new group that has none. This is done only once for a group."""
        unset = {"op": "test", "path": "/spec/targetSize", "value": None}
        await self._set_target(name, uid, size, constants.DESIRED_COUNT_ANNOTATION, unset)

    async def set_target(self, name: str, *, uid: str, size: int, mark: str) -> None:
        """Sets spec.targetSize of a group, and writes the same size to its annotation `mark`."""
        await self._set_target(name, uid, size, mark)

    async def _set_target(
        self, name: str, uid: str, size: int, mark: str, *tests: Mapping[str, Any]
    ) -> None:
        path = f"/metadata/annotations/{mark.replace('/', '~1')}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            *tests,
            {"op": "add", "path": "/spec/targetSize", "value": size},
            {"op": "add", "path": path, "value": str(size)},
        ]
        try:
            await self._request(
                "PATCH",
                name,
                params={"fieldManager": DESIRED_COUNT_MANAGER},
                body=patch,
                content_type=JSON_PATCH,
                accept=ACCEPT_METADATA,
            )
        except (InvalidError, NotFoundError):
            return  # others have set a size, or created the group anew: the next pass handles that

    async def annotate(self, name: str, *, uid: str, annotations: Mapping[str, str | None]) -> None:
        """Sets annotations of a group, and removes those that are None."""
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        await self._request(
            "PATCH",
            name,
            params={"fieldManager": _MARKS_MANAGER},
            body=body,
            content_type=MERGE_PATCH,
            accept=ACCEPT_METADATA,
        )

    async def delete(self, name: str, *, uid: str) -> None:
        """Deletes a group, and thereby its nodes."""
        try:
            await self._request(
                "DELETE", name, body={"preconditions": {"uid": uid}}, accept=ACCEPT_METADATA
            )
        except (NotFoundError, ConflictError):
            return  # the group is gone, or a new one has its name

    async def _request(self, method: str, name: str, **request: Any) -> bytes:
        path = f"{GROUPS_PATH}/{name}"
        return await self._client.request(method, path, retries=PATIENT, **request)


def without_fields(manifest: Mapping[str, Any], fields: Mapping[str, object]) -> dict[str, Any]:
    """Returns a copy of the manifest without the fields at these paths, in the API server's
    notation: `.spec.a.b`.

    Keys may contain dots, so paths are compared as a whole and never split.
    """

    def keep(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {
            key: keep(below, f"{path}.{key}")
            for key, below in value.items()
            if f"{path}.{key}" not in fields
        }

    kept: dict[str, Any] = keep(manifest, "")
    return kept
