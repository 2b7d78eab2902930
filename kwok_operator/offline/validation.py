"""Checks files as the operator and the API server would, without a cluster.

    (file, text)  --Files-->  objects  --validate-->  ValidationReport: findings, notes, groups

It only combines other modules: each object is checked by the same code as in a cluster. The command
reads the files and prints the report.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kwok_operator import constants
from kwok_operator.clusterapi.discovery import ConvertTerms
from kwok_operator.companions.desired import compile_companions
from kwok_operator.errors import ManifestError, TemplateError
from kwok_operator.formats.documents import NodeDocuments, node_name, nodes_of, pick
from kwok_operator.formats.words import names_in_words
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.cleaning import Node, clean_node, left_to_kwok
from kwok_operator.nodegroups.template import NODE_FIELD, SourceNode, resolve
from kwok_operator.offline.clusterapi import Converted, convert
from kwok_operator.offline.files import Files, Finding, FoundObject, nodes_in_configmap
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.checks import profile_notes
from kwok_operator.schema.check import FieldProblem, check_group, check_pool, check_profile
from kwok_operator.sources.api.providerconfig import ProviderConfig, ReadNodesFrom
from kwok_operator.sources.api.source import ConfigMapSource
from kwok_operator.sources.derive import ConfigMapTemplates, DerivedGroup, derive
from kwok_operator.sources.providerconfig import ProviderConfigError, config_of, templates_key
from kwok_operator.topology.layout import Layout

_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """A group that the files would make, in words."""

    group: str
    value: str
    min: str
    max: str
    desired: str
    source: str
    cpu: str
    memory: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The result of a validation. Without findings the files are valid."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    rows: tuple[Row, ...]
    recognised: int
    """The number of objects that are of interest to the operator."""
    pools: int = 0
    """The number of KwokCapacityPools without a mistake."""
    profiles: int = 0
    """The number of KwokPodProfiles without a mistake."""


def validate(
    texts: Sequence[tuple[str, str]], terms: ConvertTerms | None = None
) -> ValidationReport:
    """Checks files, given as name and text, together: a provider config's templates may be in
    another file."""
    return validate_files(Files.read(texts), terms)


def validate_files(files: Files, terms: ConvertTerms | None = None) -> ValidationReport:
    """Checks files that have been read already."""
    return _Checker(files, terms or ConvertTerms()).run()


class _Checker:
    def __init__(self, files: Files, terms: ConvertTerms) -> None:
        self._files = files
        self._terms = terms
        self._findings: list[Finding] = list(files.findings)
        self._notes: list[str] = []
        self._rows: list[Row] = []
        self._looked_at: set[tuple[str, str]] = set()
        """The ConfigMaps that were checked, as namespace and name."""

    def run(self) -> ValidationReport:
        files = self._files
        pools, sound = self._check_each(files.pools, check_pool)
        by_hand = self._groups(pools.keys())
        for config in files.configs:
            self._config(config, by_hand)
        nodes = [node.value for node in files.nodes]
        self._note_left_to_kwok("Nodes", nodes)
        if nodes and not files.configs:
            self._check_nodes(files.nodes[0], nodes=nodes)
        for configmap in files.configmaps:
            self._configmap(configmap)
        converted = self._clusterapi()
        seen = {id(each) for each in converted.looked_at}
        profiles = self._profiles()
        if others := {each.label for each in files.others if id(each) not in seen}:
            self._notes.append(f"not looked at: {names_in_words(sorted(others))}")
        known = (
            converted.looked_at,
            files.configs,
            files.groups,
            files.pools,
            files.profiles,
            files.nodes,
            self._looked_at,
        )
        return ValidationReport(
            findings=tuple(sorted(set(self._findings), key=_place)),
            notes=tuple(dict.fromkeys(self._notes)),
            rows=tuple(sorted(self._rows, key=lambda row: (row.group, row.source))),
            recognised=sum(map(len, known)) + len(files.findings),
            pools=len(sound),
            profiles=profiles,
        )

    def _clusterapi(self) -> Converted:
        converted = convert(self._files.others, self._terms)
        self._findings += converted.findings
        self._notes += converted.notes
        for group, manifest in zip(converted.groups, converted.manifests, strict=True):
            shape = manifest["spec"]["template"]["shape"]
            bounds = manifest["spec"].get("autoscaling")
            sizes = (group.min_size, group.max_size) if bounds else (None, None)
            target = manifest["spec"]["targetSize"]
            self._rows.append(
                _row(group.name, group.scalable.id, group.scalable.kind, (*sizes, target), shape)
            )
        return converted

    def _find(self, obj: FoundObject, message: str, path: tuple[str | int, ...] = ()) -> None:
        self._findings.append(obj.finding(message, path))

    def _check_each(
        self,
        objects: Sequence[FoundObject],
        check: Callable[[Mapping[str, Any]], Sequence[FieldProblem]],
    ) -> tuple[dict[str, FoundObject], list[FoundObject]]:
        """Checks objects. Returns all of them by name, and a list of those without a mistake."""
        seen: dict[str, FoundObject] = {}
        sound: list[FoundObject] = []
        for obj in objects:
            problems = check(obj.value)
            for problem in problems:
                self._find(obj, problem.message, problem.path)
            if obj.name in seen:
                first = seen[obj.name].file
                message = f"metadata.name: {obj.name} stands in {first} already"
                self._find(obj, message, ("metadata", "name"))
            elif obj.name:
                seen[obj.name] = obj
            if not problems:
                sound.append(obj)
        return seen, sound

    def _groups(self, pools: Collection[str]) -> dict[str, FoundObject]:
        """Checks KwokNodeGroups; returns those that are not derived from a provider config, by
        name."""
        seen, sound = self._check_each(self._files.groups, check_group)
        for group in sound:
            self._group(group, pools)
        return {
            name: group
            for name, group in seen.items()
            if constants.DERIVED_LABEL not in (group.value["metadata"].get("labels") or {})
        }

    def _profiles(self) -> int:
        """Checks KwokPodProfiles; returns how many have no mistake."""
        _, sound = self._check_each(self._files.profiles, check_profile)
        specs = {
            profile.name: KwokPodProfileSpec.model_validate(profile.value.get("spec") or {})
            for profile in sound
        }
        groups = {group.name for group in self._files.groups} | {row.group for row in self._rows}
        self._notes += profile_notes(specs, groups=groups)
        return len(sound)

    def _group(self, group: FoundObject, pools: Collection[str]) -> None:
        spec = KwokNodeGroupSpec.model_validate(group.value.get("spec") or {})
        for pool in spec.cloud.capacity_pools if spec.cloud else ():
            if pool not in pools:
                self._notes.append(
                    f"{group.label}: KwokCapacityPool {pool} is not among the files; until it"
                    " exists, no instance comes"
                )
        bounds, known = spec.autoscaling, len(self._findings)
        node = self._node_of_group(group, spec)
        if len(self._findings) > known:
            return
        sizes = (bounds.min_size, bounds.max_size) if bounds else (None, None)
        capacity = node["status"]["capacity"] if node else {}
        self._rows.append(
            _row(group.name, _UNKNOWN, "manifest", (*sizes, spec.target_size), capacity)
        )

    def _node_of_group(self, group: FoundObject, spec: KwokNodeGroupSpec) -> Node | None:
        """Checks a group's template. Returns the Node that it makes; None if the template has a
        mistake, or copies from an object that isn't in the files.
        """
        source = spec.template.source
        self._note_left_to_kwok(f"{group.label}: {NODE_FIELD}", [spec.template.node])
        path: tuple[str | int, ...] = ("spec", "template")
        sources: list[SourceNode] = []
        complete = source is None or source.nodes is None
        if not complete:
            self._notes.append(
                f"{group.label}: template.from.nodes needs a cluster; its node isn't checked"
            )
        if source is not None and source.config_map is not None:
            try:
                node = self._node_in_configmap(source.config_map)
            except ManifestError as error:
                self._find(group, str(error), (*path, "from", "configMap"))
                return None
            if node is None:
                complete = False
                self._notes.append(
                    f"{group.label}: ConfigMap {source.config_map.name} is not among the files; its"
                    " node isn't checked"
                )
            else:
                where = f"ConfigMap {source.config_map.name}, Node {node_name(node)}"
                sources.append(SourceNode(where, node))
        try:
            if complete:
                name = str(group.value["metadata"].get("name") or "")
                compile_companions(spec.template, group=name)
                Layout.of(spec.template, group=name)
                return resolve(spec.template, guard=spec.guard_taint, sources=sources)
            clean_node(spec.template.node, field=NODE_FIELD)
        except TemplateError as error:
            inner = error.field.removeprefix("spec.template.").split(".")
            self._find(group, str(error), (*path, *inner))
        return None

    def _node_in_configmap(self, source: ConfigMapSource) -> dict[str, Any] | None:
        configmap = self._files.configmap(source.name)
        if configmap is None:
            return None
        where, keys = f"ConfigMap {source.name}", sorted(configmap.data)
        key = source.key or (keys[0] if len(keys) == 1 else None)
        if key is None or key not in keys:
            lacks = f"has no key {key}" if key else "has several keys; name one in configMap.key"
            raise ManifestError(f"{where}: {lacks}; there is {names_in_words(keys) or 'none'}")
        documents = self._nodes(configmap, key)
        return pick(documents, source.node, where=f"{where}, key {key}") if documents else None

    def _nodes(self, configmap: FoundObject, key: str) -> NodeDocuments | None:
        """Returns the Nodes under a key of a ConfigMap; None if there is a mistake, which becomes a
        finding."""
        self._looked_at.add(configmap.identity)
        documents, findings = nodes_in_configmap(configmap, key)
        self._findings += findings
        self._note_left_to_kwok(configmap.label, documents.nodes if documents else ())
        return documents

    def _note_left_to_kwok(self, where: str, nodes: Iterable[Mapping[str, Any]]) -> None:
        parts = dict.fromkeys(part for node in nodes for part in left_to_kwok(node))
        if parts:
            self._notes.append(
                f"{where}: not copied: {names_in_words(list(parts))}; kwok's Stages give a node its"
                " own, and yours can, with template.bornReady: false"
            )

    def _config(self, obj: FoundObject, by_hand: Mapping[str, FoundObject]) -> None:
        where = obj.label
        self._looked_at.add(obj.identity)
        try:
            config = config_of(obj.config, where=where)
        except ProviderConfigError as error:
            for field, problem in zip(error.fields, error.problems, strict=True):
                self._findings.append(obj.finding_in_config(problem.message, field))
            return
        self._notes += [f"{where}: {note}" for note in config.notes]
        if config.read_nodes_from.live:
            self._notes.append(
                f"{where}: readNodesFrom: {config.read_nodes_from}: the groups of live nodes can't"
                " be known without a cluster"
            )
        templates, place = self._templates(config, obj)
        owner = "/".join(obj.identity)
        static = replace(config, read_nodes_from=ReadNodesFrom.CONFIGMAP)
        derivation = derive(static, owner=owner, templates=templates, live=None)
        for problem in derivation.problems:
            if problem.reason == "NoCapacity" and config.read_nodes_from.live:
                self._notes.append(f"{place.label}: {problem.message}, or have a live node")
            else:
                self._find(place, problem.message)
        for group in derivation.groups:
            self._rows.append(_derived_row(group, templates))
            if group.name in by_hand:
                self._find(
                    place,
                    f"group {group.name} (value {group.value!r}) is also a KwokNodeGroup in"
                    f" {by_hand[group.name].file}, which stays as it is; rename one of them",
                )

    def _templates(
        self, config: ProviderConfig, obj: FoundObject
    ) -> tuple[ConfigMapTemplates | None, FoundObject]:
        """Returns the templates of a provider config, and the object that contains them, for
        findings."""
        name = config.configmap_name
        if name is None or not config.read_nodes_from.static:
            return None, obj
        configmap = self._files.configmap(name, near=obj)
        if configmap is not None:
            try:
                key = templates_key(config, configmap.data.keys())
            except ManifestError as error:
                self._find(configmap, str(error))
                self._looked_at.add(configmap.identity)
                return None, configmap
            documents = self._nodes(configmap, key)
            if documents is None:
                return None, configmap
            return ConfigMapTemplates(name, key, documents), configmap
        if self._files.nodes:
            place = self._files.nodes[0]
            try:
                documents = nodes_of([n.value for n in self._files.nodes], where="the files")
            except ManifestError as error:
                self._find(place, str(error))
                return None, place
            return ConfigMapTemplates(name, config.configmap_key or "config", documents), place
        self._notes.append(
            f"{obj.label}: ConfigMap {name} is not among the files; its groups aren't checked"
        )
        return None, obj

    def _configmap(self, configmap: FoundObject) -> None:
        """Checks a ConfigMap to which no config refers; it may contain Nodes."""
        if configmap.identity in self._looked_at:
            return
        keys = [key for key, text in configmap.data.items() if "Node" in text and "kind" in text]
        for key in keys:
            documents = self._nodes(configmap, key)
            if documents:
                self._check_nodes(configmap, nodes=documents.nodes)
        if not keys:
            self._notes.append(f"not looked at: {configmap.label}")

    def _check_nodes(self, place: FoundObject, *, nodes: Sequence[Mapping[str, Any]]) -> None:
        for node in nodes:
            try:
                source = SourceNode(f"Node {node_name(dict(node))}", node)
                resolve(Template(), guard=GuardTaint(), sources=(source,))
            except TemplateError as error:
                self._find(place, str(error))


def _derived_row(group: DerivedGroup, templates: ConfigMapTemplates | None) -> Row:
    spec = group.manifest["spec"]
    name = spec["template"]["from"].get("configMap", {}).get("node")
    capacity = {}
    if templates is not None and group.source == "configmap":
        picked = pick(templates.documents, name, where="")
        node = resolve(Template(), guard=GuardTaint(), sources=(SourceNode("Node", picked),))
        capacity = node["status"]["capacity"]
    bounds = spec["autoscaling"]
    sizes = bounds["minSize"], bounds["maxSize"], group.desired
    return _row(group.name, group.value, group.source, sizes, capacity)


def _row(
    group: str,
    value: str,
    source: str,
    sizes: tuple[object, object, object],
    capacity: Mapping[str, Any],
) -> Row:
    """Makes the row of a group; `sizes` are minimum, maximum and initial size."""
    resources = capacity.get("cpu"), capacity.get("memory")
    least, most, desired, cpu, memory = map(_text, (*sizes, *resources))
    return Row(group, value, least, most, desired, source, cpu, memory)


def _place(finding: Finding) -> tuple[str, int, str]:
    return finding.file, finding.line or 0, finding.message


def _text(number: object) -> str:
    return _UNKNOWN if number is None else str(number)
