"""Reads the companions (CSINode, ResourceSlices) of a real node each minute, for a group that
copies them.

It reads instead of watching, as that node may be in another cluster.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kwok_operator.companions.desired import (
    CompanionKind,
    Trouble,
    copied_from,
    may_not_copy,
    not_copied,
)
from kwok_operator.companions.livecompanions import CopiedCompanions, clean_companions
from kwok_operator.errors import ForbiddenError, KwokOperatorError
from kwok_operator.formats.untyped import as_list
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.nodegroups.templates import SourceMissingError
from kwok_operator.sources.api.source import NodesSource
from kwok_operator.sources.references import Sources

READ_AGAIN_AFTER: Final = 60.0
TRY_AGAIN_AFTER: Final = 10.0

ReadCompanions = Callable[[NodesSource], Awaitable[CopiedCompanions | Trouble]]


async def read_companions(sources: Sources, source: NodesSource) -> CopiedCompanions | Trouble:
    """Reads the CSINode and ResourceSlices of the node that `source` names, or returns the reason
    why it can't."""
    try:
        node, link = await sources.choose(source)
        csi_node = await link.get(f"{CompanionKind.CSI_NODE.path}/{node.name}")
        of_node = {"fieldSelector": f"spec.nodeName={node.name}"}
        slices = await link.get(CompanionKind.RESOURCE_SLICE.path, of_node)
    except SourceMissingError as error:
        return not_copied(error.missing.reason, error.missing.message)
    except ForbiddenError as error:
        return may_not_copy(error.message)
    except KwokOperatorError as error:
        return not_copied("SourceUnreachable", str(error))
    items = as_list((slices or {}).get("items"))
    return clean_companions(node.name, csi_node=csi_node, slices=items)


@dataclass(slots=True)
class Copy:
    """The companions that one group copies. `companions` is None if it copies none, or has not read
    them yet."""

    companions: CopiedCompanions | None = None
    trouble: Trouble | None = None
    _source: NodesSource | None = None
    _again_at: float = 0.0

    @property
    def unknown(self) -> bool:
        """Whether the group copies companions that have not been read yet."""
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
