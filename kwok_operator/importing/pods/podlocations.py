"""The nodes that the pods of a workload were on, and since when other pods were pending.

workloads.py collects them; incidents/placement.py makes the placement from them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kwok_operator.formats.untyped import text_at


@dataclass(slots=True)
class PodLocations:
    """The pods of one workload. `nodes` counts pods by the name of their node, without those in
    `ordinals`: this has the node of each pod of a StatefulSet by the pod's ordinal, empty if the
    pod is pending. `pending` has the creation times (RFC 3339; empty if unknown) of pods without a
    node, and `waiting` has their names.
    """

    nodes: Counter[str] = field(default_factory=Counter)
    ordinals: dict[int, str] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def add(self, body: Mapping[str, Any], *, of_set: str = "") -> None:
        """Adds a pod; `of_set` is the name of its StatefulSet, if it has one."""
        node = text_at(body, "spec", "nodeName")
        ordinal = text_at(body, "metadata", "name").removeprefix(f"{of_set}-")
        if not node:
            self.pending.append(text_at(body, "metadata", "creationTimestamp"))
            self.waiting.append(text_at(body, "metadata", "name"))
        if of_set and ordinal.isascii() and ordinal.isdigit() and len(ordinal) < 10:
            self.ordinals[int(ordinal)] = node
        elif node:
            self.nodes[node] += 1

    @property
    def count(self) -> int:
        return self.nodes.total() + len(self.ordinals) + len(self.pending)

    def merge(self, others: "PodLocations") -> None:
        self.nodes.update(others.nodes)  # += looks at all nodes each time
        self.ordinals |= others.ordinals
        self.pending += others.pending
        self.waiting += others.waiting
