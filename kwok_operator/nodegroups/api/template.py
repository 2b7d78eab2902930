"""What the nodes of a group look like: `spec.template` and `spec.guardTaint`.

Owns the fields of a template, and of the sources that it may copy from. cleaning.py and merge.py
clean and merge the parts, sources/ reads the sources.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from kwok_operator.api.base import (
    EXTENDED_RESOURCE_NAME,
    QUALIFIED_NAME,
    ApiModel,
    ApiRule,
    ExtendedResourceName,
    LabelName,
    LabelValue,
    QualifiedName,
    Quantity,
    all_match,
    matches,
    rules,
)
from kwok_operator.companions.api import Companions
from kwok_operator.constants import (
    GUARD_TAINT_EFFECT,
    GUARD_TAINT_KEY,
    GUARD_TAINT_VALUE,
    HOSTNAME_LABEL,
    NODE_GROUP_LABEL,
)
from kwok_operator.formats.cidr import DEFAULT_BLOCK_SIZES, FEWEST_ADDRESSES, Block
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.sources.api.source import TemplateSource
from kwok_operator.topology.api import Topology, labels_of

DEFAULT_GPU_TYPE = "nvidia.com/gpu"
MAX_DRA_GPUS = 64
MAX_CIDR = 64


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


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


class GpuProfile(StrEnum):
    H100 = "H100"
    H100_NVLINK = "H100-NVLink"
    H100_MIG = "H100-MIG"
    GB200 = "GB200"


class Gpu(ApiModel):
    model_config = rules(
        ApiRule(
            f"!has(self.dra) || !self.dra || !has(self.type) || self.type == '{DEFAULT_GPU_TYPE}'",
            f"shape.gpu.dra is for {DEFAULT_GPU_TYPE}: describe other devices in"
            " template.companions.resourceSlices",
            lambda gpu: not gpu.get("dra") or gpu.get("type", DEFAULT_GPU_TYPE) == DEFAULT_GPU_TYPE,
            field="dra",
        ),
        ApiRule(
            "!has(self.profile) || (has(self.dra) && self.dra)",
            "shape.gpu.profile says what is published by DRA: add dra: true, or leave it out",
            lambda gpu: "profile" not in gpu or gpu.get("dra"),
            field="profile",
        ),
        ApiRule(
            f"!has(self.dra) || !self.dra || self.count <= {MAX_DRA_GPUS}",
            f"shape.gpu.count must be at most {MAX_DRA_GPUS} with dra: true",
            lambda gpu: not gpu.get("dra") or gpu["count"] <= MAX_DRA_GPUS,
            field="count",
        ),
    )

    type: ExtendedResourceName = Field(
        default=DEFAULT_GPU_TYPE,
        description="The resource that pods ask for to get a GPU, with its domain."
        f" Default: {DEFAULT_GPU_TYPE}. Example: amd.com/gpu.",
    )
    count: int = Field(ge=0, le=100_000, description="GPUs of each node. Example: 8.")
    dra: bool = Field(
        default=False,
        description="Whether the GPUs are devices of dynamic resource allocation (DRA), published"
        " in ResourceSlices as by NVIDIA's driver, and no resource that the node has."
        " Default: false.",
    )
    profile: GpuProfile | None = Field(
        default=None,
        description="With dra: whole GPUs (H100), those with what makes nodes part of an NVLink"
        " domain (H100-NVLink; GB200, as in NVL72), or GPUs that can be given away whole or in"
        " partitions (H100-MIG). Default: H100.",
    )


def _reserved_within(field: str) -> ApiRule:
    # isQuantity is tested first: a quantity that breaks its pattern is reported once, by the
    # pattern.
    reserved, whole = f"self.reserved.{field}", f"self.{field}"
    return ApiRule(
        f"!has(self.reserved) || !has({reserved}) || !has({whole})"
        f" || !isQuantity(string({reserved})) || !isQuantity(string({whole}))"
        f" || !quantity(string({reserved})).isGreaterThan(quantity(string({whole})))",
        f"shape.reserved.{field} must not be greater than shape.{field}:"
        f" what is kept back is a part of what the node has",
        lambda shape: (
            field not in shape
            or parse_quantity(shape.get("reserved", {}).get(field, 0))
            <= parse_quantity(shape[field])
        ),
        field=f"reserved.{field}",
    )


def _block(network: Mapping[str, Any], field: str) -> Block | None:
    """Returns the block of addresses in a field of `template.network`; None if the field is missing
    or invalid. Another rule reports an invalid one."""
    try:
        return Block.parse(network[field]) if field in network else None
    except ValueError:
        return None


def _range_rule(field: str) -> ApiRule:
    given = f"self.{field}"
    return ApiRule(
        f"!has({given}) || isCIDR({given}) && cidr({given}).masked() == cidr({given})",
        f"network.{field} must be a range of addresses that begins where its prefix"
        " says, such as 10.0.0.0/8",
        lambda network: field not in network or _block(network, field) is not None,
        field=field,
    )


def _block_size_fits(network: Mapping[str, Any]) -> bool:
    pods = _block(network, "podCIDR")
    if pods is None:
        return True
    size: int = network.get("blockSize", DEFAULT_BLOCK_SIZES[pods.bits])
    return pods.prefix <= size <= pods.bits


def _has_addresses(network: Mapping[str, Any]) -> bool:
    nodes = _block(network, "nodeCIDR")
    return nodes is None or nodes.size >= FEWEST_ADDRESSES


_BLOCK_SIZE = (
    "(has(self.blockSize) ? self.blockSize : cidr(self.podCIDR).ip().family() == 4 ? 24 : 64)"
)


class Shape(ApiModel):
    model_config = rules(
        _reserved_within("cpu"),
        _reserved_within("memory"),
        _reserved_within("ephemeralStorage"),
        ApiRule(
            f"!has(self.labels) || !['{HOSTNAME_LABEL}', '{NODE_GROUP_LABEL}']"
            ".exists(name, name in self.labels)",
            f"shape.labels must set neither {HOSTNAME_LABEL} nor"
            f" {NODE_GROUP_LABEL}: every node gets its own; remove them",
            lambda shape: not {HOSTNAME_LABEL, NODE_GROUP_LABEL} & shape.get("labels", {}).keys(),
            field="labels",
        ),
        ApiRule(
            "!has(self.resources) || self.resources.all(name,"
            f" {matches(EXTENDED_RESOURCE_NAME, of='name')}"
            " || name.startsWith('hugepages-'))",
            "shape.resources is for resources with a domain, such as"
            " example.com/fpga, and for huge pages, such as hugepages-2Mi; the others are"
            " shape.cpu, shape.memory, shape.ephemeralStorage and shape.maxPods",
            lambda shape: all_match(
                rf"{EXTENDED_RESOURCE_NAME}|hugepages-(?s:.*)", shape.get("resources", ())
            ),
            field="resources",
        ),
        ApiRule(
            f"!has(self.labels) || self.labels.all(key, {matches(QUALIFIED_NAME, of='key')})",
            "shape.labels: a key must be a name, with a domain or without,"
            " such as pool or example.com/pool",
            lambda shape: all_match(QUALIFIED_NAME, shape.get("labels", ())),
            field="labels",
        ),
        ApiRule(
            "!has(self.gpu) || !has(self.resources) || !((has(self.gpu.type) ?"
            f" self.gpu.type : '{DEFAULT_GPU_TYPE}') in self.resources)",
            "shape.gpu and shape.resources set the same resource: give it in one of the two",
            lambda shape: (
                "gpu" not in shape
                or shape["gpu"].get("type", DEFAULT_GPU_TYPE) not in shape.get("resources", ())
            ),
            field="resources",
        ),
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
        json_schema_extra={"x-kubernetes-list-map-keys": ["key", "effect"]},
    )


class Network(ApiModel):
    model_config = rules(
        _range_rule("podCIDR"),
        _range_rule("nodeCIDR"),
        ApiRule(
            "!has(self.nodeCIDR) || !isCIDR(self.nodeCIDR) ||"
            " cidr(self.nodeCIDR).prefixLength() <="
            " (cidr(self.nodeCIDR).ip().family() == 4 ? 30 : 126)",
            "network.nodeCIDR must have 4 addresses or more: the first and the last are no node's",
            _has_addresses,
            field="nodeCIDR",
        ),
        ApiRule(
            "!has(self.podCIDR) || !isCIDR(self.podCIDR) ||"
            f" {_BLOCK_SIZE} >= cidr(self.podCIDR).prefixLength() && {_BLOCK_SIZE} <="
            " (cidr(self.podCIDR).ip().family() == 4 ? 32 : 128)",
            "network.blockSize must be from the prefix of podCIDR to 32, or to"
            " 128 with IPv6: each node gets a block of this prefix",
            _block_size_fits,
            field="blockSize",
        ),
    )

    pod_cidr: str = Field(
        max_length=MAX_CIDR,
        validation_alias="podCIDR",
        serialization_alias="podCIDR",
        description="The range of addresses, IPv4 or IPv6, that the nodes' blocks are taken from:"
        " spec.podCIDR of each. No two nodes of the operator's hold the same addresses, of whatever"
        " group. A node keeps its own for life. Example: 10.0.0.0/8.",
    )
    block_size: int | None = Field(
        default=None,
        ge=0,
        le=128,
        description="Bits of the prefix of each node's block. Default: 24, or 64 with IPv6.",
    )
    node_cidr: str | None = Field(
        default=None,
        max_length=MAX_CIDR,
        validation_alias="nodeCIDR",
        serialization_alias="nodeCIDR",
        description="The range that each node's InternalIP is taken from. Nodes with one are"
        " initialised by kwok, as with bornReady: false, and kubectl logs and exec find nobody"
        " there. Default: all nodes have the address of kwok. Example: 172.16.0.0/12.",
    )


def _levels_apart_from_labels(template: Mapping[str, Any]) -> bool:
    labels = template.get("shape", {}).get("labels", {})
    levels = template.get("topology", {}).get("levels", ())
    return not any(name in labels for each in levels for name in labels_of(each))


class Template(ApiModel):
    model_config = rules(
        ApiRule(
            "!has(self.topology) || !has(self.shape) || !has(self.shape.labels) ||"
            " self.topology.levels.all(l, !(l.label in self.shape.labels) &&"
            " (!has(l.also) || l.also.all(a, !(a in self.shape.labels))))",
            "template.topology and shape.labels must not set the same label: write it in one",
            _levels_apart_from_labels,
            field="topology",
        ),
    )

    # Not `alias`: a type checker would then demand a keyword argument named "from".
    source: TemplateSource | None = Field(
        default=None,
        validation_alias="from",
        serialization_alias="from",
        description="Where the node that the nodes are copied from comes from: a ConfigMap, or a"
        " real node of this cluster or another. template.node and template.shape are merged over"
        " it. Example: {nodes: {name: ip-10-0-0-1.ec2.internal}}.",
    )
    node: dict[str, Any] = Field(
        default_factory=dict,
        description="A v1 Node, as `kubectl get node NAME -o yaml` prints it, or any part of it,"
        " that the nodes are copied from. What belongs to one machine only (name, uid, addresses,"
        " ...) is dropped. Over template.from, maps are merged by key, taints by key and"
        " effect. Example: {metadata: {labels: {tier: batch}}}.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    shape: Shape = Field(
        default_factory=Shape,
        description="The short form of a node; where it says something, it wins over"
        " template.from and template.node. Example: {cpu: 8, memory: 32Gi, zone: eu-west-1b}.",
    )
    companions: Companions | None = Field(
        default=None,
        description="What belongs to each node besides the Node, made with it, changed with it and"
        " gone with it. Needs the rights of the component `companions`. Default: nothing."
        " Example: {csiNode: {drivers: [{name: ebs.csi.aws.com, allocatable: {count: 25}}]}}.",
        json_schema_extra={"nullable": True},
    )
    network: Network | None = Field(
        default=None,
        description="Addresses of its own for each node: for tests of what goes by pod CIDRs or"
        " node addresses. Default: no pod CIDR, and the address of kwok."
        " Example: {podCIDR: 10.0.0.0/8, blockSize: 24}.",
        json_schema_extra={"nullable": True},
    )
    topology: Topology | None = Field(
        default=None,
        description="The racks, blocks and other units in which the nodes stand, as labels: each"
        " node gets the lowest free place. Default: none."
        " Example: {levels: [{label: example.com/block, of: 4}, {label: example.com/rack, of:"
        " 18}]}.",
        json_schema_extra={"nullable": True},
    )
    keep_images: bool = Field(
        default=False,
        description="Whether the nodes list the container images of the node they are copied from."
        " They are large, and each node repeats them. Default: false.",
    )
    born_ready: bool = Field(
        default=True,
        description="Whether nodes are Ready in their first write, where a kwok controller is"
        " alive. With false, kwok's Stages initialise them, yours among them: conditions,"
        " addresses, port and whatever else they set. Default: true.",
    )

    @property
    def are_born_ready(self) -> bool:
        """Whether nodes may be created Ready. Nodes with addresses of their own may not: the
        operator would take such a node's address for kwok's, and write it into other nodes."""
        return self.born_ready and (self.network is None or self.network.node_cidr is None)
