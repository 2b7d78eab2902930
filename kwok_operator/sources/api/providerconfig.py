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
        """Whether templates are Nodes in a ConfigMap."""
        return self is not ReadNodesFrom.CLUSTER

    @property
    def live(self) -> bool:
        """Whether templates are the real nodes of a cluster."""
        return self is not ReadNodesFrom.CONFIGMAP


class KeyKind(StrEnum):
    LABEL = "label"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A valid provider config. Nodes with the same value of the label or annotation `group_key`
    make one group."""

    read_nodes_from: ReadNodesFrom
    key_kind: KeyKind
    group_key: str
    skip_taint: bool = False
    keep_control_plane: bool | None = None
    """Whether nodes keep the labels and taints of a control plane that their template in a
    ConfigMap has. None means no, and a note reports it."""
    gpu_label_key: str | None = None
    gpu_types: tuple[str, ...] = ()
    configmap_name: str | None = None
    """Never None if templates are read from a ConfigMap."""
    configmap_key: str | None = None
    """As written in the config; `sources.providerconfig.templates_key` decides which key is
    read."""
    cluster: RemoteCluster | None = None
    """The cluster whose nodes are templates, if real nodes are; None for the operator's own
    cluster."""
    copy_sizes: bool = False
    """Whether a new group begins with as many nodes as there are real ones."""
    prune: bool = False
    """Whether groups that are no longer derived are removed."""
    notes: tuple[str, ...] = ()
    """Sentences about settings that are valid, but have no effect."""
