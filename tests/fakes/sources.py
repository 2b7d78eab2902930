"""Sources of templates by script: what a test says is found."""

from typing import Any, cast

from kwok_operator.companions.desired import Trouble
from kwok_operator.companions.livecompanions import CopiedCompanions
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.template import SourceNode
from kwok_operator.nodegroups.templates import Found, Missing, SourceMissingError
from kwok_operator.sources.api.source import NodesSource
from kwok_operator.sources.configmaps import ConfigMap
from kwok_operator.sources.references import Sources


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


def body_of(configmap: ConfigMap) -> dict[str, Any]:
    """As the API server has it."""
    metadata = {
        "namespace": configmap.namespace,
        "name": configmap.name,
        "uid": configmap.uid,
        "resourceVersion": str(configmap.resource_version),
    }
    return {"metadata": metadata, "data": dict(configmap.data)}
