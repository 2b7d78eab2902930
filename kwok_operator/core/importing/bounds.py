"""Fewest and most nodes of imported groups, and options: what cluster-autoscaler (CA) says there.

CA's flags, its status, provider config, Cluster API, Karpenter  --Bounds-->  Autoscaling, notes
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kwok_operator.core.importing.notes import Note


@dataclass(slots=True)
class Bounds:
    """What is known. All `add_` methods take anything, and tell what they can't read in notes."""

    notes: list[Note] = field(default_factory=list)

    def add_autoscaler(self, body: Any) -> None:
        """A Deployment (or Pod) that may be CA: its flags."""

    def add_status(self, text: Any) -> None:
        """The text in the ConfigMap cluster-autoscaler-status."""

    def add_provider_config(self, text: Any, templates: Mapping[str, Any] | None = None) -> None:
        """The config of CA's kwok provider, and the data of the ConfigMap with its templates."""

    def add_scalable(self, body: Any) -> None:
        """A MachineDeployment, MachineSet or MachinePool."""

    def add_node_pool(self, body: Any) -> None:
        """A NodePool of Karpenter."""
