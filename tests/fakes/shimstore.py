"""Groups and nodes as the shim's reflectors would tell of them, and a store to put them into."""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from kwok_operator import constants
from kwok_operator.kube.decode import NodeView
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim.settings import Selector
from kwok_operator.shim.store import Store

_versions = itertools.count(1)


def group_of(
    name: str = "web",
    *,
    uid: str = "",
    version: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    deleting: bool = False,
    **spec: Any,
) -> Group:
    """A group that cluster-autoscaler may drive, unless `autoscaling` says else; newer than the one
    before, unless `version` says else."""
    metadata: dict[str, Any] = {
        "name": name,
        "uid": uid or f"uid-of-{name}",
        "resourceVersion": str(version or next(_versions)),
        "generation": 1,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    return Group.parse(
        {
            "metadata": metadata,
            "spec": {"autoscaling": {"minSize": 0, "maxSize": 10}, **spec},
            "status": dict(status or {}),
        }
    )


def node_of(group: Group, serial: int, **changes: Any) -> NodeView:
    """A node of the group; `changes` are fields of the view."""
    name = group.names.name(serial)
    view: dict[str, Any] = {
        "name": name,
        "uid": f"uid-of-{name}",
        "resource_version": 1,
        "created": 0.0,
        "labels": {constants.NODE_GROUP_LABEL: group.name},
        "annotations": {
            constants.NODE_GROUP_UID_ANNOTATION: group.uid,
            constants.CA_NODE_GROUP_ANNOTATION: group.name,
        },
        "owner_uids": (group.uid,),
        "finalizers": (),
        "deleting": False,
        "ready": True,
        "addresses": (),
        "kubelet_port": 0,
        "provider_id": f"kwok:{name}",
    }
    return NodeView(**(view | changes))


def pending(first: int, last: int, **more: Any) -> dict[str, Any]:
    """A batch in a group's status."""
    return {"first": first, "last": last, "requestedAt": "2026-01-02T03:04:05Z", **more}


def store_of(
    *groups: Group,
    selector: Selector | None = None,
    synced: bool = True,
    clock: Callable[[], float] = time.time,
) -> Store:
    """What a shim knows that has seen these groups, and no node yet."""
    store = Store(selector=selector or Selector(), provider_id_prefix="kwok:", clock=clock)
    for group in groups:
        store.put_group(group)
    if synced:
        store.groups.synced.set()
        store.nodes.synced.set()
    return store
