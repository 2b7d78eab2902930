"""Decides to which node group of cluster-autoscaler (CA) a node belongs, by CA's templates.

If a node shows the name of its scaling group, that decides. Otherwise templates decide. CA has a
template for each group, with the labels and resources of the group's nodes; these also show a pool
and a zone. A node belongs to the group whose template has the same pool and zone; of several such
groups, to the one whose template is most like the node. If there is none, as a provider's templates
may lack the label that names the pool, the node belongs to the group whose template has no label
and no resource that the node lacks, if there is exactly one.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kwok_operator.importing.nodes.pools import Identity

_SOURCE: Final = "cluster-autoscaler"


@dataclass(frozen=True, slots=True)
class GroupOfNode:
    """The id of CA's group to which a node belongs. `sure` is False if another group's template is
    as much like the node.
    """

    id: str
    sure: bool = True


class Likeness(NamedTuple):
    """How many labels and resources a node and a template have in common. `whole`: the node has all
    labels and resources that the template requires.
    """

    shared: int
    whole: bool


class CloudGroups:
    def __init__(self, ids: Mapping[Identity, Sequence[str]]) -> None:
        """`ids` are the ids of CA's groups, by the pool and zone of their template."""
        self._ids = ids
        self._names = sorted({each for group_ids in ids.values() for each in group_ids})
        self._of_pool: dict[tuple[str, str, tuple[str, ...]], set[str]] = defaultdict(set)
        for identity, group_ids in ids.items():
            self._of_pool[_without_zone(identity)].update(group_ids)

    def of_node(
        self, identity: Identity, names: Collection[str], likeness: Callable[[str], Likeness]
    ) -> GroupOfNode | None:
        """Returns the group of a node; None if CA has none for it. `names` are names of its scaling
        group that the node shows; `likeness` compares the node with the template of a group.
        """
        known = {name.lower() for name in names}
        named = [n for n in self._names if known & {n.lower(), _last_part(n).lower()}]
        if len(named) == 1:
            return GroupOfNode(named[0])
        ids = sorted(named or self._ids.get(identity, ()))
        if not ids:
            # A group with several zones has a single template, for any one of them.
            of_pool = self._of_pool[_without_zone(identity)]
            if not of_pool:
                of_pool = {each for each in self._names if likeness(each).whole}
            return GroupOfNode(next(iter(of_pool))) if len(of_pool) == 1 else None
        scores = {each: likeness(each).shared for each in ids}
        best = [each for each in ids if scores[each] == max(scores.values())]
        return GroupOfNode(best[0], sure=len(best) == 1)

    def identity(self, group: str, identity: Identity) -> Identity:
        """Returns the identity (source, pool, parts) under which nodes of a CA group are imported.
        `identity` is a node's own; its zone is kept, as each imported group has one zone only.
        """
        return _SOURCE, _last_part(group), (group, identity[2][-1])


def _last_part(group: str) -> str:
    """Returns the last part of an id such as KIND/NAMESPACE/NAME, or of a scale set's address."""
    return group.rstrip("/").rpartition("/")[2] or group


def _without_zone(identity: Identity) -> tuple[str, str, tuple[str, ...]]:
    return identity[0], identity[1], identity[2][:-1]
