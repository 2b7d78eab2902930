"""The fields of the topology: `spec.template.topology`, and `status.topology`.

Owns the names by which well-known labels can be written. What a place means is in layout.py.
"""

from collections.abc import Mapping, Sequence
from operator import lt
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import Field

from kwok_operator.api.base import (
    LABEL_NAME,
    ApiModel,
    ApiRule,
    QualifiedName,
    Text,
    all_match,
    matches,
    rules,
)
from kwok_operator.constants import API_GROUP, ARCH_LABEL, HOSTNAME_LABEL, OS_LABEL

MAX_LEVELS: Final = 5
MAX_UNIT: Final = 1_000_000
"""The most nodes in one unit of the widest level."""
MAX_DOMAIN: Final = 40

SHORT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # https://docs.aws.amazon.com/eks/latest/userguide/ml-workload-topology.html
        **{f"aws/layer-{n}": f"topology.k8s.aws/network-node-layer-{n}" for n in range(1, 5)},
        # cloud-provider-azure, pkg/consts: LabelPlatformSubFaultDomain. Azure has no label of a
        # rack or a block, only this one and the zone.
        "azure/sub-fault-domain": "topology.kubernetes.azure.com/sub-fault-domain",
        # https://cloud.google.com/ai-hypercomputer/docs/workloads/schedule-gke-workloads-tas
        **{f"gke/{n}": f"cloud.google.com/gce-topology-{n}" for n in ("block", "subblock", "host")},
        "kubernetes/region": "topology.kubernetes.io/region",
        "kubernetes/zone": "topology.kubernetes.io/zone",
        # Those of Kueue's documentation. Kueue takes any label.
        **{f"kueue/{n}": f"cloud.provider.com/topology-{n}" for n in ("block", "rack")},
        # NVIDIA's GPU feature discovery, and its Topograph (docs.nvidia.com/topograph).
        "nvidia/clique": "nvidia.com/gpu.clique",
        **{
            f"topograph/{n}": f"network.topology.nvidia.com/{n}"
            for n in ("accelerator", "leaf", "spine", "core")
        },
    }
)
"""Short forms of labels that real machines have."""

_SHORT: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/.*$"
_NUMBER: Final = "(0|[1-9][0-9]{0,6})"
_TAKEN: Final = (HOSTNAME_LABEL, ARCH_LABEL, OS_LABEL)

Domain = Annotated[
    str,
    Text(
        pattern=LABEL_NAME,
        min_length=1,
        max_length=MAX_DOMAIN,
        message="must begin and end with a letter or a digit, with letters, digits, '-', '_' and"
        " '.' between, at most 40",
    ),
]


def long_form(label: str) -> str:
    """Returns the label that a short form stands for; other labels are returned unchanged."""
    return SHORT_NAMES.get(label, label)


def labels_of(level: Mapping[str, Any]) -> list[str]:
    """Returns the labels of a level, as its JSON writes them."""
    return [level["label"], *(level.get("also") or ())]


def numbers_of(value: str, *, domain: str, of: Sequence[int]) -> list[int] | None:
    """Parses the value of a unit's label: "dc-0-3" in domain "dc" gives [0, 3], the number of the
    widest level first. None if no unit of the domain has this value. `of` says, for each level, how
    many of the next narrower level one unit holds."""
    if not value.startswith(f"{domain}-"):
        return None
    parts = value.removeprefix(f"{domain}-").split("-")
    if len(parts) > len(of) or not all_match(_NUMBER, parts):
        return None
    numbers = [*map(int, parts)]
    return numbers if all(map(lt, numbers[1:], of)) else None


def _every(condition: str) -> str:
    """Returns a CEL expression: all labels of a level fulfil `condition`, which calls the label
    `n`."""
    return f"([self.label] + (has(self.also) ? self.also : [])).all(n, {condition})"


def _product(levels: list[Mapping[str, Any]]) -> int:
    product = 1
    for level in levels:
        product *= level["of"]
    return product


class TopologyLevel(ApiModel):
    model_config = rules(
        ApiRule(
            _every(f"!n.startsWith('{API_GROUP}/') && !(n in {list(_TAKEN)})"),
            f"topology: a level must not be {', '.join(_TAKEN)} or {API_GROUP}/...: each node has"
            " its own; take another label",
            lambda level: (
                not any(n.startswith(f"{API_GROUP}/") or n in _TAKEN for n in labels_of(level))
            ),
            field="label",
        ),
        ApiRule(
            _every(f"!{matches(_SHORT, of='n')} || n in {sorted(SHORT_NAMES)}"),
            "topology: a label's domain must have a dot in it, such as example.com/rack; the short"
            f" forms are {', '.join(sorted(SHORT_NAMES))}",
            lambda level: all(n in SHORT_NAMES for n in labels_of(level) if all_match(_SHORT, [n])),
            field="label",
        ),
    )

    label: QualifiedName = Field(
        description="The label by which nodes show this level, or a short form such as kueue/rack."
        " Example: example.com/rack."
    )
    also: frozenset[QualifiedName] = Field(
        default=frozenset(),
        max_length=4,
        description="Further labels with the same value. At most 4. Default: none."
        " Example: [nvidia/clique].",
    )
    of: int = Field(
        ge=1,
        le=MAX_UNIT,
        description="How many of the next level one such unit holds; in the last level, how many"
        " nodes. Example: 18.",
    )


def _is_once(levels: list[Mapping[str, Any]]) -> bool:
    names = [name for level in levels for name in labels_of(level)]
    return len(names) == len(set(names))


_HAS = "(m.label == {n} || has(m.also) && {n} in m.also)"
_ONCE = (
    f"self.levels.all(l, self.levels.exists_one(m, {_HAS.format(n='l.label')})"
    " && !(has(l.also) && (l.label in l.also"
    f" || l.also.exists(a, !self.levels.exists_one(m, {_HAS.format(n='a')})))))"
)


class Topology(ApiModel):
    model_config = rules(
        ApiRule(
            " * ".join(
                f"(self.levels.size() > {n} ? double(self.levels[{n}].of) : 1.0)"
                for n in range(MAX_LEVELS)
            )
            + f" <= {MAX_UNIT}.0",
            f"topology.levels: one unit of the first level must hold at most {MAX_UNIT:,} nodes,"
            " which is all `of` multiplied: make them smaller",
            lambda topology: _product(topology["levels"]) <= MAX_UNIT,
            field="levels",
        ),
        ApiRule(
            _ONCE,
            "topology.levels must not have a label twice: each level needs its own",
            lambda topology: _is_once(topology["levels"]),
            field="levels",
        ),
    )

    domain: Domain | None = Field(
        default=None,
        description="What the values of the labels begin with. Groups with one domain and the same"
        " levels fill the same racks together. Default: the group's name. Example: pool-a.",
    )
    levels: tuple[TopologyLevel, ...] = Field(
        min_length=1,
        max_length=MAX_LEVELS,
        description="The levels from wide to narrow. There are as many units of the first one as"
        " are needed. At most 5. Example: [{label: example.com/block, of: 4},"
        " {label: example.com/rack, of: 18}].",
    )


def _names_units(group: Mapping[str, Any]) -> bool:
    spec = group.get("spec") or {}
    topology = (spec.get("template") or {}).get("topology") or {"levels": []}
    # Without a name no domain is known: schema/check.py refuses units in such a file.
    domain = topology.get("domain") or group.get("metadata", {}).get("name")
    of = [level["of"] for level in topology["levels"]]
    values = (spec.get("cloud") or {}).get("outageUnits", ())
    return not domain or all(numbers_of(v, domain=domain, of=of) is not None for v in values)


_TOPOLOGY: Final = "self.spec.template.topology"
_DOMAIN: Final = f"has({_TOPOLOGY}.domain) ? {_TOPOLOGY}.domain : self.metadata.name"
OUTAGE_UNITS: Final = ApiRule(
    "!has(self.spec.cloud) || !has(self.spec.cloud.outageUnits)"
    f" || self.spec.cloud.outageUnits.all(v, has(self.spec.template) && has({_TOPOLOGY})"
    # Lists of one, whose `all` gives their item a name: the domain, the numbers in a value.
    f" && [{_DOMAIN}].all(d, v.startsWith(d + '-')"
    f" && v.substring(d.size()).matches('^(-{_NUMBER})+$')"
    " && [v.substring(d.size() + 1).split('-')].all(n,"
    f" n.size() <= {_TOPOLOGY}.levels.size()"
    + "".join(
        f" && (n.size() < {level + 1} || int(n[{level}]) < {_TOPOLOGY}.levels[{level - 1}].of)"
        for level in range(1, MAX_LEVELS)
    )
    + ")))",
    "spec.cloud.outageUnits must be values that labels of template.topology can have, such as"
    " pool-a-0-1",
    _names_units,
    field="spec.cloud.outageUnits",
)
"""A rule of a whole group: the default domain is its name."""


class PlacedBatch(ApiModel):
    serials: str = Field(
        description='Serials as ranges, such as "5,17-20", or as a bitmap where that is shorter.'
    )
    places: str = Field(
        description="As many places: the lowest is that of the lowest serial, and so on. Packed, in"
        " the order of the serials, after a '*'."
    )


class TopologyStatus(ApiModel):
    domain: str = Field(description="The domain of the places.")
    pending: tuple[PlacedBatch, ...] = Field(
        default=(),
        description="The places of nodes that were asked for and don't exist yet. A node that"
        " exists says it in an annotation.",
    )
    next_place: int | None = Field(
        default=None,
        description="With spec.autoscaling: the place of the next node, as cluster-autoscaler is"
        " shown it.",
    )
