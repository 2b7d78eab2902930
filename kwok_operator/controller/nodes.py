"""Creating and deleting single nodes, and what the API server's answers mean.

    create(name, body) ──> POST ──> Created, or Taken where somebody else holds the name
    delete(record)     ──> DELETE with the uid we know ──> gone, or on its way out

404 on delete and 409 on create are outcomes, not errors. Everything learned is entered in the
cache. A POST may be repeated: the name makes it harmless, because a second one only finds the
first's node.
"""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from kwok_operator import constants
from kwok_operator.controller.cache import NodeCache, NodeRecord
from kwok_operator.core.template import KubeletEndpoint
from kwok_operator.errors import ConflictError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, ACCEPT_METADATA_LIST, KubeClient
from kwok_operator.kube.decode import NODES, OBJECTS, NodeView

logger = logging.getLogger(__name__)

NODES_PATH = "/api/v1/nodes"
PODS_PATH = "/api/v1/pods"
_WRITE_RETRIES = 4
_ORPHANING_TRIES = 5


class NodeWriter:
    """Writes nodes; one request each."""

    def __init__(self, *, client: KubeClient, cache: NodeCache) -> None:
        self._client = client
        self._cache = cache

    async def check(self, body: bytes) -> None:
        """A strict dry run of a POST: nothing is created.

        Raises BadRequestError, ForbiddenError or InvalidError where the API server refuses it.
        """
        params = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            await self._client.request(
                "POST", NODES_PATH, params=params, body=body, retries=_WRITE_RETRIES
            )
        except ConflictError:
            return  # the name is taken, which is only found out after the node was found valid

    async def create(
        self, name: str, body: bytes, *, group: str, uid: str, born_ready: KubeletEndpoint | None
    ) -> bool:
        """Creates a node; False where the name is held by a node that is not the group's own."""
        try:
            answer = await self._client.request(
                "POST", NODES_PATH, body=body, accept=ACCEPT_METADATA, retries=_WRITE_RETRIES
            )
        except ConflictError:
            return await self._adopt(name, group=group, uid=uid)
        node = NODES.one(answer)
        if born_ready is not None:
            node = dataclasses.replace(
                node,
                ready=True,
                addresses=born_ready.addresses,
                kubelet_port=born_ready.port,
            )
        self._cache.created(group, node)
        return True

    async def delete(self, record: NodeRecord, *, pods: bool) -> None:
        """Deletes a node without a drain, then its pods if `pods`."""
        await self._delete(record, {"uid": record.uid})
        if pods:
            await self._delete_pods(record.name)

    async def delete_owned(self, record: NodeRecord, *, owner: str, pods: bool) -> None:
        """Deletes a node of a group that is gone, unless the group let go of it.

        `kubectl delete --cascade=orphan` takes the ownerReferences off before the group goes. So a
        node may only be deleted in the state in which it was seen to have one.
        """
        version = str(record.resource_version)
        for _ in range(_ORPHANING_TRIES):
            if await self._delete(record, {"uid": record.uid, "resourceVersion": version}):
                if pods:
                    await self._delete_pods(record.name)
                return
            node = await self._read(record.name)
            if node is None or node.uid != record.uid or owner not in node.owner_uids:
                return
            version = str(node.resource_version)

    async def _delete(self, record: NodeRecord, preconditions: Mapping[str, str]) -> bool:
        try:
            await self._client.request(
                "DELETE",
                f"{NODES_PATH}/{record.name}",
                body={"preconditions": preconditions},
                accept=ACCEPT_METADATA,
                retries=_WRITE_RETRIES,
            )
        except NotFoundError:
            self._cache.deleted(record.name, gone=True)
        except ConflictError:
            return False
        else:
            self._cache.deleted(record.name)
        return True

    async def _adopt(self, name: str, *, group: str, uid: str) -> bool:
        node = await self._read(name)
        ours = (
            node is not None
            and not node.deleting
            and uid in node.owner_uids
            and node.annotations.get(constants.NODE_GROUP_UID_ANNOTATION) == uid
        )
        if node is not None and ours:
            self._cache.created(group, node)
        else:
            logger.info("name is taken: group=%s node=%s", group, name)
        return ours

    async def _read(self, name: str) -> NodeView | None:
        try:
            answer = await self._client.request(
                "GET", f"{NODES_PATH}/{name}", retries=_WRITE_RETRIES
            )
        except NotFoundError:
            return None
        return NODES.one(answer)

    async def exists(self, name: str) -> bool:
        return await self._read(name) is not None

    async def _delete_pods(self, node: str) -> None:
        answer = await self._client.request(
            "GET",
            PODS_PATH,
            params={"fieldSelector": f"spec.nodeName={node}"},
            accept=ACCEPT_METADATA_LIST,
            retries=_WRITE_RETRIES,
        )
        for pod in OBJECTS.page(answer).items:
            await self._delete_pod(pod["metadata"])

    async def _delete_pod(self, pod: Mapping[str, Any]) -> None:
        try:
            await self._client.request(
                "DELETE",
                f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}",
                body={"gracePeriodSeconds": 0, "preconditions": {"uid": pod["uid"]}},
                accept=ACCEPT_METADATA,
                retries=_WRITE_RETRIES,
            )
        except (NotFoundError, ConflictError):
            return  # gone, or another pod of that name already
