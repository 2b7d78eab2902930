"""The spec of a KwokNodeGroup: what people and autoscalers ask for.

Owns every field of spec: its type, its limits, its default, the text that `kubectl explain`
prints, and the rules the API server checks (CEL, next to the fields they are about). The CRD is
generated from here by `crd.py`, so a limit is written once.

Defaults live here and not in the CRD: but for `autoscaling.minSize`, the API server adds nothing to
what users wrote, and their manifests don't differ from what is stored. Reading is tolerant: an
empty or missing spec is a group with defaults.

Doesn't decide anything: how the parts of a template are merged and what a target means belongs to
the core.
"""

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from kwok_operator.constants import (
    GUARD_TAINT_EFFECT,
    GUARD_TAINT_KEY,
    GUARD_TAINT_VALUE,
    HOSTNAME_LABEL,
    MAX_NODES_TO_DELETE,
    NODE_GROUP_LABEL,
)
from kwok_operator.models.base import (
    EXTENDED_RESOURCE_NAME,
    QUALIFIED_NAME,
    STORED_DEFAULT,
    ApiModel,
    ExtendedResourceName,
    LabelName,
    LabelValue,
    NodeName,
    QualifiedName,
    Quantity,
    matches,
)

MAX_TARGET_SIZE = 1_000_000
DEFAULT_GPU_TYPE = "nvidia.com/gpu"


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class ScaleDownOrder(StrEnum):
    NEWEST_FIRST = "NewestFirst"
    OLDEST_FIRST = "OldestFirst"


class DeletedNodePods(StrEnum):
    LEAVE = "Leave"
    DELETE = "Delete"


class Taint(ApiModel):
    key: QualifiedName = Field(
        description="The taint's key. Example: gpu, or example.com/dedicated."
    )
    value: LabelValue = Field(
        default="", description='The taint\'s value. Default: empty. Example: "true".'
    )
    effect: TaintEffect = Field(
        description="What happens to pods that don't tolerate the taint: NoSchedule keeps new"
        " ones away, PreferNoSchedule tries to, NoExecute evicts running ones as well."
    )


class GuardTaint(ApiModel):
    enabled: bool = Field(
        default=True,
        description="Whether the nodes get the guard taint. Without it, any pod of the cluster can"
        " be scheduled to a fake node, where nothing runs. Default: true.",
    )
    key: QualifiedName = Field(
        default=GUARD_TAINT_KEY, description=f"The taint's key. Default: {GUARD_TAINT_KEY}."
    )
    value: LabelValue = Field(
        default=GUARD_TAINT_VALUE,
        description=f'The taint\'s value. Default: "{GUARD_TAINT_VALUE}".',
    )
    effect: TaintEffect = Field(
        default=TaintEffect(GUARD_TAINT_EFFECT),
        description=f"What happens to pods that don't tolerate it. Default: {GUARD_TAINT_EFFECT}.",
    )


class Reserved(ApiModel):
    cpu: Quantity | None = Field(
        default=None, description="CPU cores kept back. Default: none. Example: 500m."
    )
    memory: Quantity | None = Field(
        default=None, description="Memory kept back, in bytes. Default: none. Example: 2Gi."
    )
    ephemeral_storage: Quantity | None = Field(
        default=None, description="Local disk kept back, in bytes. Default: none. Example: 10Gi."
    )


class Gpu(ApiModel):
    type: ExtendedResourceName = Field(
        default=DEFAULT_GPU_TYPE,
        description="The resource that pods ask for to get a GPU, with its domain."
        f" Default: {DEFAULT_GPU_TYPE}. Example: amd.com/gpu.",
    )
    count: int = Field(ge=0, le=100_000, description="GPUs of each node. Example: 8.")


def _reserved_within(field: str) -> JsonDict:
    # isQuantity first: a quantity that breaks its pattern is reported once, by the pattern.
    reserved, whole = f"self.reserved.{field}", f"self.{field}"
    return {
        "rule": f"!has(self.reserved) || !has({reserved}) || !has({whole})"
        f" || !isQuantity(string({reserved})) || !isQuantity(string({whole}))"
        f" || !quantity(string({reserved})).isGreaterThan(quantity(string({whole})))",
        "message": f"shape.reserved.{field} must not be greater than shape.{field}:"
        f" what is kept back is a part of what the node has",
        "fieldPath": f".reserved.{field}",
    }


class Shape(ApiModel):
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                _reserved_within("cpu"),
                _reserved_within("memory"),
                _reserved_within("ephemeralStorage"),
                {
                    "rule": f"!has(self.labels) || !['{HOSTNAME_LABEL}', '{NODE_GROUP_LABEL}']"
                    ".exists(name, name in self.labels)",
                    "message": f"shape.labels must set neither {HOSTNAME_LABEL} nor"
                    f" {NODE_GROUP_LABEL}: every node gets its own; remove them",
                    "fieldPath": ".labels",
                },
                {
                    "rule": "!has(self.resources) || self.resources.all(name,"
                    f" {matches(EXTENDED_RESOURCE_NAME, of='name')}"
                    " || name.startsWith('hugepages-'))",
                    "message": "shape.resources is for resources with a domain, such as"
                    " example.com/fpga, and for huge pages, such as hugepages-2Mi; the others are"
                    " shape.cpu, shape.memory, shape.ephemeralStorage and shape.maxPods",
                    "fieldPath": ".resources",
                },
                {
                    "rule": "!has(self.labels) || self.labels.all(key, "
                    f"{matches(QUALIFIED_NAME, of='key')})",
                    "message": "shape.labels: a key must be a name, with a domain or without,"
                    " such as pool or example.com/pool",
                    "fieldPath": ".labels",
                },
                {
                    "rule": "!has(self.gpu) || !has(self.resources) || !((has(self.gpu.type) ?"
                    f" self.gpu.type : '{DEFAULT_GPU_TYPE}') in self.resources)",
                    "message": "shape.gpu and shape.resources set the same resource:"
                    " give it in one of the two",
                    "fieldPath": ".resources",
                },
            ]
        }
    )

    cpu: Quantity | None = Field(
        default=None,
        description="CPU cores of each node. Default: what template.node says, else 32."
        " Example: 8, or 3500m.",
    )
    memory: Quantity | None = Field(
        default=None,
        description="Memory of each node, in bytes. Default: what template.node says, else 256Gi."
        " Example: 32Gi.",
    )
    ephemeral_storage: Quantity | None = Field(
        default=None,
        description="Local disk of each node, in bytes. Default: what template.node says, else not"
        " listed. Example: 100Gi.",
    )
    max_pods: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Pods that fit on each node, however small. Default: what template.node says,"
        " else 110.",
    )
    reserved: Reserved = Field(
        default_factory=Reserved,
        description="What of the capacity is kept back for the system: pods get the rest"
        " (status.allocatable). Default: nothing. Example: {cpu: 500m, memory: 2Gi}.",
    )
    gpu: Gpu | None = Field(
        default=None,
        description="GPUs of each node. Default: none but template.node's."
        " Example: {type: nvidia.com/gpu, count: 8}.",
    )
    resources: dict[str, Quantity] = Field(
        default_factory=dict,
        max_length=64,
        description="Further resources of each node: names with a domain, and huge pages. Default:"
        " those of template.node. Example: {example.com/fpga: 2, hugepages-2Mi: 1Gi}.",
    )
    arch: LabelName | None = Field(
        default=None,
        description="Processor architecture, the label kubernetes.io/arch. Default: what"
        " template.node says, else amd64. Example: arm64.",
    )
    os: LabelName | None = Field(
        default=None,
        description="Operating system, the label kubernetes.io/os. Default: what template.node"
        " says, else linux. Example: windows.",
    )
    zone: LabelName | None = Field(
        default=None,
        description="Zone, the label topology.kubernetes.io/zone. Default: what template.node"
        " says. Example: eu-west-1b.",
    )
    instance_type: LabelName | None = Field(
        default=None,
        description="Instance type, the label node.kubernetes.io/instance-type. Default: what"
        " template.node says. Example: m7i.8xlarge.",
    )
    labels: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=128,
        description="Further labels of each node. Example: {example.com/pool: batch}.",
    )
    taints: tuple[Taint, ...] = Field(
        default=(),
        max_length=64,
        description="Taints of each node, besides those of template.node and the guard taint. One"
        " a key and effect. Example: [{key: gpu, effect: NoSchedule}].",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key", "effect"],
        },
    )


class Template(ApiModel):
    node: dict[str, Any] = Field(
        default_factory=dict,
        description="A v1 Node, as `kubectl get node NAME -o yaml` prints it, or any part of it,"
        " that the nodes are copied from. What belongs to one machine only (name, uid, addresses,"
        " ...) is dropped. Example: {metadata: {labels: {tier: batch}}}.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    shape: Shape = Field(
        default_factory=Shape,
        description="The short form of a node; where it says something, it wins over"
        " template.node. Example: {cpu: 8, memory: 32Gi, zone: eu-west-1b}.",
    )


class ScaleDown(ApiModel):
    order: ScaleDownOrder = Field(
        default=ScaleDownOrder.NEWEST_FIRST,
        description="Which nodes go first when the group shrinks and nobody named any: NewestFirst"
        " or OldestFirst. Default: NewestFirst.",
    )
    nodes_to_delete: frozenset[NodeName] = Field(
        default=frozenset(),
        max_length=MAX_NODES_TO_DELETE,
        description="Names of nodes of this group that go, whatever the target. How many remain"
        " is up to targetSize alone: lower it in the same write, or they are replaced. Names that"
        " don't exist do nothing. At most 20,000.",
        # A set by its meaning; declared as one, every write of the object, of status too, costs
        # the API server nine times as much, because it keeps an owner for each name.
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    pods: DeletedNodePods = Field(
        default=DeletedNodePods.LEAVE,
        description="What becomes of the pods of a deleted node: Leave leaves them to Kubernetes,"
        " as when a cloud pulls the plug; Delete removes them at once. Default: Leave.",
    )


class Autoscaling(ApiModel):
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.minSize) || !has(self.maxSize)"
                    " || self.minSize <= self.maxSize",
                    "message": "autoscaling.minSize must not be greater than autoscaling.maxSize:"
                    " lower minSize or raise maxSize",
                    "fieldPath": ".minSize",
                }
            ]
        }
    )

    min_size: int = Field(
        default=0,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="Fewest nodes. A lower targetSize is allowed, and this many are kept all the"
        " same. Default: 0.",
        # Stored, so that an empty `autoscaling` has a field: server-side apply makes what it
        # empties null, and the consent would be gone.
        json_schema_extra={STORED_DEFAULT: 0},
    )
    max_size: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="Most nodes. A new targetSize above it is refused; lowered below the"
        " present targetSize, the group shrinks to it. Default: no limit. Example: 200.",
    )


class KwokNodeGroupSpec(ApiModel):
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    # Only a target that changes is held to the bound: bounds can then be moved
                    # past a target that somebody else owns.
                    "rule": "!has(self.targetSize) || !has(self.autoscaling)"
                    " || !has(self.autoscaling.maxSize)"
                    " || self.targetSize <= self.autoscaling.maxSize"
                    " || (oldSelf.hasValue() && has(oldSelf.value().targetSize)"
                    " && oldSelf.value().targetSize == self.targetSize)",
                    "optionalOldSelf": True,
                    "message": "targetSize must not be greater than autoscaling.maxSize:"
                    " ask for fewer nodes, or raise autoscaling.maxSize first",
                    "fieldPath": ".targetSize",
                }
            ]
        }
    )

    target_size: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TARGET_SIZE,
        description="How many nodes the group should have. `kubectl scale kng NAME --replicas=N`"
        " sets it too. Left out, the group keeps the number it has: leave it out of a manifest"
        " when somebody else scales the group. Example: 10.",
    )
    paused: bool = Field(
        default=False,
        description="When true, no node is created or deleted. Default: false.",
    )
    template: Template = Field(
        default_factory=Template,
        description="What the nodes look like. Default: 32 CPU, 256Gi memory, 110 pods,"
        " linux/amd64. Example: {shape: {cpu: 8, memory: 32Gi}}.",
    )
    guard_taint: GuardTaint = Field(
        default_factory=GuardTaint,
        description="A taint on every node of the group that keeps workloads off unless they"
        " tolerate it. Default:"
        f" {GUARD_TAINT_KEY}={GUARD_TAINT_VALUE}:{GUARD_TAINT_EFFECT}.",
    )
    scale_down: ScaleDown = Field(
        default_factory=ScaleDown,
        description="Which nodes go when the group shrinks, and what becomes of their pods.",
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="Its presence, even empty ({}), lets cluster-autoscaler drive the group, within"
        " these bounds. Default: absent. Example: {minSize: 0, maxSize: 200}.",
    )
