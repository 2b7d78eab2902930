"""The processes of a scenario: programs that run beside the cluster.

This module has only the fields. `rehearsal/testbed.py` starts and ends processes, `runner.py`
watches them. The two sets of cluster-autoscaler's flags are in `autoscaler.py`, the fields of
Karpenter in `karpenter.py`, those of Kueue in `kueue.py`.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from kwok_operator.rehearsal.scenario.karpenter import CRDS_FOLDER, Karpenter
from kwok_operator.rehearsal.scenario.kueue import Kueue
from kwok_operator.rehearsal.scenario.linepattern import LinePattern
from kwok_operator.rehearsal.scenario.parts import (
    Line,
    PositiveSpan,
    ScenarioName,
    ScenarioPart,
    TextOrNumber,
    program_field,
    require_one,
)
from kwok_operator.rehearsal.scenario.timeline import Command

DEFAULT_BINARY = "cluster-autoscaler"
_FLAGS_WITH_CRDS = (
    "enable-provisioning-requests",
    "capacity-buffer-controller-enabled",
    "capacity-buffer-pod-injection-enabled",
    "capacity-quotas-enabled",
)
_TCP = re.compile(r"[^\s:]+:[0-9]{1,5}")


class FlagSet(StrEnum):
    """Which flags cluster-autoscaler gets: ones with short delays (fast), or its defaults
    (production).
    """

    FAST = "fast"
    PRODUCTION = "production"


class ClusterAutoscaler(ScenarioPart):
    """cluster-autoscaler with a shim of its own."""

    binary: Line = program_field(DEFAULT_BINARY)
    values: FlagSet = Field(
        default=FlagSet.FAST,
        description="Which set of flags: fast, or production, which is its own defaults. Default:"
        " fast.",
    )
    flags: dict[str, TextOrNumber] = Field(
        default_factory=dict,
        max_length=200,
        description="Flags beside those, without dashes. Example: {expander: price}.",
    )
    crds: Line | None = Field(
        default=None,
        description="The folder with the CRDs that its flags need, as for ProvisioningRequests and"
        " CapacityBuffers. Default: the folder crds beside the program, if a flag needs them."
        " Example: cluster-autoscaler-1.36/crds.",
    )
    api_trouble: dict[str, Any] | None = Field(
        default=None,
        description="What goes wrong with the cloud's API, as in the file of the shim's"
        " --api-trouble. It meets groups with spec.cloud.apiTrouble. Default: nothing.",
    )

    @property
    def flags_with_crds(self) -> list[str]:
        """The names of the scenario's flags that need CRDs of cluster-autoscaler."""
        given = {name.replace("_", "-"): value for name, value in self.flags.items()}
        return [name for name in _FLAGS_WITH_CRDS if given.get(name, "false").lower() != "false"]

    def folder_of_crds(self, beside: Callable[[str], str | None]) -> str | None:
        """Returns the folder of cluster-autoscaler's CRDs that the scenario names. If it names
        none, but has flags that need CRDs, returns what `beside` returns for one beside the
        program.
        """
        needed = bool(self.flags_with_crds)
        return self.crds or (beside(CRDS_FOLDER) if needed else None)


class Readiness(ScenarioPart):
    """When a process is ready."""

    http: Line | None = Field(
        default=None,
        description="A URL that answers. Example: http://127.0.0.1:8080/readyz.",
    )
    tcp: Line | None = Field(
        default=None, description="Host and port that take connections. Example: 127.0.0.1:8080."
    )
    says: Line | None = Field(
        default=None,
        description="What a line of its log has, as a regular expression without look-around and"
        " back-references.",
    )
    within: PositiveSpan = Field(
        default=30.0, description="After this time it counts as failed. Default: 30s."
    )

    @model_validator(mode="after")
    def _one(self) -> "Readiness":
        require_one(self, "http", "tcp", "says")
        if self.http is not None and not _is_url(self.http):
            raise ValueError("http is no URL; write one such as http://127.0.0.1:8080/readyz")
        if self.tcp is not None and not (
            _TCP.fullmatch(self.tcp) and int(self.tcp.rpartition(":")[2]) < 1 << 16
        ):
            raise ValueError("tcp is no host and port, such as 127.0.0.1:8080")
        try:
            LinePattern(self.says or "")
        except ValueError as error:
            raise ValueError(f"says {error}") from error
        return self


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # of the port, or of brackets
        return False


class Starts(StrEnum):
    AT_ONCE = "atOnce"
    BY_TIMELINE = "byTimeline"


class Ends(StrEnum):
    NEVER = "never"
    MAY = "may"
    MUST = "must"


class ScenarioProcess(ScenarioPart):
    """A program that runs beside the cluster."""

    name: ScenarioName = Field(description="What it is called. Example: ca.")
    cluster_autoscaler: ClusterAutoscaler | None = Field(
        default=None, description="cluster-autoscaler, with a shim. Example: {values: fast}."
    )
    karpenter: Karpenter | None = Field(
        default=None,
        description="Karpenter with its kwok provider. Example: {nodePools: [nodepools.yaml]}.",
    )
    kueue: Kueue | None = Field(
        default=None,
        description="Kueue. Example: {manifests: kueue/manifests.yaml, objects: [queues.yaml]}.",
    )
    command: Command | None = Field(
        default=None,
        description="Any other program, with arguments; $(KUBECONFIG) and other variables are"
        ' filled in. Example: [./bin/controller, "--kubeconfig=$(KUBECONFIG)"].',
    )
    env: dict[str, TextOrNumber] = Field(
        default_factory=dict, max_length=100, description="Variables beside those of the rehearsal."
    )
    ready: Readiness | None = Field(
        default=None,
        description="When it is ready. Default: at once; a preset's own.",
    )
    starts: Starts = Field(
        default=Starts.AT_ONCE,
        description="atOnce, before workloads arrive, or byTimeline. Default: atOnce.",
    )
    ends: Ends = Field(
        default=Ends.NEVER,
        description="Whether it may end by itself: never, may, or must, with exit code 0."
        " Default: never.",
    )

    @model_validator(mode="after")
    def _one(self) -> "ScenarioProcess":
        require_one(self, "cluster_autoscaler", "karpenter", "kueue", "command")
        if self.kueue is not None and self.ready is not None:
            raise ValueError("has ready, and Kueue is ready once its webhooks answer; take it out")
        return self

    @property
    def program(self) -> str:
        """The program that is started."""
        preset = self.cluster_autoscaler or self.karpenter or self.kueue
        if preset is not None:
            return preset.binary
        return self.command[0] if self.command else ""

    @property
    def program_field(self) -> tuple[str, ...]:
        """The path of the field that names the program."""
        if self.cluster_autoscaler is not None:
            return ("clusterAutoscaler", "binary")
        if self.kueue is not None:
            return ("kueue", "binary")
        return ("karpenter", "binary") if self.karpenter is not None else ("command",)
