"""Writes simulated Machines and MachineSets, and the fields that Cluster API's webhook would set.

    create | show | relabel | end | remove  ──> requests ──> MachineStore
    afresh                                  ──> the Machines of a group as they are now

Methods that the executor calls don't retry a request: if it fails, the executor calls the method
again later. If a first POST has created the Machine after all, the second one finds it, as a
Machine's name is always the same.
"""

from collections.abc import Mapping, Set
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.machines import MACHINES, Shown, status_patch
from kwok_operator.clusterapi.objectstores import (
    MachineRecord,
    MachineStore,
    ScalableRecord,
    machines_decoder,
    scalables_decoder,
)
from kwok_operator.clusterapi.scalable import Kind, Scalable
from kwok_operator.constants import GROUPS_PATH
from kwok_operator.errors import ConflictError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, JSON_PATCH, MERGE_PATCH, KubeClient
from kwok_operator.kube.decode import decode_dict
from kwok_operator.kube.followed import list_objects
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.autoscaler import Change
from kwok_operator.nodegroups.client import Group, scaling_patch
from kwok_operator.nodegroups.naming import NodeNames

FIELD_MANAGER: Final = "kwok-operator-clusterapi"
_PAGE: Final = 500


class MachineWriter:
    """Writes objects of one API group and version. Answers are stored in `store`."""

    def __init__(self, *, client: KubeClient, store: MachineStore, keys: Keys, version: str):
        self._client = client
        self._store = store
        self._root = f"/apis/{keys.group}/{version}"
        self._machines = machines_decoder(keys)
        self._decoders = {kind: scalables_decoder(keys, kind) for kind in Kind}

    def path(self, plural: str, namespace: str = "", name: str = "") -> str:
        place = f"/namespaces/{namespace}" if namespace else ""
        return f"{self._root}{place}/{plural}{f'/{name}' if name else ''}"

    async def afresh(self, namespace: str, group: str) -> list[MachineRecord]:
        """Lists the Machines of a group from the API server, not from the cache."""
        machines, _ = await list_objects(
            self._client,
            self.path(MACHINES, namespace),
            self._machines,
            selector=f"{constants.NODE_GROUP_LABEL}={group}",
            page_size=_PAGE,
            retries=PATIENT,
        )
        return machines

    async def create(self, manifest: Mapping[str, Any]) -> bool:
        """Creates a Machine; returns False if a foreign Machine has its name."""
        metadata = manifest["metadata"]
        place = metadata["namespace"]
        try:
            answer = await self._client.request(
                "POST",
                self.path(MACHINES, place),
                params={"fieldManager": FIELD_MANAGER},
                body=dict(manifest),
            )
        except ConflictError:
            answer = await self._client.request("GET", self.path(MACHINES, place, metadata["name"]))
        record = self._machines.one(answer)
        if not is_ours(record):
            return False
        self._store.upsert(record)
        return True

    async def show(self, record: MachineRecord, shown: Shown, *, node_uid: str, now: str) -> None:
        await self._patch(record, status_patch(shown, node_uid=node_uid, now=now), "/status")

    async def relabel(
        self, record: MachineRecord, labels: Mapping[str, str], owner: Mapping[str, Any]
    ) -> None:
        body = {"metadata": {"labels": dict(labels), "ownerReferences": [dict(owner)]}}
        await self._patch(record, body)

    async def end(self, record: MachineRecord) -> None:
        """Deletes a Machine whose instance is about to be deleted. Our finalizer keeps it until the
        Node is gone.

        Its deletionTimestamp shows clients at once that they need not delete it again.
        """
        kept = record.kept or await self._patch(
            record, _finalizers(record, {*record.finalizers, constants.INSTANCE_FINALIZER})
        )
        if kept:
            await self._delete(record)

    async def remove(self, record: MachineRecord) -> None:
        """Removes our finalizer from a Machine whose instance is gone, and deletes the Machine
        unless somebody has deleted it before.
        """
        if record.kept:
            others = {*record.finalizers} - {constants.INSTANCE_FINALIZER}
            await self._patch(record, _finalizers(record, others))
        if not record.deleting:
            await self._delete(record)

    async def _patch(
        self, record: MachineRecord, body: dict[str, Any], subresource: str = ""
    ) -> bool:
        """Patches a Machine; returns False if it is gone, or has changed."""
        # The patch contains the uid, which can't change. So the API server refuses it for another
        # Machine of that name, which the watch will report.
        body["metadata"] = {**body.get("metadata", {}), "uid": record.uid}
        try:
            answer = await self._client.request(
                "PATCH",
                self.path(MACHINES, record.namespace, record.name) + subresource,
                params={"fieldManager": FIELD_MANAGER},
                body=body,
                content_type=MERGE_PATCH,
            )
        except NotFoundError:
            self._store.remove(record)
        except ConflictError:
            pass
        else:
            self._store.upsert(self._machines.one(answer))
            return True
        return False

    async def _delete(self, record: MachineRecord) -> None:
        try:
            await self._client.request(
                "DELETE",
                self.path(MACHINES, record.namespace, record.name),
                body={"preconditions": {"uid": record.uid}},
                accept=ACCEPT_METADATA,
            )
        except (NotFoundError, ConflictError):
            pass
        else:
            # A finalizer may keep the Machine; then the watch reports when it is gone.
            self._store.deleted(record)
            return
        self._store.remove(record)

    async def scale(self, group: Group, change: Change) -> dict[str, Any]:
        """Writes the group's target and nodes to delete; returns the group after the write.

        Raises InvalidError if the group has changed meanwhile.
        """
        answer = await self._client.request(
            "PATCH",
            f"{GROUPS_PATH}/{group.name}",
            params={"fieldManager": FIELD_MANAGER},
            body=scaling_patch(group, target=change.target, names=change.names),
            content_type=JSON_PATCH,
            # If the answer was lost, a second request would find the first one's change, and take
            # it for somebody else's.
            resend=False,
        )
        return decode_dict(answer)

    async def amend(
        self, record: ScalableRecord, spec: Mapping[str, Any], annotations: Mapping[str, str]
    ) -> None:
        """Writes fields of a scalable (MachineDeployment or MachineSet). Raises ConflictError if it
        has changed meanwhile."""
        metadata = {
            "uid": record.scalable.uid,
            "resourceVersion": str(record.resource_version),
            "annotations": dict(annotations),
        }
        await self._alone(
            "PATCH",
            self._path_of(record.scalable),
            {"metadata": metadata, "spec": dict(spec)},
            content_type=MERGE_PATCH,
        )

    async def set_status(
        self, scalable: Scalable, status: Mapping[str, Any]
    ) -> ScalableRecord | None:
        body = {"metadata": {"uid": scalable.uid}, "status": dict(status)}
        path = f"{self._path_of(scalable)}/status"
        answer = await self._alone("PATCH", path, body, content_type=MERGE_PATCH)
        return self._decoders[scalable.kind].one(answer)

    async def create_set(self, manifest: Mapping[str, Any]) -> ScalableRecord | None:
        """Creates a MachineSet and returns it; if one of that name exists, returns that one."""
        metadata = manifest["metadata"]
        path = self.path(Kind.MACHINE_SET.plural, metadata["namespace"])
        try:
            answer = await self._alone("POST", path, dict(manifest))
        except ConflictError:
            answer = await self._client.request("GET", f"{path}/{metadata['name']}")
        return self._decoders[Kind.MACHINE_SET].one(answer)

    async def correct_set(
        self, known: ScalableRecord, manifest: Mapping[str, Any]
    ) -> ScalableRecord | None:
        """Patches a MachineSet that the operator made, so that it is like `manifest`; returns it.
        Labels that others added stay."""
        metadata = manifest["metadata"]
        parts = {
            "/metadata/labels": {**known.labels, **metadata["labels"]},
            "/metadata/ownerReferences": metadata["ownerReferences"],
            "/spec": manifest["spec"],
        }
        body: list[Any] = [{"op": "test", "path": "/metadata/uid", "value": known.scalable.uid}]
        body += [{"op": "add", "path": path, "value": value} for path, value in parts.items()]
        path = self._path_of(known.scalable)
        answer = await self._alone("PATCH", path, body, content_type=JSON_PATCH)
        return self._decoders[Kind.MACHINE_SET].one(answer)

    async def _alone(self, method: str, path: str, body: Any, **request: Any) -> bytes:
        params = {"fieldManager": FIELD_MANAGER}
        return await self._client.request(
            method, path, params=params, body=body, retries=PATIENT, **request
        )

    def _path_of(self, scalable: Scalable) -> str:
        return self.path(scalable.kind.plural, scalable.namespace, scalable.name)


def _finalizers(record: MachineRecord, wanted: Set[str]) -> dict[str, Any]:
    """Makes a patch of the finalizers. The API server refuses it if the Machine has changed
    meanwhile."""
    version = str(record.resource_version)
    return {"metadata": {"resourceVersion": version, "finalizers": sorted(wanted)}}


def is_ours(record: MachineRecord) -> bool:
    """Whether the operator made a Machine: its name is one that its group uses, with a hash and a
    serial."""
    names = NodeNames.of(record.group, record.group_uid)
    return bool(record.group_uid) and names.serial(record.name) is not None
