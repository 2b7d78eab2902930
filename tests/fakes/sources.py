"""Sources of templates by script: what a test says is found."""

from typing import cast

from kwok_operator.controller.sources.references import Found, Missing, SourceMissingError, Sources
from kwok_operator.core.companions import Trouble
from kwok_operator.core.livecompanions import CopiedCompanions
from kwok_operator.core.template import SourceNode
from kwok_operator.kube.groups import Group
from kwok_operator.models.source import NodesSource


class ScriptedSources:
    """Gives `nodes`, in this version; or `missing`; and fails to load where `vanished` is set."""

    def __init__(self) -> None:
        self.nodes: tuple[SourceNode, ...] = ()
        self.version = ""
        self.origin = ""
        self.missing: Missing | None = None
        self.vanished = False
        self.loads = 0
        self.copied: CopiedCompanions | Trouble = CopiedCompanions()

    async def find(self, group: Group) -> Found:
        return Found(self.version, self.origin, self._load, self.missing)

    async def companions(self, source: NodesSource) -> CopiedCompanions | Trouble:
        return self.copied

    async def _load(self) -> tuple[SourceNode, ...]:
        self.loads += 1
        if self.vanished:
            raise SourceMissingError("NodeNotFound", "it has gone")
        return self.nodes

    def as_sources(self) -> Sources:
        return cast(Sources, self)
