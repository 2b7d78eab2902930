"""Looks for strays: nodes of a group that vanished from the watch without our deleting them. They
are gone, or have lost the marks (label, owner) by which the operator recognises them.

    NodeCache.strays ──GET each, or one list──> gone: forgotten, so a plan creates other nodes
                      ├─> altered: marks restored; no node is created until they stay
                      └─> not read or repaired: tried again later, and the pass goes on
    HashedNodes ──those that lost the hash of their template──> altered, too

Without this, a webhook that removes the label or the hash of each node would have nodes created
without end. In a paused group strays are looked for only to free the room of those that are gone.
"""

import logging
from collections.abc import Callable, Container, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from kwok_operator.constants import MACHINES_ANNOTATION
from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.formats.words import few_names
from kwok_operator.kube.executor import SOON
from kwok_operator.nodegroups.api.nodegroup import UpdateStrategyType
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.nodecache import NodeRecord
from kwok_operator.nodegroups.nodewriter import TEMPLATE_MARK
from kwok_operator.nodegroups.observation import Memory
from kwok_operator.nodegroups.parts import Parts
from kwok_operator.nodegroups.template import group_label
from kwok_operator.nodegroups.templates import Resolution

logger = logging.getLogger(__name__)

MANY: Final = 24
A_PAGE_COSTS: Final = 100
"""If there are MANY strays, or one in A_PAGE_COSTS nodes, all nodes are listed first. Reading
strays one by one takes two requests for each that is gone."""


class Strays:
    """Looks for nodes that vanished from the watch (strays), and restores the label and owner of
    those that still exist."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def look(
        self,
        group: Group,
        memory: Memory,
        resolution: Resolution,
        *,
        stop: Callable[[], bool],
        at_work: Callable[[], AbstractAsyncContextManager[None]],
    ) -> Resolution:
        """Looks for a group's strays (nodes that vanished from the watch) and for nodes that lost
        the hash of their template; restores label, owner and hash. Notes in `memory` which nodes
        are altered again and again, and which could not be read or repaired.

        `at_work` is entered while requests are made. Returns `resolution`, the group's template. If
        nodes stay altered, it returns a Resolution that has the reason instead of a node: new nodes
        would be altered, too.
        """
        parts, before = self._parts, len(memory.altered) + len(memory.unmended)
        strays, stripped = parts.cache.strays(group.name), self._stripped(group, memory, resolution)
        if not (strays or stripped or before):
            return resolution
        for name in [n for n, stray in strays.items() if stray.owner != group.uid]:
            parts.cache.settle_stray(group.name, name)
        now = parts.clock.monotonic()
        due = [
            node
            for node in (*parts.cache.strays(group.name).values(), *stripped.values())
            if memory.regains.is_due(node.name, now=now)
        ]
        async with at_work():
            away = [node.name for node in due if node.name not in stripped]
            if len(away) >= max(MANY, len(parts.cache) // A_PAGE_COSTS):
                gone = await parts.writer.settle_gone(away, group=group.name)
                due = [node for node in due if node.name not in gone]
            failed = await self._put_right(due, group, memory, resolution, stripped, stop=stop)
        for name in failed:
            memory.regains.tried(name, now=now)
        # Including nodes whose marks were restored a moment ago and have gone again.
        left = {*parts.cache.strays(group.name), *self._stripped(group, memory, resolution)}
        waiting = [name for name in sorted(left) if not memory.regains.is_due(name, now=now)]
        failures = {**memory.unmended, **failed}
        memory.unmended = {name: failures[name] for name in waiting if name in failures}
        kept = () if group.spec.paused else waiting
        memory.altered = tuple(name for name in kept if name not in memory.unmended)
        if memory.altered and not before:
            logger.warning("nodes are altered: group=%s nodes=%d", group.name, len(memory.altered))
        return _without_altered(resolution, memory)

    async def _put_right(
        self,
        nodes: Iterable[NodeRecord],
        group: Group,
        memory: Memory,
        resolution: Resolution,
        stripped: Container[str],
        *,
        stop: Callable[[], bool],
    ) -> dict[str, str]:
        """Restores the template's hash on those of the `nodes` that are in `stripped`, label and
        owner on the other nodes. Returns the errors of nodes for which that failed, by name."""
        parts, now, failed = self._parts, self._parts.clock.monotonic(), dict[str, str]()
        label = group_label(group.name, group.annotations.get(MACHINES_ANNOTATION, ""))

        async def regain(node: NodeRecord) -> None:
            try:
                if node.name in stripped:
                    lost = TEMPLATE_MARK
                    await parts.writer.restore_hash(node, resolution.hash, uid=group.uid)
                else:
                    looking = group.spec.paused
                    lost = await parts.writer.regain(
                        node, group=group.name, uid=group.uid, label=label, looking=looking
                    )
            except KwokOperatorError as error:
                failed[node.name] = str(error)
                raise
            failed.pop(node.name, None)
            if lost:
                memory.regains.tried(node.name, now=now)
                memory.lost_marks = lost

        try:
            await parts.executor.run(nodes, regain, group=group.name, stop=stop, patience=SOON)
        except KwokOperatorError as error:
            logger.warning("nodes not put right: group=%s error=%s", group.name, error)
        return failed

    def are_left(self, group: Group, memory: Memory) -> bool:
        """Whether the group has nodes to look for again: strays (nodes that vanished from the
        watch), and nodes that stay altered or could not be repaired."""
        left = memory.altered or memory.unmended or self._parts.cache.strays(group.name)
        return bool(left)

    def _stripped(
        self, group: Group, memory: Memory, resolution: Resolution
    ) -> dict[str, NodeRecord]:
        """Returns nodes that lost the hash of their template and would therefore be replaced or
        patched."""
        keep = group.spec.update_strategy.type is UpdateStrategyType.ON_DELETE
        if keep or group.spec.paused or resolution.node is None:
            return {}
        nodes = self._parts.cache.group(group.name).values()
        own = [node for node in nodes if node.owner == group.uid]
        strays = self._parts.cache.strays(group.name).values()
        lost = memory.hashed_nodes.lost(resolution.hash, own, strays=strays)
        return {node.name: node for node in lost}


def _without_altered(resolution: Resolution, memory: Memory) -> Resolution:
    if not memory.altered:
        return resolution
    sentence = (
        f"Something takes {memory.lost_marks} off nodes that exist: {few_names(memory.altered)}."
        " It is put back, and no node is made until it stays; exempt nodes with the label"
        " kwok-operator.io/node-group from the controller or webhook that does it."
    )
    return replace(
        resolution, node=None, error=one_line(sentence), reason="NodesAltered", retry_in=None
    )
