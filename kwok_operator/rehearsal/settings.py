"""What `kwok-operator rehearse` was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEMO: Final = Path(__file__).parent / "demo" / "tour.yaml"
DEMO_CLUSTER: Final = "demo"


@dataclass(frozen=True, slots=True)
class RehearseSettings:
    scenario: Path
    arm: str | None = None
    """Which to play of a scenario that has arms."""
    output: Path | None = None
    """None: a new folder in the working folder."""
    kubeconfig: str | None = None
    """None, as is the context: a cluster is made."""
    context: str | None = None
    keep: bool = False
    """Whether the cluster stays when the rehearsal is over; one that isn't ours: what was made."""
    binaries: Mapping[str, Path] = field(default_factory=dict)
    """Where programs are that the scenario names."""
    demo: bool = False
    """Whether its operator goes on running in the cluster that is kept. The next demo replaces
    that cluster.
    """

    @property
    def own_cluster(self) -> bool:
        return self.kubeconfig is None and self.context is None
