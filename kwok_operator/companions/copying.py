"""What a group's nodes have of a real node's companions: read again and again, the last one kept.

`read` is what asks for it; that node's API server is not watched.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kwok_operator.companions.desired import Trouble, copied_from
from kwok_operator.companions.livecompanions import CopiedCompanions
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.sources.api.source import NodesSource

READ_AGAIN_AFTER: Final = 60.0
TRY_AGAIN_AFTER: Final = 10.0

ReadCompanions = Callable[[NodesSource], Awaitable[CopiedCompanions | Trouble]]


@dataclass(slots=True)
class Copy:
    """Of one group; `companions` is None while there is nothing to copy, or nothing known of it."""

    companions: CopiedCompanions | None = None
    trouble: Trouble | None = None
    _source: NodesSource | None = None
    _again_at: float = 0.0

    @property
    def unknown(self) -> bool:
        """Whether nodes may be about to get, or to keep, what has not been read yet."""
        return self._source is not None and self.companions is None

    async def refresh(self, template: Template, read: ReadCompanions, *, now: float) -> None:
        source = copied_from(template)
        if source is None or source != self._source:
            self.companions, self.trouble, self._source, self._again_at = None, None, source, now
        if source is None or now < self._again_at:
            return
        found = await read(source)
        if isinstance(found, Trouble):
            self.trouble, self._again_at = found, now + TRY_AGAIN_AFTER
            return
        self.trouble, self._again_at = None, now + READ_AGAIN_AFTER
        if found != self.companions:
            self.companions = found
