"""Nodes of groups that lost what they are recognised by while no operator looked.

    list of nodes (metadata only) + groups --unmarked--> strays

The watch by label does not see a node without the label, and sees of one whose annotation is gone
only that. Whose it was, its ownerReference says together with its name, which has the hash
of the group's uid. So at its start an operator lists the nodes that have no label, few where all
are fake, or all nodes where it has seen one that is odd.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kwok_operator.constants import NODE_GROUP_LABEL, NODES_PATH
from kwok_operator.kube.client import ACCEPT_METADATA_LIST, KubeClient
from kwok_operator.kube.decode import NODES, NodeView
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord

PAGE_SIZE: Final = 500


async def find_unmarked(
    client: KubeClient, *, cache: NodeCache, store: GroupStore
) -> list[NodeRecord]:
    """As their groups' strays. Raises KwokOperatorError where nodes can't be listed."""
    groups = {group.uid: group for name in store.names() if (group := store.get(name)) is not None}
    if not groups:
        return []
    pages = list_nodes(client, labelled=cache.has_odd)
    return [
        record async for page in pages for record in unmarked(page, groups, read=cache.record_of)
    ]


async def list_nodes(client: KubeClient, *, labelled: bool) -> AsyncIterator[Sequence[NodeView]]:
    """In pages, metadata only: all nodes, or those that have no label of a group, which the watch
    does not see."""
    params = {"limit": str(PAGE_SIZE)}
    if not labelled:
        params["labelSelector"] = f"!{NODE_GROUP_LABEL}"
    while True:
        body = await client.request(
            "GET", NODES_PATH, params=params, accept=ACCEPT_METADATA_LIST, retries=4
        )
        page = NODES.page(body)
        yield page.items
        if not page.continue_token:
            break
        params["continue"] = page.continue_token
        await asyncio.sleep(0)


def unmarked(
    nodes: Iterable[NodeView],
    groups: Mapping[str, Group],
    *,
    read: Callable[[NodeView], NodeRecord],
) -> list[NodeRecord]:
    """Those of the groups (by uid) that aren't seen as theirs, as if they were."""
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
