"""What Karpenter is started with: its instance types, the class of its nodes, its NodePools.

groups, a file of types, objects of the user  --set_up-->  KarpenterSetup

This is computed twice: when a scenario is checked, as far as files show the groups' nodes, and when
Karpenter is started, with the groups in the cluster.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.untyped import text_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.formats.yamltext import in_words
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.rehearsal.karpenter.groups import (
    GroupOffering,
    common_delay,
    kept,
    offering_of,
    unheeded,
)
from kwok_operator.rehearsal.karpenter.instancetypes import InstanceType, types_of
from kwok_operator.rehearsal.karpenter.nodepools import (
    DEFAULT_CLASS,
    NODE_CLASS,
    NODE_POOL,
    completed,
    kept_taints,
    misfit,
    no_class,
    node_class,
    pools_of,
)

_MOST_NAMES: Final = 3

Groups = Mapping[str, tuple[KwokNodeGroupSpec, Node]]
"""The spec and the resolved node of each group, by name."""


class KarpenterSetupError(KwokOperatorError):
    """Karpenter can't make nodes from the groups, instance types or NodePools. The text says what
    is wrong, and what to do.
    """


@dataclass(frozen=True, slots=True)
class KarpenterSetup:
    types: Sequence[InstanceType]
    objects: Sequence[Manifest]
    """The classes and NodePools, and whatever else the user gives, in the order of creation."""
    caveats: Sequence[str] = ()
    """Sentences on how Karpenter's nodes differ from what the groups specify."""


def offered(specs: Mapping[str, KwokNodeGroupSpec]) -> dict[str, KwokNodeGroupSpec]:
    """Returns the groups whose nodes Karpenter makes. Raises KarpenterSetupError."""
    scalable = {name: spec for name, spec in specs.items() if spec.autoscaling is not None}
    if not scalable:
        raise KarpenterSetupError(
            "no group has spec.autoscaling, by which it lets an autoscaler make its nodes; add"
            " autoscaling: {maxSize: 50} to one, or give instanceTypesFrom a file"
        )
    if free := [name for name, spec in scalable.items() if spec.price is None]:
        raise KarpenterSetupError(
            f"KwokNodeGroup {names_in_words(free, most=_MOST_NAMES)} has no spec.price, by which"
            ' Karpenter chooses; add price: {hourly: "0.192"}'
        )
    return scalable


def set_up(
    groups: Groups,
    *,
    types: Sequence[InstanceType] | None = None,
    own: Sequence[Manifest] | None = None,
    disruption: Mapping[str, Any] | None = None,
    delay: float | None = None,
) -> KarpenterSetup:
    """Returns what Karpenter is started with. Makes from `groups` what isn't given: `types` of a
    file, the user's `own` objects, the nodes' `delay` in seconds. Raises KarpenterSetupError.
    """
    nodes: list[GroupOffering] = []
    if types is None:
        specs = offered({name: spec for name, (spec, _) in groups.items()})
        nodes = [offering_of(name, spec, groups[name][1]) for name, spec in specs.items()]
        delay = (common_delay(specs) or 0) if delay is None else delay
    types = types_of(nodes) if types is None else types
    objects = [*own] if own is not None else pools_of(nodes, disruption=disruption)
    if not any(each.get("kind") == NODE_POOL for each in objects):
        raise KarpenterSetupError(f"there is no {NODE_POOL}, so no node would come; add one")
    objects = [completed(o, types) if o.get("kind") == NODE_POOL else o for o in objects]
    classes = {name_of(each) for each in objects if each.get("kind") == NODE_CLASS}
    if DEFAULT_CLASS not in classes:
        objects.insert(0, node_class(DEFAULT_CLASS, delay=delay or 0))
        classes.add(DEFAULT_CLASS)
    pools = [each for each in objects if each.get("kind") == NODE_POOL]
    for pool in pools:
        if wrong := no_class(pool, classes) or misfit(pool, types):
            path, sentence = wrong
            raise KarpenterSetupError(f"{NODE_POOL} {name_of(pool)}: {in_words(path)}: {sentence}")
    bounds = _bounds(nodes) if own is None else ()
    return KarpenterSetup(types, objects, [*bounds, *renamed(types), *kept_taints(pools)])


def renamed(types: Sequence[InstanceType]) -> list[str]:
    """Returns a sentence on types that got another name than the instance type of their groups;
    none if there is no such type.
    """
    some = [
        f"{each.name} of {names_in_words(_groups_of(each), most=_MOST_NAMES)}"
        for each in types
        if each.renamed_from
    ]
    if not some:
        return []
    return [
        f"has another instance type for each shape, {names_in_words(some, most=_MOST_NAMES)}, so"
        " pods that choose the instance type of these groups don't get its nodes; give groups of"
        " one instance type the same shape"
    ]


def _groups_of(each: InstanceType) -> list[str]:
    names = (offering.labels[NODE_GROUP_LABEL] for offering in each.offerings)
    return sorted(name for some in names for name in some)


def _bounds(groups: Sequence[GroupOffering]) -> Iterator[str]:
    alike: dict[object, list[str]] = {}
    for each in groups:
        alike.setdefault(each.taints, []).append(each.name)
    bounded = {each.name for each in groups if each.most is not None}
    for names in alike.values():
        if len(names) > 1 and bounded.intersection(names):
            which = names_in_words(sorted(names), most=_MOST_NAMES)
            yield f"keeps the maxSize of {which} together, not of each: they share a NodePool"


def name_of(manifest: Manifest) -> str:
    return text_at(manifest, "metadata", "name")


def ignored(specs: Mapping[str, KwokNodeGroupSpec], *, delay_given: bool) -> list[str]:
    """Returns sentences on fields of the groups that have no effect on Karpenter's nodes."""
    return [
        f"{field} of {names_in_words(names, most=_MOST_NAMES)}"
        for field, names in unheeded(specs, delay_given=delay_given).items()
    ]


def unlike_groups(
    specs: Mapping[str, KwokNodeGroupSpec], *, delays: Collection[float | None]
) -> list[str]:
    """Returns sentences on how Karpenter's nodes differ from the groups' in delay, cost, removal.
    `delays` are those of the user's classes, in seconds; None for one that can't be read.
    """
    of_groups = common_delay(specs)
    own = sorted(each for each in delays if each is not None and each != of_groups)
    sentences = []
    if own or None in delays:
        said = names_in_words([f"{each:g} s" for each in own]) or "times of its own"
        theirs = "delays of their own" if of_groups is None else f"{of_groups} s"
        sentences.append(f"makes nodes after {said} by its class, and groups after {theirs}")
    return [*sentences, *unpaid(specs), *left_beside(specs)]


def unpaid(specs: Mapping[str, KwokNodeGroupSpec]) -> list[str]:
    """Returns a sentence on groups with a readinessDelay: during that delay, a group's node exists
    and costs, whereas Karpenter's node doesn't exist yet.
    """
    names = [n for n, spec in sorted(specs.items()) if spec.cloud and spec.cloud.readiness_delay]
    if not names:
        return []
    which = names_in_words(names, most=_MOST_NAMES)
    return [
        f"has nodes that appear, and cost, only after readinessDelay, unlike those of {which};"
        " write it as provisioningDelay"
    ]


def left_beside(specs: Mapping[str, KwokNodeGroupSpec]) -> list[str]:
    """Returns sentences on nodes of groups that cluster-autoscaler could remove, but Karpenter
    can't, as it didn't make them.
    """
    names = [
        name
        for name, spec in sorted(specs.items())
        if spec.autoscaling is not None and kept(spec) > spec.autoscaling.min_size
    ]
    if not names:
        return []
    which = names_in_words(names, most=_MOST_NAMES)
    return [f"removes no nodes that groups have by their targetSize; lower that of {which}"]
