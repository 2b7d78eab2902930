"""Makes KwokNodeGroups of another cluster's nodes, one for each pool and zone.

Nodes, page by page  --add-->  what is kept of each  --finish-->  manifests, notes, places

`Nodes` keeps the labels, annotations, taints and resources of each node.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.errors import TemplateError
from kwok_operator.formats.untyped import as_list, as_map, as_texts, text_at
from kwok_operator.formats.words import few_names
from kwok_operator.importing.nodes.bounds import Bounds, ImportedGroup
from kwok_operator.importing.nodes.cloudgroups import CloudGroups, Likeness
from kwok_operator.importing.nodes.nthnode import NodeBarrier, NthNode
from kwok_operator.importing.nodes.pools import (
    Identity,
    Pool,
    capacity_type,
    instance_type,
    is_of_racks,
    names_of,
    names_of_scaling_group,
    pool_of,
    pools_by_shape,
    zone,
)
from kwok_operator.importing.nodes.prices import Prices
from kwok_operator.importing.nodes.template import Kept, has_capacity, kept_of, template_of
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.binding import NAME_FIELD, Places
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.cleaning import is_control_plane_taint
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.nodegroups.usable import labels_of_every_node

_KEEPS_PODS_OFF: Final = ("NoSchedule", "NoExecute")
_SURPLUS: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
    }
)
_COME_BY_THEMSELVES: Final = frozenset(
    {
        constants.HOSTNAME_LABEL,
        constants.BETA_ARCH_LABEL,
        constants.BETA_OS_LABEL,
        constants.EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
    }
)
"""Labels that every node of a KwokNodeGroup gets anyway, perhaps with another value."""
_PLACES: Final = (
    ("labels", "metadata.labels"),
    ("annotations", "metadata.annotations"),
    ("capacity", "status.capacity"),
    ("allocatable", "status.allocatable"),
)
_REQUIRED: Final = re.compile(
    r"metadata\.labels\[(?!(failure-domain\.)?beta\.kubernetes\.io/)|status\.capacity\["
)
"""Parts of a template that all nodes of its group have. CA adds deprecated labels even if nodes no
longer have them.
"""
_GROUP_BY: Final = "group-by"
_MAX_VALUE: Final = 253
"""The most characters of an annotation's value that is kept for --group-by."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups that nodes have become.

    `places` maps each name and label of a node to the groups whose nodes had it (pods/binding.py);
    `read` is the number of objects that were read; `labels` has the labels of each group's
    template; `nth` maps the names of nodes to group and number; `barriers` has what keeps pods off
    single nodes.
    """

    groups: Sequence[ImportedGroup]
    manifests: list[dict[str, Any]]
    notes: list[Note]
    labels: Mapping[str, Mapping[str, str]]
    places: Places
    nth: Mapping[str, NthNode]
    barriers: Mapping[NthNode, NodeBarrier]
    read: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that was read. `kept` has the kept fields as JSON text, which saves memory: thousands
    of nodes share few texts. It is empty if no template can be made of the node. `names` are names
    of the node's scaling group.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    kept: str
    names: frozenset[str]
    states: tuple[Reason, ...]
    dropped: Reason | None


@dataclass(slots=True)
class Nodes:
    """Collects Nodes and groups them. Of several with one name, the last one counts.

    If cluster-autoscaler's (CA) templates are known, the groups are CA's, also groups without a
    node.
    """

    _nodes: dict[str, _Node] = field(default_factory=dict)
    _templates: dict[str, _Node] = field(default_factory=dict)
    """The template of each of CA's groups, by the group's id."""
    _odd: int = 0
    _once: dict[Any, Any] = field(default_factory=dict)

    def add(self, body: Any) -> None:
        """Adds a Node in the API server's JSON; anything else is only counted."""
        name = text_at(body, "metadata", "name")
        if is_object_name(name):
            self._nodes[name] = self._node(name, body)
        else:
            self._odd += 1

    def add_template(self, group: str, body: Mapping[str, Any]) -> None:
        """Adds the template Node of CA's group with this id. The Node's name may be invalid."""
        node = self._node(text_at(body, "metadata", "name") or group, body)
        self._templates[group] = replace(node, names=node.names | {group})

    def keep_only(self, names: Collection[str], reason: Reason) -> None:
        """Leaves out all nodes whose names are not in `names`, for this reason."""
        for name in self._nodes.keys() - set(names):
            self._nodes[name] = replace(self._nodes[name], dropped=reason)

    def _node(self, name: str, body: Mapping[str, Any]) -> _Node:
        metadata, spec = (as_map(body.get(part)) for part in ("metadata", "spec"))
        labels, annotations = (
            as_texts(metadata.get("labels")),
            as_texts(metadata.get("annotations")),
        )
        taints = [as_map(taint) for taint in as_list(spec.get("taints"))]
        dropped = None
        if metadata.get("deletionTimestamp"):
            dropped = Reason.NODE_TERMINATING
        elif any(is_control_plane_taint(t) and t.get("effect") in _KEEPS_PODS_OFF for t in taints):
            dropped = Reason.CONTROL_PLANE_NODE
        names = names_of_scaling_group(
            name=name, labels=labels, annotations=annotations, provider_id=spec.get("providerID")
        )
        once = self._once.setdefault
        return _Node(
            name=name,
            labels={once(k, k): once(v, v) for k, v in labels.items()},
            annotations={
                once(k, k): once(v, v) for k, v in annotations.items() if len(v) <= _MAX_VALUE
            },
            kept=once(kept := "" if dropped else _kept(body), kept),
            names=once(group_names := frozenset(names), group_names),
            states=_states(spec, taints, as_map(body.get("status"))),
            dropped=dropped,
        )

    def finish(
        self,
        *,
        group_by: Sequence[str] = (),
        prices: Prices | None = None,
        bounds: Bounds | None = None,
    ) -> Grouped:
        """Groups the nodes. Nodes that have labels or annotations with the keys `group_by` are
        pooled by their values, whatever else shows their pool.
        """
        return _Grouping(
            [self._nodes[name] for name in sorted(self._nodes)],
            odd=self._odd,
            group_by=group_by,
            prices=prices,
            bounds=bounds or Bounds(),
            templates=self._templates,
        ).run()


@dataclass(slots=True)
class _Grouping:
    nodes: Sequence[_Node]
    odd: int
    group_by: Sequence[str]
    prices: Prices | None
    bounds: Bounds
    templates: Mapping[str, _Node]
    notes: list[Note] = field(default_factory=list)
    _by_template: dict[Identity, _Node] = field(default_factory=dict)
    _parts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """A cache: what is kept of nodes as texts by path, by the JSON text."""

    def run(self) -> Grouped:
        here = [node for node in self.nodes if node.dropped is None]
        self._note_dropped()
        self._note_unknown_keys()
        groups, templates = self._groups(here), dict[Identity, Kept]()
        for identity, members in list(groups.items()):
            nodes = members or self._template_of(identity)
            if (template := self._template(nodes)) is not None:
                templates[identity] = template
            else:
                del groups[identity]
                self._drop(nodes, Reason.NO_CAPACITY)
        names = names_of(groups)
        nth = {
            node.name: NthNode(names[each], number)
            for each, members in groups.items()
            for number, node in enumerate(members)
        }
        imported = self._imported(groups, names)
        autoscaling, about_bounds = self.bounds.settle(imported)
        self.notes += about_bounds
        manifests = [
            self._manifest(names[each], groups[each], templates[each], autoscaling.get(names[each]))
            for each in sorted(groups, key=lambda each: names[each])
        ]
        return Grouped(
            groups=imported,
            manifests=manifests,
            notes=self.notes,
            labels={names[each]: templates[each]["labels"] for each in groups},
            places=_places(
                {
                    names[each]: ([*groups[each], *self._template_of(each)], templates[each])
                    for each in groups
                }
            ),
            nth=nth,
            barriers={
                nth[node.name]: barrier
                for each, members in groups.items()
                for node in members
                if (barrier := _barrier(node, templates[each])) is not None
            },
            read=len(self.nodes) + self.odd,
        )

    def _groups(self, here: Sequence[_Node]) -> dict[Identity, list[_Node]]:
        """Returns the nodes of each group, by its identity. A group of CA without a node has an
        empty list, and only a template. Adds CA's templates to `_by_template`, by identity.
        """
        ids = {id(template): name for name, template in self.templates.items()}
        pools: dict[Identity, list[_Node]] = defaultdict(list)
        for node, pool in self._pools([*here, *self.templates.values()]):
            pools[pool.source, pool.name, (*pool.parts, zone(node.labels))].append(node)
        named = CloudGroups(
            {each: [ids[id(n)] for n in nodes if id(n) in ids] for each, nodes in pools.items()}
        )
        groups: dict[Identity, list[_Node]] = defaultdict(list)
        begun, unsure = set[str](), Counter[str]()
        for identity, node in ((each, n) for each, nodes in pools.items() for n in nodes):
            if id(node) in ids:
                self._by_template[named.identity(ids[id(node)], identity)] = node
            elif group := named.of_node(identity, node.names, partial(self._likeness, node)):
                node = replace(node, names=node.names | {group.id})
                groups[named.identity(group.id, identity)].append(node)
                begun.add(group.id)
                unsure[group.id] += not group.sure
            else:
                groups[identity].append(node)
        for identity, template in self._by_template.items():
            if ids[id(template)] not in begun:
                groups[identity] = []
        self.notes += [
            Note(Ref("ScalingGroup", "", name), Reason.GROUPS_ALIKE, count=count)
            for name, count in sorted(unsure.items())
            if count
        ]
        return dict(groups)

    def _template_of(self, identity: Identity) -> list[_Node]:
        return [self._by_template[identity]] if identity in self._by_template else []

    def _likeness(self, node: _Node, group: str) -> Likeness:
        """Compares a node with the template of the group that has this id in CA."""
        template, parts = self._parts_of(self.templates[group]), self._parts_of(node)
        required = {path: value for path, value in template.items() if _REQUIRED.match(path)}
        same = template.items() & parts.items()
        return Likeness(len(same), whole=bool(required) and required.items() <= parts.items())

    def _parts_of(self, node: _Node) -> Mapping[str, str]:
        if node.kept not in self._parts:
            self._parts[node.kept] = _parts(json.loads(node.kept)) if node.kept else {}
        return self._parts[node.kept]

    def _note_unknown_keys(self) -> None:
        for key in self.group_by:
            if not any(key in node.labels or key in node.annotations for node in self.nodes):
                field = f"metadata.labels[{key}]"
                self.notes.append(Note(Ref("Node", "", ""), Reason.NO_SUCH_KEY, field))

    def _note_dropped(self) -> None:
        for node in self.nodes:
            if node.dropped is not None:
                self._drop([node], node.dropped)
        if self.odd:
            ref = Ref("Node", "", "")
            self.notes.append(Note(ref, Reason.NO_OBJECT, count=self.odd, dropped=True))

    def _drop(self, nodes: Sequence[_Node], reason: Reason) -> None:
        self.notes += [Note(Ref("Node", "", node.name), reason, dropped=True) for node in nodes]

    def _pools(self, nodes: Sequence[_Node]) -> Iterator[tuple[_Node, Pool]]:
        alone: dict[str, Kept] = {}
        for node in nodes:
            pool = self._chosen(node) or pool_of(node.labels, node.annotations)
            if pool is not None:
                yield node, pool
            elif (kept := _read(node)) is not None:
                alone[node.name] = kept
            else:
                self._drop([node], Reason.NO_CAPACITY)
        by_shape = pools_by_shape(alone)
        yield from ((node, by_shape[node.name]) for node in nodes if node.name in by_shape)

    def _chosen(self, node: _Node) -> Pool | None:
        """Returns the pool that a node belongs to by the keys of --group-by; None if the node has
        none of these keys.
        """
        values = [node.labels.get(k) or node.annotations.get(k) or "" for k in self.group_by]
        named = "-".join(filter(None, values))
        return Pool(_GROUP_BY, named, tuple(values)) if named else None

    def _template(self, members: Sequence[_Node]) -> Kept | None:
        """Returns the kept fields of the most typical node: the one that has most in common with
        the other nodes. None if no node gives a valid template.
        """
        readable = [kept for node in members if (kept := _read(node)) is not None]
        same = Counter(part for kept in readable for part in _parts(kept).items())
        there = Counter(path for kept in readable for path in _parts(kept))

        def in_common(kept: Kept) -> int:
            gaps = sum(len(readable) - there[path] for path in there.keys() - _parts(kept).keys())
            return gaps + sum(same[part] for part in _parts(kept).items())

        texts = sorted({json.dumps(kept, sort_keys=True) for kept in readable})
        candidates = sorted(map(json.loads, texts), key=in_common, reverse=True)
        return next((kept for kept in candidates if template_of(kept) is not None), None)

    def _imported(
        self, groups: Mapping[Identity, Sequence[_Node]], names: Mapping[Identity, str]
    ) -> list[ImportedGroup]:
        imported = [
            ImportedGroup(
                name=names[identity],
                pool=identity[1],
                zone=zone(some[0].labels),
                known_as=frozenset().union(*(node.names for node in some)),
                size=len(members),
                node_pool=some[0].labels.get(constants.NODE_POOL_LABEL, ""),
                nodes=tuple(node.name for node in members),
            )
            for identity, members in groups.items()
            for some in [members or self._template_of(identity)]
        ]
        return sorted(imported, key=lambda group: group.name)

    def _manifest(
        self, name: str, members: Sequence[_Node], kept: Kept, autoscaling: dict[str, Any] | None
    ) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "targetSize": min(len(members), MAX_TARGET_SIZE),
            "template": template_of(kept),
        }
        if autoscaling is not None:
            spec["autoscaling"] = autoscaling
        price = self._price(kept)
        if price is not None:
            spec["price"] = {"hourly": price}
        ref, pool = Ref(constants.KIND, "", name), kept["labels"].get(constants.NODE_POOL_LABEL, "")
        if self.prices is not None and price is None:
            labels = kept["labels"]
            what = " in ".join(filter(None, (instance_type(labels), zone(labels))))
            self.notes.append(Note(ref, Reason.NO_PRICE, field="spec.price", detail=what))
        elif price is None and pool in self.bounds.node_pools:
            self.notes.append(Note(ref, Reason.PRICE_NEEDED, field="spec.price"))
        self.notes += self._differences(ref, members, kept)
        self.notes += _lost_labels(ref, members)
        self.notes += _state_notes(ref, members)
        return {
            "apiVersion": f"{constants.API_GROUP}/{constants.API_VERSION}",
            "kind": constants.KIND,
            "metadata": {"name": name},
            "spec": spec,
        }

    def _differences(self, ref: Ref, members: Sequence[_Node], kept: Kept) -> Iterator[Note]:
        template = _parts(kept)
        count: Counter[str] = Counter()
        for text, nodes in Counter(node.kept for node in members).items():
            parts = _parts(json.loads(text)) if text else {}
            for path in sorted(parts.keys() | template.keys()) if text else ():
                if parts.get(path) != template.get(path):
                    count[path] += nodes
        # Templates of cluster-autoscaler make the groups, whatever --group-by says.
        racks = {} if self.templates else {f"metadata.labels[{k}]": k for k in _racks(members)}
        for path, nodes in sorted(count.items()):
            if path in racks:
                flags = " ".join(f"--group-by {k}" for k in (*self._keys(members), racks[path]))
                yield Note(ref, Reason.SEVERAL_RACKS, field=path, detail=flags, count=nodes)
            else:
                yield Note(ref, Reason.NODES_DIFFER, field=path, count=nodes)

    def _keys(self, members: Sequence[_Node]) -> Sequence[str]:
        """Returns the keys of labels or annotations by which these nodes are pooled now, for a
        suggestion to add one more --group-by: those that the user gave, else the key that names
        their pool.
        """
        if self.group_by:
            return self.group_by
        pool = pool_of(members[0].labels, members[0].annotations)
        return [pool.source] if pool else []

    def _price(self, kept: Kept) -> str | None:
        if self.prices is None:
            return None
        labels = kept["labels"]
        return self.prices.of(instance_type(labels), zone(labels), capacity_type(labels))


def _places(groups: Mapping[str, tuple[Sequence[_Node], Kept]]) -> Places:
    """Maps each label and name of a node to the groups whose nodes had it. A label that nodes made
    by the imported groups have, too, is mapped to no group: pods can go on selecting it.
    """
    had: dict[tuple[str, str], set[str]] = defaultdict(set)
    have: set[tuple[str, str]] = set()
    for name, (members, kept) in groups.items():
        for node in members:
            host = {constants.HOSTNAME_LABEL: node.name, NAME_FIELD: node.name}
            for label in {**host, **node.labels}.items():
                had[label].add(name)
        labels = kept["labels"] | labels_of_every_node(kept["labels"])
        have.update((labels | {constants.NODE_GROUP_LABEL: name}).items())
    return {place: frozenset() if place in have else frozenset(had[place]) for place in had}


def _barrier(node: _Node, template: Kept) -> NodeBarrier | None:
    cordoned = Reason.NODE_CORDONED in node.states
    kept = _read(node)
    taints = [taint for taint in kept["taints"] if taint not in template["taints"]] if kept else []
    return NodeBarrier(cordoned, tuple(taints)) if cordoned or taints else None


def _kept(body: Mapping[str, Any]) -> str:
    try:
        kept = kept_of(body)
    except TemplateError:
        return ""
    return json.dumps(kept, sort_keys=True) if has_capacity(kept) else ""


def _read(node: _Node) -> Kept | None:
    return json.loads(node.kept) if node.kept else None


def _states(
    spec: Mapping[str, Any],
    taints: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any],
) -> tuple[Reason, ...]:
    conditions = [as_map(condition) for condition in as_list(status.get("conditions"))]
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    states = {
        Reason.NODE_NOT_READY: not ready,
        Reason.NODE_CORDONED: bool(spec.get("unschedulable")),
        Reason.NODE_SURPLUS: any(taint.get("key") in _SURPLUS for taint in taints),
    }
    return tuple(reason for reason, holds in states.items() if holds)


def _state_notes(ref: Ref, members: Sequence[_Node]) -> Iterator[Note]:
    for reason in (Reason.NODE_NOT_READY, Reason.NODE_CORDONED, Reason.NODE_SURPLUS):
        names = [node.name for node in members if reason in node.states]
        if names:
            yield Note(ref, reason, "spec.targetSize", few_names(names), len(names))


def _racks(members: Sequence[_Node]) -> set[str]:
    """Returns the labels, such as a rack's, that divide the nodes of a group into several racks
    with at least two nodes on average.
    """
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for node in members:
        for key in filter(is_of_racks, node.labels):
            values[key][node.labels[key]] += 1
    return {key for key, racks in values.items() if 1 < len(racks) <= racks.total() // 2}


def _lost_labels(ref: Ref, members: Sequence[_Node]) -> Iterator[Note]:
    count: Counter[str] = Counter()
    for node in members:
        kept = _read(node)
        if kept is not None:
            count.update(
                key
                for key in node.labels.keys() - kept["labels"].keys() - _COME_BY_THEMSELVES
                if not key.startswith(f"{constants.API_GROUP}/")
            )
    for key, nodes in sorted(count.items()):
        yield Note(ref, Reason.LABEL_DROPPED, field=f"metadata.labels[{key}]", count=nodes)


def _parts(kept: Kept) -> dict[str, str]:
    """Returns the kept fields of a node as texts by path; all taints together are one text."""
    parts = {"spec.taints": json.dumps(kept["taints"], sort_keys=True)}
    for field_, at in _PLACES:
        parts |= {f"{at}[{key}]": str(value) for key, value in kept[field_].items()}
    return parts
