"""Writes the status of groups, and of the operator's other kinds that have one.

The status is written as a whole, in a JSON Patch that tests the uid. A merge patch could not remove
keys from the resolved template; and the test keeps the old status off a group that was deleted and
created again. The operator is the only writer of a status, so the patch tests nothing but the uid.
"""

from collections.abc import Mapping
from typing import Any

from kwok_operator.constants import GROUPS_PATH
from kwok_operator.errors import InvalidError, KwokOperatorError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, JSON_PATCH, KubeClient
from kwok_operator.kube.decode import decode_dict
from kwok_operator.kube.followed import list_objects
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.client import GROUPS, Group, UnreadableGroup


class GroupDoubtedError(KwokOperatorError):
    """The API server did not find the group whose status was written. Only a list can show whether
    the group is gone: a proxy may send a 404 as well, and so does a CRD without the status
    subresource."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"writing the status of KwokNodeGroup {name}: not found, though the group was not"
            " deleted; is the CRD of this version there (kubectl apply -f crds/), or does a proxy"
            " answer in the API server's place?"
        )


async def put_status(
    client: KubeClient, path: str, *, uid: str, status: Mapping[str, Any], retries: int = 0
) -> int:
    """Writes the status of the object at `path` and returns its resourceVersion.

    Raises NotFoundError if there is none, and InvalidError if it has another uid, or the status
    breaks the schema.
    """
    answer = await client.request(
        "PATCH",
        f"{path}/status",
        body=[
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ],
        content_type=JSON_PATCH,
        accept=ACCEPT_METADATA,
        retries=retries,
    )
    return int(decode_dict(answer)["metadata"]["resourceVersion"])


class StatusWriter:
    """Writes statuses, with one request each."""

    def __init__(self, *, client: KubeClient) -> None:
        self._client = client

    async def write(self, group: Group, status: KwokNodeGroupStatus) -> int:
        """Writes a group's status; returns the group's new resourceVersion. Raises
        GroupDoubtedError."""
        path = f"{GROUPS_PATH}/{group.name}"
        try:
            return await put_status(
                self._client, path, uid=group.uid, status=status.dump(), retries=PATIENT
            )
        except NotFoundError as error:
            raise GroupDoubtedError(group.name) from error
        except InvalidError as error:
            # The API server gives the same answer to a failed test of the uid and to a status that
            # breaks the schema.
            if await self._uid(path) != group.uid:
                raise GroupDoubtedError(group.name) from error
            raise

    async def groups(self) -> tuple[list[Group | UnreadableGroup], int]:
        """Lists all groups; returns them and the resourceVersion of the list."""
        return await list_objects(self._client, GROUPS_PATH, GROUPS, retries=PATIENT)

    async def _uid(self, path: str) -> str:
        try:
            answer = await self._client.request("GET", path, accept=ACCEPT_METADATA)
        except NotFoundError:
            return ""
        return str(decode_dict(answer)["metadata"]["uid"])
