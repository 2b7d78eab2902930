"""Nodes of another cluster become KwokNodeGroups.

Nodes, page by page  --add-->  what is kept of each  --finish-->  manifests, notes, who is where
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kwok_operator.core.importing.bounds import Bounds
from kwok_operator.core.importing.notes import Note
from kwok_operator.core.importing.prices import Prices


@dataclass(frozen=True, slots=True)
class Grouped:
    """`groups_of` has each node that is in a group. `read` counts Nodes that were given."""

    manifests: list[dict[str, Any]]
    notes: list[Note]
    groups_of: Mapping[str, str]
    read: int


@dataclass(slots=True)
class Nodes:
    """One of a name: what is given again takes the place of what was there."""

    _seen: dict[str, Any] = field(default_factory=dict)

    def add(self, body: Any) -> None:
        """A Node, as the API server's JSON has it, or anything else."""

    def finish(
        self,
        *,
        group_by: Sequence[str] = (),
        prices: Prices | None = None,
        bounds: Bounds | None = None,
    ) -> Grouped:
        return Grouped([], [], {}, 0)
