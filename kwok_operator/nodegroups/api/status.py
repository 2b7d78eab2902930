"""The status of a KwokNodeGroup: what the operator has observed and done, and what it must
remember.

Owns every field of status, the condition types, and the text that `kubectl explain` prints. The
operator alone writes it. After a restart it reads back `nextSerial`, `pending` and
`resolvedTemplate`. A missing status is an empty one.

Nothing is computed here: nodegroups/status.py makes counts and conditions, and reporting.py decides
when they are written. `KwokNodeGroupStatus.dump()` is what is sent to the API server.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, field_validator

from kwok_operator.api.base import ApiModel
from kwok_operator.cloud.api.cloudstatus import CloudStatus
from kwok_operator.topology.api import TopologyStatus

ConditionStatus = Literal["True", "False", "Unknown"]

LAST_SERIAL: Final = 10**18 - 1
"""The highest serial (number at the end of a node's name). No group gets there unless somebody
edits its status; a longer number in a name is no serial."""


class ConditionType(StrEnum):
    """The types of a group's conditions. Most are present once the operator has seen the group.

    Autoscalable is present with `spec.autoscaling`, CompanionsPresent with
    `spec.template.companions`; Provisioned, Outage and CloudSimulated with `spec.cloud`, or while
    instances from an earlier `spec.cloud` are left.
    """

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    TEMPLATE_RESOLVED = "TemplateResolved"
    SCALING_LIMITED = "ScalingLimited"
    PAUSED = "Paused"
    FOREIGN_NODES = "ForeignNodes"
    AUTOSCALABLE = "Autoscalable"
    COMPANIONS_PRESENT = "CompanionsPresent"
    """Every node has its companions; Unknown while they are written."""
    PROVISIONED = "Provisioned"
    """Every requested instance has its Node."""
    OUTAGE = "Outage"
    CLOUD_SIMULATED = "CloudSimulated"
    """Whether nodes can be kept NotReady as the simulated cloud demands. It is False if kwok would
    make them Ready."""


OUT_OF_STOCK: Final = "OutOfStock"
POOL_EXHAUSTED: Final = "PoolExhausted"
POOL_MISSING: Final = "PoolMissing"
OUTAGE: Final = "Outage"
UNIT_OUTAGE: Final = "UnitOutage"
ALL_ARRIVED: Final = "AllArrived"
PROVISIONING: Final = "Provisioning"
"""The reason while requested instances are under way and none has failed."""
FAILURES: Final = (
    POOL_MISSING,
    OUT_OF_STOCK,
    POOL_EXHAUSTED,
    "CreationFailed",
    "NeverRegisters",
)
"""Reasons why requested instances never become nodes, or not in time, unless somebody changes
something."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition says. `message` is a sentence for people: what is wrong, and what to do."""

    status: bool
    reason: str
    message: str
    known: bool = True

    @property
    def text(self) -> ConditionStatus:
        if not self.known:
            return "Unknown"
        return "True" if self.status else "False"


class Condition(ApiModel):
    type: str = Field(
        description="What the condition is about: Ready, Reconciling, Stalled, TemplateResolved,"
        " ScalingLimited, Paused, ForeignNodes; with spec.autoscaling, Autoscalable; with"
        " spec.template.companions, CompanionsPresent; with spec.cloud, Provisioned,"
        " Outage and CloudSimulated."
    )
    status: ConditionStatus = Field(description="Whether it holds: True, False or Unknown.")
    reason: str = Field(description="Why, in one word for programs.")
    message: str = Field(
        default="", description="Why, in a sentence for people, and what to do about it."
    )
    observed_generation: int | None = Field(
        default=None, description="The metadata.generation that the condition was computed from."
    )
    last_transition_time: str = Field(
        description="When status last changed, in RFC 3339.",
        json_schema_extra={"format": "date-time"},
    )


C = TypeVar("C", bound=Condition)
K = TypeVar("K", bound=str)


def conditions_of(
    model: type[C],
    verdicts: Mapping[K, Verdict],
    *,
    previous: Iterable[C],
    generation: int,
    now: str,
    began: Mapping[str, str | None] = MappingProxyType({}),
) -> tuple[C, ...]:
    """Returns a condition for each type in `verdicts` (status, reason, message). If the status
    differs from that in `previous`, `lastTransitionTime` is the time in `began`, or else `now`."""
    before = {condition.type: condition for condition in previous}
    conditions = []
    for kind, verdict in verdicts.items():
        old, status = before.get(kind), verdict.text
        same = old is not None and old.status == status
        since = old.last_transition_time if old and same else began.get(kind) or now
        conditions.append(
            model(
                type=kind,
                status=status,
                reason=verdict.reason,
                message=verdict.message,
                observed_generation=generation,
                last_transition_time=since,
            )
        )
    return tuple(conditions)


class PendingBatch(ApiModel):
    first: int = Field(description="The first serial of the batch.")
    last: int = Field(description="The last serial of the batch, which belongs to it.")
    requested_at: str = Field(
        description="When the batch was asked for, in RFC 3339.",
        json_schema_extra={"format": "date-time"},
    )
    # Not `alias`: a type checker would then demand a keyword argument named "except".
    except_: str | None = Field(
        default=None,
        validation_alias="except",
        serialization_alias="except",
        description="Serials of the batch that aren't waited for any more, as ranges."
        ' Example: "5,17-20".',
    )

    @field_validator("except_", mode="after")
    @classmethod
    def _empty_is_absent(cls, value: str | None) -> str | None:
        return value or None


class KwokNodeGroupStatus(ApiModel):
    replicas: int = Field(default=0, description="Nodes that exist, ready or not.")
    ready_replicas: int = Field(
        default=0,
        description="Nodes that are usable: Ready, and without Kubernetes' own taints not-ready and"
        " unreachable, so that pods that tolerate the other taints can run there.",
    )
    updated_replicas: int = Field(
        default=0, description="Nodes that were made from the present template."
    )
    pending_replicas: int = Field(
        default=0, description="Nodes that were asked for and don't exist yet."
    )
    failed_replicas: int = Field(
        default=0, description="Nodes that were asked for and could not be created."
    )
    target_size: int | None = Field(
        default=None,
        description="The number of nodes in force: spec.targetSize within all limits. The"
        " condition ScalingLimited says which limit held, if any.",
    )
    observed_generation: int | None = Field(
        default=None, description="The metadata.generation that this status belongs to."
    )
    selector: str | None = Field(
        default=None,
        description="Label selector of the group's nodes. Try: kubectl get nodes -l SELECTOR.",
    )
    next_serial: int = Field(
        default=0,
        description="The number that the next node's name ends in. No number is used twice.",
    )
    pending: tuple[PendingBatch, ...] = Field(
        default=(),
        description="Batches of nodes that were asked for and aren't all there yet.",
    )
    resolved_template: dict[str, Any] | None = Field(
        default=None,
        description="The node that new nodes are copied from, after merging and cleaning.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    template_hash: str | None = Field(
        default=None, description="Short hash of resolvedTemplate; nodes carry it too."
    )
    template_source: str | None = Field(
        default=None,
        description="Where the template comes from, in a word. Default: no template was given.",
    )
    cloud: CloudStatus | None = Field(
        default=None,
        description="Instances that have no Node, and what was decided about them. Default: there"
        " is no spec.cloud.",
    )
    topology: TopologyStatus | None = Field(
        default=None,
        description="The places of nodes to come. Default: there is no spec.template.topology.",
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description="How the group is doing. Try: kubectl wait kng NAME --for=condition=Ready.",
        json_schema_extra={"x-kubernetes-list-map-keys": ["type"]},
    )

    @field_validator("next_serial", mode="after")
    @classmethod
    def _only_ours(cls, value: int) -> int:
        """Returns `nextSerial`, or 0 if it is too high for the operator to have written it. Nodes
        and batches then show which serials are used."""
        return value if value <= LAST_SERIAL + 1 else 0
