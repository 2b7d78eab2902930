"""Finds nodes that lost the marks of their group (label, annotation) while no operator ran.

    list of nodes (metadata only) + groups --unmarked--> strays

The watch by label does not report a node without the label; without the annotation its group is
unknown. The ownerReference, and the name with its hash of the group's uid, show which group made
the node. So at its start an operator lists the nodes that have no label (few if all nodes are
fake). If a node with the label belongs to no group, it lists all nodes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kwok_operator.constants import NODE_GROUP_LABEL, NODES_PATH
from kwok_operator.kube.client import ACCEPT_METADATA_LIST, KubeClient
from kwok_operator.kube.decode import NODES, NodeView
from kwok_operator.kube.followed import pages
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord


async def find_unmarked(
    client: KubeClient, *, cache: NodeCache, store: GroupStore
) -> list[NodeRecord]:
    """Returns records of the nodes that lost the label or annotation of their group, each with the
    group that made it. Raises KwokOperatorError if nodes can't be listed."""
    groups = {group.uid: group for name in store.names() if (group := store.get(name)) is not None}
    if not groups:
        return []
    return [
        record
        async for nodes in list_nodes(client, labelled=cache.has_foreign_nodes)
        for record in unmarked(nodes, groups, read=cache.record_of)
    ]


async def list_nodes(client: KubeClient, *, labelled: bool) -> AsyncIterator[Sequence[NodeView]]:
    """Lists nodes in pages, metadata only. Without `labelled`, only nodes that lack a group's
    label, which the watch does not report."""
    params = {} if labelled else {"labelSelector": f"!{NODE_GROUP_LABEL}"}
    listed = pages(client, NODES_PATH, NODES, params, accept=ACCEPT_METADATA_LIST, retries=PATIENT)
    async for page in listed:
        yield page.items
        await asyncio.sleep(0)


def unmarked(
    nodes: Iterable[NodeView],
    groups: Mapping[str, Group],
    *,
    read: Callable[[NodeView], NodeRecord],
) -> list[NodeRecord]:
    """Returns records of those `nodes` that lost the label or annotation of their group, each with
    the group that made it. `groups` are by uid."""
    found = list[NodeRecord]()
    for node in nodes:
        record = read(node)
        group = next((groups[uid] for uid in node.owner_uids if uid in groups), None)
        if group is None or record.serial is not None:
            continue
        serial = group.names.serial(node.name)
        if serial is not None:
            found.append(replace(record, group=group.name, owner=group.uid, serial=serial))
    return found
