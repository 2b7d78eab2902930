"""The fields of `karpenter` of a process in a scenario.

The binary and the folder of its CRDs come from the user: Karpenter with its kwok provider, 1.4 or
later. NodePools and instance types are made from groups, by `rehearsal/karpenter/`, or given;
`rehearsal/karpenterstart.py` starts Karpenter.
"""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from kwok_operator.api.base import number_as_text
from kwok_operator.rehearsal.scenario.parts import (
    TIME_SCHEMA,
    Line,
    PositiveSpan,
    ScenarioPart,
    Span,
    program_field,
    seconds_of,
)
from kwok_operator.rehearsal.scenario.timeline import APPLYING_SCHEMA, Applying

DEFAULT_BINARY: Final = "karpenter"
KARPENTER_MODULE: Final = "sigs.k8s.io/karpenter"
"""The Go module of Karpenter."""
CRDS_FOLDER: Final = "crds"
"""The name of the folder of CRDs beside the program."""
GROUPS: Final = "groups"
"""The value of `nodePools` and `instanceTypesFrom` by which they are made from the groups."""
NEVER: Final = "Never"


def _whole(seconds: float) -> float:
    if seconds != int(seconds):
        raise ValueError("is no number of whole seconds, which Karpenter needs; round it")
    return seconds


def _after(value: Any) -> Any:
    return NEVER if value == NEVER else duration(_whole(seconds_of(value)))


def duration(seconds: float) -> str:
    """Returns whole seconds as a duration in Karpenter's objects."""
    return f"{seconds:.0f}s"


def _none_of_groups(value: Any) -> Any:
    return None if value == GROUPS else value


class ConsolidationPolicy(StrEnum):
    WHEN_EMPTY = "WhenEmpty"
    WHEN_EMPTY_OR_UNDERUTILIZED = "WhenEmptyOrUnderutilized"
    BALANCED = "Balanced"


class DisruptionReason(StrEnum):
    UNDERUTILIZED = "Underutilized"
    EMPTY = "Empty"
    DRIFTED = "Drifted"


class FeatureGate(StrEnum):
    """A gate of Karpenter, which silently ignores unknown ones; here, these are errors."""

    NODE_REPAIR = "NodeRepair"
    RESERVED_CAPACITY = "ReservedCapacity"
    SPOT_TO_SPOT_CONSOLIDATION = "SpotToSpotConsolidation"
    NODE_OVERLAY = "NodeOverlay"
    STATIC_CAPACITY = "StaticCapacity"
    CAPACITY_BUFFER = "CapacityBuffer"
    TERMINATE_FIRST_DRIFT = "TerminateFirstDrift"
    TERMINATE_FIRST_REPAIR = "TerminateFirstRepair"
    POD_DELETION_COST_MANAGEMENT = "PodDeletionCostManagement"


class LogLevel(StrEnum):
    INFO = "info"
    DEBUG = "debug"


class DisruptionBudget(ScenarioPart):
    """How many nodes of a NodePool may be disrupted at a time."""

    nodes: Annotated[
        str,
        BeforeValidator(number_as_text),
        StringConstraints(pattern=r"^((100|[0-9]{1,2})%|[0-9]{1,9})$"),
        WithJsonSchema({"type": ["string", "integer"]}),
    ] = Field(description='A number, or a share of its nodes. Example: "20%".')
    reasons: tuple[DisruptionReason, ...] = Field(
        default=(), max_length=3, description="For these reasons only. Default: for all."
    )


class Disruption(ScenarioPart):
    """spec.disruption of the NodePools that are made from groups."""

    consolidation_policy: ConsolidationPolicy | None = Field(
        default=None,
        description="WhenEmpty, WhenEmptyOrUnderutilized, or Balanced, which Karpenter has from"
        " 1.14 on. Default: Karpenter's own.",
    )
    consolidate_after: (
        Annotated[
            str,
            PlainValidator(_after),
            WithJsonSchema({"type": ["string", "number"], "pattern": rf"{TIME_SCHEMA}|^{NEVER}$"}),
        ]
        | None
    ) = Field(
        default=None,
        description="How long no pod must have come or gone before a node is consolidated, or"
        " Never. Default: Karpenter's own, 0s. Example: 30s.",
    )
    budgets: tuple[DisruptionBudget, ...] = Field(
        default=(),
        max_length=50,
        description="How many nodes at a time. Default: Karpenter's own, 10%. Example: [{nodes:"
        ' "50%"}].',
    )


class NodeClass(ScenarioPart):
    """The KWOKNodeClass `default`, which all NodePools get that don't name another one."""

    registration_delay: Annotated[Span, AfterValidator(_whole)] | None = Field(
        default=None,
        description="From when a NodeClaim is launched until its Node appears. Default:"
        " provisioningDelay and readinessDelay of the groups together, if that is one constant for"
        " all of them, else none. Example: 40s.",
    )


class Karpenter(ScenarioPart):
    """Karpenter with its kwok provider, 1.4 or later."""

    binary: Line = program_field(DEFAULT_BINARY)
    crds: Line | None = Field(
        default=None,
        description="The folder with the CRDs of this version: nodepools, nodeclaims,"
        " kwoknodeclasses and others. Default: the folder crds beside the program. Example:"
        " karpenter-1.14/crds.",
    )
    node_pools: Annotated[
        Annotated[Applying, Field(min_length=1)] | None,
        BeforeValidator(_none_of_groups),
        WithJsonSchema({"anyOf": [{"const": GROUPS}, APPLYING_SCHEMA]}),
    ] = Field(
        default=None,
        description="groups, or files, folders and objects: NodePools, KWOKNodeClasses and"
        " NodeOverlays. With groups, there is a NodePool for each set of taints. Default: groups.",
    )
    instance_types_from: Line = Field(
        default=GROUPS,
        description="groups, or a JSON file of Karpenter's kwok provider. With groups, there is one"
        " type for each shape of node, and an offering for each group. Default: groups. Example:"
        " instance-types.json.",
    )
    node_class: NodeClass = Field(
        default_factory=NodeClass,
        description="The class of the nodes. Example: {registrationDelay: 40s}.",
    )
    disruption: Disruption | None = Field(
        default=None,
        description="Of NodePools from groups. Default: Karpenter's own. Example:"
        " {consolidateAfter: 30s}.",
    )
    feature_gates: dict[FeatureGate, bool] = Field(
        default_factory=dict,
        description="Default: Karpenter's own. Example: {SpotToSpotConsolidation: true}.",
    )
    batch_idle: PositiveSpan | None = Field(
        default=None,
        description="A batch of pods ends when none has come for so long. Default: Karpenter's own,"
        " 1s.",
    )
    batch_max: PositiveSpan | None = Field(
        default=None,
        description="A batch of pods ends after this time. Default: Karpenter's own, 10s.",
    )
    log_level: LogLevel = Field(default=LogLevel.INFO, description="info or debug. Default: info.")

    @model_validator(mode="after")
    def _fits(self) -> "Karpenter":
        if self.node_pools is None and self.types_file is not None:
            raise ValueError("takes instance types from a file, so it needs nodePools, too")
        if self.node_pools is not None and self.disruption is not None:
            raise ValueError(
                "has nodePools and disruption, which is for those of groups; write"
                " spec.disruption into the NodePools"
            )
        return self

    @property
    def types_file(self) -> str | None:
        """The file of the instance types; None if they are made from groups."""
        return None if self.instance_types_from == GROUPS else self.instance_types_from

    @property
    def disruption_of_pools(self) -> dict[str, Any] | None:
        """spec.disruption of NodePools that are made from groups; None for Karpenter's default."""
        return self.disruption.dump() if self.disruption is not None else None

    @property
    def gathers_pods(self) -> float:
        """For how many seconds no new pod must come until Karpenter acts on the pending pods that
        it has collected.
        """
        return min(self.batch_idle or 1.0, self.batch_max or 10.0)

    @property
    def gates_on(self) -> frozenset[str]:
        """The feature gates that the scenario turns on."""
        return frozenset(gate.value for gate, on in self.feature_gates.items() if on)

    @property
    def paths(self) -> list[str]:
        """The files and folders that the fields name, without the program."""
        pools = [each.path for each in self.node_pools or ()]
        return [path for path in (self.crds, *pools, self.types_file) if path is not None]
