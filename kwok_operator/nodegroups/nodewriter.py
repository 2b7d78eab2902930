"""Reads, changes and deletes single nodes, and interprets the API server's answers.

A 404 on a delete is a result, not an error. Every answer updates the cache. All methods but `check`
and the reads are called by the executor. They make each request once, because after a 429, a 5xx or
no answer the executor repeats the whole call. That is harmless: a second DELETE finds nothing.
creation.py creates nodes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kwok_operator import constants
from kwok_operator.constants import NODES_PATH
from kwok_operator.errors import (
    FAILED_REQUEST,
    REFUSED,
    AlteredNodeError,
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
)
from kwok_operator.formats.times import format_exact_time
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.client import (
    ACCEPT_METADATA,
    ACCEPT_METADATA_LIST,
    JSON_PATCH,
    MERGE_PATCH,
    KubeClient,
)
from kwok_operator.kube.decode import NODES, NodeView, decode_dict
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.inplace import Patch, after, make_patches
from kwok_operator.nodegroups.naming import group_of_node
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord
from kwok_operator.nodegroups.podwriter import PodRemover
from kwok_operator.nodegroups.template import owner_reference
from kwok_operator.nodegroups.unmarked import list_nodes
from kwok_operator.nodegroups.usable import untaint

logger = logging.getLogger(__name__)

FIELD_MANAGER = "kwok-operator"
"""The name in managedFields for our writes; without it, the API server takes the User-Agent's."""
_UPDATE_TRIES = 5
_ORPHANING_TRIES = 5
TEMPLATE_MARK = f"the annotation {constants.TEMPLATE_HASH_ANNOTATION}"


class Stored(NamedTuple):
    """A node as the API server returned it: the JSON, and the fields that are read from it."""

    body: bytes
    node: NodeView


class NodeWriter:
    """Writes nodes with one or few requests each. The executor counts the first request of a write
    against --max-qps; `count_request` is called to count each further one.

    `pods_refused(group, sentence)` is called once if the operator may not delete a group's pods.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        cache: NodeCache,
        count_request: Callable[[], None] = lambda: None,
        pods_refused: Callable[[str, str], None] = lambda group, sentence: None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._count_request = count_request
        self._pods = PodRemover(client=client, count_request=count_request, refused=pods_refused)

    async def check(
        self, name: str, body: bytes, *, group: str, uid: str, template_hash: str
    ) -> None:
        """Makes a strict dry run of a POST, which creates nothing, to check the node.

        Raises BadRequestError, ForbiddenError or InvalidError if the API server refuses it,
        AlteredNodeError if the stored node would lack the marks (label, annotations, owner) by
        which its group recognises it.
        """
        params = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            # Retried only once: the rest of the pass, which needs no template, waits for the
            # answer.
            answer = await self._client.request(
                "POST", NODES_PATH, params=params, body=body, retries=1
            )
        except ConflictError:
            return  # the name is taken; the API server checks that only after the node's fields
        require_marks(NODES.one(answer), name, group=group, uid=uid, template_hash=template_hash)

    async def regain(
        self, stray: NodeRecord, *, group: str, uid: str, label: str, looking: bool = False
    ) -> str:
        """Restores the marks (the group's `label`, its uid, its owner) that a node of the group has
        lost. With `looking` it only reads the node.

        Returns the names of the lost marks as text; "" if there are none, or the node is gone.
        """
        stored = await self.read(stray.name)
        if stored is None or stored.node.deleting or not _may_be(stored.node, stray, uid=uid):
            self._cache.settle_stray(group, stray.name)
            return ""
        lost = _lost_marks(stored.node, group=group, uid=uid)
        if lost and not looking and await self._is_alive(group, uid=uid):
            self._count_request()
            try:
                stored = await self._put_marks(stored, group=group, uid=uid, label=label)
            except (ConflictError, NotFoundError, *REFUSED) as error:
                logger.debug("not put back: group=%s node=%s error=%s", group, stray.name, error)
        if not _lost_marks(stored.node, group=group, uid=uid):
            self._cache.upsert(self._cache.record_of(stored.node))
        return names_in_words(lost) if lost else ""

    async def settle_gone(self, strays: Iterable[str], *, group: str) -> frozenset[str]:
        """Removes those strays (nodes that vanished from the watch) of a group that no longer
        exist, and returns their names.

        It lists all nodes, not only those without a label: a stray may have its label again. If the
        list fails, it removes none.
        """
        try:
            pages = [page async for page in list_nodes(self._client, labelled=True)]
        except FAILED_REQUEST as error:
            logger.debug("nodes not listed: group=%s error=%s", group, error)
            return frozenset()
        there = {node.name for page in pages for node in page}
        gone = frozenset(n for n in strays if n not in there and n not in self._cache)
        for name in gone:
            self._cache.settle_stray(group, name)
        return gone

    async def restore_hash(self, record: NodeRecord, template_hash: str, *, uid: str) -> None:
        """Restores the annotation with the template's hash on a node. If the API server refuses,
        that is only logged."""
        patch = {"metadata": {"annotations": {constants.TEMPLATE_HASH_ANNOTATION: template_hash}}}
        try:
            await self.patch_current(record, lambda _: [("", patch)], uid=uid)
        except (ConflictError, *REFUSED) as error:
            logger.debug("not put back: node=%s error=%s", record.name, error)

    async def _is_alive(self, group: str, *, uid: str) -> bool:
        """Whether the group exists and is not being deleted. Call it after reading a node that lost
        its owner: if the group is alive then, the owner was not removed by the deletion of the
        group (--cascade=orphan)."""
        self._count_request()
        try:
            answer = await self._client.request(
                "GET", f"{constants.GROUPS_PATH}/{group}", accept=ACCEPT_METADATA
            )
        except NotFoundError:
            return False
        metadata = decode_dict(answer)["metadata"]
        return metadata["uid"] == uid and not metadata.get("deletionTimestamp")

    async def _put_marks(self, stored: Stored, *, group: str, uid: str, label: str) -> Stored:
        owners = decode_dict(stored.body)["metadata"].get("ownerReferences") or []
        metadata: dict[str, Any] = {
            "uid": stored.node.uid,
            "resourceVersion": str(stored.node.resource_version),
            "labels": {constants.NODE_GROUP_LABEL: label},
            "annotations": {
                constants.CA_NODE_GROUP_ANNOTATION: group,
                constants.NODE_GROUP_UID_ANNOTATION: uid,
            },
        }
        if uid not in stored.node.owner_uids:
            metadata["ownerReferences"] = [*owners, owner_reference(group, uid=uid)]
        answer = await self._client.request(
            "PATCH",
            f"{NODES_PATH}/{stored.node.name}",
            params={"fieldManager": FIELD_MANAGER},
            body={"metadata": metadata},
            content_type=MERGE_PATCH,
        )
        return Stored(answer, NODES.one(answer))

    async def let_pods_on(
        self, name: str, *, uid: str, stored: Stored | None = None
    ) -> ApiError | None:
        """Removes the taint of new nodes from a Ready node of the group, so that pods may come.

        `stored` is the node if it was read a moment ago; if it has changed since, it is read again.
        Returns the error if the API server refuses; the caller may ignore it, as Kubernetes removes
        the taint as well, only later.
        """
        refusal: ApiError | None = None
        try:
            body, node = stored or await self._get(name)
            for _ in range(_UPDATE_TRIES):
                patch = untaint(decode_dict(body)) if _belongs(node, uid=uid) else None
                if patch is None:
                    self._cache.upsert(self._cache.record_of(node))
                    return None
                self._count_request()
                try:
                    patched = await self._send_patch(name, "", patch, content_type=JSON_PATCH)
                except (ConflictError, InvalidError) as error:
                    refusal = error
                    self._count_request()
                    body, node = await self._get(name)
                else:
                    self._cache.updated(self._cache.record_of(patched), ready=True, tainted=False)
                    return None
        except NotFoundError as error:
            await self._forget(name, error)
            return None
        except (BadRequestError, ForbiddenError) as error:
            refusal = error
        return refusal

    async def update(
        self,
        record: NodeRecord,
        wanted: Node,
        *,
        uid: str,
        carry_over: Callable[[Node, Node], Node] = lambda wanted, live: wanted,
    ) -> bool:
        """Patches a node to be as `wanted`; nodegroups/inplace.py says what changes.

        `carry_over(wanted, live)` adds what must be kept of the live node. Returns False if the
        node is no longer the group's. Raises ConflictError if others changed the node during each
        try, and AlteredNodeError if the result has the hash of another template: it would be
        patched without end.
        """

        def patches(live: Node) -> Iterable[Patch]:
            found = make_patches(live, carry_over(wanted, live), manager=FIELD_MANAGER)
            steps = (("/status", found.status), ("", found.rest))
            return [(subresource, body) for subresource, body in steps if body is not None]

        patched = await self.patch_current(record, patches, uid=uid)
        if patched is None:
            return False
        made_from = wanted["metadata"]["annotations"][constants.TEMPLATE_HASH_ANNOTATION]
        if template_hash_of(patched) != made_from:
            raise AlteredNodeError(TEMPLATE_MARK, method="PATCH", path=NODES_PATH)
        return True

    async def postpone(self, record: NodeRecord, at: int) -> None:
        """Annotates a node with the time at which it is to be deleted (epoch milliseconds), unless
        another node has its name by now."""
        annotations = {constants.DELETE_AT_ANNOTATION: format_exact_time(at)}
        body = {"metadata": {"uid": record.uid, "annotations": annotations}}
        try:
            self._cache.updated(
                self._cache.record_of(await self._send_patch(record.name, "", body))
            )
        except NotFoundError as error:
            await self._forget(record.name, error)
        except (ConflictError, InvalidError):
            # The patch contains the uid, which can't change. So the API server refuses it for
            # another node of this name.
            self._count_request()
            stored = await self.read(record.name)
            if stored is None:
                self._cache.deleted(record.name, gone=True)
            elif stored.node.uid == record.uid:
                raise
            else:
                self._cache.upsert(self._cache.record_of(stored.node))

    async def patch_current(
        self, record: NodeRecord, patches_for: Callable[[Node], Iterable[Patch]], *, uid: str
    ) -> NodeView | None:
        """Patches a node as it is in the API server; tries again if the node has changed meanwhile.

        Returns its metadata afterwards, None if it is no longer the group's. Raises ConflictError
        if others changed it during each try.
        """
        try:
            for attempt in range(1, _UPDATE_TRIES + 1):
                body, node = await self._get(record.name)
                if node.uid != record.uid or not _belongs(node, uid=uid):
                    self._cache.upsert(self._cache.record_of(node))
                    return None
                try:
                    patches = tuple(patches_for(decode_dict(body)))
                    patched = await self._patch(node, patches)
                except ConflictError:
                    if attempt == _UPDATE_TRIES:
                        raise
                else:
                    ready, tainted = after(patches, ready=node.ready, tainted=node.not_ready_taint)
                    self._cache.updated(
                        self._cache.record_of(patched), ready=ready, tainted=tainted
                    )
                    return patched
        except NotFoundError as error:
            await self._forget(record.name, error)
        return None

    async def _patch(self, node: NodeView, patches: Iterable[Patch]) -> NodeView:
        """Sends the patches, each on condition that the node is unchanged; returns the latest
        metadata."""
        for subresource, patch in patches:
            guard = {"resourceVersion": str(node.resource_version)}
            body = {**patch, "metadata": {**patch.get("metadata", {}), **guard}}
            self._count_request()
            node = await self._send_patch(node.name, subresource, body)
        return node

    async def _send_patch(
        self,
        name: str,
        subresource: str,
        body: Mapping[str, Any] | list[dict[str, Any]],
        *,
        content_type: str = MERGE_PATCH,
    ) -> NodeView:
        answer = await self._client.request(
            "PATCH",
            f"{NODES_PATH}/{name}{subresource}",
            params={"fieldManager": FIELD_MANAGER},
            body=body,
            content_type=content_type,
            accept=ACCEPT_METADATA,
        )
        return NODES.one(answer)

    async def delete(self, record: NodeRecord, *, pods: bool) -> None:
        """Deletes a node without a drain; with `pods` also its pods, afterwards."""
        refusal = await self.delete_once(record, {"uid": record.uid})
        if refusal is not None and await self._reread(record) is not None:
            raise refusal  # the node is still the same: a webhook refuses its deletion
        if pods:
            await self._pods.remove(record.name, group=record.group)

    async def delete_owned(self, record: NodeRecord, *, owner: str, pods: bool) -> None:
        """Deletes a node of a deleted group, unless the group's deletion orphaned it.

        `kubectl delete --cascade=orphan` removes the ownerReferences before the group is deleted.
        So the DELETE names a resourceVersion in which the node had its ownerReference.
        """
        version = str(record.resource_version)
        for _ in range(_ORPHANING_TRIES):
            preconditions = {"uid": record.uid, "resourceVersion": version}
            if await self.delete_once(record, preconditions) is None:
                if pods:
                    await self._pods.remove(record.name, group=record.group)
                return
            stored = await self._reread(record)
            if stored is None or owner not in stored.node.owner_uids:
                return
            version = str(stored.node.resource_version)

    async def delete_once(
        self, record: NodeRecord, preconditions: Mapping[str, str], *, retries: int = 0
    ) -> ConflictError | None:
        """Deletes a node; returns the ConflictError if a precondition doesn't hold."""
        try:
            answer = await self._client.request(
                "DELETE",
                f"{NODES_PATH}/{record.name}",
                body={"preconditions": preconditions},
                accept=ACCEPT_METADATA,
                retries=retries,
            )
        except NotFoundError as error:
            await self._forget(record.name, error)
        except ConflictError as error:
            return error
        else:
            # The answer is the node, or a Status if the node is gone: that has no finalizers.
            finalizers = decode_dict(answer).get("metadata", {}).get("finalizers")
            self._cache.deleted(record.name, held=bool(finalizers))
        return None

    async def _reread(self, record: NodeRecord) -> Stored | None:
        """Reads the node again; None if it is gone, or another one has its name."""
        self._count_request()
        stored = await self.read(record.name)
        return stored if stored is not None and stored.node.uid == record.uid else None

    async def _forget(self, name: str, error: NotFoundError) -> None:
        """Removes a node from the cache after a 404, once a list confirms that it is gone. If the
        list has the node, raises ServerError, so that the request is tried again."""
        if name in self._cache:
            await self._confirm_absence(name, error)
            self._cache.deleted(name, gone=True)

    async def _confirm_absence(self, name: str, error: NotFoundError) -> None:
        """Checks by a list whether a node is gone, as a 404 may come from a proxy. Raises
        ServerError if the list has the node."""
        self._count_request()
        answer = await self._client.request(
            "GET",
            NODES_PATH,
            params={"fieldSelector": f"metadata.name={name}"},
            accept=ACCEPT_METADATA_LIST,
            retries=PATIENT,
        )
        if NODES.page(answer).items:
            raise ServerError(
                f"not found, though it is in the list of nodes ({error.message}): does a proxy"
                " answer in place of the API server?",
                status=error.status,
                method=error.method,
                path=error.path,
            ) from error

    async def exists(self, name: str) -> bool:
        return await self.read(name, retries=PATIENT) is not None

    async def read(self, name: str, *, retries: int = 0) -> Stored | None:
        """Reads a node; None if it is gone, which a list confirms."""
        try:
            return await self._get(name, retries=retries)
        except NotFoundError as error:
            await self._confirm_absence(name, error)
            return None

    async def _get(self, name: str, *, retries: int = 0) -> Stored:
        body = await self._client.request("GET", f"{NODES_PATH}/{name}", retries=retries)
        return Stored(body, NODES.one(body))


def require_marks(node: NodeView, name: str, *, group: str, uid: str, template_hash: str) -> None:
    """Raises AlteredNodeError if a node has another name, or lacks a mark of its group (label,
    annotations, owner) or of its template (hash)."""
    lost = _lost_marks(node, group=group, uid=uid)
    if node.name != name:
        lost.append("its name")
    if template_hash_of(node) != template_hash:
        lost.append(TEMPLATE_MARK)
    if lost:
        raise AlteredNodeError(names_in_words(lost), method="POST", path=NODES_PATH)


def template_hash_of(node: NodeView) -> str:
    """Returns the hash of the template from which the node was made, by its annotation."""
    return node.annotations.get(constants.TEMPLATE_HASH_ANNOTATION, "")


def _may_be(node: NodeView, stray: NodeRecord, *, uid: str) -> bool:
    """Whether a node as just read is `stray` (a record of a node that vanished from the watch), by
    its uid, and isn't annotated with a uid of another group than `uid`."""
    claimed = node.annotations.get(constants.NODE_GROUP_UID_ANNOTATION, uid)
    return node.uid == stray.uid and claimed == uid


def _lost_marks(node: NodeView, *, group: str, uid: str) -> list[str]:
    marks = {
        f"the label {constants.NODE_GROUP_LABEL}": group_of_node(node.labels, node.annotations)
        == group,
        f"the annotation {constants.NODE_GROUP_UID_ANNOTATION}": node.annotations.get(
            constants.NODE_GROUP_UID_ANNOTATION
        )
        == uid,
        "the ownerReference to the KwokNodeGroup": uid in node.owner_uids,
    }
    return [mark for mark, there in marks.items() if not there]


def _belongs(node: NodeView, *, uid: str) -> bool:
    """Whether a node belongs to the group with this uid, and is not being deleted."""
    claimed = node.annotations.get(constants.NODE_GROUP_UID_ANNOTATION)
    return not node.deleting and uid in node.owner_uids and claimed == uid
