"""The settings of `kwok-operator rehearse`."""

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
    """Which arm to play, if the scenario has arms."""
    output: Path | None = None
    """The folder for the files; None for a new one in the working folder."""
    kubeconfig: str | None = None
    """The cluster to use; if this and `context` are None, one is created."""
    context: str | None = None
    keep: bool = False
    """Whether the created cluster, or what was created in a borrowed one, stays after the
    rehearsal.
    """
    reuse: bool = False
    """Whether it plays on a control plane that an earlier rehearsal left, and leaves it, too."""
    binaries: Mapping[str, Path] = field(default_factory=dict)
    """The paths of programs that the scenario names, by name."""
    demo: bool = False
    """Whether this is the demo: with `keep`, its operator goes on running, too. The next demo
    replaces the cluster.
    """

    @property
    def own_cluster(self) -> bool:
        return self.kubeconfig is None and self.context is None
