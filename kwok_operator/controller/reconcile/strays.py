"""Nodes of a group that it lost sight of: gone, or there without what they are recognised by.

    NodeCache.strays ──GET by name──> gone: forgotten, and made anew
                                  └─> altered: put back; until it stays, no node is made

    Stamped ──of its nodes, those without the hash of their template──> altered, too

While the group is paused they are only looked for: who is gone takes up no room.

A webhook or controller that takes the label off each node, made anew each time, would have nodes
made without end, which nobody counts. One that takes the hash off would have them replaced so.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from kwok_operator.constants import MACHINES_ANNOTATION
from kwok_operator.controller.observed.nodecache import NodeRecord
from kwok_operator.controller.observed.observation import Memory
from kwok_operator.controller.reconcile.parts import Parts
from kwok_operator.controller.sources.templates import Resolution
from kwok_operator.controller.writers.nodewriter import TEMPLATE_MARK
from kwok_operator.core.template import group_label
from kwok_operator.core.words import few_names
from kwok_operator.errors import REFUSED, one_line
from kwok_operator.kube.groups import Group
from kwok_operator.models.nodegroup import UpdateStrategyType

logger = logging.getLogger(__name__)


class Strays:
    """Looks for them, and makes them the group's again."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def look(
        self, group: Group, memory: Memory, resolution: Resolution, *, stop: Callable[[], bool]
    ) -> Resolution:
        """Notes in `memory` which of a group's nodes are there and altered.

        Returns its template; none, and why, while nodes that are made would be lost as well.
        """
        parts, before = self._parts, len(memory.altered)
        strays, stripped = parts.cache.strays(group.name), self._stripped(group, memory, resolution)
        if not (strays or stripped or before):
            return resolution
        for name in [n for n, stray in strays.items() if stray.owner != group.uid]:
            parts.cache.settle_stray(group.name, name)
        now = parts.clock.monotonic()
        label = group_label(group.name, group.annotations.get(MACHINES_ANNOTATION, ""))

        async def regain(node: NodeRecord) -> None:
            if node.name in stripped:
                lost = TEMPLATE_MARK
                await parts.writer.stamp(node, resolution.hash, uid=group.uid)
            else:
                lost = await parts.writer.regain(
                    node, group=group.name, uid=group.uid, label=label, looking=group.spec.paused
                )
            if lost:
                memory.regains.tried(node.name, now=now)
                memory.lost_marks = lost

        due = [
            node
            for node in (*parts.cache.strays(group.name).values(), *stripped.values())
            if memory.regains.is_due(node.name, now=now)
        ]
        try:
            await parts.executor.run(due, regain, group=group.name, stop=stop)
        except REFUSED as error:
            logger.warning("nodes not looked for: group=%s error=%s", group.name, error)
        # Those that were put back a moment ago, and have lost it again, too.
        left = {*parts.cache.strays(group.name), *self._stripped(group, memory, resolution)}
        left = set() if group.spec.paused else left
        memory.altered = tuple(n for n in sorted(left) if not memory.regains.is_due(n, now=now))
        if memory.altered and not before:
            logger.warning("nodes are altered: group=%s nodes=%d", group.name, len(memory.altered))
        return _without_altered(resolution, memory)

    def _stripped(
        self, group: Group, memory: Memory, resolution: Resolution
    ) -> dict[str, NodeRecord]:
        """Nodes that would be replaced or patched, because they have lost their template's hash."""
        keep = group.spec.update_strategy.type is UpdateStrategyType.ON_DELETE
        if keep or group.spec.paused or resolution.node is None:
            return {}
        nodes = self._parts.cache.group(group.name).values()
        own = [node for node in nodes if node.owner == group.uid]
        strays = self._parts.cache.strays(group.name).values()
        lost = memory.stamped.lost(resolution.hash, own, strays=strays)
        return {node.name: node for node in lost}


def _without_altered(resolution: Resolution, memory: Memory) -> Resolution:
    if not memory.altered:
        return resolution
    sentence = (
        f"Something takes {memory.lost_marks} off nodes that exist: {few_names(memory.altered)}."
        " It is put back, and no node is made until it stays; exempt nodes with the label"
        " kwok-operator.io/node-group from the controller or webhook that does it."
    )
    return replace(resolution, node=None, error=one_line(sentence), reason="NodesAltered")
