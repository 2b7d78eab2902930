"""Derives groups from a provider config, templates and real nodes: one for each value of the
config's key.

A group that would be invalid is reported as a Problem instead; an existing group of that name stays
as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.api.base import is_label_value
from kwok_operator.errors import TemplateError, one_line
from kwok_operator.formats.documents import NodeDocuments, node_name
from kwok_operator.formats.untyped import text_at, value_at
from kwok_operator.formats.words import Problem, differing_paths, names_in_words, useful_keys
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.cleaning import Node, clean_node, control_plane_shape
from kwok_operator.nodegroups.naming import group_name
from kwok_operator.nodegroups.template import SourceNode, resolve
from kwok_operator.sources.api.providerconfig import KeyKind, ProviderConfig, ReadNodesFrom
from kwok_operator.sources.counts import COUNT_ANNOTATIONS, Counts, read_counts
from kwok_operator.sources.nodechoice import LiveNode

_MAX_ANNOTATION_VALUE: Final = 4_096
_MAX_NODE_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class ConfigMapTemplates:
    """The Nodes under one key of a ConfigMap. Derived groups name the ConfigMap and the key as the
    source of their template."""

    name: str
    key: str
    documents: NodeDocuments


@dataclass(frozen=True, slots=True)
class DerivedGroup:
    """A group that the provider config and its sources demand. `manifest` is all that the operator
    applies, without a target size.

    `desired` is the first target size, used if the group is new.
    """

    name: str
    value: str
    source: str
    manifest: dict[str, Any]
    desired: int | None


@dataclass(frozen=True, slots=True)
class Derivation:
    """The derived groups (one for each value of the config's key), and all problems."""

    groups: tuple[DerivedGroup, ...]
    problems: tuple[Problem, ...]


def derive(
    config: ProviderConfig,
    *,
    owner: str,
    templates: ConfigMapTemplates | None,
    live: Sequence[LiveNode] | None,
) -> Derivation:
    """Returns the groups of a config and its problems; raises nothing. `owner` is namespace/name of
    its ConfigMap.

    Templates or live nodes that are None could not be read. If the config needs them, no group is
    derived, because a template made of only one of its sources would be wrong.
    """
    return _Deriver(config, owner=owner).run(templates, live)


@dataclass(frozen=True, slots=True)
class _Static:
    """A Node in the ConfigMap: as it is (`raw`), and with only the parts that a template may have
    (`cleaned`)."""

    name: str
    raw: Mapping[str, Any]
    cleaned: Node

    @property
    def annotations(self) -> Mapping[str, Any]:
        return (self.raw.get("metadata") or {}).get("annotations") or {}


class _Deriver:
    def __init__(self, config: ProviderConfig, *, owner: str) -> None:
        self._config = config
        self._owner = owner
        self._problems: list[Problem] = []
        self._refused: set[str] = set()
        """Values of the key whose template in the ConfigMap is invalid."""

    def run(
        self, templates: ConfigMapTemplates | None, live: Sequence[LiveNode] | None
    ) -> Derivation:
        reads = self._config.read_nodes_from
        static: dict[str, list[_Static]] = {}
        if templates is not None and reads.static:
            static = self._by_value_static(templates)
        followed: dict[str, list[LiveNode]] = {}
        if live is not None and reads.live:
            followed = self._by_value_live([n for n in live if not n.fake], others=bool(static))
        if (reads.static and templates is None) or (reads.live and live is None):
            return Derivation((), tuple(dict.fromkeys(self._problems)))
        groups: dict[str, DerivedGroup] = {}
        for value in sorted(static.keys() | followed.keys()):
            group = self._group(value, templates, static.get(value, []), followed.get(value, []))
            if group is None:
                continue
            if group.name in groups:
                self._problem(
                    "NameCollision",
                    f"{self._key_in_words}: the values {groups[group.name].value!r} and {value!r}"
                    f" both give the group name {group.name}; rename one of them",
                )
            else:
                groups[group.name] = group
        return Derivation(tuple(groups.values()), tuple(dict.fromkeys(self._problems)))

    @property
    def _part(self) -> str:
        """Returns "labels" or "annotations": the part of a node's metadata that has the config's
        key."""
        return "labels" if self._config.key_kind is KeyKind.LABEL else "annotations"

    @property
    def _key_in_words(self) -> str:
        return f"{self._config.key_kind} {self._config.group_key}"

    def _problem(self, reason: str, message: str, *, blocks: bool = True) -> None:
        self._problems.append(Problem(reason, one_line(message), blocks))

    def _by_value_static(self, templates: ConfigMapTemplates) -> dict[str, list[_Static]]:
        where = f"ConfigMap {templates.name}, key {templates.key}"
        by_value: dict[str, list[_Static]] = {}
        without: list[dict[str, Any]] = []
        for node in sorted(templates.documents.nodes, key=node_name):
            name, value = node_name(node), self._value_of_template(node)
            if not value:
                without.append(node)
            try:
                if len(name) > _MAX_NODE_NAME:
                    problem = f"is longer than {_MAX_NODE_NAME} characters"
                    raise TemplateError(field="metadata.name", value=name, problem=problem)
                cleaned = clean_node(node, field=f"Node {name}")
            except TemplateError as error:
                self._problem("InvalidTemplate", f"{where}: {error}")
                self._refused.add(value)
                without = [other for other in without if other is not node]
                continue
            if value:
                by_value.setdefault(value, []).append(_Static(name, node, cleaned))
        if without:
            self._without_key(without, where, none_has_it=not by_value)
        return by_value

    def _value_of_template(self, node: Mapping[str, Any]) -> str:
        """Returns the value by which a template belongs to a group: that of cluster-autoscaler's
        annotation, else of the config's key; "" if the template has no such value that is text.
        """
        own = text_at(node, "metadata", "annotations", constants.CA_NODE_GROUP_ANNOTATION)
        return own or text_at(node, "metadata", self._part, self._config.group_key)

    def _without_key(
        self, nodes: Sequence[Mapping[str, Any]], where: str, *, none_has_it: bool
    ) -> None:
        names = names_in_words([node_name(dict(node)) or "without a name" for node in nodes])
        who = f"none of its {len(nodes)} Nodes" if none_has_it else f"Node {names}"
        verb = "has" if none_has_it or len(nodes) == 1 else "have"
        nothing = "the" if none_has_it else "no"
        keys = useful_keys([value_at(node, "metadata", self._part) for node in nodes])
        self._problem(
            "KeyNotFound",
            f"{where}: {who} {verb} {nothing} {self._key_in_words}; {self._remedy(keys)}",
        )

    def _remedy(self, keys: Sequence[str]) -> str:
        there = f"there are {', '.join(keys)}" if keys else f"they have no {self._part}"
        field = "Label" if self._config.key_kind is KeyKind.LABEL else "Annotation"
        return f"{there}; add it, or choose another nodegroups.fromNode{field}Key"

    def _by_value_live(
        self, live: Sequence[LiveNode], *, others: bool
    ) -> dict[str, list[LiveNode]]:
        texts = [
            node.labels if self._config.key_kind is KeyKind.LABEL else node.annotations
            for node in live
        ]
        by_value: dict[str, list[LiveNode]] = {}
        for node, of_node in zip(live, texts, strict=True):
            if value := of_node.get(self._config.group_key):
                by_value.setdefault(value, []).append(node)
        if not by_value and not others:
            keys = useful_keys(texts)
            there = self._config.cluster
            of = f" of the cluster of Secret {there.secret_name}" if there else ""
            who = f"none of the {len(live)} real nodes" if live else "there is no real node"
            who += of if live else f"{of} that"
            self._problem(
                "KeyNotFound",
                f"nodegroups: {who} has the {self._key_in_words}"
                + (f"; {self._remedy(keys)}" if live else "; fake nodes don't count"),
            )
        return by_value

    def _group(
        self,
        value: str,
        templates: ConfigMapTemplates | None,
        static: Sequence[_Static],
        live: Sequence[LiveNode],
    ) -> DerivedGroup | None:
        if value in self._refused or not self._possible(value, static):
            return None
        self._compare(value, static)
        newest = min(
            (n for n in live if n.usable), key=lambda n: (-n.created, n.name), default=None
        )
        if live and newest is None:
            self._problem(
                "NoUsableNode",
                f"{self._key_in_words}={value}: of its nodes ({len(live)}) none is Ready,"
                " schedulable and states its capacity; its group waits for one",
                blocks=False,
            )
        if not static and newest is None:
            return None
        if static and not live and not self._complete(value, static[0]):
            return None
        counts = self._counts(static, newest)
        if counts is None:
            return None
        if self._config.copy_sizes and live and counts.desired is None:
            counts = self._sized(value, counts, len(live))
        source: dict[str, Any] = {}
        shape: dict[str, Any] = {}
        if static and templates is not None:
            shape = self._control_plane(value, static[0])
            node = {"node": static[0].name} if static[0].name else {}
            source["configMap"] = {"name": templates.name, "key": templates.key, **node}
        if live:
            source["nodes"] = self._nodes_source(value)
        return self._derived(value, source, shape, counts)

    def _control_plane(self, value: str, template: _Static) -> dict[str, Any]:
        """Returns a template's labels and taints of a control plane, in the form of
        `template.shape`, if the config says that nodes keep them; else {}. If the config says
        neither yes nor no, reports that they are left out.
        """
        shape, keep = control_plane_shape(template.raw), self._config.keep_control_plane
        if shape and keep is None:
            keys = [*shape.get("labels", ()), *(str(t.get("key")) for t in shape.get("taints", ()))]
            self._problem(
                "ControlPlane",
                f"{_in_words(template)} (group {group_name(value)}): the labels and taints"
                f" {names_in_words(list(dict.fromkeys(keys)))} are left out, so pods are scheduled"
                " to its nodes as to any; set nodes.keepControlPlane to true to keep them, or to"
                " false if that is meant",
                blocks=False,
            )
        return shape if keep else {}

    def _derived(
        self, value: str, source: dict[str, Any], shape: dict[str, Any], counts: Counts
    ) -> DerivedGroup:
        word = str(ReadNodesFrom.BOTH)
        if len(source) == 1:
            word = str(ReadNodesFrom.CONFIGMAP if "configMap" in source else ReadNodesFrom.CLUSTER)
        name = group_name(value)
        guard = {"guardTaint": {"enabled": False}} if self._config.skip_taint else {}
        manifest = {
            "apiVersion": f"{constants.API_GROUP}/{constants.API_VERSION}",
            "kind": constants.KIND,
            "metadata": {
                "name": name,
                "labels": {constants.DERIVED_LABEL: "true"},
                "annotations": {
                    constants.PROVIDER_CONFIG_ANNOTATION: self._owner,
                    constants.PROVIDER_CONFIG_VALUE_ANNOTATION: value,
                    constants.PROVIDER_CONFIG_SOURCE_ANNOTATION: word,
                },
            },
            "spec": {
                "template": {"from": source, **({"shape": shape} if shape else {})},
                "autoscaling": self._autoscaling(counts),
                **guard,
            },
        }
        return DerivedGroup(name, value, word, manifest, counts.desired)

    def _autoscaling(self, counts: Counts) -> dict[str, Any]:
        label, types = self._config.gpu_label_key, self._config.gpu_types
        bounds: dict[str, Any] = {"minSize": counts.minimum, "maxSize": counts.maximum}
        gpus = {"gpuLabel": label} if label else {}
        return bounds | gpus | ({"gpuTypes": list(types)} if types else {})

    def _nodes_source(self, value: str) -> dict[str, Any]:
        key, there = self._config.group_key, self._config.cluster
        cluster = {"cluster": there.dump()} if there else {}
        if self._config.key_kind is KeyKind.LABEL:
            return {"selector": {"matchLabels": {key: value}}, **cluster}
        return {"annotation": {"key": key, "value": value}, **cluster}

    def _possible(self, value: str, static: Sequence[_Static]) -> bool:
        problem = ""
        if len(value) > _MAX_ANNOTATION_VALUE:
            problem = f"has {len(value)} characters; at most {_MAX_ANNOTATION_VALUE} can be kept"
        elif self._config.key_kind is KeyKind.LABEL and any(
            t.cleaned["metadata"]["labels"].get(self._config.group_key) == value for t in static
        ):
            if not is_label_value(value):
                problem = (
                    "is not the value of a label (at most 63 letters, digits, '-', '_' and '.', a"
                    " letter or digit at both ends); change it"
                )
        if problem:
            shown = one_line(repr(value), limit=200)
            names = names_in_words([t.name or "without a name" for t in static])
            who = f"Node {names}: " if static else ""
            self._problem("InvalidValue", f"{who}{self._key_in_words}: {shown} {problem}")
        return not problem

    def _complete(self, value: str, template: _Static) -> bool:
        """Whether nodes can be made from the template alone, without a real node. If not, reports
        why."""
        try:
            source = SourceNode(_in_words(template), template.raw)
            resolve(Template(), guard=GuardTaint(), sources=(source,))
        except TemplateError as error:
            self._problem("InvalidTemplate", str(error))
            return False
        status = template.cleaned["status"]
        known = {name for part in ("capacity", "allocatable") for name in status.get(part) or ()}
        if {"cpu", "memory"} <= known:
            return True
        self._problem(
            "NoCapacity",
            f"{_in_words(template)} (group {group_name(value)}): status.capacity lacks cpu or"
            " memory; give both, such as {cpu: 8, memory: 32Gi}",
        )
        return False

    def _counts(self, static: Sequence[_Static], live: LiveNode | None) -> Counts | None:
        places = [(_in_words(t), t.annotations) for t in static[:1]]
        places += [(f"Node {live.name}", live.annotations)] if live is not None else []
        counts, problems = read_counts(places)
        for problem in problems:
            self._problem("InvalidCount", problem)
        return counts

    def _sized(self, value: str, counts: Counts, there: int) -> Counts:
        if there > counts.maximum:
            self._problem(
                "InvalidCount",
                f"{self._key_in_words}={value}: there are {there} nodes, and its group may have"
                f" {counts.maximum}: raise {constants.CA_MAX_COUNT_ANNOTATION}",
                blocks=False,
            )
        return replace(counts, desired=min(max(there, counts.minimum), counts.maximum))

    def _compare(self, value: str, static: Sequence[_Static]) -> None:
        if not static:
            return
        first, paths, names = static[0], [], []
        for other in static[1:]:
            differing = differing_paths(first.cleaned, other.cleaned)
            differing += [
                f"metadata.annotations.{key}"
                for key in COUNT_ANNOTATIONS
                if key in other.annotations and other.annotations[key] != first.annotations.get(key)
            ]
            paths += [path for path in differing if path not in paths]
            names += [other.name] if differing else []
        if names:
            self._problem(
                "TemplatesDiffer",
                f"{self._key_in_words}={value}: Nodes {names_in_words([first.name, *names])} are of"
                f" one group and differ in {names_in_words(paths)}; {first.name} is the template."
                " Make them alike, or give them different values",
                blocks=False,
            )


def _in_words(template: _Static) -> str:
    return f"Node {template.name or 'without a name'}"
