"""The values of a valid provider config; sources/providerconfig.py reads its text."""

from dataclasses import dataclass
from enum import StrEnum

from kwok_operator.sources.api.source import RemoteCluster

DEFAULT_TEMPLATES_KEY = "config"
ORIGINAL_TEMPLATES_KEY = "templates"
"""The only key that cluster-autoscaler's own provider reads."""


class ReadNodesFrom(StrEnum):
    CONFIGMAP = "configmap"
    CLUSTER = "cluster"
    BOTH = "both"

    @property
    def static(self) -> bool:
        """Whether Nodes in a ConfigMap are templates."""
        return self is not ReadNodesFrom.CLUSTER

    @property
    def live(self) -> bool:
        """Whether the nodes of a cluster are templates."""
        return self is not ReadNodesFrom.CONFIGMAP


class KeyKind(StrEnum):
    LABEL = "label"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A valid config. Nodes with one value of `group_key` are one group."""

    read_nodes_from: ReadNodesFrom
    key_kind: KeyKind
    group_key: str
    skip_taint: bool = False
    keep_control_plane: bool | None = None
    """Whether nodes have the labels and taints of a control plane that their template in a
    ConfigMap has; None means no, with a note.
    """
    gpu_label_key: str | None = None
    gpu_types: tuple[str, ...] = ()
    configmap_name: str | None = None
    """Never None where templates are read from a ConfigMap."""
    configmap_key: str | None = None
    """As written; see `sources.providerconfig.templates_key` for the one to read."""
    cluster: RemoteCluster | None = None
    """The cluster whose nodes are templates, if live nodes are; None for the operator's own."""
    copy_sizes: bool = False
    """Whether a new group begins with as many nodes as there are live ones."""
    prune: bool = False
    """Whether groups that are no longer derived are removed."""
    notes: tuple[str, ...] = ()
    """Sentences about settings that are accepted, but have no effect."""
