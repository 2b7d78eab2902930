"""Converts Cluster API's objects in files to the groups that a cluster would make of them.

FoundObjects  --convert-->  groups, findings at lines, notes, and the objects that it used

A scalable is a MachineDeployment, MachineSet or MachinePool.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.api.base import is_label_key, is_label_value
from kwok_operator.clusterapi.crds import VERSIONS
from kwok_operator.clusterapi.derive import NO_CAPACITY, CapiGroup, CapiTemplates, derive
from kwok_operator.clusterapi.discovery import ConvertTerms
from kwok_operator.clusterapi.keys import CPU, DEFAULT_GROUP, MEMORY, Keys
from kwok_operator.clusterapi.machines import LONGEST_LABEL, has_selector, selects
from kwok_operator.clusterapi.scalable import InfrastructureRef, Kind, Path, Scalable, read_scalable
from kwok_operator.clusterapi.topology import class_name, is_patched, planned
from kwok_operator.errors import ManifestError
from kwok_operator.formats.manifests import CRD, group_of
from kwok_operator.formats.untyped import as_map
from kwok_operator.formats.words import shown
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.offline.files import Finding, FoundObject

_CLUSTER: Final = "Cluster"
_CLASS: Final = "ClusterClass"
_Steps = tuple[str, ...]
_OF_TEXTS: Final[tuple[_Steps, ...]] = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "selector", "matchLabels"),
    ("spec", "template", "metadata", "labels"),
    ("spec", "template", "spec", "infrastructureRef"),
)
"""The maps in a scalable whose values must all be text."""


_IN_REFERENCES: Final = dict(zip(VERSIONS, ("apiVersion", "apiGroup"), strict=True))
"""API version -> the field of a reference that has the API group of an infrastructure template."""
_CORRECT_IT: Final = "correct it, or fill in what it stands for"


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a conversion: `manifests` are the groups to apply, `groups` the same with their
    sources."""

    groups: tuple[CapiGroup, ...]
    manifests: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    looked_at: tuple[FoundObject, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a scalable is in the files: it is the object `obj`; or if `path` isn't empty, `obj` is
    a Cluster that demands it at this path, and `templates_in` the namespace of the ClusterClass's
    templates.
    """

    obj: FoundObject
    path: Path = ()
    templates_in: str = ""

    def finding(self, message: str, path: Path) -> Finding:
        if not self.path:
            return self.obj.finding(message, path)
        inner = path if path[:1] == ("metadata",) else ()
        return self.obj.finding(message, (*self.path, *inner))


def convert(objects: Iterable[FoundObject], terms: ConvertTerms) -> Converted:
    """Returns the groups of all scalables (MachineDeployments, MachineSets, MachinePools) among the
    objects."""
    return _Converter(terms, list(objects)).run()


@dataclass(slots=True)
class _Converter:
    _terms: ConvertTerms
    _objects: list[FoundObject]
    _scalables: dict[str, tuple[Scalable, _Place]] = field(default_factory=dict)
    _findings: list[Finding] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _looked_at: list[FoundObject] = field(default_factory=list)
    _without_status: set[str] = field(default_factory=set)
    """ids of scalables whose infrastructure template is missing, or has no status yet."""

    def run(self) -> Converted:
        classes = {each.identity: each for each in self._of_kind(_CLASS)}
        for kind in Kind:
            for scalable in self._of_kind(kind):
                self._add(scalable.value, _Place(scalable))
        for cluster in self._of_kind(_CLUSTER):
            self._cluster(cluster, classes)
        scalables = [each for each, _ in self._scalables.values()]
        fleet = derive(
            scalables,
            self._templates(scalables),
            keys=self._terms.keys,
            discoveries=self._terms.discoveries,
            default_arch=self._terms.default_arch,
        )
        for finding in fleet.findings:
            if finding.reason == NO_CAPACITY and finding.about in self._without_status:
                continue  # the infrastructure's provider has yet to write it
            place = self._scalables[finding.about][1]
            placed = place.finding(finding.message, finding.path or ("metadata", "name"))
            if finding.note:
                self._notes.append(f"{finding.about}: {finding.message}")
            else:
                self._findings.append(
                    replace(placed, message=_named(finding.about, placed.message))
                )
        self._findings += [finding for group in fleet.groups for finding in self._outside(group)]
        return Converted(
            groups=fleet.groups,
            manifests=tuple(map(_manifest, fleet.groups)),
            findings=tuple(self._findings),
            notes=tuple(dict.fromkeys(self._notes)),
            looked_at=tuple(self._looked_at),
        )

    def _of_kind(self, kind: str) -> list[FoundObject]:
        objects = [
            each
            for each in self._objects
            if each.value.get("kind") == kind and group_of(each.value) == self._terms.keys.group
        ]
        self._looked_at += objects
        for each in objects if self._is_cluster_api else ():
            version = each.value["apiVersion"].partition("/")[2]
            if version not in VERSIONS:
                why = f"{shown(version)} is none of {', '.join(VERSIONS)}: correct it"
                message = f"{each.label}: apiVersion: {why}"
                self._findings.append(each.finding(message, ("apiVersion",)))
        return objects

    @property
    def _is_cluster_api(self) -> bool:
        """Whether the objects have Cluster API's own API group, not another one that the terms
        name."""
        return self._terms.keys.group == DEFAULT_GROUP

    def _outside(self, group: CapiGroup) -> Iterator[Finding]:
        """Yields a finding if the replicas in a file are outside cluster-autoscaler's bounds. In a
        cluster this isn't checked, as autoscalers change replicas there."""
        size, least, most = group.size, group.min_size, group.max_size
        place = self._scalables[group.scalable.id][1]
        if size != group.scalable.replicas or size is None or not most or place.path:
            return
        if not least <= size <= most:
            yield place.finding(
                f"{group.scalable.id}: spec.replicas: {size} is not between the bounds, {least} and"
                f" {most}, and CA doesn't bring it there (to the minimum it does with"
                " --enforce-node-group-min-size); correct it, or leave replicas out",
                ("spec", "replicas"),
            )

    def _add(self, body: Mapping[str, Any], place: _Place) -> Scalable | None:
        metadata = body.get("metadata")
        if isinstance(metadata, Mapping) and metadata.get("ownerReferences"):
            self._notes.append(
                "ownerReferences name objects of the cluster that they come from: what is applied"
                " with them in another is deleted there at once; take them out before"
            )
        try:
            scalable = read_scalable(body, self._terms.keys)
        except ManifestError as error:
            self._findings.append(place.finding(str(error), ("metadata",)))
            return None
        refused = dict(_refused(scalable, body))
        if self._is_cluster_api and not place.path:
            refused = dict(_refused_by_cluster_api(scalable, body, self._terms.keys)) | refused
            empty = scalable.kind is not Kind.MACHINE_POOL and not has_selector(scalable)
            if empty and ("spec", "selector") not in refused:
                message = "spec.selector: is empty; Cluster API's webhook fills it in"
                self._notes.append(f"{scalable.id}: {message}")
        for path, why in refused.items():
            message = f"{scalable.id}: {'.'.join(path)}: {why}"
            self._findings.append(place.finding(message, path))
        known = self._scalables.setdefault(scalable.id, (scalable, place))
        if known[1] is not place:
            message = f"{scalable.id} stands in {known[1].obj.file} already"
            self._findings.append(place.finding(message, ("metadata", "name")))
        return scalable

    def _cluster(
        self, cluster: FoundObject, classes: Mapping[tuple[str, str], FoundObject]
    ) -> None:
        wanted = class_name(cluster.value)
        if wanted is None:
            return
        its_class = classes.get(wanted)
        if its_class is None:
            message = f"its ClusterClass {'/'.join(wanted)} is not among the files: add it"
            path = ("spec", "topology")
            self._findings.append(cluster.finding(f"{cluster.label}: {message}", path))
            return
        self._notes.append(
            f"{cluster.label}: the names of its MachineDeployments end in characters that Cluster"
            " API draws; their groups go without"
        )
        if is_patched(cluster.value, its_class.value):
            self._notes.append(
                f"{cluster.label}: what the patches of {its_class.label} and the topology's"
                " variables change is known to Cluster API alone, and is not looked at"
            )
        for each in planned(cluster.value, its_class.value, self._terms.keys):
            place = _Place(cluster, each.path, templates_in=wanted[0])
            if each.known:
                if scalable := self._add(each.body, place):
                    self._findings += self._beside_bounds(scalable, place)
            else:
                message = f"{its_class.label} has no such class: correct it"
                self._findings.append(cluster.finding(message, (*each.path, "class")))

    def _beside_bounds(self, scalable: Scalable, place: _Place) -> Iterator[Finding]:
        """Yields a finding if both Cluster API (by the topology) and cluster-autoscaler would set
        the same replicas."""
        sizes = (self._terms.keys.min_size, self._terms.keys.max_size)
        if scalable.replicas is None or scalable.annotations.keys().isdisjoint(sizes):
            return
        refuses = scalable.kind is Kind.MACHINE_DEPLOYMENT
        what = "refuses the Cluster" if refuses else "sets them back whenever CA scales"
        yield place.obj.finding(
            f"{scalable.id}: replicas: are set beside size annotations, which it has itself or of"
            f" its class: Cluster API {what}; take them out",
            (*place.path, "replicas"),
        )

    def _templates(self, scalables: Iterable[Scalable]) -> CapiTemplates:
        by_name = {
            (group_of(each.value), each.value["kind"], *each.identity): each
            for each in self._objects
        }
        served = self._served()
        templates: dict[tuple[str, InfrastructureRef], Mapping[str, Any]] = {}
        trouble: dict[InfrastructureRef, str] = {}
        for scalable in scalables:
            ref = scalable.infrastructure
            if ref is None:
                continue
            namespace = self._scalables[scalable.id][1].templates_in or scalable.namespace
            template = by_name.get((ref.group, ref.kind, namespace, ref.name))
            definitions = served.get(ref.group, {})
            self._looked_at += definitions.values()
            if template is not None:
                self._looked_at.append(template)
            plural = _plural(definitions.get(ref.kind))
            if definitions and plural != ref.resource:
                trouble[ref] = _not_served(ref, plural)
            elif template is not None and _has_status(template.value):
                templates[scalable.namespace, ref] = template.value
            else:
                self._without_status.add(scalable.id)
                self._notes.append(_unknown_status(scalable, f"{ref.kind} {namespace}/{ref.name}"))
        return CapiTemplates(templates, trouble)

    def _served(self) -> dict[str, dict[str, FoundObject]]:
        """Returns the CRDs among the files: API group -> kind -> CRD."""
        served: dict[str, dict[str, FoundObject]] = {}
        for crd in self._objects:
            spec = crd.value.get("spec")
            if crd.value.get("kind") != CRD or not isinstance(spec, dict):
                continue
            names = spec.get("names")
            if isinstance(names, dict):
                served.setdefault(str(spec.get("group")), {})[str(names.get("kind"))] = crd
        return served


def _refused(scalable: Scalable, body: Mapping[str, Any]) -> Iterator[tuple[_Steps, str]]:
    """Yields the parts of an object that the API server would refuse, and why."""
    no_name = f"is no name that the API server takes: {_CORRECT_IT}"
    for part, name in (("name", scalable.name), ("namespace", scalable.namespace)):
        if not is_object_name(name) or (part == "namespace" and "." in name):
            yield ("metadata", part), f"{shown(name)} {no_name}"
    for steps in _OF_TEXTS:
        inner: Any = body
        for depth, step in enumerate(steps, 1):
            inner = inner.get(step)
            if not isinstance(inner, Mapping):
                if inner is not None:
                    yield steps[:depth], "must be an object of keys and values"
                break
        else:
            for key, value in inner.items():
                if value is not None and not isinstance(value, str):
                    yield (*steps, key), "must be text; put it in quotes"
                elif why := _no_label(steps[-1], key, value or ""):
                    yield (*steps, key), f"{why}, and the API server refuses that: correct it"


def _no_label(part: str, key: str, value: str) -> str:
    """Describes what is wrong with a label, or with an annotation's key; "" if nothing is."""
    if part == "annotations":
        return "" if is_label_key(key.lower()) else f"{shown(key)} is no annotation's key"
    if part == "infrastructureRef":
        return ""
    if not is_label_key(key):
        return f"{shown(key)} is no label's key"
    return "" if is_label_value(value) else f"{shown(value)} is no label's value"


def _refused_by_cluster_api(
    scalable: Scalable, body: Mapping[str, Any], keys: Keys
) -> Iterator[tuple[_Steps, str]]:
    """Yields the parts of an object that Cluster API's CRDs and webhooks would refuse, and why."""
    machine = as_map(as_map(scalable.spec.get("template")).get("spec"))
    inner, outer = machine.get("clusterName"), scalable.spec.get("clusterName")
    of_machine = ("spec", "template", "spec")
    if not outer:
        yield ("spec", "clusterName"), "is not set, and Cluster API refuses that: name the Cluster"
    elif not (isinstance(outer, str) and is_object_name(outer)):
        why = f"{shown(outer)} can't be the name of a Cluster: {_CORRECT_IT}"
        yield ("spec", "clusterName"), why
    elif not inner:
        why = f"is not set, and Cluster API refuses that: write {shown(outer)}, as spec.clusterName"
        yield (*of_machine, "clusterName"), why
    elif inner != outer:
        why = f"{shown(inner)} is not {shown(outer)}, as spec.clusterName is: write the same"
        yield (*of_machine, "clusterName"), why
    if scalable.kind is Kind.MACHINE_DEPLOYMENT and len(scalable.name) > LONGEST_LABEL:
        why = f"{shown(scalable.name)} has more than {LONGEST_LABEL} characters, and Cluster API"
        yield ("metadata", "name"), f"{why} refuses that, as it becomes a label: shorten it"
    reference = as_map(machine.get("infrastructureRef"))
    version = body["apiVersion"].partition("/")[2]
    needed = _IN_REFERENCES.get(version, "")
    if reference and needed and not reference.get(needed):
        why = f"has no {needed}, and {version} finds no template without: add it"
        yield (*of_machine, "infrastructureRef"), why
    labels = dict(scalable.template_labels)
    if scalable.kind is Kind.MACHINE_DEPLOYMENT:
        labels[keys.cluster_name] = str(outer)
    if has_selector(scalable) and not selects(scalable, keys, labels):
        what = "does not select Machines with the labels of spec.template.metadata, and Cluster API"
        yield ("spec", "selector"), f"{what} refuses that: correct one of the two"


def _has_status(template: Mapping[str, Any]) -> bool:
    """Whether a template has fields that only a cluster writes. A template from Git has none."""
    return "status" in template or bool(as_map(template.get("metadata")).get("uid"))


def _unknown_status(scalable: Scalable, template: str) -> str:
    note = f"{scalable.id}: what the status of {template} says is not among the files"
    if {CPU, MEMORY} <= scalable.annotations.keys():
        return note
    return f"{note}; unless it gives cpu and memory, CA can't scale the group from zero"


def _plural(definition: FoundObject | None) -> str | None:
    return str(definition.value["spec"]["names"].get("plural")) if definition else None


def _not_served(ref: InfrastructureRef, plural: str | None) -> str:
    waits = "cluster-autoscaler waits for it without an end"
    if plural is not None:
        return f"is served as {plural}; CA asks for {ref.resource}: {waits}"
    if not ref.version:
        waits = f"{waits} before 1.35.1, and later goes without it"
    return f"is not among the CRDs of its API group: {waits}; correct the reference"


def _named(about: str, message: str) -> str:
    return message if about in message else f"{about}: {message}"


def _manifest(group: CapiGroup) -> dict[str, Any]:
    """Returns the manifest of an independent group, without the annotations by which it would
    follow its scalable."""
    size = group.size if group.size is not None else group.default_size
    manifest = group.manifest(target=size)
    del manifest["metadata"]["labels"][constants.DERIVED_LABEL]
    del manifest["metadata"]["annotations"][constants.CAPI_ANNOTATION]
    if not manifest["metadata"]["labels"]:
        del manifest["metadata"]["labels"]
    manifest["spec"]["targetSize"] = size
    return manifest
