"""Kueue as a process of a scenario: the fields of `kueue`.

The binary and the manifests are the user's, 0.9 or later. `rehearsal/kueue/` says what of the
manifests a manager needs that runs on this machine; `rehearsal/kueuestart.py` starts it.
"""

from typing import Final

from pydantic import Field

from kwok_operator.rehearsal.scenario.parts import Line, ScenarioPart, program_field
from kwok_operator.rehearsal.scenario.timeline import Applying

DEFAULT_BINARY: Final = "kueue"
KUEUE_MODULE: Final = "sigs.k8s.io/kueue"
"""The Go module that has Kueue."""
MANIFESTS: Final = "manifests"
"""The folder of the manifests, beside the program."""


class Kueue(ScenarioPart):
    """Kueue's manager, 0.9 or later."""

    binary: Line = program_field(DEFAULT_BINARY)
    manifests: Line | None = Field(
        default=None,
        description="The manifests of this version's release: a file, a folder or a kustomization."
        " CRDs of others in it are installed, too. Default: the folder manifests beside the"
        " program. Example: kueue-0.19/manifests.yaml.",
    )
    configuration: Line | None = Field(
        default=None,
        description="A file with Kueue's Configuration. Default: that of the manifests. Example:"
        " kueue-config.yaml.",
    )
    objects: Applying = Field(
        default=(),
        description="Files, folders and objects that are applied once it is ready: ResourceFlavors,"
        " ClusterQueues, LocalQueues, Topologies and others. Example: [queues.yaml].",
    )

    @property
    def paths(self) -> list[str]:
        """The files and folders that the fields name, without the program."""
        own = (self.manifests, self.configuration, *(each.path for each in self.objects))
        return [path for path in own if path is not None]
