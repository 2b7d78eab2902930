"""Nodes of a group that it lost sight of: gone, or there without what they are recognised by.

    NodeCache.strays ──GET by name──> gone: forgotten, and made anew
                                  └─> altered: put back; until it stays, no node is made

While the group is paused they are only looked for: who is gone takes up no room.

A webhook or controller that takes the label off each node, made anew each time, would have nodes
made without end, which nobody counts.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from kwok_operator.constants import MACHINES_ANNOTATION
from kwok_operator.controller.observed.nodecache import NodeRecord
from kwok_operator.controller.observed.observation import Memory
from kwok_operator.controller.reconcile.parts import Parts
from kwok_operator.controller.sources.templates import Resolution
from kwok_operator.core.template import group_label
from kwok_operator.core.words import few_names
from kwok_operator.errors import REFUSED, one_line
from kwok_operator.kube.groups import Group

logger = logging.getLogger(__name__)


class Strays:
    """Looks for them, and makes them the group's again."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def look(self, group: Group, memory: Memory, *, stop: Callable[[], bool]) -> None:
        """Notes in `memory` which of a group's strays are there and altered."""
        parts, before = self._parts, len(memory.altered)
        strays = dict(parts.cache.strays(group.name))
        for name in [n for n, stray in strays.items() if stray.owner != group.uid]:
            parts.cache.settle_stray(group.name, name)
        now = parts.clock.monotonic()
        label = group_label(group.name, group.annotations.get(MACHINES_ANNOTATION, ""))

        async def regain(stray: NodeRecord) -> None:
            lost = await parts.writer.regain(
                stray, group=group.name, uid=group.uid, label=label, looking=group.spec.paused
            )
            if lost:
                memory.regains.tried(stray.name, now=now)
                memory.lost_marks = lost

        due = [
            stray
            for stray in strays.values()
            if stray.owner == group.uid and memory.regains.is_due(stray.name, now=now)
        ]
        try:
            await parts.executor.run(due, regain, group=group.name, stop=stop)
        except REFUSED as error:
            logger.warning("nodes not looked for: group=%s error=%s", group.name, error)
        # Those that were put back a moment ago, and have lost it again, too.
        left = [] if group.spec.paused else sorted(parts.cache.strays(group.name))
        memory.altered = tuple(n for n in left if not memory.regains.is_due(n, now=now))
        if memory.altered and not before:
            logger.warning("nodes are altered: group=%s nodes=%d", group.name, len(memory.altered))


def without_altered(resolution: Resolution, memory: Memory) -> Resolution:
    """No template, and why, while nodes that are made would be lost as well."""
    if not memory.altered:
        return resolution
    sentence = (
        f"Something takes {memory.lost_marks} off nodes that exist: {few_names(memory.altered)}."
        " It is put back, and no node is made until it stays; exempt nodes with the label"
        " kwok-operator.io/node-group from the controller or webhook that does it."
    )
    return replace(resolution, node=None, error=one_line(sentence), reason="NodesAltered")
