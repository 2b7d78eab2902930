"""Checks the objects that a scenario applies, and collects their names for the other checks.

    apply of the scenario, and of its timeline  --Surroundings-->  files  --validate-->  findings
                                                                     -->  AppliedObjects

Each object is checked as `kwok-operator validate` checks it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from kwok_operator.constants import NODE_POOL_LABEL, ZONE_LABEL
from kwok_operator.errors import TemplateError
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.formats.words import shown
from kwok_operator.formats.yamltext import Document, Path
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.offline.files import Files, Finding, FoundObject
from kwok_operator.offline.validation import validate_files
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.problems import problem
from kwok_operator.rehearsal.scenario.surroundings import Surroundings, UnusableReferenceError
from kwok_operator.rehearsal.scenario.timeline import ApplySource
from kwok_operator.schema.check import FieldProblem
from kwok_operator.topology.layout import Layout

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


@dataclass(slots=True)
class Known:
    """The objects that will exist in the cluster, as far as the files show them."""

    groups: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The spec of each group, by name."""
    later: dict[int, list[str]] = field(default_factory=dict)
    """The groups that steps of the timeline apply, by the step's index."""
    pools: set[str] = field(default_factory=set)
    zones: set[str] = field(default_factory=set)
    """The zones of nodes, as far as the files name them. `zones_known` says whether that is all."""
    zones_known: bool = True
    node_pools: set[str] = field(default_factory=set)
    """The NodePools of Karpenter, and those that labels of nodes name. `node_pools_known` says
    whether that is all.
    """
    node_pools_known: bool = True
    of_karpenter: list[FoundObject] = field(default_factory=list)
    """Karpenter's objects that steps of the timeline apply. The scenario's own `apply` can't have
    any, as Karpenter's CRDs are installed later.
    """
    objects: set[Key] = field(default_factory=set)
    pods: bool = False
    """Whether the files create pods, besides those of the scenario's workloads."""
    complete: bool = True
    """Whether all groups and objects are known: a provider config or a kustomization's patches may
    create others.
    """


@dataclass(slots=True)
class AppliedObjects:
    known: Known = field(default_factory=Known)
    problems: list[FieldProblem] = field(default_factory=list)
    """The problems in the scenario itself."""
    findings: list[Finding] = field(default_factory=list)
    """The findings in the files that it names, and in the objects that it contains."""


_MAKES_PODS = frozenset(
    "Pod Deployment StatefulSet DaemonSet ReplicaSet ReplicationController Job CronJob".split()
)


_OF_KARPENTER = frozenset("NodePool NodeOverlay CapacityBuffer".split())


def look_at(
    scenario: Scenario, document: Document, around: Surroundings, *, file: str
) -> AppliedObjects:
    """Checks everything that is applied, at the beginning and in the timeline."""
    applied = AppliedObjects()
    for place, sources in _sources(scenario):
        read = read_sources(sources, place, document, around, file=file)
        applied.problems += read.problems
        applied.known.complete &= read.complete
        applied.findings += validate_files(read.files).findings
        _note(applied.known, read.files)
        if place[0] == "timeline":
            applied.known.later[int(place[1])] = [each.name for each in read.files.groups]
            others = read.files.others
            applied.known.of_karpenter += [
                each for each in others if str(each.value.get("kind")) in _OF_KARPENTER
            ]
    return applied


@dataclass(slots=True)
class ReadSources:
    files: Files = field(default_factory=Files)
    problems: list[FieldProblem] = field(default_factory=list)
    complete: bool = True
    """Whether these are all objects that are applied."""


def read_sources(
    sources: Sequence[ApplySource],
    place: Path,
    document: Document,
    around: Surroundings,
    *,
    file: str,
) -> ReadSources:
    """Reads the objects of `sources`, a list at `place` in the scenario."""
    read = ReadSources()
    for number, source in enumerate(sources):
        path = (*place, number)
        if source.object is not None:
            read.files.add(file, document, (*path, "object"), source.object)
            continue
        assert source.path is not None
        try:
            material = around.material(source.path)
        except UnusableReferenceError as error:
            read.problems.append(problem(path, f"{shown(source.path)} {error}"))
            read.complete = False
            continue
        read.complete &= material.complete
        _read(read.files, material.texts)
    return read


def pools_that_lack(known: Known) -> Iterator[tuple[str, str]]:
    """Yields each group that draws from a capacity pool that doesn't exist, and that pool."""
    for group, spec in known.groups.items():
        for pool in as_list(as_map(spec.get("cloud")).get("capacityPools")):
            if isinstance(pool, str) and pool not in known.pools:
                yield group, pool


def zone_in(spec: Mapping[str, Any]) -> str:
    """Returns the zone that a group's spec names; empty if it names none."""
    shape, node = (value_at(spec, "template", part) for part in ("shape", "node"))
    labels = (value_at(each, "labels") for each in (shape, value_at(node, "metadata")))
    named = (text_at(shape, "zone"), *(text_at(each, ZONE_LABEL) for each in labels))
    return next(filter(None, named), "")


def layouts_of(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, Layout]:
    """Returns the topology of each group that has a valid one, by the group's name."""
    layouts = dict[str, Layout]()
    for name, spec in specs.items():
        template = as_map(spec.get("template"))
        if "topology" in template:
            with suppress(ValidationError, TemplateError):
                layout = Layout.of(Template.model_validate(template), group=name)
                layouts |= {} if layout is None else {name: layout}
    return layouts


def _sources(scenario: Scenario) -> Iterator[tuple[Path, Sequence[ApplySource]]]:
    # Step by step: a step may apply an object that exists already, and change it.
    yield ("apply",), scenario.apply
    for number, kueue in scenario.kueues.items():
        yield ("processes", number, "kueue", "objects"), kueue.objects
    for number, step in enumerate(scenario.timeline):
        if step.apply is not None:
            yield ("timeline", number, "apply"), step.apply


def _read(files: Files, texts: Sequence[tuple[str, str]]) -> None:
    read = Files.read(texts)
    for name in Files.__dataclass_fields__:
        getattr(files, name).extend(getattr(read, name))


def _note(known: Known, files: Files) -> None:
    for each in files.groups:
        known.groups[each.name] = as_map(each.value.get("spec"))
    _note_places(known, files)
    known.node_pools |= {f.name for f in files.others if f.value.get("kind") == "NodePool"}
    known.pools |= {each.name for each in files.pools}
    known.objects |= {_key(each) for each in (*files.groups, *files.pools, *files.others)}
    known.pods |= any(each.value.get("kind") in _MAKES_PODS for each in files.others)
    # A provider config creates groups, and so do Cluster API's objects.
    foreign = any("cluster.x-k8s.io" in str(f.value.get("apiVersion")) for f in files.others)
    known.complete &= not files.configs and not foreign


def _note_places(known: Known, files: Files) -> None:
    """Adds the zones and NodePools that labels of nodes name to `known`. If a group copies its
    template from elsewhere, also notes there that more zones and NodePools may exist.
    """
    nodes: list[Mapping[str, Any]]
    nodes = [each.value for each in files.others if each.value.get("kind") == "Node"]
    for each in files.groups:
        template = as_map(as_map(each.value.get("spec")).get("template"))
        shape = as_map(template.get("shape"))
        known.zones_known &= template.get("from") is None
        known.node_pools_known &= template.get("from") is None
        nodes += [as_map(template.get("node")), {"metadata": shape}]
        known.zones |= {str(shape["zone"])} if "zone" in shape else set()
    for node in nodes:
        labels = as_map(as_map(node.get("metadata")).get("labels"))
        known.zones |= {str(labels[ZONE_LABEL])} if ZONE_LABEL in labels else set()
        known.node_pools |= {str(labels[NODE_POOL_LABEL])} if NODE_POOL_LABEL in labels else set()


def _key(item: FoundObject) -> Key:
    return str(item.value.get("kind")), item.identity[0], item.name
