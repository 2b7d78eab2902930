"""Checks Karpenter of a scenario: its CRDs, instance types and NodePools, before anything starts.

Whether Karpenter can make nodes from the groups is checked only if the files show all nodes of the
groups. It is checked again in any case when Karpenter is started (rehearsal/karpenterstart.py).
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from kwok_operator.errors import TemplateError
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.untyped import as_map
from kwok_operator.formats.words import names_in_words, shown
from kwok_operator.formats.yamltext import Document, Path, in_words
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.template import resolve
from kwok_operator.offline.files import Files, Finding, FoundObject
from kwok_operator.rehearsal.karpenter.crds import KarpenterCrds, KarpenterCrdsError
from kwok_operator.rehearsal.karpenter.groups import unheeded_changes
from kwok_operator.rehearsal.karpenter.instancetypes import InstanceType
from kwok_operator.rehearsal.karpenter.nodepools import (
    DEFAULT_CLASS,
    NODE_CLASS,
    NODE_POOL,
    delay_of,
)
from kwok_operator.rehearsal.karpenter.programs import embedded_crds, missing_gates, no_karpenter
from kwok_operator.rehearsal.karpenter.setup import (
    KarpenterSetupError,
    ignored,
    name_of,
    renamed,
    set_up,
    unlike_groups,
)
from kwok_operator.rehearsal.scenario.applied import Known, read_sources, zone_in
from kwok_operator.rehearsal.scenario.karpenter import CRDS_FOLDER, Karpenter
from kwok_operator.rehearsal.scenario.karpenterenv import GIVEN_VARIABLES
from kwok_operator.rehearsal.scenario.karpentertypes import InstanceTypesError, read_types
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.problems import problem
from kwok_operator.rehearsal.scenario.process import Starts
from kwok_operator.rehearsal.scenario.surroundings import Surroundings, UnusableReferenceError
from kwok_operator.schema.check import FieldProblem

_GROUP_WORDS: Final = frozenset({"kng", "kwoknodegroup", "kwoknodegroups"})


@dataclass(slots=True)
class KarpenterFindings:
    problems: list[FieldProblem] = field(default_factory=list)
    """The problems in the scenario itself."""
    findings: list[Finding] = field(default_factory=list)
    """The findings in files that it names, and in objects that it contains."""
    ignored: list[str] = field(default_factory=list)
    """Fields of the groups, and steps of the timeline, that have no effect on Karpenter's nodes."""
    unlike: list[str] = field(default_factory=list)
    """Sentences on how Karpenter's nodes differ from those of the groups."""
    unchecked: list[str] = field(default_factory=list)
    """What could not be checked without Karpenter's program."""


class KarpenterLook:
    """Checks the processes that are Karpenter. Reads their files in its constructor, before other
    files: the total size of files is limited, and the objects of an import may use it up.
    """

    def __init__(
        self, scenario: Scenario, document: Document, around: Surroundings, *, file: str
    ) -> None:
        self._scenario = scenario
        self._around = around
        self._result = KarpenterFindings()
        self._brought = [
            _Brought(
                wanted, ("processes", number, "karpenter"), document, around, file, self._result
            )
            for number, process in enumerate(scenario.processes)
            if (wanted := process.karpenter) is not None
        ]
        for each in self._brought:
            each.read()

    def at(self, known: Known) -> KarpenterFindings:
        """Does all checks, once it is known which groups exist."""
        result = self._result
        for brought in self._brought:
            self._check_process(brought.path, brought.wanted)
            known.zones_known &= brought.wanted.types_file is None
            brought.check(known)
            result.ignored += _ignored(brought.wanted, self._scenario, known)
            result.ignored += _comes_late(self._scenario, int(brought.path[1]), known)
            result.unlike += brought.unlike(known)
        return result

    def _check_process(self, path: Path, wanted: Karpenter) -> None:
        first, problems = self._brought[0].path, self._result.problems
        if path != first:
            sentence = f"there is one already, {in_words(first[:2])}, and both would take all pods"
            problems.append(problem(path, f"{sentence}; remove one"))
        problems += self._beside_cluster_autoscaler(path)
        if not self._around.own_cluster and wanted.types_file is not None:
            # Its pods stay on nodes with the label of a group, so that no other node takes them.
            sentence = "is a file; with --kubeconfig take groups, whose label its nodes must have"
            problems.append(problem((*path, "instanceTypesFrom"), sentence))
        (_, number, _) = path
        for name in self._scenario.processes[int(number)].env:
            if why := GIVEN_VARIABLES.get(name):
                problems.append(problem((*path[:2], "env", name), f"is {why}"))

    def _beside_cluster_autoscaler(self, path: Path) -> Iterator[FieldProblem]:
        """Yields a problem if both autoscalers run from the start, and both add nodes for the same
        pods.
        """
        (_, own, _) = path
        processes = self._scenario.processes
        if processes[int(own)].starts is Starts.BY_TIMELINE:
            return
        for each in processes:
            if each.cluster_autoscaler is not None and each.starts is not Starts.BY_TIMELINE:
                sentence = (
                    f"{each.name} is cluster-autoscaler, and both would add nodes for all pods"
                )
                yield problem(path, f"{sentence}; remove one, or give one starts: byTimeline")


@dataclass(slots=True)
class _Brought:
    """One Karpenter of the scenario, and what was read of its files: CRDs, instance types,
    objects.
    """

    wanted: Karpenter
    path: Path
    document: Document
    around: Surroundings
    file: str
    result: KarpenterFindings
    crds: KarpenterCrds | None = None
    types: list[InstanceType] | None = None
    """The instance types of a file; None if they are made from groups."""
    own: list[FoundObject] | None = None
    """The objects for the NodePools; None if they are made from groups, or not all known."""
    made: Sequence[InstanceType] = ()
    """The instance types that are made from groups, as far as files show them."""

    def read(self) -> None:
        self.types, self.own = self._types(), self._own()
        program = self.around.executable(self.wanted.binary)
        if why := no_karpenter(program):
            self._problem("binary", f"{shown(self.wanted.binary)} {why}")
        elif missing := missing_gates(program, self.wanted.gates_on):
            sentence = f"{names_in_words(missing)}: this version of Karpenter has no such gate"
            self._problem("featureGates", f"{sentence}; take it out, or name a later version")
        else:
            self.crds = self._crds(program)

    def check(self, known: Known) -> None:
        others_known, known.node_pools_known = known.node_pools_known, False
        own, crds = self.own, self.crds
        if own is not None and crds is not None:
            self.result.findings += self._wrong_objects(own, crds)
        for each in (*(own or ()), *known.of_karpenter):
            self.result.findings += self._without_gate(each)
        self._class_is_given_once(own or ())
        groups: dict[str, tuple[KwokNodeGroupSpec, Node]] | None = {}
        if self.types is None:
            groups = _groups(known)
        hidden = own is None and self.wanted.node_pools is not None
        if self.result.problems or self.result.findings or groups is None or hidden:
            return
        try:
            setup = set_up(
                groups,
                types=self.types,
                own=None if own is None else [each.value for each in own],
                disruption=self.wanted.disruption_of_pools,
                delay=self.wanted.node_class.registration_delay,
            )
        except KarpenterSetupError as error:
            given = "instanceTypesFrom" if own is None else "nodePools"
            self._problem(given, str(error))
            return
        self.made = setup.types if self.types is None else ()
        pools = (each for each in setup.objects if each.get("kind") == NODE_POOL)
        known.node_pools.update(map(name_of, pools))
        known.node_pools_known = others_known
        if own is None and crds is not None:
            self._check_made(setup.objects, crds)

    def _wrong_objects(self, own: Sequence[FoundObject], crds: KarpenterCrds) -> Iterator[Finding]:
        seen = set[tuple[str, str, str]]()
        for each in own:
            for wrong in crds.problems(each.value):
                yield each.finding(wrong.message, wrong.path)
            kind = str(each.value.get("kind"))
            if each.name and (kind, *each.identity) in seen:
                yield each.finding(f"{kind} {each.name} is there twice; keep one", ("metadata",))
            seen.add((kind, *each.identity))

    def _without_gate(self, each: FoundObject) -> Iterator[Finding]:
        needed = KarpenterCrds.gate_of(each.value)
        if needed is not None and needed[1] not in self.wanted.gates_on:
            what, gate = needed
            # `kind: NodeOverlay` reads as a sentence, and so does the path of a field.
            said = f"{what}{'' if ' ' in what else ':'} has no effect without the feature gate"
            remedy = f"add featureGates: {{{gate}: true}} to this karpenter"
            yield each.finding(f"{said} {gate}; {remedy}", ("kind",))

    def unlike(self, known: Known) -> list[str]:
        if self.types is not None:
            return ["takes its instance types from a file, not from groups"]
        delays = {self.wanted.node_class.registration_delay} - {None}
        for each in self.own or ():
            if each.value.get("kind") == NODE_CLASS:
                delays.add(delay_of(each.value))
        specs = _scaled(known) if known.complete else {}
        differences = unlike_groups(specs, delays=delays) if specs or delays else []
        return [*differences, *renamed(self.made)]

    def _check_made(self, objects: Sequence[Manifest], crds: KarpenterCrds) -> None:
        for made in objects:
            if problems := crds.problems(made):
                sentence = problems[0].message
                what = f"{made['kind']} {name_of(made)} would not be accepted: {sentence}"
                self._problem("crds", f"{what}; name CRDs of another version, or change it")
                return

    def _problem(self, name: str, sentence: str) -> None:
        self.result.problems.append(problem((*self.path, name), sentence))

    def _crds(self, program: bytes) -> KarpenterCrds | None:
        path = self.wanted.crds or self.around.beside(self.wanted.binary, CRDS_FOLDER)
        if path is None:
            if self.around.lacks(self.wanted.binary):
                what = "NodePools and Karpenter's other objects: its CRDs are not here; name crds"
                self.result.unchecked.append(what)
            return None
        try:
            material = self.around.material(path)
        except UnusableReferenceError as error:
            hint = "" if self.wanted.crds else "; its CRDs are sought there: crds names another"
            self._problem("crds", f"{shown(path)} {error}{hint}")
            return None
        files = Files.read(material.texts)
        self.result.findings += files.findings
        if files.findings or not material.complete:
            return None
        try:
            crds = KarpenterCrds.of(
                (each.value for each in files.others), gates=self.wanted.gates_on
            )
        except KarpenterCrdsError as error:
            self._problem("crds", f"{shown(path)} {error}")
            return None
        if unlike := crds.unlike(embedded_crds(program)):
            sentence = f"is of another version than this Karpenter: it {unlike}"
            self._problem("crds", f"{shown(path)} {sentence}; name the folder of its version")
        return crds

    def _types(self) -> list[InstanceType] | None:
        path = self.wanted.types_file
        if path is None:
            return None
        try:
            return read_types(self.around.text(path))
        except (UnusableReferenceError, InstanceTypesError) as error:
            self._problem("instanceTypesFrom", f"{shown(path)} {error}")
            return []

    def _own(self) -> list[FoundObject] | None:
        if self.wanted.node_pools is None:
            return None
        read = read_sources(
            self.wanted.node_pools,
            (*self.path, "nodePools"),
            self.document,
            self.around,
            file=self.file,
        )
        self.result.problems += read.problems
        self.result.findings += read.files.findings
        return [*read.files.others] if read.complete else None

    def _class_is_given_once(self, own: Sequence[FoundObject]) -> None:
        classes = [each.name for each in own if each.value.get("kind") == NODE_CLASS]
        if DEFAULT_CLASS in classes and self.wanted.node_class.registration_delay is not None:
            sentence = f"nodePools have the {NODE_CLASS} {DEFAULT_CLASS}, too; keep one of them"
            self._problem("nodeClass", sentence)


def _groups(known: Known) -> dict[str, tuple[KwokNodeGroupSpec, Node]] | None:
    """Returns all groups with their nodes; None if the files don't show all nodes."""
    if not known.complete:
        return None
    groups = {}
    for name, spec in _specs(known).items():
        if spec.autoscaling is not None and spec.template.source is not None:
            return None
        try:
            groups[name] = spec, resolve(spec.template, guard=spec.guard_taint)
        except TemplateError:  # reported when groups were checked
            return None
    return groups


def _specs(known: Known) -> dict[str, KwokNodeGroupSpec]:
    specs = {}
    for name, spec in known.groups.items():
        with suppress(ValidationError):  # reported when groups were checked
            specs[name] = KwokNodeGroupSpec.model_validate(spec)
    return specs


def _scaled(known: Known) -> dict[str, KwokNodeGroupSpec]:
    """Returns the groups that an autoscaler may scale."""
    return {n: spec for n, spec in _specs(known).items() if spec.autoscaling is not None}


def _is_of_group(what: str, known: Known, specs: Collection[str]) -> bool:
    """Whether `what`, as KIND/NAME, is a KwokNodeGroup that an autoscaler may scale: one of
    `specs`, or one that no file shows.
    """
    kind, _, name = what.partition("/")
    is_group = kind.lower().partition(".")[0] in _GROUP_WORDS
    return is_group and (name in specs or name not in known.groups)


def _comes_late(scenario: Scenario, number: int, known: Known) -> Iterator[str]:
    """Yields what the timeline changes in groups after Karpenter's instance types were made
    of them, which is too late.
    """
    specs, process = _scaled(known), scenario.processes[number]
    steps = [*enumerate(scenario.timeline)]
    if process.starts is Starts.BY_TIMELINE:
        first = next((n for n, step in steps if step.start == process.name), len(steps))
        steps = steps[first:]
    for n, step in steps:
        for name in known.later.get(n, ()):
            if name in specs:
                yield f"timeline[{n}].apply of KwokNodeGroup {name}"
        if step.patch is not None and _is_of_group(step.patch.what, known, specs):
            for path in unheeded_changes(as_map(step.patch.patch.get("spec"))):
                yield f"timeline[{n}].patch of {path}"
        target = step.scale or step.delete
        if target is not None and _is_of_group(target.what, known, specs):
            yield f"timeline[{n}].{step.action} of KwokNodeGroup {target.what.partition('/')[2]}"


def _ignored(wanted: Karpenter, scenario: Scenario, known: Known) -> Iterator[str]:
    specs = _scaled(known)
    yield from ignored(specs, delay_given=wanted.node_class.registration_delay is not None)
    outages = {n: step.outage for n, step in enumerate(scenario.timeline) if step.outage}
    for number, each in outages.items():
        if each.topology is not None:
            # Karpenter's nodes stand in no unit.
            yield f"timeline[{number}].outage.topology"
    outages = {n: each for n, each in outages.items() if each.topology is None}
    out = {each.group for each in outages.values()}
    pools = {each.pool for each in outages.values()} - {None}
    zones = {each.zone for each in outages.values()}
    for name, spec in specs.items():
        if zone_in(known.groups[name]) in zones:
            continue
        if name not in out and (spec.cloud is None or pools.isdisjoint(spec.cloud.capacity_pools)):
            # Karpenter's NodeClass is out of order only if all groups are.
            yield from (f"timeline[{number}].outage" for number in outages)
            return
